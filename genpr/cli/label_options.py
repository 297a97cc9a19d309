"""Options of `--labels`: do fakes look like what they were asked to be?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from genpr.cli.class_options import LABELS
from genpr.cli.options import Command, with_options
from genpr.evaluation.label_options import KNN, MOST_VOTERS, LabelOptions

_OWN = ("recogniser", "label_k")


def recogniser_options(command: Command) -> Command:
    """Whether and how to recognise classes."""
    return with_options(command, _OPTIONS)


def label_options(command: Command) -> Command:
    """The same, with where labels are."""
    return with_options(command, (*_OPTIONS, *LABELS))


def labels_taken(options: dict[str, Any], *, shared: bool = False) -> LabelOptions | None:
    """Take the options of labels out of all `options`; None if no labels are to be compared.

    Args:
        options: By name.
        shared: Leave `real_labels` and `fake_labels` where they are, for another part of the command.

    Raises:
        click.UsageError: Some are given without --labels, or belong to another recogniser.
        UsageError: One is impossible.
    """
    given = {name: value for name in _OWN if (value := options.pop(name)) is not None}
    sources = {name: options[name] for name in ("real_labels", "fake_labels")}
    if not options.pop("labels"):
        _refuse(given if shared else given | {name: value for name, value in sources.items() if value})
        if not shared:
            del options["real_labels"], options["fake_labels"]
        return None
    if not shared:
        del options["real_labels"], options["fake_labels"]
    recogniser = given.get("recogniser", KNN)
    if "label_k" in given and recogniser != KNN:
        raise click.UsageError(f"--label-k counts voters of --recogniser {KNN}, and there are none")
    chosen = LabelOptions(**sources, recogniser=recogniser, k=given.get("label_k", LabelOptions.k))
    if chosen.is_file and sources["real_labels"] is not None and not shared:
        raise click.UsageError(
            "--real-labels: reals are not looked at where another tool recognised the fakes"
        )
    return chosen


def _refuse(given: Mapping[str, object]) -> None:
    if given:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise click.UsageError(f"{names} needs --labels")


_OPTIONS = (
    click.option(
        "--labels",
        is_flag=True,
        help="Do fakes look like the classes that they were asked to be? Adds label.gan_test, label.gan_train and others.",
    ),
    click.option(
        "--recogniser",
        metavar="KIND",
        help="knn (a vote of the nearest), linear (a linear probe), or a .csv, .json or .npy file with the labels that the "
        "fakes were recognised as.  [default: knn]",
    ),
    click.option(
        "--label-k",
        type=click.IntRange(1, MOST_VOTERS),
        metavar="K",
        help="Who votes, for knn.  [default: 5]",
    ),
)
