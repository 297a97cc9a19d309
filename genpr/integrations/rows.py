"""Embedded images as rows of bytes, which any framework may gather, keep and copy without changing a number."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from genpr.errors import UsageError
from genpr.evaluation.plan import ScorePlan
from genpr.features.custom import extractor_info
from genpr.features.extractor import ExtractorInfo
from genpr.features.feature_set import FeatureSet
from genpr.features.inputs import OpenedImages
from genpr.features.source_features import FROM_FILE, Embedder, ExtractorKey
from genpr.images.source import open_source

_HASH = 32


@dataclass(frozen=True)
class RowMaker:
    """Images into rows: uint8 (n, 32 + 4 d), the sha256 of each image and then its float32 features.

    Bytes, because a module that is cast to half precision casts its floating-point state, too.
    """

    embedder: Embedder
    space: ExtractorKey

    @classmethod
    def of(cls, plan: ScorePlan, embedder: Embedder) -> RowMaker:
        """The one that embeds what `plan` needs.

        Raises:
            UsageError: The plan needs features of more than one network, or of an unknown one.
        """
        spaces = tuple(dict.fromkeys(plan.spaces.values()))
        if len(spaces) > 1:
            names = ", ".join(f"{name} ({space})" for name, space in plan.spaces.items())
            raise UsageError(
                f"one metric object keeps the features of one network, but these need {len(spaces)}: {names}; use one "
                "object per network",
                code="several-extractors",
            )
        if spaces[0] == FROM_FILE:
            raise UsageError(
                "the real features do not say which extractor made them, so images cannot be embedded alike; give the "
                "Evaluator extractor=NAME",
                code="unlabeled-features",
            )
        return cls(embedder, spaces[0])

    @property
    def width(self) -> int:
        """Bytes of a row."""
        return _HASH + 4 * self.embedder.load([self.space]).dim

    @property
    def info(self) -> ExtractorInfo:
        """The extractor as it is now."""
        return extractor_info(self.embedder.load([self.space]))

    def unloaded(self) -> RowMaker:
        """The same without its networks, which are loaded again when they are needed."""
        return replace(self, embedder=Embedder(self.embedder.options))

    def empty(self) -> Tensor:
        """No rows."""
        return torch.empty(0, self.width, dtype=torch.uint8)

    def rows(self, images: Tensor, role: str) -> tuple[Tensor, ExtractorInfo]:
        """Embed uint8 (n, 3, h, w) images: their rows, on the CPU, and by what they were embedded.

        Raises:
            DataError: They are no such images.
            ResourceError: Weights, device or memory are missing.
        """
        on_cpu = images.cpu() if isinstance(images, Tensor) else images  # once, and not image by image
        source = OpenedImages(open_source(on_cpu, name=f"<{role} images>"), on_disk=False)
        (found,) = self.embedder.embed(source, role, [self.space], None)
        assert found.identities is not None
        assert found.extractor is not None
        features = found.features.contiguous().view(torch.uint8)
        return torch.cat([found.identities, features], dim=1), found.extractor

    def feature_set(self, rows: Tensor, role: str, info: ExtractorInfo) -> FeatureSet:
        """What rows were made of, as one side of a comparison."""
        rows = rows.cpu()
        return FeatureSet(
            features=rows[:, _HASH:].contiguous().view(torch.float32),
            source=f"<{role} images>",
            extractor=info,
            identities=rows[:, :_HASH].contiguous(),
            n_embedded=len(rows),
        )


def content_of(features: FeatureSet) -> bytes:
    """What decides the features of a set that one extractor embedded: the hashes of its images, in order."""
    assert features.identities is not None
    return features.identities.numpy().tobytes()
