"""Options of alignment and of entities in images as records. Importing this module does not import torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from genpr.errors import UsageError
from genpr.evaluation.protocols import CLIP_SCORE_PREFIX, EvaluationProtocol, find_protocol
from genpr.features.extractor import FeatureExtractor
from genpr.features.options import EmbedKeywords, EmbedOptions, option
from genpr.features.registry import check_has_text
from genpr.metrics.registry import CONDITIONAL

if TYPE_CHECKING:
    from genpr.conditional.vocabulary import Words


def _check_extractor(extractor: object) -> None:
    if isinstance(extractor, str):
        check_has_text(extractor)


def _check_cosine(cosine: object) -> None:
    if type(cosine) not in (int, float) or not -1 <= cosine <= 1:  # type: ignore[operator]
        raise UsageError(f"threshold must be from -1 to 1, not {cosine!r:.60}", code="bad-threshold")


class AlignKeywords(EmbedKeywords, total=False):
    """The fields of `AlignOptions` as keyword arguments."""

    extractor: str | FeatureExtractor
    protocol: str
    distractors: int
    prefix: str
    copies_of: object
    threshold: float


@dataclass(frozen=True, kw_only=True)
class AlignOptions(EmbedOptions):
    """How images are compared with their prompts."""

    extractor: str | FeatureExtractor = option(
        "clip-vit-b-32",
        "A CLIP model (see `genpr list extractors`), package.module:factory, or path/file.py:factory; in Python also an "
        "object that has `encode_text`: see `genpr.features.text.load_text_encoder`.",
        check=_check_extractor,
        metavar="NAME",
    )
    protocol: str = option(
        "align",
        "Recipe that pins the model, the prefix and the number of images, with one prompt each: coco30k.",
        metavar="NAME",
    )
    distractors: int = option(
        99,
        "Prompts of other images that each image ranks in addition to its own, or fewer if there are fewer.",
        least=1,
    )
    prefix: str = option(
        CLIP_SCORE_PREFIX,
        'Put in front of every prompt, for CLIPScore and for all rankings; "" leaves it out.',
        metavar="TEXT",
    )
    copies_of: object = option(
        None,
        "Training images, or their features: adds `retrieval.copy_rate`, the share of images that are similar to one of them.",
        metavar="TRAIN",
    )
    threshold: float = option(
        0.5,
        "Cosine above which an image counts as a copy; 0.5 is meant for SSCD, so choose it by the null for others.",
        check=_check_cosine,
        metavar="COSINE",
    )

    def __post_init__(self) -> None:
        if self.recipe is not None:
            self.recipe.check_prompts(self.extractor, self.prefix)
            object.__setattr__(self, "prepare", self.recipe.choose_prepare(self.prepare))
        super().__post_init__()
        if not isinstance(self.prefix, str):
            raise UsageError(f"prefix must be a text, not {self.prefix!r}", code="bad-option")

    @property
    def recipe(self) -> EvaluationProtocol | None:
        """The protocol; None for plain alignment, which pins nothing."""
        if self.protocol == "align":
            return None
        found = find_protocol(self.protocol)
        if found.clip is None:
            text = f"protocol {found.name} is for genpr score and has no prompts; use coco30k, or leave --protocol out"
            raise UsageError(text, code="protocol-without-prompts")
        return found

    @property
    def names(self) -> list[str]:
        """The metrics that a result will have, if they have a value."""
        names = [name for name, info in CONDITIONAL.items() if info.family in ("retrieval", "alignment")]
        return [name for name in names if self.copies_of is not None or name != "retrieval.copy_rate"]


class EntityKeywords(EmbedKeywords, total=False):
    """The fields of `EntityOptions` but for `by` as keyword arguments."""

    vocabulary: Words | None
    aliases: Words | None
    exclude: Words | None
    calibrate_on: object
    calibrate_expected: object


@dataclass(frozen=True, kw_only=True)
class EntityOptions(EmbedOptions):
    """How entities are recognized in images."""

    by: object = option(
        None,
        "What finds entities in images: clip, another CLIP model, fasterrcnn_resnet50_fpn_v2, retinanet_resnet50_fpn_v2, or "
        "path/file.py:factory.",
        metavar="NAME",
    )
    vocabulary: Words | None = option(
        None,
        "All entities that could be there (.txt, .csv, .json): finds them in prompts and images, and gives precision.",
        parse=Path,
        metavar="FILE",
    )
    aliases: Words | None = option(
        None, "Names of the same entity (.csv of entity,alias,... or .json).", parse=Path, metavar="FILE"
    )
    exclude: Words | None = option(
        None, "Entities of the vocabulary that must not be in any image.", parse=Path, metavar="FILE"
    )
    calibrate_on: object = option(
        None,
        "Labeled images on which thresholds are chosen; a pair of encoders needs them. Detections count from 0.3 on without.",
        metavar="IMAGES",
    )
    calibrate_expected: object = option(
        None,
        "All entities that are in each of them, written as EXPECTED.",
        parse=Path,
        metavar="FILE",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.by is not None and (self.calibrate_on is None) != (self.calibrate_expected is None):
            reason = "--calibrate-on gives images and --calibrate-expected what is in each; needed are both, or neither"
            raise UsageError(reason, code="bad-option")

    @property
    def names(self) -> list[str]:
        """The metrics that a result will have, if they have a value."""
        names = [name for name, info in CONDITIONAL.items() if info.family == "entity"]
        return [name for name in names if self.by is None or name != "entity.failure_rate"]
