"""Sides of unequal size, judged at equal size: the larger one in random blocks, each against all of the smaller one.

Coverage and its kin depend on the ratio of the two sizes, and not only near perfection, where their null says how; in
blocks of equal size they hardly do (see `SIZE_SENSITIVE`).
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace

from torch import Tensor

from genpr.evaluation.scoring import ManifoldRecipe, ManifoldScore, RealManifolds
from genpr.evaluation.values import MetricValue
from genpr.features.feature_set import FeatureSet
from genpr.metrics.equal_blocks import equal_blocks
from genpr.metrics.progress import PairProgress
from genpr.metrics.registry import SIZE_SENSITIVE


class EqualisedManifolds:
    """The reals' balls; and where there are more or fewer fakes, also some metrics in blocks of equal size.

    Args:
        real: The reals.
        recipe: How neighbours are counted; its seed draws the blocks.
        progress: Called with the pairs of rows done with and their number.
    """

    def __init__(self, real: FeatureSet, recipe: ManifoldRecipe, progress: PairProgress) -> None:
        self._real = real
        self._whole = RealManifolds(real, recipe, progress)
        ks = {name: k for name, k in recipe.ks.items() if name in SIZE_SENSITIVE}
        self._of_blocks = replace(recipe, ks=ks, intervals=False, evidence=False)
        self._fitted: RealManifolds | None = None

    def score(self, fake: FeatureSet, progress: PairProgress) -> ManifoldScore:
        """Every metric of the sides as they are, and apart from them those in blocks."""
        recipe, n, m = self._of_blocks, len(self._real), len(fake)
        # A protocol that limits the rows takes equally many of both sides anyway.
        if n == m or not recipe.ks or recipe.protocol.max_rows is not None:
            return self._whole.score(fake, progress)
        size, larger = min(n, m), max(n, m)
        blocks = equal_blocks(larger, size, recipe.seed)
        whole = self._whole.score(fake, _part(progress, 0, 1 + len(blocks)))
        found = [
            self._block(fake, rows, _part(progress, at, 1 + len(blocks)))
            for at, rows in enumerate(blocks, start=1)
        ]
        role, plural = "reals" if n > m else "fakes", "s" if len(blocks) > 1 else ""
        variant = f"{len(blocks):,} random block{plural} of {size:,} of the {larger:,} {role}"
        of_blocks = {
            name: replace(_mean(known), n_counted=size, variant=variant)
            for name in recipe.ks
            if len(known := [value for values in found if (value := values[name]) is not None]) == len(found)
        }
        lacks = {name: lack for name, lack in whole.lacks.items() if name not in of_blocks}
        return replace(whole, lacks=lacks, of_blocks=of_blocks)

    def _block(
        self, fake: FeatureSet, rows: Tensor, progress: PairProgress
    ) -> Mapping[str, MetricValue | None]:
        """The values of one block of the larger side; as reals, it has balls of its own."""
        if len(fake) < len(self._real):
            block = self._real.select(rows)
            return RealManifolds(block, self._of_blocks, progress).score(fake, progress).values
        if self._fitted is None:
            self._fitted = RealManifolds(self._real, self._of_blocks, progress)
        return self._fitted.score(fake.select(rows), progress).values


def _part(progress: PairProgress, at: int, parts: int) -> PairProgress:
    """For one of several searches, that count as equally long."""
    return lambda done, total: progress(at * total + done, parts * total)


def _mean(found: Sequence[MetricValue]) -> MetricValue:
    """Of the values of all blocks, with their spread if there are several; nulls and exact values likewise."""
    values = [each.value for each in found]
    mean = replace(
        found[0],
        value=statistics.fmean(values),
        null=_mean_of([each.null for each in found]),
        exact_value=_mean_of([each.exact_value for each in found]),
    )
    if len(found) == 1:
        return mean
    return replace(mean, spread=statistics.stdev(values), spread_over="blocks of equal size")


def _mean_of(numbers: Sequence[float | None]) -> float | None:
    known = [number for number in numbers if number is not None]
    return statistics.fmean(known) if len(known) == len(numbers) else None
