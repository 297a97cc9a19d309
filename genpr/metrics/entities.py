"""Which of the expected entities are found: recall, precision against a closed list, and unreadable answers.

Per image i, E_i is the set of expected entities and F_i that of the found ones. Images with an unreadable answer are in no
score; a separate rate counts them.

    recall        mean over images of |F_i & E_i| / |E_i|
    micro_recall  the same pairs pooled: sum of |F_i & E_i| / sum of |E_i|
    macro_recall  mean over entities of the share of the images expecting it in which it was found
    all_found     share of images with all of E_i and nothing excluded

Precision needs the set W_i of wrong entities of image i: those that it excludes, or all of a closed vocabulary outside E_i.
Then precision is |F_i & E_i| / (|F_i & E_i| + |F_i & W_i|), on average over images, pooled, or by entity.

References:
    Hinz et al. 2020, "Semantic Object Accuracy for Generative Text-to-Image Synthesis" (over images, over classes).
    Ghosh et al. 2023, "GenEval" (all included and nothing excluded).
    Korn and Graubard 1998, "Confidence Intervals for Proportions with Small Expected Number of Positive Counts Estimated
    from Survey Data" (effective sizes).
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from genpr.errors import DataError, UsageError, get_named, short
from genpr.metrics.metric import EntityRow, MetricValue
from genpr.metrics.uncertainty import (
    MIN_UNITS,
    effective_size,
    halved,
    standard_error,
    with_interval,
)

ENTITY_METRICS = (
    *("recall", "micro_recall", "macro_recall", "all_found"),
    *("precision", "micro_precision", "macro_precision", "failure_rate"),
)
"""In display order."""

_NOTHING_EXPECTED = "no image with a readable answer has an expected entity"
_OPEN = "precision needs a closed vocabulary or a list of excluded entities; without them, no found entity is wrong"
_NOTHING_FOUND = "no found entity is known to be right or wrong"

Ratio = tuple[Tensor, Tensor] | tuple[csr_array, csr_array]
"""Numerators and denominators: numbers of images (n,), which are pooled, or (images, entities), whose ratios are averaged over entities."""


@dataclass(frozen=True)
class EntityMetrics:
    """Expected against found entities.

    Example:
        >>> metrics = entity_set_metrics([{"cat", "dog"}, {"car"}], [{"cat"}, {"car", "bus"}])
        >>> metrics["recall"], metrics["micro_recall"], metrics["all_found"]
        (0.75, 0.6666666666666666, 0.5)
    """

    # By name, those that have a value between 0 and 1; the interval is over images, or groups that share a prompt
    scores: Mapping[str, MetricValue]
    undefined: Mapping[str, str]  # reason for each metric without a value, by name
    entities: tuple[EntityRow, ...]  # expected, or found and wrong; the most missed first
    n: int  # images, or texts
    n_unreadable: int  # of these, those with an unreadable answer

    def __getitem__(self, name: str) -> float:
        """The value of one metric; metrics without a value are absent and have a reason in `undefined`."""
        return get_named(self.scores, name, "metric").value


@dataclass(frozen=True)
class _Table:
    """Entities of images, as (images, entities) matrices of 0 and 1, and numbers of images, (images,)."""

    entities: tuple[str, ...]
    expected: csr_array  # by images with a readable answer
    hits: csr_array  # expected and found
    wrong: csr_array  # found and wrong
    n_forbidden: Tensor  # float64, finds that the image excludes
    demands: Tensor  # bool, whether anything is expected or excluded
    is_unreadable: Tensor  # bool
    unit: Tensor  # int64, group of the image
    judged: Collection[str]  # entities that can be wrong

    @cached_property
    def values(self) -> dict[str, Tensor]:
        """Values of images, (images,) float64, of the metrics that are means over images; NaN where one has no value."""
        n_expected, n_hits, n_wrong = self.sums
        all_found = ((n_hits == n_expected) & (self.n_forbidden == 0)).double()
        all_found[self.is_unreadable | ~self.demands] = torch.nan
        return {
            "recall": n_hits / n_expected,
            "all_found": all_found,
            "precision": n_hits / (n_hits + n_wrong),
            "failure_rate": self.is_unreadable.double(),
        }

    @cached_property
    def sums(self) -> list[Tensor]:
        """Expected, found and wrong entities of images, (images,) each."""
        return [torch.from_numpy(pairs.sum(axis=1)) for pairs in (self.expected, self.hits, self.wrong)]

    def ratios(self) -> dict[str, Ratio]:
        """All metrics."""
        n_expected, n_hits, n_wrong = self.sums
        means = {name: (each.nan_to_num(0.0), (~each.isnan()).double()) for name, each in self.values.items()}
        return {
            **means,
            "micro_recall": (n_hits, n_expected),
            "macro_recall": (self.hits, self.expected),
            "micro_precision": (n_hits, n_hits + n_wrong),
            "macro_precision": (self.hits, self.hits + self.wrong),
        }

    def sizes_of(self, name: str) -> tuple[int, int]:
        """Numbers of independent images or groups behind a metric, and of decisions about entities or images in them.

        For averages over entities, in which rare ones have equal weight, they are effective sizes.
        """
        kind = name.removeprefix("micro_").removeprefix("macro_")
        known = ~self.values[kind].isnan()
        units = len(torch.unique(self.unit[known]))
        if kind not in ("recall", "precision"):
            return units, int(known.sum())
        pairs = self.hits + self.wrong if kind == "precision" else self.expected
        if not name.startswith("macro"):
            return units, int(pairs.sum())
        effective = effective_size(pairs.sum(axis=0))
        return min(units, effective), effective

    def rows(self) -> tuple[EntityRow, ...]:
        """The most missed first, then the most often wrong."""
        sums = [each.sum(axis=0).astype(int).tolist() for each in (self.expected, self.hits, self.wrong)]
        rows = [
            EntityRow(entity, expected, hits, wrong if entity in self.judged else None)
            for entity, expected, hits, wrong in zip(self.entities, *sums, strict=True)
            if expected or wrong
        ]
        rows.sort(
            key=lambda row: (row.n_found / max(row.n_expected, 1), -row.n_expected, -(row.n_false or 0))
        )
        return tuple(rows)


def _mean(ratio: Ratio, weights: Tensor) -> Tensor:
    """A metric (B,) by weights (B, images); NaN where these hold nothing to count."""
    if isinstance(ratio[0], Tensor):
        part, whole = (weights @ each for each in ratio)
        return part / whole
    parts, wholes = (torch.from_numpy(np.ascontiguousarray(weights.numpy() @ pairs)) for pairs in ratio)
    is_there = wholes > 0
    shares = torch.where(is_there, parts / wholes.clamp(min=1e-300), 0.0)
    return shares.sum(dim=1) / is_there.sum(dim=1)


def _count(
    expected: Sequence[Collection[str]],
    found: Sequence[Collection[str] | None],
    vocabulary: Collection[str] | None,
    excluded: Sequence[Collection[str]] | None,
    groups: Sequence[Hashable] | None,
) -> _Table:
    closed = frozenset(vocabulary or ())
    forbidden = [frozenset(each) for each in excluded or [()] * len(expected)]
    pairs: dict[str, list[tuple[int, int]]] = {"expected": [], "hits": [], "wrong": [], "missing": []}
    number: dict[str, int] = {}
    n_forbidden = [0] * len(expected)
    for i, (required, seen) in enumerate(zip(map(frozenset, expected), found, strict=True)):
        beyond = frozenset[str]() if vocabulary is None else required - closed
        if impossible := (required & forbidden[i]) or beyond:
            what = "is excluded or not in the closed vocabulary; remove it from the excluded entities, or add it or its alias"
            name = short(min(impossible), 60)
            raise DataError(f"{name!r} is expected in image {i:,} and {what}", code="bad-expectation")
        kinds = {"missing": required}
        if seen is not None:
            there = frozenset(seen)
            n_forbidden[i] = len(there & forbidden[i])
            wrong = ((there & closed) - required) | (there & forbidden[i])
            kinds = {"expected": required, "hits": required & there, "wrong": wrong}
        # Entities are numbered in order of occurrence, also in images with an unreadable answer.
        for kind, names in kinds.items():
            pairs[kind] += [(i, number.setdefault(name, len(number))) for name in sorted(names)]
    matrices = {}
    for kind in ("expected", "hits", "wrong"):
        each = pairs[kind]
        places = np.array(each, dtype=np.int64).reshape(-1, 2).T
        matrices[kind] = csr_array((np.ones(len(each)), places), shape=(len(expected), len(number)))
    units: dict[Hashable, int] = {}
    own = range(len(expected)) if groups is None else groups
    return _Table(
        entities=tuple(number),
        **matrices,
        n_forbidden=torch.tensor(n_forbidden, dtype=torch.float64),
        demands=torch.tensor([bool(a or b) for a, b in zip(expected, forbidden, strict=True)]),
        is_unreadable=torch.tensor([each is None for each in found]),
        unit=torch.tensor([units.setdefault(group, len(units)) for group in own]),
        judged=number if vocabulary is not None else frozenset().union(*forbidden),
    )


def entity_set_metrics(
    expected: Sequence[Collection[str]],
    found: Sequence[Collection[str] | None],
    *,
    vocabulary: Collection[str] | None = None,
    excluded: Sequence[Collection[str]] | None = None,
    groups: Sequence[Hashable] | None = None,
    seed: int = 0,
) -> EntityMetrics:
    """Compare the expected entities of each image with those found, None for an unreadable answer.

    Names are equal if they are the same entity. `vocabulary` holds all entities that can be found: of these, one that is found
    and not expected is wrong, and entities outside it are ignored; None if anything can be found. `excluded` are entities that
    must not be in each image; `groups` name a property that images share, such as the prompt. `seed` chooses the halves of
    intervals.
    """
    lengths = {len(each) for each in (expected, found, excluded, groups) if each is not None}
    if len(lengths) > 1 or not expected:
        message = "expected, found, excluded and groups need one entry per image, and at least one image"
        raise UsageError(message, code="bad-option")
    table = _count(expected, found, vocabulary, excluded, groups)
    knows_wrong = vocabulary is not None or any(map(bool, excluded or ()))
    n_unreadable = int(table.is_unreadable.sum())
    ratios = table.ratios()
    scores: dict[str, MetricValue] = {}
    undefined: dict[str, str] = {}
    whole = torch.ones(1, len(expected), dtype=torch.float64)
    for name in ENTITY_METRICS:
        value = float(_mean(ratios[name], whole))
        if "precision" in name and not knows_wrong:
            undefined[name] = _OPEN
        elif value != value:
            undefined[name] = _NOTHING_FOUND if "precision" in name else _NOTHING_EXPECTED
        else:
            scores[name] = _with_interval(value, ratios[name], table, table.sizes_of(name), seed)
    return EntityMetrics(scores, undefined, table.rows(), len(expected), n_unreadable)


def _with_interval(
    value: float, ratio: Ratio, table: _Table, sizes: tuple[int, int], seed: int
) -> MetricValue:
    """The value with its 95 % interval and replicates; without these for few images, or where a half holds none of the metric.

    The exact interval is that of the number of independent binary outcomes with equal variance (Korn and Graubard 1998), or of
    the number of groups if halves do not vary.
    """
    units, decisions = sizes
    metric = MetricValue(value, None, n_counted=units)
    if units < MIN_UNITS:
        return metric
    n_units = int(table.unit.max()) + 1
    replicates = halved(lambda weights: _mean(ratio, weights[:, table.unit]), n_units, seed=seed)
    variance = standard_error(replicates) ** 2
    effective = int(value * (1 - value) / variance) if variance > 0 else units
    return with_interval(metric, replicates, n=min(max(effective, units), max(decisions, units)))
