"""The map of a page: both sets on their two principal components, a mark per image with its picture."""

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
from genpr.report.text import capital, shown

if TYPE_CHECKING:
    from genpr.metrics.projection import Projection

_WIDTH, _LEAST_HEIGHT, _MOST_HEIGHT, _MARGIN = 800, 260, 640, 14  # units of the drawing
_LONGEST = 160  # characters of a caption: there are two thousand of them
_TILE, _BLOCK = 48, 16  # pixels; JPEG mixes colors within blocks, so that a tile is made of whole ones
_QUALITIES, _MOST_SHEET = (80, 60, 40), 2_500_000  # the first that stays below so many bytes
_GRAY = (128, 128, 128)  # beside a picture that is not square, in light and in dark
_FRAME, _REAL, _FAKE = 3000, 95, 120  # bytes around all marks and around each


@dataclass(frozen=True, slots=True)
class MapPoint:
    """One image on the map.

    Attributes:
        x: To the right, in units of the drawing.
        y: Down.
        is_real: Its set.
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
    """A map, drawn but for its colors.

    Attributes:
        points: Later ones are drawn over earlier ones; reals and fakes alternate, so that neither hides the other.
        width: Of the drawing; height is in the same units.
        height: As both axes have one scale, what the points need.
        axes: What goes to the right and what goes up.
        n_real: Points of reals.
        n_fake: Points of fakes.
        sentence: What is shown, and what is not.
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
        """At most so many bytes in the page."""
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
        thumbnails: (h, w, 3) uint8 pixels by index of the point, 0 to p - 1, where there are any; larger ones than 48
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
    given = thumbnails or {}
    _check(len(projection.places), names, given)
    pictures = [given[index] for index in sorted(given)]
    tiles = {index: tile for tile, index in enumerate(sorted(given))}
    x, y, height = _positions(projection.places)
    is_real = projection.is_real
    order = np.empty(len(is_real))  # reals and fakes spread evenly
    for one_set in (is_real, ~is_real):
        order[one_set] = (np.arange(one_set.sum()) + 0.5) / max(1, one_set.sum())
    points = [
        MapPoint(
            float(x[index]),
            float(y[index]),
            bool(is_real[index]),
            shown(names[index], longest=_LONGEST),
            tiles.get(index),
        )
        for index in np.argsort(order, kind="stable").tolist()
    ]
    first, second = (f"{100 * share:.1f} % of the variance" for share in projection.explained)
    largest = max((max(pixels.shape[:2]) for pixels in pictures), default=_TILE)
    edge = min(_TILE, math.ceil(largest / _BLOCK) * _BLOCK)
    columns = max(1, math.ceil(len(pictures) ** 0.5))
    return SetMap(
        points=tuple(points),
        width=_WIDTH,
        height=height,
        axes=(f"first principal component, {first}", f"second principal component, {second}"),
        n_real=int(is_real.sum()),
        n_fake=int((~is_real).sum()),
        sentence=_sentence(projection),
        sheet=_sheet(pictures, edge, columns) if pictures else None,
        tile=edge,
        columns=columns,
    )


def _check(count: int, names: Sequence[str], thumbnails: Mapping[int, Any]) -> None:
    """Refuse names and thumbnails that do not belong to the points."""
    if len(names) != count:
        raise UsageError(
            f"a map of {count:,} points needs {count:,} names, not {len(names):,}", code="bad-option"
        )
    for index, pixels in thumbnails.items():
        shape = tuple(getattr(pixels, "shape", ()))
        if not 0 <= index < count:
            text = f"thumbnails are by index of the point, 0 to {count - 1}, not {index!r}; is that a row?"
            raise UsageError(text, code="bad-option")
        if len(shape) != 3 or shape[2] != 3 or 0 in shape or pixels.dtype != np.uint8:
            found = f"{getattr(pixels, 'dtype', type(pixels).__name__)} of shape {shape}"
            raise UsageError(
                f"a thumbnail is (h, w, 3) uint8, and that of point {index} is {found}", code="bad-option"
            )


def _positions(places: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64], int]:
    """(p,) to the right, (p,) down, and the height of the drawing, rounded to a tenth of a unit."""
    low, high = places.min(axis=0), places.max(axis=0)
    span = high - low
    room = np.array([_WIDTH, _MOST_HEIGHT]) - 2 * _MARGIN
    scale = min((room[axis] / span[axis] for axis in (0, 1) if span[axis] > 0), default=0.0)
    height = max(_LEAST_HEIGHT, math.ceil(span[1] * scale) + 2 * _MARGIN)
    moved = (places - (low + high) / 2) * scale
    return (_WIDTH / 2 + moved[:, 0]).round(1), (height / 2 - moved[:, 1]).round(1), height


def _sentence(projection: Projection) -> str:
    n_real = int(projection.is_real.sum())
    sets = (
        (n_real, projection.n_real, "reals"),
        (len(projection.is_real) - n_real, projection.n_fake, "fakes"),
    )
    counts = " and ".join(
        f"{some:,} of {total:,} {name} drawn at random" if some < total else f"all {total:,} {name}"
        for some, total, name in sets
    )
    return (
        f"{capital(counts)}, on the two directions in which both sets together vary most, on one scale. "
        f"These hold {100 * projection.explained.sum():.1f} % of the variance, and all other directions are hidden: "
        "images that overlap here may be far apart. Judge by the numbers, not by this map."
    )


def _sheet(pictures: Sequence[NDArray[np.uint8]], edge: int, columns: int) -> bytes:
    """All pictures as one JPEG file, each in the middle of its tile."""
    from PIL import Image

    sheet = Image.new("RGB", (columns * edge, math.ceil(len(pictures) / columns) * edge), _GRAY)
    for index, pixels in enumerate(pictures):
        image = Image.fromarray(pixels)
        image.thumbnail((edge, edge), Image.Resampling.LANCZOS)
        row, column = divmod(index, columns)
        left, top = (edge - image.width) // 2, (edge - image.height) // 2
        sheet.paste(image, (column * edge + left, row * edge + top))
    data = b""
    for quality in _QUALITIES:
        buffer = io.BytesIO()
        sheet.save(buffer, "JPEG", quality=quality, optimize=True)
        data = buffer.getvalue()
        if len(data) <= _MOST_SHEET:
            break
    return data
