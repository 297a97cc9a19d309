"""Options of labels and classes: `--labels`, `--per-class` and what belongs to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import click

from genpr.evaluation.options import KNN, MOST_VOTERS, LabelOptions
from genpr.features.options import option

if TYPE_CHECKING:
    from genpr.evaluation.per_class import ClassOptions


@dataclass(frozen=True, kw_only=True)
class LabelFlags:
    """Whether and how the classes of fakes are recognized."""

    labels: bool = option(
        False,
        "Do fakes look like the classes that they were asked to be? Adds label.gan_test, label.gan_train and others.",
    )
    classifier: str | None = option(
        None,
        "knn (a vote of the nearest), linear (a linear probe), or a .csv, .json or .npy file with the labels that the "
        "fakes were recognized as.",
        unset="knn",
        metavar="KIND",
    )
    label_k: int | None = option(
        None, "Number of voters, for knn.", unset="5", least=1, most=MOST_VOTERS, metavar="K"
    )
    real_labels: str | None = option(
        None,
        "Classes of REAL: .csv of name,label, StyleGAN's .json, .npy in their order, or the word folders.",
        unset="dataset.json in it, arr_1 of an .npz, else sub-folders",
        metavar="FILE",
    )
    fake_labels: str | None = option(None, "Classes of FAKE, likewise.", metavar="FILE")

    def chosen(self) -> LabelOptions | None:
        """What to compare; None if no labels are to be compared.

        Raises:
            click.UsageError: Options are given without --labels, or belong to another classifier.
            UsageError: One is impossible.
        """
        chosen = self._compared(needing_labels=("classifier", "label_k", "real_labels", "fake_labels"))
        if chosen is not None and chosen.is_file and self.real_labels is not None:
            raise click.UsageError(
                "--real-labels: reals are not looked at where another tool recognized the fakes"
            )
        return chosen

    def _compared(self, needing_labels: Sequence[str]) -> LabelOptions | None:
        if not self.labels:
            _refuse({name: getattr(self, name) for name in needing_labels}, "--labels")
            return None
        classifier = KNN if self.classifier is None else self.classifier
        if self.label_k is not None and classifier != KNN:
            raise click.UsageError(f"--label-k counts voters of --classifier {KNN}, and there are none")
        return LabelOptions(
            real_labels=self.real_labels,
            fake_labels=self.fake_labels,
            classifier=classifier,
            k=LabelOptions.k if self.label_k is None else self.label_k,
        )


@dataclass(frozen=True, kw_only=True)
class ClassFlags(LabelFlags):
    """The same, and whether and how to score class by class; labels serve both."""

    per_class: bool = option(False, "Score each class within itself, too: which are worst?")
    min_per_class: int | None = option(
        None, "Images that a class needs on each side.", unset="50", metavar="N"
    )
    worst_by: str | None = option(
        None,
        "Order of the classes: one metric, or null for the mean of all over their nulls.",
        unset="null",
        metavar="METRIC",
    )

    def chosen(self) -> LabelOptions | None:
        """As of `LabelFlags`."""
        return self._compared(needing_labels=("classifier", "label_k"))

    def classes(self, protocols: Sequence[str]) -> ClassOptions | None:
        """Keyword arguments of `genpr.Evaluator.score_classes`; None if no classes are requested.

        Raises:
            click.UsageError: They are given without --per-class, or there are several protocols.
        """
        labels: dict[str, object] = {"real_labels": self.real_labels, "fake_labels": self.fake_labels}
        order: dict[str, object] = {"min_per_class": self.min_per_class, "worst_by": self.worst_by}
        if not self.per_class:
            unused = order if self.labels else labels | order
            of_labels = not any(value is not None for value in order.values())
            _refuse(unused, "--per-class or --labels" if of_labels else "--per-class")
            return None
        if len(protocols) > 1:
            raise click.UsageError("--per-class takes one --protocol")
        given = {name: value for name, value in (labels | order).items() if value is not None}
        return cast("ClassOptions", given)


def _refuse(values: Mapping[str, object], needed: str) -> None:
    """Refuse options that are given and change nothing."""
    given = [name for name, value in values.items() if value is not None]
    if given:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise click.UsageError(f"{names} needs {needed}")
