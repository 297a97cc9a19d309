"""The labels of both sides: whether they belong together, and what is said where they do not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NoReturn

from genpr.errors import DataError
from genpr.evaluation.label_table import Label, short, some
from genpr.images.item import printable
from genpr.images.policy import BadImagePolicy

_NEEDED = "say where they are with real_labels and fake_labels (--real-labels, --fake-labels)"


@dataclass(frozen=True)
class LabelledSide:
    """One side, image by image.

    Attributes:
        role: "real" or "fake".
        source: As the user wrote it.
        origin: Where the labels come from, for people.
        names: Of the images.
        labels: Of the images; None for those without a class.
    """

    role: str
    source: str
    origin: str
    names: Sequence[str]
    labels: Sequence[Label]

    @cached_property
    def rows(self) -> dict[str, list[int]]:
        """The images of each class, ascending; classes in order, numbers by their size."""
        found: dict[str, list[int]] = {}
        for row, label in enumerate(self.labels):
            if label is not None:
                found.setdefault(label, []).append(row)
        return dict(sorted(found.items(), key=lambda entry: order_of(entry[0])))

    @cached_property
    def unlabelled(self) -> tuple[str, ...]:
        """Names of the images without a class."""
        pairs = zip(self.names, self.labels, strict=True)
        return tuple(name for name, label in pairs if label is None)

    def __str__(self) -> str:
        """What was found, for a message."""
        if not self.rows:
            return f"{self.role} has no labels ({printable(self.origin)} of {printable(self.source)})"
        sizes = [f"{short(label)} ({len(rows):,})" for label, rows in self.rows.items()]
        shown = some(sizes, 5, longest=60)
        count = f"{len(sizes):,} class{'es' * (len(sizes) > 1)}"
        return f"{self.role} has {count} from {printable(self.origin)}: {shown}"


def order_of(label: str) -> tuple[bool, int, str]:
    """Numbers first and by their size, then names."""
    is_number = label.isdecimal()
    return not is_number, len(label) if is_number else 0, label


def check_labels(real: LabelledSide, fake: LabelledSide, policy: BadImagePolicy) -> None:
    """Refuse sides that cannot be scored class by class.

    Args:
        real: The real side.
        fake: The fake side.
        policy: Whether images without a class may be left out, and how many.

    Raises:
        DataError: A side has no labels ("no-labels") or some images have none ("unlabelled"), both are of one class
            ("one-class"), or they have no class in common ("labels-disagree").
    """
    both = f"{real}; {fake}"
    if not real.rows or not fake.rows:
        raise DataError(f"per-class scores need a label per image: {both}; {_NEEDED}", code="no-labels")
    for side in (real, fake):
        check_complete(side, policy)
    if len({*real.rows, *fake.rows}) == 1:
        raise DataError(
            f"per-class scores need at least two classes: {both}; score without them, or {_NEEDED}",
            code="one-class",
        )
    check_shared(real, fake)


def check_complete(side: LabelledSide, policy: BadImagePolicy) -> None:
    """Refuse a side of which more images have no class than may be left out.

    Raises:
        DataError: They are listed ("unlabelled").
    """
    few = side.unlabelled
    share = len(few) / len(side.labels)
    if not few or (policy.action == "skip" and share <= policy.max_share):
        return
    limit = f", and at most {policy.max_share:.1%} may be left out" if policy.action == "skip" else ""
    raise DataError(
        f"{len(few):,} of {len(side.labels):,} {side.role} images have no label in {printable(side.origin)}{limit}: "
        f'{some(few)}; give all of them one, or leave them out with on_bad="skip" and max_bad (--on-bad, --max-bad)',
        code="unlabelled",
        path=side.source,
    )


def check_shared(real: LabelledSide, fake: LabelledSide) -> None:
    """Refuse sides that have no class in common.

    Raises:
        DataError: "labels-disagree".
    """
    if not real.rows.keys() & fake.rows.keys():
        _refuse_disjoint(real, fake)


def _refuse_disjoint(real: LabelledSide, fake: LabelledSide) -> NoReturn:
    numbers = [all(label.isdecimal() for label in side.rows) for side in (real, fake)]
    if numbers[0] != numbers[1]:
        by_number, by_name = ("real", "fake") if numbers[0] else ("fake", "real")
        cause = f"the {by_number} classes are numbers and the {by_name} ones names; give both the same with a CSV of name,label"
    elif {label.casefold().lstrip("0 ") for label in real.rows} & {
        label.casefold().lstrip("0 ") for label in fake.rows
    }:
        cause = "they differ in case or leading zeros; labels are compared letter by letter"
    else:
        cause = "are these the same data set, and are the folders classes?"
    raise DataError(f"no class is on both sides: {real}; {fake}; {cause}", code="labels-disagree")
