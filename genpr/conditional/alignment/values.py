"""Numbers of alignment, each with interval, chance and pool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from genpr.conditional.alignment.asked import Asked, Counts
from genpr.metrics.halved import LEAST_UNITS, halved
from genpr.metrics.progress import PairProgress
from genpr.metrics.retrieval.ranking import RankingMetrics, ranking_metrics
from genpr.metrics.retrieval.similarities import FeaturePairs
from genpr.metrics.retrieval.unit_pools import most_distractors, unit_pools
from genpr.metrics.uncertainty import interval_of
from genpr.metrics.value import MetricValue

CUTS = (1, 5, 10)
SHOWN = ("r_precision", *(f"hit_{cut}" for cut in CUTS), "mrr", "ndcg", "map")
_CLIP_SCORE = "alignment.clip_score"
_SCALE = 2.5  # Hessel et al. 2021: so that usual values fill 0 to 1


@dataclass(frozen=True)
class Direction:
    """Rankings one way: images rank texts, or texts rank images.

    Attributes:
        metrics: Of all queries.
        pools: (q, p), in the order of the queries as they are given.
        distractors: How many of each pool are drawn.
    """

    metrics: RankingMetrics
    pools: Counts
    distractors: int

    @property
    def pool(self) -> int:
        """Candidates of a query, at most."""
        return self.metrics.pool[1] if self.metrics.pool else 0


def rankings(
    queries: Tensor,
    candidates: Tensor,
    relevant: Sequence[Sequence[int]],
    units: tuple[Counts, Counts],
    *,
    grades: Sequence[Sequence[float]] | None = None,
    distractors: int,
    seed: int,
    device: torch.device,
    progress: PairProgress | None = None,
) -> Direction:
    """Each query ranks what is relevant to it among distractors of other units.

    Queries are taken unit by unit, so that halves of two results on the same prompts are of the same prompts.

    Args:
        queries: (q, d) features.
        candidates: (c, d) features.
        relevant: Candidates that are relevant to each query.
        units: Of queries (q,) and of candidates (c,).
        grades: Of relevance, in the shape of `relevant`; None if all are 1.
        distractors: For each query; fewer where there are not so many.
        seed: Chooses them, and the halves of intervals.
        device: Where features are compared.
        progress: Called with the pairs that are done with and their number.
    """
    count = min(distractors, most_distractors(*units))
    order = np.argsort(units[0], kind="stable")
    ordered = [relevant[row] for row in order]
    pools = unit_pools(ordered, units[0][order], units[1], distractors=count, seed=seed)
    least = count + min(map(len, ordered))
    metrics = ranking_metrics(
        (queries[torch.from_numpy(order)], candidates),
        ordered,
        ks=[cut for cut in CUTS if cut < least],
        relevance=None if grades is None else [grades[row] for row in order],
        pools=pools,
        groups=units[0][order].tolist(),
        seed=seed,
        device=device,
        progress=progress,
    )
    back = np.empty_like(pools)
    back[order] = pools
    return Direction(metrics, back, count)


def named_values(
    direction: Direction, prefix: str, *, extractor: str, variant: str | None
) -> tuple[dict[str, MetricValue], list[str]]:
    """Metrics of one direction by their full names, and the names of those that say nothing with so few candidates."""
    values: dict[str, MetricValue] = {}
    undefined = []
    for short in SHOWN:
        name = f"retrieval.{prefix}{short}"
        found = direction.metrics.get(short)
        if found is None or found.value is None:
            undefined.append(name)
            continue
        values[name] = MetricValue(
            found.value,
            None,
            extractor=extractor,
            variant=variant,
            interval=None if found.interval is None else (found.interval.low, found.interval.high),
            replicates=None if found.replicates is None else tuple(found.replicates.tolist()),
            n_counted=found.n,
            chance=found.chance,
            pool=direction.pool,
        )
    return values, undefined


def clip_score(
    asked: Asked, similarity: FeaturePairs, *, seed: int, extractor: str, variant: str | None
) -> Mapping[str, MetricValue]:
    """CLIPScore without references: 2.5 max(cos, 0) of image and prompt, averaged over an image's prompts, then over images."""
    image, text = asked.pairs
    cosine = similarity.exact(torch.from_numpy(image), torch.from_numpy(text)).cpu().numpy()
    count = np.bincount(image)
    of_image = np.bincount(image, _SCALE * np.maximum(cosine, 0.0)) / count
    value = float(of_image.mean())
    interval, replicates = _interval(value, of_image, asked.unit_of_image, seed)
    return {
        _CLIP_SCORE: MetricValue(
            value,
            None,
            extractor=extractor,
            variant=variant,
            interval=interval,
            replicates=replicates,
            n_counted=len(of_image),
        )
    }


def _interval(
    value: float, of_image: NDArray[np.float64], unit: Counts, seed: int
) -> tuple[tuple[float, float] | None, tuple[float, ...] | None]:
    """Over units, which are drawn whole; None of either for fewer than 10."""
    unit = np.unique(unit, return_inverse=True)[1]
    n = int(unit.max()) + 1
    if n < LEAST_UNITS:
        return None, None
    both = torch.from_numpy(np.stack([np.bincount(unit, of_image), np.bincount(unit)], axis=1))

    def means(weights: Tensor) -> Tensor:
        total = weights @ both
        return total[:, 0] / total[:, 1]

    replicates = halved(means, n, seed=seed)
    interval = interval_of(value, replicates, n=n, upper=None)
    return (interval.low, min(interval.high, _SCALE)), tuple(replicates.tolist())
