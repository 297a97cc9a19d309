"""Rank prompts by images and images by prompts, and compute metrics of these rankings and the CLIPScore.

Connected images and texts form a unit and never compete. Intervals resample units.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from genpr.conditional.options import AlignOptions
from genpr.conditional.prompts import Captions
from genpr.evaluation.result import Misranked
from genpr.metrics.metric import MetricValue
from genpr.metrics.ranking import QueryMetrics, ranking_metrics, unit_pools
from genpr.metrics.similarity import FeaturePairs
from genpr.metrics.uncertainty import MIN_UNITS, halved_means, with_interval
from genpr.unicode_forms import normalize

Counts = NDArray[np.int64]

_CUTS = (1, 5, 10)
_METRICS = ("r_precision", *(f"hit_{cut}" for cut in _CUTS), "mrr", "ndcg", "map")
_CLIP_SCALE = 2.5  # Hessel et al. 2021: typical values then cover 0 to 1
_PAIRS = 2**18  # pairs per block


@dataclass(frozen=True)
class PromptAssignment:
    """The texts of each of n images, among t distinct sorted texts with normalized spaces.

    Images that share a text, and texts of one image, form a unit; only different units compete. Units are numbered by their
    first text.
    """

    texts: tuple[str, ...]
    of_image: tuple[tuple[int, ...], ...]
    unit_of_text: Counts
    unit_of_image: Counts

    @classmethod
    def from_captions(cls, captions: Sequence[Captions]) -> PromptAssignment:
        """The assignment of the prompts of n images."""
        plain = [list(dict.fromkeys(map(normalize_prompt, each))) for each in captions]
        texts = sorted({text for each in plain for text in each})
        index = {text: number for number, text in enumerate(texts)}
        rows = [tuple(index[text] for text in each) for each in plain]
        pairs = [(row[0], text) for row in rows for text in row]
        unit = _components(pairs, len(texts))
        return cls(tuple(texts), tuple(rows), unit, unit[[row[0] for row in rows]])

    @property
    def n_units(self) -> int:
        """Number of units."""
        return int(self.unit_of_text.max()) + 1

    @property
    def pairs(self) -> tuple[Counts, Counts]:
        """The image and the text of each pair, both (p,) int64, sorted by image."""
        counts = [len(row) for row in self.of_image]
        flat = [text for row in self.of_image for text in row]
        return np.repeat(np.arange(len(counts)), counts), np.array(flat, dtype=np.int64)

    @property
    def content(self) -> str:
        """sha256 of the texts of all images, independent of their order."""
        rows = sorted("\n".join(self.texts[text] for text in row) for row in self.of_image)
        return hashlib.sha256("\0".join(rows).encode("utf-8", "surrogatepass")).hexdigest()


def normalize_prompt(text: str) -> str:
    """A text in Unicode form NFC with single spaces."""
    return " ".join(normalize("NFC", text).split())


def _components(pairs: Sequence[tuple[int, int]], n: int) -> Counts:
    """The connected component (n,) of each of n texts in the graph of the pairs, numbered by their first text."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    one, other = np.array(pairs, dtype=np.int32).T  # older SciPy does not accept 64-bit indices
    graph = coo_array((np.ones(len(pairs), dtype=bool), (one, other)), shape=(n, n))
    component = connected_components(graph, directed=False)[1]
    first_text = np.unique(component, return_index=True)[1][component]
    return np.unique(first_text, return_inverse=True)[1].astype(np.int64)


@dataclass(frozen=True)
class PoolRanking:
    """Rankings in one direction: metrics, and pools (q, p) of the queries with distractors in the last columns."""

    metrics: QueryMetrics
    pools: Counts
    distractors: int

    @property
    def pool(self) -> int:
        """The largest number of candidates of a query."""
        return self.metrics.pool[1]

    def values(self, prefix: str) -> tuple[dict[str, MetricValue], list[str]]:
        """Metrics by their full names, and the names of metrics that are undefined with this number of candidates."""
        values, undefined = dict[str, MetricValue](), list[str]()
        for name in _METRICS:
            full, metric = f"retrieval.{prefix}{name}", self.metrics.metrics.get(name)
            if metric is None or metric.value is None:
                undefined.append(full)
                continue
            values[full] = MetricValue(
                metric.value,
                None,
                interval=metric.interval,
                replicates=None if metric.replicates is None else tuple(metric.replicates.tolist()),
                n_counted=metric.n,
                chance=metric.chance,
                pool=self.pool,
            )
        return values, undefined


def rank_pools(
    queries: Tensor,
    candidates: Tensor,
    relevant: Sequence[Sequence[int]],
    units: tuple[Counts, Counts],
    options: AlignOptions,
    device: torch.device,
) -> PoolRanking:
    """Rank the relevant candidates of each query among `distractors` of other units, or fewer if there are fewer.

    Queries (q, d) are sorted by their `units`, so that the halves of two results with equal prompts have the same prompts.
    """
    order = np.argsort(units[0], kind="stable")
    ordered = [relevant[row] for row in order]
    distractors, seed = options.distractors, options.seed
    pools, count = unit_pools(ordered, units[0][order], units[1], distractors=distractors, seed=seed)
    least = count + min(map(len, ordered))
    metrics = ranking_metrics(
        (queries[torch.from_numpy(order)], candidates),
        ordered,
        ks=[cut for cut in _CUTS if cut < least],
        pools=pools,
        groups=units[0][order].tolist(),
        seed=seed,
        device=device,
        progress=None if options.progress is None else partial(options.progress, "ranking"),
    )
    unordered = np.empty_like(pools)
    unordered[order] = pools
    return PoolRanking(metrics, unordered, count)


def clip_score(assignment: PromptAssignment, similarity: FeaturePairs, *, seed: int) -> MetricValue:
    """CLIPScore without references: 2.5 max(cos, 0) of image and prompt, averaged over an image's prompts, then over images."""
    image, text = assignment.pairs
    cosine = similarity.exact(torch.from_numpy(image), torch.from_numpy(text)).cpu().numpy()
    of_image = np.bincount(image, _CLIP_SCALE * np.maximum(cosine, 0.0)) / np.bincount(image)
    value, n_units = float(of_image.mean()), assignment.n_units
    plain = MetricValue(value, None, n_counted=len(of_image))
    if n_units < MIN_UNITS:
        return plain
    unit = assignment.unit_of_image
    totals, counts = (np.bincount(unit, weights)[:, None] for weights in (of_image, None))
    replicates = halved_means(totals, counts, seed=seed)[:, 0]
    return with_interval(plain, replicates, n=n_units, upper=_CLIP_SCALE, is_share=False)


@dataclass(frozen=True)
class ImageRank(Misranked):
    """One image and its ranking of `pool` prompts; `prompt` is the highest-ranked of its own prompts.

    `row` is its index among the images. It may rank its own prompt first.
    """

    row: int = 0
    pool: int = 0

    def shown(self) -> Misranked:
        """The record of a result."""
        return Misranked(**{name: getattr(self, name) for name in Misranked.__dataclass_fields__})


def image_ranks(
    names: Sequence[str], texts: Sequence[str], ranking: PoolRanking, similarity: FeaturePairs
) -> list[ImageRank]:
    """The rank of the own prompt of each image; `ranking` and `similarity` are of images and texts."""
    pools, split = ranking.pools, -ranking.distractors
    step = max(1, _PAIRS // pools.shape[1])
    found: list[ImageRank] = []
    for start in range(0, len(pools), step):
        part = torch.from_numpy(pools[start : start + step])
        rows, columns = (part >= 0).nonzero(as_tuple=True)
        scores = np.full(part.shape, -np.inf)
        exact = similarity.exact(start + rows, part[rows, columns])
        scores[rows.numpy(), columns.numpy()] = exact.cpu().numpy()
        for row, (pool, score) in enumerate(zip(part.numpy(), scores, strict=True), start):
            own, others = int(score[:split].argmax()), score[split:]
            best = int(others.argmax())
            above, tied = (others > score[own]).sum(), (others == score[own]).sum()
            found.append(
                ImageRank(
                    image=names[row],
                    prompt=texts[pool[own]],
                    rank=float(above + 1 + tied / 2),
                    score=float(score[own]),
                    winner=texts[pool[split:][best]],
                    winner_score=float(others[best]),
                    row=row,
                    pool=int((pool >= 0).sum()),
                )
            )
    return found


def worst_first(ranks: Sequence[ImageRank]) -> list[ImageRank]:
    """Images that do not rank their own prompt first (or only tied), sorted by rank, then by the difference of scores."""
    return sorted(
        (each for each in ranks if each.rank > 1),
        key=lambda each: (-each.rank, each.score - each.winner_score, each.row),
    )
