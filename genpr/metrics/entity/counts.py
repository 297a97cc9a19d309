"""Expected, found and wrong entities as pairs of image and entity, and sums of them over weighted images."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

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
class Counts:
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

    def filled(self, *, right: bool) -> Counts:
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


def counted(
    expected: Sequence[Collection[str]],
    found: Sequence[Collection[str] | None],
    vocabulary: Collection[str] | None,
    excluded: Sequence[Collection[str]] | None,
    groups: Sequence[Hashable] | None,
) -> Counts:
    """Count what is expected, found and wrong in each image."""
    closed = None if vocabulary is None else frozenset(vocabulary)
    entity_of: dict[str, int] = {}
    lists: dict[str, list[tuple[int, int]]] = {"expected": [], "hits": [], "wrong": [], "missing": []}
    forbidden = torch.zeros(len(expected), dtype=torch.float64)
    judged: set[str] = set()
    for i, (wanted, there) in enumerate(zip(map(frozenset, expected), found, strict=True)):
        barred = frozenset(excluded[i]) if excluded is not None else frozenset()
        judged |= barred
        kinds: dict[str, Collection[str]] = {"missing": wanted}
        if there is not None:
            seen = frozenset(there)
            wrong = seen & barred if closed is None else ((seen & closed) - wanted) | (seen & barred)
            kinds = {"expected": wanted, "hits": wanted & seen, "wrong": wrong}
            forbidden[i] = len(seen & barred)
        for kind, names in kinds.items():
            lists[kind] += [(i, entity_of.setdefault(name, len(entity_of))) for name in sorted(names)]
    names = tuple(entity_of)
    pairs = {kind: _pairs(each, len(expected), len(names)) for kind, each in lists.items()}
    demands = [
        bool(wanted) or bool(excluded is not None and excluded[i]) for i, wanted in enumerate(expected)
    ]
    units: dict[Hashable, int] = {}
    own = range(len(expected)) if groups is None else groups
    return Counts(
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
