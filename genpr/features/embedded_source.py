"""One side of a comparison as features, in every space that some metric asks for, embedded when first needed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from genpr.errors import DataError, FeatureError
from genpr.features.agreement import check_same_extractor
from genpr.features.cpu_fallback import embed_patiently
from genpr.features.custom import adopt
from genpr.features.embedder import Embedder, Space
from genpr.features.extractor import ExtractorInfo
from genpr.features.feature_set import FeatureSet
from genpr.features.inputs import OpenedSide, refuse_one_shot
from genpr.features.lookup import dim_of, group_by_network, is_same_extractor, members_of
from genpr.features.registry import check_weights_used, describe
from genpr.images.item import known_length
from genpr.images.source import choose_rows
from genpr.validation import check_features

OWN = "<as in the feature file>"
"""The space of a feature file for which no extractor was asked for."""


class SideFeatures:
    """The features of one side.

    Args:
        side: The opened source.
        role: "real" or "fake", for messages and progress.
        embedder: How images become features.
        limit: Use a random subset of at most so many images, beside the embedder's own limit.
        own: What the user says that features are which do not say it themselves.
    """

    def __init__(
        self,
        side: OpenedSide,
        role: str,
        embedder: Embedder,
        *,
        limit: int | None = None,
        own: Collection[Space] = (),
    ) -> None:
        self.side = side
        self.role = role
        self._own = own
        self._embedder = embedder
        limits = [number for number in (limit, embedder.max_images) if number is not None]
        self._limit = min(limits, default=None)
        self._known: dict[Space, FeatureSet] = {}
        self._total = len(side) if isinstance(side, FeatureSet) else known_length(side.source)

    def require(self, spaces: Iterable[Space], *, minimum: int, for_metrics: Iterable[Space] = ()) -> None:
        """Embed what is not known yet, each network once.

        Args:
            spaces: What is needed.
            minimum: Of images.
            for_metrics: What the metrics need alone, were there no control; nothing for what has none.

        Raises:
            UsageError: Images that come once are needed for several networks ("one-shot").
            DataError: Too few or unusable images, or a feature file of another extractor.
            ResourceError: Weights, device or memory are missing.
        """
        missing = [space for space in dict.fromkeys(spaces) if space not in self._known]
        if isinstance(self.side, FeatureSet):
            self._known.update({space: self._checked(self.side, space) for space in missing})
        else:
            if self._total is not None and self._total < minimum:
                raise self._too_few(self.side.source.name, self._total, minimum)
            check_weights_used(
                [space for space in missing if isinstance(space, str)], self._embedder.options.weights
            )
            groups = _groups(missing)
            if len(groups) > 1:
                fewer = _groups(list(dict.fromkeys(for_metrics)))
                refuse_one_shot(self.side.source, is_for_control=len(fewer) == 1)
            for group in groups:
                sets = embed_patiently(self._embedder, self.side, self.role, group, self._limit)
                self._known.update(zip(group, sets, strict=True))
        for space in missing:
            if len(self._known[space]) < minimum:
                raise self._too_few(self._known[space].source, len(self._known[space]), minimum)

    def __getitem__(self, space: Space) -> FeatureSet:
        """The features in a space that was required."""
        return self._known[space]

    def cut(self, most: int | None) -> SideFeatures:
        """The same side with at most `most` images: those that a limit of `most` would have chosen at once."""
        if most is None or all(len(features) <= most for features in self._known.values()):
            return self
        part = SideFeatures(self.side, self.role, self._embedder, limit=most, own=self._own)
        part._known = {
            space: features.select(self._rows_of_limit(len(features), most))
            for space, features in self._known.items()
        }
        return part

    @property
    def n(self) -> int:
        """Images that were embedded."""
        return min(len(features) for features in self._known.values())

    def halves(self) -> tuple[SideFeatures, SideFeatures]:
        """Two random halves of the images, disjoint, by the embedder's seed; the first is not smaller."""
        sizes, seed = {len(features) for features in self._known.values()}, self._embedder.seed
        order = {n: torch.randperm(n, generator=torch.Generator().manual_seed(seed)) for n in sizes}
        return (
            self._part(lambda n: order[n][: -(-n // 2)].sort().values),
            self._part(lambda n: order[n][-(-n // 2) :].sort().values),
        )

    def _part(self, rows: Callable[[int], Tensor]) -> SideFeatures:
        """Of n images, those that `rows` of n names."""
        part = SideFeatures(self.side, self.role, self._embedder, own=self._own)
        part._known = {space: features.select(rows(len(features))) for space, features in self._known.items()}
        return part

    def _rows_of_limit(self, n: int, most: int) -> Tensor:
        """Which of n known rows a limit of `most` chooses out of the whole source."""
        total, seed = self._total, self._embedder.seed
        if total is None or n != min(total, self._limit or total):  # an iterator, or images were left out
            return torch.as_tensor(choose_rows(n, most, seed))
        positions = np.searchsorted(choose_rows(total, n, seed), choose_rows(total, most, seed))
        return torch.as_tensor(positions)

    def _checked(self, features: FeatureSet, space: Space) -> FeatureSet:
        """A feature file, if it is of `space`; one that does not say what it holds is taken at the user's word."""
        check_features(features.features, features.source)
        if features.extractor is None:
            features = self._labelled(features, space)
        elif isinstance(space, str):
            self._check_name(features, features.extractor, space)
        else:
            check_same_extractor("--extractor", describe(adopt(space)), features.source, features.extractor)
        if self._limit is None or self._limit >= len(features):
            return features
        return features.select(torch.as_tensor(choose_rows(len(features), self._limit, self._embedder.seed)))

    def _check_name(self, features: FeatureSet, info: ExtractorInfo, space: str) -> None:
        if space in {OWN, info.name} or is_same_extractor(info.name, space):
            return
        if dim_of(space) is None:  # one of the user's own may call itself as it likes
            check_same_extractor("--extractor", describe(self._embedder.load([space])), features.source, info)
        else:
            raise FeatureError(
                f"{features.source} holds {info.name} features, but {space} features are needed; embed the images with "
                f"that extractor (genpr features IMAGES OUT.safetensors --extractor {space})",
                code="other-extractor",
                path=features.source,
            )

    def _labelled(self, features: FeatureSet, space: Space) -> FeatureSet:
        if space == OWN or not isinstance(space, str):
            return features
        if space not in self._own:
            raise FeatureError(
                f"{features.source} does not say what it holds, but {space} features are needed; if that is what they "
                f"are, say so with --extractor {space}",
                code="unlabelled-features",
                path=features.source,
            )
        dim, members = features.features.shape[1], members_of(space)
        known = dim_of(space)
        if known is not None and known != dim:
            raise FeatureError(
                f"{features.source} has {dim} features per image, but {space} has {known}",
                code="feature-shape",
                path=features.source,
            )
        info = ExtractorInfo(space, dim, "unknown", None, comparable=False, members=members)
        return replace(features, extractor=info)

    def _too_few(self, source: str, n: int, minimum: int) -> DataError:
        return DataError(
            f"{self.role} has {n} images in {source}, but at least {minimum} are needed (k + 1 of each side where k "
            "neighbours are counted); give more images, or choose a smaller k or other metrics",
            code="too-few-images",
            path=source,
        )


def _groups(spaces: Sequence[Space]) -> list[tuple[Space, ...]]:
    """What one pass through one network gives."""
    names = [space for space in spaces if isinstance(space, str)]
    own: list[tuple[Space, ...]] = [(space,) for space in spaces if not isinstance(space, str)]
    return [*own, *group_by_network(names)]
