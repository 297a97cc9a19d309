"""Rank prompts by images and images by prompts, and compute metrics of these rankings and the CLIPScore.

Images and texts that belong together form a unit, and never compete. Units are also what is drawn for intervals.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from genpr.conditional.prompts import Captions
from genpr.metrics.copy_detection import MicroAP
from genpr.metrics.halved import LEAST_UNITS, halved
from genpr.metrics.ranking import RankingMetrics, most_distractors, ranking_metrics, unit_pools
from genpr.metrics.ranking_values import QueryMetric
from genpr.metrics.real_manifold import PairProgress
from genpr.metrics.similarity import FeaturePairs
from genpr.metrics.uncertainty import interval_of
from genpr.metrics.value import MetricValue
from genpr.unicode_forms import normalize

Counts = NDArray[np.int64]

_CUTS = (1, 5, 10)
_METRICS = ("r_precision", *(f"hit_{cut}" for cut in _CUTS), "mrr", "ndcg", "map")
_CLIP_SCALE = 2.5  # Hessel et al. 2021: so that usual values fill 0 to 1
_PAIRS = 2**18  # compared at once


@dataclass(frozen=True)
class PromptAssignment:
    """Which of t different texts belong to each of n images.

    Images that share a text, texts of one image and texts of one group form a unit. Units are drawn independently, and only
    texts and images of different units compete.

    Attributes:
        texts: Different ones, in the order of their characters; texts that differ only in spaces are the same.
        of_image: The texts of each image, as indices of `texts`.
        grades: How well each of them fits.
        unit_of_text: (t,) int64, units numbered by their first text.
        unit_of_image: (n,) int64.
    """

    texts: tuple[str, ...]
    of_image: tuple[tuple[int, ...], ...]
    grades: tuple[tuple[float, ...], ...]
    unit_of_text: Counts
    unit_of_image: Counts

    @classmethod
    def of(cls, captions: Sequence[Captions]) -> PromptAssignment:
        """The assignment of the prompts of n images."""
        texts = sorted({normalize_prompt(prompt.text) for each in captions for prompt in each})
        index = {text: number for number, text in enumerate(texts)}
        rows = [
            {index[normalize_prompt(prompt.text)]: prompt.relevance for prompt in each} for each in captions
        ]
        unit = _units(captions, rows, index)
        return cls(
            tuple(texts),
            tuple(tuple(row) for row in rows),
            tuple(tuple(row.values()) for row in rows),
            unit,
            np.array([unit[next(iter(row))] for row in rows], dtype=np.int64),
        )

    @property
    def n_units(self) -> int:
        """Units."""
        return int(self.unit_of_text.max()) + 1

    @property
    def is_graded(self) -> bool:
        """Whether some texts fit their image better than others do."""
        return len({grade for row in self.grades for grade in row}) > 1

    @property
    def pairs(self) -> tuple[Counts, Counts]:
        """The image and the text of each pair of them, (p,) int64, image by image."""
        counts = [len(row) for row in self.of_image]
        flat = [text for row in self.of_image for text in row]
        return np.repeat(np.arange(len(counts)), counts), np.array(flat, dtype=np.int64)

    @property
    def content(self) -> str:
        """sha256 over the texts of all images, whatever the order of the images."""
        rows = sorted("\n".join(self.texts[text] for text in row) for row in self.of_image)
        return hashlib.sha256("\0".join(rows).encode("utf-8", "surrogatepass")).hexdigest()


def normalize_prompt(text: str) -> str:
    """A text in one Unicode form, with single spaces.

    Example:
        >>> normalize_prompt("  a   cat ")
        'a cat'
    """
    return " ".join(normalize("NFC", text).split())


def _units(captions: Sequence[Captions], rows: Sequence[dict[int, float]], index: dict[str, int]) -> Counts:
    """The unit of each text: texts that an image or a group joins, directly or through others, are one unit."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    pairs, first_of_group = [], dict[str, int]()
    for each, row in zip(captions, rows, strict=True):
        first = next(iter(row))
        pairs += [(first, text) for text in row]
        for prompt in each:
            if prompt.group is not None:
                text = index[normalize_prompt(prompt.text)]
                pairs.append((first_of_group.setdefault(prompt.group, text), text))
    one, other = np.array(pairs, dtype=np.int32).T  # older SciPy takes no 64-bit indices
    graph = coo_array((np.ones(len(pairs), dtype=bool), (one, other)), shape=(len(index), len(index)))
    component = connected_components(graph, directed=False)[1]
    first_text = np.unique(component, return_index=True)[1][component]
    return np.unique(first_text, return_inverse=True)[1].astype(np.int64)


@dataclass(frozen=True)
class PoolRanking:
    """Rankings in one direction: images rank texts, or texts rank images.

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
        """Most candidates of a query."""
        return self.metrics.pool[1] if self.metrics.pool else 0


def rank_pools(
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
) -> PoolRanking:
    """Let each query rank what is relevant to it among distractors of other units.

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
        progress: Called with the pairs that are done and their number.
    """
    count = min(distractors, most_distractors(*units))
    order = np.argsort(units[0], kind="stable")
    ordered = [relevant[row] for row in order]
    pools = unit_pools(ordered, units[0][order], units[1], distractors=count, seed=seed)
    least = count + min(map(len, ordered))
    metrics = ranking_metrics(
        (queries[torch.from_numpy(order)], candidates),
        ordered,
        ks=[cut for cut in _CUTS if cut < least],
        relevance=None if grades is None else [grades[row] for row in order],
        pools=pools,
        groups=units[0][order].tolist(),
        seed=seed,
        device=device,
        progress=progress,
    )
    unordered = np.empty_like(pools)
    unordered[order] = pools
    return PoolRanking(metrics, unordered, count)


def ranking_values(
    ranking: PoolRanking, prefix: str, *, extractor: str, variant: str | None
) -> tuple[dict[str, MetricValue], list[str]]:
    """Metrics of one direction by their full names, and the names of those undefined with so few candidates."""
    values: dict[str, MetricValue] = {}
    undefined = []
    for short_name in _METRICS:
        name = f"retrieval.{prefix}{short_name}"
        found = ranking.metrics.get(short_name)
        if found is None or found.value is None:
            undefined.append(name)
        else:
            values[name] = metric_value(
                found, found.n, extractor=extractor, variant=variant, pool=ranking.pool
            )
    return values, undefined


def metric_value(
    found: QueryMetric | MicroAP,
    n_counted: int,
    *,
    extractor: str,
    variant: str | None,
    null: float | None = None,
    pool: int | None = None,
) -> MetricValue:
    """A metric of rankings that is defined, as a result holds it."""
    assert found.value is not None
    return MetricValue(
        found.value,
        None,
        extractor=extractor,
        variant=variant,
        null=null,
        interval=None if found.interval is None else (found.interval.low, found.interval.high),
        replicates=None if found.replicates is None else tuple(found.replicates.tolist()),
        n_counted=n_counted,
        chance=found.chance,
        pool=pool,
    )


def clip_score(
    assignment: PromptAssignment, similarity: FeaturePairs, *, seed: int, extractor: str, variant: str | None
) -> MetricValue:
    """CLIPScore without references: 2.5 max(cos, 0) of image and prompt, averaged over an image's prompts, then over images."""
    image, text = assignment.pairs
    cosine = similarity.exact(torch.from_numpy(image), torch.from_numpy(text)).cpu().numpy()
    of_image = np.bincount(image, _CLIP_SCALE * np.maximum(cosine, 0.0)) / np.bincount(image)
    value = float(of_image.mean())
    interval, replicates = _clip_interval(value, of_image, assignment.unit_of_image, seed)
    return MetricValue(
        value,
        None,
        extractor=extractor,
        variant=variant,
        interval=interval,
        replicates=replicates,
        n_counted=len(of_image),
    )


def _clip_interval(
    value: float, of_image: NDArray[np.float64], unit: Counts, seed: int
) -> tuple[tuple[float, float] | None, tuple[float, ...] | None]:
    """Interval and replicates over units, which are drawn whole; None for fewer than 10."""
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
    return (interval.low, min(interval.high, _CLIP_SCALE)), tuple(replicates.tolist())


@dataclass(frozen=True)
class ImageRank:
    """One image and the prompts that it ranked.

    Attributes:
        row: Its index among the images.
        image: Its name.
        prompt: Its own prompt; of several, the one that it ranked first.
        rank: Of that prompt in the pool, from 1; the mean rank among equals.
        score: Cosine of the two.
        winner: The prompt of another image that it ranked first.
        winner_score: Cosine of image and winner.
        pool: Prompts that it ranked.
    """

    row: int
    image: str
    prompt: str
    rank: float
    score: float
    winner: str
    winner_score: float
    pool: int

    @property
    def is_failure(self) -> bool:
        """Whether another prompt is ranked before its own, or tied with it."""
        return self.rank > 1


def image_ranks(
    names: Sequence[str], texts: Sequence[str], ranking: PoolRanking, similarity: FeaturePairs
) -> list[ImageRank]:
    """The rank of the own prompt of each image.

    Args:
        names: Of the images.
        texts: The different texts.
        ranking: Of texts by images; distractors are the last columns of its pools.
        similarity: Of images and texts.
    """
    pools, split = ranking.pools, -ranking.distractors
    step = max(1, _PAIRS // pools.shape[1])
    found: list[ImageRank] = []
    for start in range(0, len(pools), step):
        part = torch.from_numpy(pools[start : start + step])
        rows, columns = (part >= 0).nonzero(as_tuple=True)
        scores = np.full(part.shape, -np.inf)
        scores[rows.numpy(), columns.numpy()] = similarity.exact(start + rows, part[rows, columns]).numpy()
        for row, (pool, score) in enumerate(zip(part.numpy(), scores, strict=True), start):
            own, others = int(score[:split].argmax()), score[split:]
            best = int(others.argmax())
            above, tied = int((others > score[own]).sum()), int((others == score[own]).sum())
            found.append(
                ImageRank(
                    row=row,
                    image=names[row],
                    prompt=texts[pool[own]],
                    rank=above + 1 + tied / 2,
                    score=float(score[own]),
                    winner=texts[pool[split:][best]],
                    winner_score=float(others[best]),
                    pool=int((pool >= 0).sum()),
                )
            )
    return found


def worst_first(ranks: Sequence[ImageRank]) -> list[ImageRank]:
    """Images that do not rank their own prompt alone first, the lowest rank first; then the largest difference of scores."""
    failed = [each for each in ranks if each.is_failure]
    return sorted(failed, key=lambda each: (-each.rank, each.score - each.winner_score, each.row))
