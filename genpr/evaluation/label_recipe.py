"""Labels of two sides, found and checked before any image is embedded, and matched to images afterwards."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from genpr.errors import DataError, UsageError
from genpr.evaluation.class_labels import labelled, of_names
from genpr.evaluation.label_files import open_labels
from genpr.evaluation.label_options import LabelOptions
from genpr.evaluation.label_table import FolderLabels, Labels
from genpr.evaluation.labeled_source import LabelledSide, check_complete, check_shared
from genpr.features.embedded_source import SideFeatures
from genpr.features.feature_set import FeatureSet
from genpr.features.inputs import OpenedSide, labels_lie_in
from genpr.images.policy import BadImagePolicy

_NEEDED = "say where they are with real_labels and fake_labels (--real-labels, --fake-labels)"


@dataclass(frozen=True)
class LabelRecipe:
    """What to do about labels.

    Attributes:
        options: As the user gave them.
        real: Labels of the reals; None where they are not used.
        recognised: What another tool recognised the fakes as; None where genpr recognises them.
        policy: Whether images without a label may be left out, and how many.
    """

    options: LabelOptions
    real: Labels | None
    recognised: Labels | None
    policy: BadImagePolicy

    @classmethod
    def of(cls, options: LabelOptions | None, real: OpenedSide, policy: BadImagePolicy) -> LabelRecipe | None:
        """Read what can be read without fakes; None where labels do not matter.

        Raises:
            UsageError: There is no such file.
            DataError: Labels cannot be read, or do not belong to the reals.
        """
        if options is None:
            return None
        if not isinstance(options, LabelOptions):
            raise UsageError(f"labels must be genpr.LabelOptions(...), not {options!r}", code="bad-option")
        if options.is_file:
            return cls(options, None, open_labels(options.recogniser, None, "fake", sets=True), policy)
        recipe = cls(
            options, open_labels(options.real_labels, labels_lie_in(None, real), "real"), None, policy
        )
        recipe._check("real", real, recipe.real)
        return recipe

    def fake(self, opened: OpenedSide) -> Labels:
        """What the fakes were asked to be.

        Raises:
            UsageError: There is no such file.
            DataError: Labels cannot be read.
        """
        return open_labels(
            self.options.fake_labels, labels_lie_in(None, opened), "fake", sets=self.recognised is not None
        )

    def check(self, opened: OpenedSide) -> None:
        """Refuse fakes that labels do not fit, as far as that is known before they are embedded.

        Raises:
            UsageError: There is no such file.
            DataError: Labels cannot be read, or do not belong to the fakes.
        """
        self._check("fake", opened, self.fake(opened))
        self._check("fake", opened, self.recognised)

    def _check(self, role: str, opened: OpenedSide, labels: Labels | None) -> None:
        side = None if labels is None else of_names(role, opened, labels)
        if side is not None:
            self._check_side(side)

    def _check_side(self, side: LabelledSide) -> None:
        if not side.rows:
            raise DataError(f"label metrics need a label per image: {side}; {_NEEDED}", code="no-labels")
        check_complete(side, self.policy)

    def labelled(self, side: SideFeatures, features: FeatureSet, labels: Labels) -> LabelledSide:
        """Each embedded image of a side with its label.

        Raises:
            DataError: Labels do not belong to the images.
        """
        found = labelled(side.role, side.side, features, labels)
        self._check_side(found)
        return found

    def facts(self, real: Sequence[str | None]) -> dict[str, Any]:
        """What decides a score beside the images, as plain JSON types: labels by their hash."""
        fixed = (
            None
            if self.options.fake_labels is None
            else open_labels(self.options.fake_labels, None, "fake", sets=self.recognised is not None)
        )
        return {
            "recogniser": "file" if self.options.is_file else str(self.options.recogniser),
            "k": int(self.options.k),
            "real": _hash(list(real)),
            "fake": _content(fixed),
            "recognised": _content(self.recognised),
        }


def check_labels(
    options: LabelOptions | None,
    real: OpenedSide,
    fake: OpenedSide,
    *,
    on_bad: Literal["error", "skip"] = "error",
    max_bad: float = 0.01,
) -> None:
    """Refuse labels that do not fit two sides, as far as that is known before an image of either is embedded.

    Raises:
        UsageError: There is no such file.
        DataError: Labels cannot be read, or do not belong to the images.
    """
    recipe = LabelRecipe.of(options, real, BadImagePolicy(on_bad, max_bad))
    if recipe is None:
        return
    recipe.check(fake)
    if recipe.real is not None:
        reals, fakes = of_names("real", real, recipe.real), of_names("fake", fake, recipe.fake(fake))
        if reals is not None and fakes is not None:
            check_shared(reals, fakes)


def _content(labels: Labels | None) -> str | None:
    if labels is None:
        return None
    if isinstance(labels, FolderLabels):
        return labels.origin
    return _hash(list(labels.labels) if hasattr(labels, "labels") else sorted(labels.by_name.items()))


def _hash(content: object) -> str:
    return hashlib.sha256(json.dumps(content).encode("utf-8", "surrogateescape")).hexdigest()[:16]
