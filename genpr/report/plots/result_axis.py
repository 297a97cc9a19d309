"""Where several results lie on a common axis, such as the steps of a training run, by the numbers in their names."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from genpr.report.safe_text import shown

_NUMBER = re.compile(r"\d+(?:\.\d+)?", re.ASCII)
_WORD = re.compile(r"(?<![A-Za-z])([A-Za-z]+)[^A-Za-z0-9]*$", re.ASCII)
_PLAIN = re.compile(r"[A-Za-z0-9_ .-]{1,30}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis with one place per result.

    Attributes:
        label: What is varied, as a drawing may show it: plain characters, which no markup of formulas reads.
        places: One number per result, in their order, all different.
        is_ordered: Whether the numbers mean something, and are not just counted; only then may lines join values.
    """

    label: str
    places: tuple[float, ...]
    is_ordered: bool


def axis_of(
    names: Sequence[str], *, axis: str | None = None, settings: Sequence[float] | None = None
) -> Axis:
    """The axis of results: what was given, else the one number in which their names differ, else a count from 1.

    A number counts only where all else in the names is the same: `step-00400.json` and `step-00800.json`, or `psi=0.5` and
    `psi=1`. Two results of the same place have none.

    Args:
        names: Of the results, all different.
        axis: What `settings` are of.
        settings: One number per result.

    Example:
        >>> axis_of(["step-00400.json", "step-00800.json"])
        Axis(label='step', places=(400.0, 800.0), is_ordered=True)
        >>> axis_of(["gan.json", "diffusion.json"])
        Axis(label='result', places=(1.0, 2.0), is_ordered=False)
    """
    if settings is not None and len(set(settings)) == len(names):
        return Axis(_plain(axis or "setting"), tuple(float(each) for each in settings), is_ordered=True)
    found = _numbers_in(names)
    if found is not None:
        word, places = found
        return Axis(_plain(axis or word), places, is_ordered=True)
    return Axis("result", tuple(float(number) for number in range(1, len(names) + 1)), is_ordered=False)


def _numbers_in(names: Sequence[str]) -> tuple[str, tuple[float, ...]] | None:
    """The word before the one number that differs, and the numbers."""
    texts = [_NUMBER.split(name) for name in names]
    if any(text != texts[0] for text in texts):
        return None
    columns = list(zip(*(_NUMBER.findall(name) for name in names), strict=True))
    varying = [place for place, column in enumerate(columns) if len(set(column)) > 1]
    if len(varying) != 1:
        return None
    places = tuple(float(number) for number in columns[varying[0]])
    if len(set(places)) < len(places) or not all(map(math.isfinite, places)):
        return None
    word = _WORD.search(texts[0][varying[0]])
    return ("number in the name" if word is None else word[1].lower()), places


def _plain(label: str) -> str:
    return label if _PLAIN.fullmatch(label) else "setting"


def short_names(names: Sequence[str], *, longest: int = 60) -> list[str]:
    """Names that are safe to show, not too long, and still all different."""
    short = [shown(name, longest=longest) for name in names]
    if len(set(short)) == len(short):
        return short
    return [f"{number} {each}" for number, each in enumerate(short, 1)]
