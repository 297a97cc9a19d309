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


class AlignKeywords(EmbedKeywords, total=False):
    """The fields of `AlignOptions` as keyword arguments."""

    extractor: str | FeatureExtractor
    protocol: str
    distractors: int
    prefix: str


@dataclass(frozen=True, kw_only=True)
class AlignOptions(EmbedOptions):
    """How images are compared with their prompts."""

    extractor: str | FeatureExtractor = option(
        "clip-vit-b-32",
        "CLIP model that embeds images and prompts: a name from `genpr list extractors`, module:factory or file.py:factory.",
        check=_check_extractor,
    )
    protocol: str = option(
        "align",
        "Named evaluation protocol: coco30k, which pins model, prefix and number of images, or align, which pins nothing.",
    )
    distractors: int = option(
        99,
        "Prompts of other images that each image ranks in addition to its own, or all if there are fewer.",
        group="metrics",
        least=1,
    )
    prefix: str = option(
        CLIP_SCORE_PREFIX,
        'Text that is put in front of every prompt, for CLIPScore and for all rankings; "" for none.',
        group="metrics",
        metavar="TEXT",
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
        """The protocol; None for plain alignment."""
        if self.protocol == "align":
            return None
        found = find_protocol(self.protocol)
        if found.clip is None:
            text = f"protocol {found.name} is for genpr score and has no prompts; use coco30k, or leave --protocol out"
            raise UsageError(text, code="protocol-without-prompts")
        return found

    @property
    def names(self) -> list[str]:
        """The metrics of a result, unless they are undefined."""
        return [name for name, info in CONDITIONAL.items() if info.family in ("retrieval", "alignment")]


class EntityKeywords(EmbedKeywords, total=False):
    """The fields of `EntityOptions` but `classifier` as keyword arguments."""

    vocabulary: Words | None
    exclude: Words | None
    calibrate_on: object
    calibrate_expected: object


@dataclass(frozen=True, kw_only=True)
class EntityOptions(EmbedOptions):
    """How entities are recognized in images."""

    classifier: object = option(
        None,
        "Model that recognizes entities in images: clip, another CLIP model, or file.py:factory.",
        metavar="NAME",
    )
    vocabulary: Words | None = option(
        None,
        "All entities that are looked for, with their aliases (.txt, .csv, .json). They are found in prompts and images, and "
        "precision needs them.",
        parse=Path,
    )
    exclude: Words | None = option(
        None,
        "Entities of the vocabulary that must not be in any image.",
        group="inputs",
        parse=Path,
    )
    calibrate_on: object = option(
        None,
        "Labeled images on which thresholds are chosen. CLIP models need them; without them, detections count from a score of "
        "0.3 on.",
        group="inputs",
        metavar="SOURCE",
    )
    calibrate_expected: object = option(
        None,
        "All entities in each of the labeled images, in the form of EXPECTED.",
        group="inputs",
        parse=Path,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.classifier is not None and (self.calibrate_on is None) != (self.calibrate_expected is None):
            reason = "--calibrate-on (images) and --calibrate-expected (the entities in each) need each other"
            raise UsageError(reason, code="bad-option")

    @property
    def names(self) -> list[str]:
        """The metrics of a result, unless they are undefined."""
        names = [name for name, info in CONDITIONAL.items() if info.family == "entity"]
        return [name for name in names if self.classifier is None or name != "entity.failure_rate"]
