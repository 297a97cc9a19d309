"""Which of the expected entities are found: recall, precision against a closed list, and what failed to be read.

Per image i, E_i is the set of expected entities and F_i that of the found ones. Images whose answer could not be read are in
no score; they have a rate of their own, and bounds say what they could change.

    recall        mean over images of |F_i & E_i| / |E_i|
    micro_recall  the same pairs pooled: sum of |F_i & E_i| / sum of |E_i|
    macro_recall  mean over entities of the share of the images expecting it in which it was found
    all_found     share of images with all of E_i and nothing that they exclude

Precision needs to know what is wrong: what an image excludes, or whatever a closed vocabulary holds beside E_i. With W_i for
what is wrong in image i, precision is |F_i & E_i| / (|F_i & E_i| + |F_i & W_i|), on average over images, pooled, or by entity.

References:
    Hinz et al. 2020, "Semantic Object Accuracy for Generative Text-to-Image Synthesis" (over images, over classes).
    Ghosh et al. 2023, "GenEval" (all included and nothing excluded).
    Korn and Graubard 1998, "Confidence Intervals for Proportions with Small Expected Number of Positive EntityCounts Estimated
    from Survey Data" (effective sizes).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from genpr.errors import DataError, UsageError
from genpr.metrics.halved import LEAST_UNITS, halved
from genpr.metrics.uncertainty import interval_of, standard_error

_MOST_WEIGHTS = 2**22  # held at once


@dataclass(frozen=True)
class Pairs:
    """Images with an entity each.

    Attributes:
        image: (p,) int64.
        entity: (p,) int64.
        n_images: Of all.
        n_entities: Of all.
    """

    image: Tensor
    entity: Tensor
    n_images: int
    n_entities: int

    def per_image(self) -> Tensor:
        """(images,) float64."""
        return torch.bincount(self.image, minlength=self.n_images).double()

    def per_entity(self) -> Tensor:
        """(entities,) int64."""
        return torch.bincount(self.entity, minlength=self.n_entities)

    def weighted(self, weights: Tensor) -> Tensor:
        """(B, entities) sums of the weights (B, images) of the images with each entity."""
        sums = weights.new_zeros(len(weights), self.n_entities)
        step = max(1, _MOST_WEIGHTS // max(1, len(self.image)))
        for start in range(0, len(weights), step):
            rows = slice(start, start + step)
            sums[rows].index_add_(1, self.entity, weights[rows][:, self.image])
        return sums

    def joined(self, other: Pairs) -> Pairs:
        """The pairs of both."""
        return replace(
            self, image=torch.cat([self.image, other.image]), entity=torch.cat([self.entity, other.entity])
        )


@dataclass(frozen=True)
class EntityCounts:
    """What is needed of all images.

    Attributes:
        entities: Names, by number.
        expectations: Of images with a readable answer, as all pairs.
        hits: Expected and found.
        wrongs: Found, and known to be wrong.
        forbidden: (images,) float64, finds that the image excludes.
        demands: (images,) bool, whether anything is expected or excluded.
        missing: The expectations of images with an unreadable answer.
        unreadable: (images,) float64, 1 for these.
        unit: (images,) int64, the group of each image.
        judged: Entities of which it is known where they would be wrong.
        knows_wrong: Whether that is known of any.
        filling: What unreadable images count: None for nothing, 0 for all wrong, 1 for all right.
    """

    entities: tuple[str, ...]
    expectations: Pairs
    hits: Pairs
    wrongs: Pairs
    forbidden: Tensor
    demands: Tensor
    missing: Pairs
    unreadable: Tensor
    unit: Tensor
    judged: frozenset[int]
    knows_wrong: bool
    filling: float | None = None

    @property
    def n_units(self) -> int:
        """Groups of images."""
        return int(self.unit.max()) + 1

    @property
    def n_unreadable(self) -> int:
        """Images with an unreadable answer."""
        return int(self.unreadable.sum())

    def filled(self, *, right: bool) -> EntityCounts:
        """The same as if all unreadable answers were all right, or all wrong."""
        return replace(
            self,
            expectations=self.expectations.joined(self.missing),
            hits=self.hits.joined(self.missing) if right else self.hits,
            filling=float(right),
        )

    @cached_property
    def n_expected(self) -> Tensor:
        """(images,) float64; 0 for unreadable ones."""
        return self.expectations.per_image()

    @cached_property
    def n_hits(self) -> Tensor:
        """(images,) float64."""
        return self.hits.per_image()

    @cached_property
    def n_wrong(self) -> Tensor:
        """(images,) float64."""
        return self.wrongs.per_image()

    @property
    def recall(self) -> Tensor:
        """(images,), NaN where nothing is expected."""
        return self.n_hits / self.n_expected

    @property
    def precision(self) -> Tensor:
        """(images,), NaN where nothing is found."""
        return self._filled_in(self.n_hits / (self.n_hits + self.n_wrong))

    @property
    def all_found(self) -> Tensor:
        """(images,), 1 where all that is expected and nothing that is excluded was found; NaN where neither is demanded."""
        right = ((self.n_hits == self.n_expected) & (self.forbidden == 0)).double()
        is_read = (self.unreadable == 0) & self.demands
        return self._filled_in(torch.where(is_read, right, torch.nan))

    def _filled_in(self, values: Tensor) -> Tensor:
        counts = (self.unreadable == 1) & self.demands
        filling = torch.nan if self.filling is None else self.filling
        return torch.where(counts, filling, values)

    def mean(self, values: Tensor) -> Callable[[Tensor], Tensor]:
        """The mean over images that have a value, by weights (B, units)."""
        known = ~values.isnan()
        return self.pooled(values.nan_to_num(0.0) * known, known.double())

    def pooled(self, part: Tensor, whole: Tensor) -> Callable[[Tensor], Tensor]:
        """The sum of one number per image over that of another, by weights (B, units)."""
        sums = [
            torch.zeros(self.n_units, dtype=torch.float64).index_add_(0, self.unit, each)
            for each in (part, whole)
        ]
        return lambda weights: (weights @ sums[0]) / (weights @ sums[1])

    def by_entity(self, part: Pairs, whole: Pairs) -> Callable[[Tensor], Tensor]:
        """The mean over entities of the share of one kind of pairs in another, by weights (B, units)."""

        def mean(weights: Tensor) -> Tensor:
            by_image = weights[:, self.unit]
            parts, wholes = part.weighted(by_image), whole.weighted(by_image)
            is_there = wholes > 0
            shares = torch.where(is_there, parts / wholes.clamp(min=1e-300), 0.0)
            return shares.sum(dim=1) / is_there.sum(dim=1)

        return mean

    def sizes_of(self, name: str) -> tuple[int, int]:
        """Independent images or groups that a metric rests on, and the single decisions about entities or images in them.

        Entities that few images expect weigh as much as others in an average over entities, which then rests on fewer (Kish
        1965, "Survey Sampling").
        """
        values = {"failure_rate": self.unreadable, "all_found": self.all_found}.get(name)
        if values is not None:
            known = ~values.isnan()
            return len(torch.unique(self.unit[known])), int(known.sum())
        values = self.precision if "precision" in name else self.recall
        units = len(torch.unique(self.unit[~values.isnan()]))
        pairs = self.hits.joined(self.wrongs) if "precision" in name else self.expectations
        if not name.startswith("macro"):
            return units, len(pairs.image)
        numbers = pairs.per_entity().double()
        numbers = numbers[numbers > 0]
        effective = int(len(numbers) ** 2 / float((1 / numbers).sum())) if len(numbers) else 1
        return min(units, effective), effective


def count_entities(
    expected: Sequence[Collection[str]],
    found: Sequence[Collection[str] | None],
    vocabulary: Collection[str] | None,
    excluded: Sequence[Collection[str]] | None,
    groups: Sequence[Hashable] | None,
) -> EntityCounts:
    """Count what is expected, found and wrong in each image."""
    closed = None if vocabulary is None else frozenset(vocabulary)
    entity_of: dict[str, int] = {}
    lists: dict[str, list[tuple[int, int]]] = {"expected": [], "hits": [], "wrong": [], "missing": []}
    forbidden = torch.zeros(len(expected), dtype=torch.float64)
    judged: set[str] = set()
    for i, (required, there) in enumerate(zip(map(frozenset, expected), found, strict=True)):
        forbidden_names = frozenset(excluded[i]) if excluded is not None else frozenset()
        judged |= forbidden_names
        kinds: dict[str, Collection[str]] = {"missing": required}
        if there is not None:
            seen = frozenset(there)
            wrong = (
                seen & forbidden_names
                if closed is None
                else ((seen & closed) - required) | (seen & forbidden_names)
            )
            kinds = {"expected": required, "hits": required & seen, "wrong": wrong}
            forbidden[i] = len(seen & forbidden_names)
        for kind, names in kinds.items():
            lists[kind] += [(i, entity_of.setdefault(name, len(entity_of))) for name in sorted(names)]
    names = tuple(entity_of)
    pairs = {kind: _pairs(each, len(expected), len(names)) for kind, each in lists.items()}
    demands = [
        bool(required) or bool(excluded is not None and excluded[i]) for i, required in enumerate(expected)
    ]
    units: dict[Hashable, int] = {}
    own = range(len(expected)) if groups is None else groups
    return EntityCounts(
        entities=names,
        expectations=pairs["expected"],
        hits=pairs["hits"],
        wrongs=pairs["wrong"],
        forbidden=forbidden,
        demands=torch.tensor(demands),
        missing=pairs["missing"],
        unreadable=torch.tensor([there is None for there in found]).double(),
        unit=torch.tensor([units.setdefault(group, len(units)) for group in own]),
        judged=frozenset(entity_of[name] for name in entity_of if closed is not None or name in judged),
        knows_wrong=closed is not None or bool(judged),
    )


def _pairs(found: list[tuple[int, int]], n_images: int, n_entities: int) -> Pairs:
    both = torch.tensor(found, dtype=torch.int64).reshape(-1, 2)
    return Pairs(both[:, 0], both[:, 1], n_images, n_entities)


ENTITY_METRICS = (
    "recall",
    "micro_recall",
    "macro_recall",
    "all_found",
    "precision",
    "micro_precision",
    "macro_precision",
    "failure_rate",
)
"""In display order."""

_NOTHING_EXPECTED = "nothing is expected in any image with a readable answer"
_OPEN = "precision needs a closed vocabulary or a list of what must not be there; without, nothing that is found is wrong"
_NOTHING_FOUND = "nothing was found of which it is known whether it belongs there"


@dataclass(frozen=True)
class EntityScore:
    """One number over images.

    Attributes:
        value: Between 0 and 1.
        interval: 95 %, over images, or over groups where several images share a prompt; None for fewer than 10.
        bounds: The value if all unreadable answers were all wrong, and if all were all right; None where that is not known.
        n: Images or groups that it rests on.
        replicates: (100,) float64, of complementary halves; None where there is no interval.
    """

    value: float
    interval: tuple[float, float] | None
    bounds: tuple[float, float] | None
    n: int
    replicates: Tensor | None


@dataclass(frozen=True)
class EntityCount:
    """One entity over all images with a readable answer.

    Attributes:
        entity: The entity.
        n_expected: Images that expect it.
        n_found: Of these, those in which it was found.
        n_false: Images in which it was found and is wrong; None where that cannot be known.
    """

    entity: str
    n_expected: int
    n_found: int
    n_false: int | None


@dataclass(frozen=True)
class EntityMetrics:
    """Expected against found entities.

    Attributes:
        scores: By name, those that have a value.
        undefined: Why the others have none, by name.
        entities: One row for each that is expected, or found where it is wrong; the most missed first.
        n: Images, or texts.
        n_unreadable: Of these, those whose answer could not be read.

    Example:
        >>> found = entity_set_metrics([{"cat", "dog"}, {"car"}], [{"cat"}, {"car", "bus"}])
        >>> found["recall"], found["micro_recall"], found["all_found"]
        (0.75, 0.6666666666666666, 0.5)
        >>> found.undefined["precision"].split(";")[0]
        'precision needs a closed vocabulary or a list of what must not be there'
    """

    scores: Mapping[str, EntityScore]
    undefined: Mapping[str, str]
    entities: tuple[EntityCount, ...]
    n: int
    n_unreadable: int

    def __getitem__(self, name: str) -> float:
        """The value of one metric; those without a value are not there, and `undefined` says why."""
        return self.scores[name].value

    @property
    def recall(self) -> float | None:
        """Mean over images of the share of expected entities that was found; None where nothing is expected."""
        return self.scores["recall"].value if "recall" in self.scores else None

    @property
    def precision(self) -> float | None:
        """Mean over images of the share of found entities that belong there; None where that cannot be known."""
        return self.scores["precision"].value if "precision" in self.scores else None


def entity_set_metrics(
    expected: Sequence[Collection[str]],
    found: Sequence[Collection[str] | None],
    *,
    vocabulary: Collection[str] | None = None,
    excluded: Sequence[Collection[str]] | None = None,
    groups: Sequence[Hashable] | None = None,
    seed: int = 0,
) -> EntityMetrics:
    """Compare sets of names that are equal if they are the same entity.

    Args:
        expected: Per image, what should be there.
        found: Per image, what is; None for an answer that could not be read.
        vocabulary: All entities that could have been found: what is found of it and not expected is wrong, and what is
            found beside it is nobody's. None if anything could be there.
        excluded: Per image, what must not be there.
        groups: Per image, what several have in common, such as their prompt; None if each stands for itself.
        seed: Chooses the halves of intervals.

    Raises:
        UsageError: The sequences differ in length, or are empty ("bad-option").
        DataError: An entity is expected and excluded in one image, or expected and not in the vocabulary
            ("bad-expectation").
    """
    _check(expected, found, vocabulary, excluded, groups)
    table = count_entities(expected, found, vocabulary, excluded, groups)
    statistics = _statistics(table)
    # One unit per image: groups must not change the order of sums, and so the last bit of a value.
    by_image = _statistics(replace(table, unit=torch.arange(len(table.unit))))
    low, high = (_statistics(counts) for counts in (table.filled(right=False), table.filled(right=True)))
    scores: dict[str, EntityScore] = {}
    undefined: dict[str, str] = {}
    whole = torch.ones(1, table.n_units, dtype=torch.float64)
    images = torch.ones(1, len(table.unit), dtype=torch.float64)
    for name in ENTITY_METRICS:
        if "precision" in name and not table.knows_wrong:
            undefined[name] = _OPEN
            continue
        value = float(by_image[name](images))
        if value != value:
            undefined[name] = _NOTHING_FOUND if "precision" in name else _NOTHING_EXPECTED
            continue
        ends = (low[name](whole), high[name](whole)) if name in _BOUNDED and table.n_unreadable else None
        bounds = None if ends is None else (float(ends[0]), float(ends[1]))
        scores[name] = _score(value, statistics[name], bounds, table, table.sizes_of(name), seed)
    rows = _rows(table)
    return EntityMetrics(scores, undefined, rows, len(expected), table.n_unreadable)


# How many entities an unreadable answer would have named is not known, so pooled precisions have no bounds.
_BOUNDED = frozenset({"recall", "micro_recall", "macro_recall", "all_found", "precision"})

Statistic = Callable[[Tensor], Tensor]
"""Weights (B, units) -> values (B,); NaN where a half holds nothing to count."""


def _score(
    value: float,
    statistic: Statistic,
    bounds: tuple[float, float] | None,
    table: EntityCounts,
    sizes: tuple[int, int],
    seed: int,
) -> EntityScore:
    units, decisions = sizes
    if units < LEAST_UNITS:
        return EntityScore(value, None, bounds, units, None)
    replicates = halved(statistic, table.n_units, seed=seed)
    if bool(replicates.isnan().any()):  # so few that a half may hold none
        return EntityScore(value, None, bounds, units, None)
    found = interval_of(value, replicates, n=_effective(value, replicates, units, decisions))
    return EntityScore(value, (found.low, found.high), bounds, units, replicates)


def _effective(value: float, replicates: Tensor, units: int, decisions: int) -> int:
    """As how many independent yes-or-no images the value is as sure (Korn and Graubard 1998), for its exact interval.

    An image with three of four entities is less than a coin toss, and four images of one prompt are more. Where halves
    show no spread at all, it is the number of groups.
    """
    variance = standard_error(replicates) ** 2
    effective = int(value * (1 - value) / variance) if variance > 0 else units
    return min(max(effective, units), max(decisions, units))


def _statistics(table: EntityCounts) -> dict[str, Statistic]:
    return {
        "recall": table.mean(table.recall),
        "micro_recall": table.pooled(table.n_hits, table.n_expected),
        "macro_recall": table.by_entity(table.hits, table.expectations),
        "all_found": table.mean(table.all_found),
        "precision": table.mean(table.precision),
        "micro_precision": table.pooled(table.n_hits, table.n_hits + table.n_wrong),
        "macro_precision": table.by_entity(table.hits, table.hits.joined(table.wrongs)),
        "failure_rate": table.mean(table.unreadable),
    }


def _rows(table: EntityCounts) -> tuple[EntityCount, ...]:
    """The most missed first, then the most often wrong."""
    expected, hits, wrong = (pairs.per_entity() for pairs in (table.expectations, table.hits, table.wrongs))
    rows = [
        EntityCount(entity, int(expected[i]), int(hits[i]), int(wrong[i]) if i in table.judged else None)
        for i, entity in enumerate(table.entities)
        if expected[i] or wrong[i]
    ]
    return tuple(
        sorted(
            rows, key=lambda row: (row.n_found / max(row.n_expected, 1), -row.n_expected, -(row.n_false or 0))
        )
    )


def _check(
    expected: Sequence[Collection[str]],
    found: Sequence[Collection[str] | None],
    vocabulary: Collection[str] | None,
    excluded: Sequence[Collection[str]] | None,
    groups: Sequence[Hashable] | None,
) -> None:
    if not expected:
        raise UsageError("entities are compared image by image, and there is none", code="bad-option")
    for name, other in (("found", found), ("excluded", excluded), ("groups", groups)):
        if other is not None and len(other) != len(expected):
            raise UsageError(
                f"expected is of {len(expected):,} images and {name} of {len(other):,}; needed is one entry for each image",
                code="bad-option",
            )
    known = None if vocabulary is None else set(vocabulary)
    for i, names in enumerate(expected):
        both = set(names) & set(excluded[i]) if excluded is not None else set()
        if both:
            raise DataError(
                f"{min(both)[:60]!r} is expected and excluded in image {i:,}; it can only be one of both",
                code="bad-expectation",
            )
        if known is not None and (unknown := set(names) - known):
            raise DataError(
                f"{min(unknown)[:60]!r} is expected in image {i:,} and not in the vocabulary, which is closed; add it there, "
                "or give its alias",
                code="bad-expectation",
            )
