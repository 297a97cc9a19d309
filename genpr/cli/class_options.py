"""Options of `genpr score --per-class`, of which `genpr modes` has those for labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, cast

import click

from genpr.cli.options import Command, with_options

if TYPE_CHECKING:
    from genpr.evaluation.per_class import ClassOptions as ClassGiven

_OF_LABELS = ("real_labels", "fake_labels")
_NAMES = (*_OF_LABELS, "min_per_class", "worst_by")


def class_options(command: Command) -> Command:
    """Whether and how to score class by class."""
    return with_options(command, _OPTIONS)


def label_options(command: Command) -> Command:
    """Where labels are."""
    return with_options(command, LABELS)


@dataclass(frozen=True)
class ClassOptions:
    """What was asked for; options that were not given are not in `given`."""

    protocol: str
    given: ClassGiven

    @classmethod
    def taken_from(
        cls, options: dict[str, Any], protocols: Sequence[str], *, has_labels: bool = False
    ) -> Self | None:
        """Take the options of classes out of all `options`; None if no classes are asked for.

        With `has_labels`, where labels are matters also without classes.

        Raises:
            click.UsageError: They are given without --per-class, or there are several protocols.
        """
        given = {name: value for name in _NAMES if (value := options.pop(name)) is not None}
        if not options.pop("per_class"):
            unused = [name for name in given if not (has_labels and name in _OF_LABELS)]
            if unused:
                or_labels = " or --labels" if {*unused} <= {*_OF_LABELS} else ""
                names = ", ".join(f"--{name.replace('_', '-')}" for name in unused)
                raise click.UsageError(f"{names} needs --per-class{or_labels}")
            return None
        if len(protocols) > 1:
            raise click.UsageError("--per-class takes one --protocol")
        return cls(protocols[0], cast("ClassGiven", given))

    def check(self, real: str, fake: str, options: Mapping[str, Any]) -> None:
        """Refuse what is impossible, and labels that do not fit, before anything is embedded.

        Raises:
            UsageError, DataError: As `genpr.Evaluator.score_classes`.
        """
        from genpr.evaluation.per_class import check_options, check_sources
        from genpr.evaluation.protocols import find_protocol

        recipe = find_protocol(self.protocol)
        ks = recipe.choose_ks(recipe.choose_metrics(options["metrics"]), options["k"])
        given: dict[str, Any] = {**self.given}
        order = {name: given[name] for name in ("min_per_class", "worst_by") if name in given}
        check_options(recipe, ks, equal_sizes=options["equal_sizes"], **order)
        labels = {name: given[name] for name in ("real_labels", "fake_labels") if name in given}
        check_sources(real, fake, **labels, on_bad=options["on_bad"], max_bad=options["max_bad"])


LABELS = (
    click.option(
        "--real-labels",
        metavar="FILE",
        help="Classes of REAL: .csv of name,label, StyleGAN's .json, .npy in their order, or the word folders.  "
        "[default: dataset.json in it, arr_1 of an .npz, else sub-folders]",
    ),
    click.option("--fake-labels", metavar="FILE", help="Classes of FAKE, likewise."),
)
_OPTIONS = (
    click.option("--per-class", is_flag=True, help="Score each class within itself, too: which are worst?"),
    *LABELS,
    click.option(
        "--min-per-class",
        type=int,
        metavar="N",
        help="Images that a class needs on each side.  [default: 50]",
    ),
    click.option(
        "--worst-by",
        metavar="METRIC",
        help="Order of the classes: one metric, or null for the mean of all over their nulls.  [default: null]",
    ),
)
