"""The two sides of a comparison: recognise what a source is, and whether the two belong together."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from torch import Tensor

from genpr.distributed import current_communicator
from genpr.errors import FeatureError, UsageError
from genpr.features.agreement import check_same_extractor
from genpr.features.feature_set import FeatureSet, load_features
from genpr.features.joined_features import load_joined
from genpr.images.arrays import peek_array
from genpr.images.datasets import BatchSource
from genpr.images.folder import FolderSource, ListSource
from genpr.images.item import ImageSource, printable
from genpr.images.paths import STDIN, expand, split_choice
from genpr.images.source import open_source
from genpr.notices import notice
from genpr.validation import check_features


@dataclass(frozen=True)
class OpenedImages:
    """Images that were found and listed, but not read yet."""

    source: ImageSource
    on_disk: bool  # only images from files are worth caching: arrays belong to a running program


OpenedSide = OpenedImages | FeatureSet


def open_side(source: object, role: str) -> OpenedSide:
    """Find `source` and say whether it is images or features, reading as little as possible.

    A 2-D array of floats is features, a 4-D array of uint8 is images; `.safetensors` is features.

    Raises:
        UsageError: There is no such path, or nothing can be made of it.
        DataError: It was found, but is empty or damaged.
    """
    if isinstance(source, OpenedImages | FeatureSet):
        return source
    if isinstance(source, str | os.PathLike):
        return _open_path(os.fsdecode(source))
    if isinstance(source, np.ndarray | Tensor) and source.ndim != 4:
        return FeatureSet(check_features(source, role).cpu(), source=f"<{role} features>")
    return OpenedImages(
        open_source(source, name=f"<{role} images>"), on_disk=isinstance(source, FolderSource | ListSource)
    )


def labels_lie_in(source: object, opened: OpenedSide) -> object:
    """What to look into for the labels of a side: its images as they were opened; of features, what the user gave."""
    return opened.source if isinstance(opened, OpenedImages) else source


def _open_path(text: str) -> OpenedSide:
    if text == STDIN or os.path.isdir(text):  # noqa: PTH112 - a Path raises for names that are too long
        return _images(text)
    several = None if split_choice(text)[1] else expand(text)
    if several is None:
        return _told(load_features(Path(text))) if text and holds_features(Path(text)) else _images(text)
    are_features = [holds_features(path) for path in several]
    if not any(are_features):
        return _images(text)
    if not all(are_features):
        other = several[are_features.index(False)]
        raise UsageError(
            f"the pattern {printable(text)!r} names feature files and others, such as {printable(str(other))}; make it "
            "narrower",
            code="mixed-kinds",
            path=text,
        )
    return _told(load_joined(several, text))


def _images(text: str) -> OpenedImages:
    return OpenedImages(open_source(text, communicator=current_communicator()), on_disk=True)


def _told(features: FeatureSet) -> FeatureSet:
    if features.extractor is not None:
        return features
    told = notice("unlabelled-features", source=features.source)
    return replace(features, notices=(*features.notices, told))


def holds_features(path: Path) -> bool:
    """By suffix and array header: images are 4-D, and everything else in an array file is meant as features."""
    if not path.is_file():
        return False
    if path.suffix.lower() == ".safetensors":
        return True
    header = peek_array(path)
    return header is not None and len(header[0]) != 4


def check_same_kind(real: OpenedSide, fake: OpenedSide) -> None:
    """Refuse features against images, and features of different extractors.

    Raises:
        UsageError: Both are lists on standard input ("stdin-twice").
        FeatureError: The two do not belong together.
    """
    if _is_stdin(real) and _is_stdin(fake):
        raise UsageError(
            "both sides are lists on standard input (-), of which there is one; write one of them to a .txt file",
            code="stdin-twice",
        )
    if isinstance(real, FeatureSet) != isinstance(fake, FeatureSet):
        features, images = (real, fake) if isinstance(real, FeatureSet) else (fake, real)
        assert isinstance(features, FeatureSet)
        assert isinstance(images, OpenedImages)
        name = features.extractor.name if features.extractor else "EXTRACTOR"
        raise FeatureError(
            f"{features.source} holds features but {images.source.name} holds images; embed the images first: "
            f"genpr features {images.source.name} OUT.safetensors --extractor {name}",
            code="features-against-images",
        )
    if isinstance(real, FeatureSet) and isinstance(fake, FeatureSet) and real.extractor and fake.extractor:
        check_same_extractor(real.source, real.extractor, fake.source, fake.extractor)


def is_one_shot(source: ImageSource) -> bool:
    """Whether images come once, out of an iterator."""
    return isinstance(source, BatchSource) and source.is_one_shot


def _is_stdin(side: OpenedSide) -> bool:
    return isinstance(side, OpenedImages) and isinstance(side.source, ListSource) and side.source.is_stdin


def refuse_one_shot(source: ImageSource, *, is_for_control: bool) -> None:
    """Refuse images that come once where several networks, or those of the control, need them.

    Raises:
        UsageError: They come out of an iterator ("one-shot").
    """
    if is_one_shot(source):
        who = "the control needs" if is_for_control else "the metrics need"
        otherwise = "; or leave the control out (control=False)" if is_for_control else ""
        raise UsageError(
            f"{source.name} is an iterator, which gives its images once, but {who} several networks; pass something "
            f"that can be iterated again, such as a list, a DataLoader or a folder{otherwise}",
            code="one-shot",
        )


def check_untrained(real: FeatureSet, fake: FeatureSet) -> None:
    """Refuse fakes embedded after the extractor's weights changed, as in a training loop.

    Raises:
        FeatureError: The real side has to be embedded anew.
    """
    if real.extractor is None or fake.extractor is None:
        return
    hashes = {real.extractor.weights_sha256, fake.extractor.weights_sha256}
    if len(hashes - {None}) > 1:
        raise FeatureError(
            f"the weights of extractor {real.extractor.name} changed after the real side was embedded; "
            "make a new Evaluator, or score with a frozen copy",
            code="other-extractor",
        )
