"""Near-copies: whether two pictures are one, re-encoded, resized, recolored, mirrored or shifted a little.

Features tell which pictures are worth comparing; near each other in features lie copies, but also two pictures of plain
sky. Copies agree in detail, too: in what is left of a small picture when its own blur is subtracted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from genpr.evaluation.per_image import PerImageScores
from genpr.metrics.samples import nearest_others
from genpr.report.gallery import Gallery, ImageLoader, Picture, Pixels
from genpr.report.selections import beside_nearest

_EDGE = 32  # pixels of the compared pictures
_SHIFT = 2  # pixels of these that a copy may be moved by
LEAST_DETAIL, _LEAST_WHOLE = 0.6, 0.8
"""Pairs of CIFAR-10 that agree so far are visibly the same picture."""

Gray = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Similarity:
    """How far two pictures agree, at the shift at which they agree best.

    Attributes:
        detail: Correlation of the fine structure of their brightness, -1 to 1; 0 if either has none.
        whole: Correlation of brightness and colors.
        is_mirrored: Whether one of them had to be mirrored.
    """

    detail: float
    whole: float
    is_mirrored: bool

    @property
    def agreement(self) -> float:
        """The smaller of both correlations."""
        return min(self.detail, self.whole)

    @property
    def is_same(self) -> bool:
        """Whether they look like one picture."""
        return self.detail >= LEAST_DETAIL and self.whole >= _LEAST_WHOLE


def similarity(one: Pixels, other: Pixels) -> Similarity:
    """How far two pictures agree.

    Args:
        one: (h, w, 3) uint8.
        other: Likewise, of any size.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> one, other = rng.integers(0, 256, (2, 32, 32, 3), dtype=np.uint8)
        >>> similarity(one, other).is_same, similarity(one, one[:, ::-1] // 2).is_same
        (False, True)
    """
    images = (Image.fromarray(each).resize((_EDGE, _EDGE), Image.Resampling.BOX) for each in (one, other))
    a, b = (np.asarray(image, dtype=np.float64) for image in images)
    plain, mirrored = _best(a, b, is_mirrored=False), _best(a, b[:, ::-1], is_mirrored=True)
    return mirrored if mirrored.detail > plain.detail else plain


def _best(a: Gray, b: Gray, *, is_mirrored: bool) -> Similarity:
    """Over all shifts, without the margin that a shift leaves open; the smallest shift wins ties."""
    detail, other = _detail(a), _detail(b)
    offsets = range(-_SHIFT, _SHIFT + 1)
    shifts = sorted(product(offsets, offsets), key=lambda shift: abs(shift[0]) + abs(shift[1]))
    middle = _window(0, 0)
    best = max(shifts, key=lambda shift: _correlation(detail[middle], other[_window(*shift)]))
    window = _window(*best)
    whole = _correlation(a[middle], b[window])
    return Similarity(_correlation(detail[middle], other[window]), whole, is_mirrored)


def _window(dy: int, dx: int) -> tuple[slice, slice]:
    return slice(_SHIFT + dy, _EDGE - _SHIFT + dy), slice(_SHIFT + dx, _EDGE - _SHIFT + dx)


def _detail(small: Gray) -> Gray:
    """Brightness (h, w) without its mean over 3 x 3 pixels."""
    gray: Gray = small.mean(axis=2)
    padded = np.pad(gray, 1, mode="edge")
    rows = padded[:-2] + padded[1:-1] + padded[2:]
    detail: Gray = gray - (rows[:, :-2] + rows[:, 1:-1] + rows[:, 2:]) / 9
    return detail


def _correlation(a: Gray, b: Gray) -> float:
    a, b = a - a.mean(), b - b.mean()
    scale = np.sqrt(np.square(a).sum() * np.square(b).sum())
    return float((a * b).sum() / scale) if scale > 0 else 0.0


_CANDIDATES = 400  # pairs whose pixels are compared
_MOST = 100  # of them that are shown
_USUAL = 200  # pairs of reals that show how far different pictures agree


def copy_candidates(scores: PerImageScores) -> list[Picture]:
    """Fakes that may be copies, each with its nearest real, the most likely first.

    A fake is near to a real if it is much nearer than that real's own nearest other real, or, should that one lie far from
    all others, than reals usually are.
    """
    real, fake = scores.real, scores.fake
    scale = np.minimum(real.other_distance[fake.nearest_real], float(np.median(real.other_distance)))
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(fake.nearest_real_distance == 0, 0.0, fake.nearest_real_distance / scale)
    return [beside_nearest(scores, row) for row in np.argsort(ratio, kind="stable")[:_CANDIDATES].tolist()]


def usual_pairs(scores: PerImageScores) -> list[Picture]:
    """Some reals, each beside its nearest other real, to measure how far pictures agree that are no copies."""
    features, names = scores.sides[0].features, scores.real.names
    rng = np.random.default_rng(scores.result.seed)
    rows = torch.from_numpy(rng.permutation(len(features))[:_USUAL])
    pairs = zip(rows.tolist(), nearest_others(features, rows).tolist(), strict=True)
    return [Picture(("real", a), names[a], ("real", b), names[b]) for a, b in pairs]


def near_copies(candidates: Sequence[Picture], usual: Sequence[Picture], loader: ImageLoader) -> Gallery:
    """Fakes that are copies by their pixels, the most similar first.

    Two pictures are one if they look like it, and agree more than reals do that are nearest to each other: drawings and
    portraits all agree to some degree.

    Args:
        candidates: As `copy_candidates` gives them.
        usual: As `usual_pairs` gives them.
        loader: Has read the images of both, as far as that was possible.
    """
    found = [(each, agreed) for each in candidates if (agreed := _similarity(each, loader)) is not None]
    least = _least_agreement([agreed for each in usual if (agreed := _similarity(each, loader)) is not None])
    alike = [(each, agreed) for each, agreed in found if agreed.is_same and agreed.agreement >= least]
    alike.sort(key=lambda pair: -pair[1].agreement)
    pictures = []
    for picture, agreed in alike[:_MOST]:
        caption = f"{picture.caption}: agreement {agreed.agreement:.3f}{', mirrored' * agreed.is_mirrored}"
        pictures.append(replace(picture, caption=caption))
    sentence = "Pixels could not be compared, since that needs the images of both sets."
    if found:
        sentence = (
            f"Of the {len(found):,} fakes that are nearest to a real image, {len(alike):,} show the same picture by their "
            "pixels, perhaps re-encoded, recolored, mirrored or shifted a little."
        )
        sentence += (
            f" Different pictures of this set agree well, so at least {least:.2f} is required." * bool(least)
        )
        sentence += " Data sets contain repeats, so a few such pairs do not prove copying." * bool(alike)
    return Gallery("Near-copies of real images", sentence, tuple(pictures), len(alike) - len(pictures))


def _similarity(picture: Picture, loader: ImageLoader) -> Similarity | None:
    """None where one of both images could not be read."""
    one, other = (loader.pixels.get(ref) for ref in picture.refs)
    return None if one is None or other is None else similarity(one, other)


def _least_agreement(usual: Sequence[Similarity]) -> float:
    """Four standard deviations above the median of what is usual, on Fisher's scale; 0 where that is below 0.6.

    The deviation is estimated from the median and the 84th percentile, which copies within the real set do not reach.
    """
    if not usual:
        return 0.0
    limit = 1 - 1e-6
    scale = np.arctanh(np.clip([each.agreement for each in usual], -limit, limit))
    median, upper = np.quantile(scale, [0.5, 0.84])
    least = float(np.tanh(median + 4.0 * (upper - median)))
    return least if least > LEAST_DETAIL else 0.0
