"""Missed and invented modes as tables that fit 80 columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from genpr.evaluation.modes import NAMED, FoundModes
from genpr.metrics.modes import ModeCluster
from genpr.report.text.class_table import label_lines
from genpr.report.text.layout import plain_table, render, shortened, wrapped

_MOST_CLASSES = 2
_LONGEST = 60  # columns of a name


def modes_table(found: FoundModes, *, every: bool = False) -> str:
    """What came out in sentences, then a row per significant cluster, and per class.

    Args:
        found: The modes.
        every: Show all clusters.
    """
    modes = found.modes
    blocks = ["\n".join(wrapped(sentence) for sentence in found.summary)]
    for side, clusters in (("real", modes.missed), ("fake", modes.invented)):
        shown = [each for each in clusters if each.is_significant or every]
        if shown:
            blocks.append(_clusters(found, "real" if side == "real" else "fake", shown))
    if any(each.is_significant for each in modes.classes) or (every and modes.classes):
        blocks.append(_classes(found))
    return "\n\n".join([*blocks, _footer(found)])


def _clusters(found: FoundModes, side: Literal["real", "fake"], clusters: Sequence[ModeCluster]) -> str:
    is_real = side == "real"
    has_classes = any(each.classes for each in clusters)
    names = ["missed", "reals", "uncovered"] if is_real else ["invented", "fakes", "outside"]
    table = plain_table(
        *names,
        "expected",
        "fakes" if is_real else "reals",
        "p",
        *(["mostly"] if has_classes else []),
        "example",
    )
    for place, each in enumerate(clusters):
        numbers = (
            str(place + 1),
            f"{each.size:,}",
            f"{each.flagged / each.size:.0%}",
            f"{each.expected / each.size:.0%}",
            f"{each.others:,}",
            f"{each.p:.3f}",
        )
        largest = [entry for entry in each.classes if entry[1] >= NAMED * each.flagged][:_MOST_CLASSES]
        mostly = ", ".join(
            f"{shortened(name, _LONGEST)} {count / each.flagged:.0%}" for name, count in largest
        )
        example = shortened(found.name_of(side, each.rows[0]), _LONGEST)
        table.add_row(*numbers, *([mostly] if has_classes else []), example)
    for column in table.columns[:6]:
        column.justify, column.no_wrap = "right", True
    for column in table.columns[6:]:
        column.overflow = "fold"
    return render(table)


def _classes(found: FoundModes) -> str:
    table = plain_table("class", "reals", "uncovered", "expected", "p")
    for each in found.modes.classes:
        expected = f"{each.expected / each.size:.1%}"
        share = f"{each.uncovered / each.size:.1%}"
        table.add_row(shortened(each.name, _LONGEST), f"{each.size:,}", share, expected, f"{each.p:.2g}")
    table.columns[0].overflow = "fold"
    for column in table.columns[1:]:
        column.justify, column.no_wrap = "right", True
    return render(table)


def _footer(found: FoundModes) -> str:
    modes, info = found.modes, found.extractor
    features = "features of an unknown extractor" if info is None else info.name
    ks = f"uncovered at k = {modes.uncovered_k}, outside at k = {modes.outside_k}"
    lines = [
        "p: chance of any such cluster if real and fake were one distribution; up to .05 is shown",
        f"real  {modes.n_real:,} images of {found.real}",
        f"fake  {modes.n_fake:,} images of {found.fake}",
        f"{features}, {ks}, seed {modes.seed}",
        *label_lines(found.origins, found.unlabelled),
    ]
    return "\n".join(wrapped(line) for line in lines)
