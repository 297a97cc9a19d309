"""The map of a page: both sets on their two principal components, a mark per image, the picture of each at hand."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from genpr.errors import UsageError
from genpr.report.safe_text import shown

if TYPE_CHECKING:
    from PIL.Image import Image

    from genpr.metrics.projection import Projection

_WIDTH, _LEAST_HEIGHT, _MOST_HEIGHT, _MARGIN = 800, 260, 640, 14  # units of the drawing
_LONGEST = 160  # characters of a caption: there are two thousand of them
_TILE, _BLOCK = 48, 16  # pixels; JPEG mixes colours within blocks, so that a tile is made of whole ones
_QUALITIES, _MOST_SHEET = (80, 60, 40), 2_500_000  # the first that stays below so many bytes
_GREY = (128, 128, 128)  # beside a picture that is not square, in light and in dark
_FRAME, _REAL, _FAKE = 3000, 95, 120  # bytes around all marks and around each


@dataclass(frozen=True, slots=True)
class MapPoint:
    """One image on the map.

    Attributes:
        x: To the right, in units of the drawing.
        y: Down.
        is_real: Its side.
        caption: What it is, safe to show.
        tile: Which tile of the sheet is its picture; None if it has none.
    """

    x: float
    y: float
    is_real: bool
    caption: str
    tile: int | None


@dataclass(frozen=True, slots=True)
class SetMap:
    """A map, drawn but for its colours.

    Attributes:
        points: Later ones are drawn over earlier ones; the sides take turns, so that neither hides the other.
        width: Of the drawing; height is in the same units.
        height: As both axes have one scale, what the points need.
        axes: What goes to the right and what goes up.
        n_real: Points of reals.
        n_fake: Points of fakes.
        sentence: What is seen, and what is not.
        sheet: All pictures as one JPEG file of square tiles, row by row; None if there is none.
        tile: Pixels of a tile's edge.
        columns: Tiles in a row of the sheet.
    """

    points: tuple[MapPoint, ...]
    width: int
    height: int
    axes: tuple[str, str]
    n_real: int
    n_fake: int
    sentence: str
    sheet: bytes | None = None
    tile: int = _TILE
    columns: int = 1

    @property
    def size(self) -> int:
        """Bytes that it takes in the page, or a few more."""
        sheet = 0 if self.sheet is None else 4 * ((len(self.sheet) + 2) // 3)
        captions = sum(len(escape(point.caption).encode()) for point in self.points)
        return _FRAME + sheet + captions + _REAL * self.n_real + _FAKE * self.n_fake

    def without_pictures(self) -> SetMap:
        """The same map with captions only."""
        points = tuple(replace(point, tile=None) for point in self.points)
        return replace(self, points=points, sheet=None)


def set_map(
    projection: Projection, names: Sequence[str], thumbnails: Mapping[int, NDArray[np.uint8]] | None = None
) -> SetMap:
    """The map of a projection.

    Args:
        projection: Of `genpr.metrics.projection.project`.
        names: (p,) what to call the image of each point, such as its file name, whatever that holds.
        thumbnails: (h, w, 3) uint8 pixels by number of the point, 0 to p - 1, where there are any; larger ones than 48
            pixels are made smaller.

    Raises:
        UsageError: There is not one name per point, or a thumbnail is no such picture or of no point ("bad-option").

    Example:
        >>> from genpr.metrics.projection import project
        >>> rng = np.random.default_rng(0)
        >>> points = project(rng.normal(size=(9, 4)), rng.normal(size=(5, 4)))
        >>> drawn = set_map(points, [f"{row}.png" for row in points.rows], {13: np.zeros((32, 32, 3), np.uint8)})
        >>> drawn.n_real, drawn.n_fake, drawn.tile, drawn.height <= drawn.width
        (9, 5, 32, True)
    """
    pictures = _checked(projection, names, thumbnails or {})
    x, y, height = _drawn(projection.places)
    tiles = {number: tile for tile, number in enumerate(pictures)}
    points = [
        MapPoint(
            x=float(x[number]),
            y=float(y[number]),
            is_real=bool(projection.is_real[number]),
            caption=shown(names[number], longest=_LONGEST),
            tile=tiles.get(number),
        )
        for number in _taking_turns(projection.is_real)
    ]
    shares = [f"{100 * share:.1f} % of the variance" for share in projection.explained]
    edge = _edge(pictures.values())
    columns = math.ceil(len(pictures) ** 0.5)
    return SetMap(
        points=tuple(points),
        width=_WIDTH,
        height=height,
        axes=(f"first principal component, {shares[0]}", f"second principal component, {shares[1]}"),
        n_real=int(projection.is_real.sum()),
        n_fake=int((~projection.is_real).sum()),
        sentence=_sentence(projection),
        sheet=_sheet(list(pictures.values()), edge, columns) if pictures else None,
        tile=edge,
        columns=max(1, columns),
    )


def _checked(
    projection: Projection, names: Sequence[str], thumbnails: Mapping[int, NDArray[np.uint8]]
) -> dict[int, NDArray[np.uint8]]:
    """The thumbnails in the order of their points.

    Raises:
        UsageError: They or the names do not belong to the points.
    """
    count = len(projection.places)
    if len(names) != count:
        raise UsageError(
            f"a map of {count:,} points needs a name for each, and {len(names):,} came", code="bad-option"
        )
    for number, given in thumbnails.items():
        if not 0 <= number < count:
            raise UsageError(
                f"thumbnails are by point, 0 to {count - 1}, and one is of {number!r}; is that a row?",
                code="bad-option",
            )
        pixels: Any = given
        form = tuple(getattr(pixels, "shape", ()))
        if len(form) != 3 or form[2] != 3 or 0 in form or pixels.dtype != np.uint8:
            raise UsageError(
                f"a thumbnail is (h, w, 3) uint8, and that of point {number} is "
                f"{getattr(pixels, 'dtype', type(pixels).__name__)} of shape {form}",
                code="bad-option",
            )
    return {int(number): thumbnails[number] for number in sorted(thumbnails)}


def _drawn(places: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64], int]:
    """(p,) to the right, (p,) down, and the height of the drawing; a tenth of a unit cannot be seen."""
    low, high = places.min(axis=0), places.max(axis=0)
    span = high - low
    room = np.array([_WIDTH, _MOST_HEIGHT]) - 2 * _MARGIN
    scale = min((room[axis] / span[axis] for axis in (0, 1) if span[axis] > 0), default=0.0)
    height = max(_LEAST_HEIGHT, math.ceil(span[1] * scale) + 2 * _MARGIN)
    moved = (places - (low + high) / 2) * scale
    return (_WIDTH / 2 + moved[:, 0]).round(1), (height / 2 - moved[:, 1]).round(1), height


def _taking_turns(is_real: NDArray[np.bool_]) -> list[int]:
    """Numbers of the points, both sides spread evenly."""
    turn = np.empty(len(is_real))
    for side in (is_real, ~is_real):
        turn[side] = (np.arange(side.sum()) + 0.5) / max(1, side.sum())
    order: list[int] = np.argsort(turn, kind="stable").tolist()
    return order


def _sentence(projection: Projection) -> str:
    drawn = int(projection.is_real.sum())
    sides = (
        (drawn, projection.n_real, "reals"),
        (len(projection.is_real) - drawn, projection.n_fake, "fakes"),
    )
    counts = " and ".join(
        f"{some:,} of {total:,} {name} drawn at random" if some < total else f"all {total:,} {name}"
        for some, total, name in sides
    )
    return (
        f"{counts[0].upper()}{counts[1:]}, on the two directions in which both sets together vary most, on one scale. "
        f"These hold {100 * projection.explained.sum():.1f} % of the variance, and all other directions are hidden: "
        "images that overlap here may be far apart. Judge by the numbers, not by this map."
    )


def _edge(pictures: Any) -> int:  # noqa: ANN401 - the values of a dict
    largest = max((max(pixels.shape[:2]) for pixels in pictures), default=_TILE)
    return min(_TILE, math.ceil(largest / _BLOCK) * _BLOCK)


def _sheet(pictures: Sequence[NDArray[np.uint8]], edge: int, columns: int) -> bytes:
    """All pictures as one JPEG file, each in the middle of its tile."""
    from PIL import Image

    sheet = Image.new("RGB", (columns * edge, math.ceil(len(pictures) / columns) * edge), _GREY)
    for place, pixels in enumerate(pictures):
        image = Image.fromarray(pixels)
        image.thumbnail((edge, edge), Image.Resampling.LANCZOS)
        row, column = divmod(place, columns)
        sheet.paste(
            image, (column * edge + (edge - image.width) // 2, row * edge + (edge - image.height) // 2)
        )
    return _jpeg(sheet)


def _jpeg(sheet: Image) -> bytes:
    data = b""
    for quality in _QUALITIES:
        buffer = io.BytesIO()
        sheet.save(buffer, "JPEG", quality=quality, optimize=True)
        data = buffer.getvalue()
        if len(data) <= _MOST_SHEET:
            break
    return data
