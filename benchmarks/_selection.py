"""Select tools and groups from the options."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from _cases import Group
from _families import FAMILIES, LearnedFiles
from _tools import TOOLS, Tool

_SIZES, _FULL_SIZES = (5_000, 10_000, 20_000), (5_000, 10_000, 20_000, 50_000)
_DIMS, _FULL_DIMS = (2048,), (512, 2048, 4096)


@dataclass(frozen=True, slots=True)
class Options:
    """The command line of bench_manifold.py; each field is an option, described there.

    Empty tuples and None mean the default.
    """

    real_features: Path | None
    fake_features: Path | None
    families: tuple[str, ...]
    sizes: tuple[int, ...]
    dims: tuple[int, ...]
    tools: tuple[str, ...]
    full: bool
    k: int
    repeats: int
    repeat_seconds: float
    threads: int | None
    device: str
    slow_n: int
    max_gib: float
    max_minutes: float
    temp_dir: Path | None
    out: Path | None


@dataclass(frozen=True, slots=True)
class Selection:
    """Tools and groups to run, and those left out.

    Attributes:
        tools: In the order they run.
        groups: By family, then d, then n ascending.
        learned: Where the learned features are, if they are among the groups.
        left_out: Sentences on requested cases that are not run.
    """

    tools: list[Tool]
    groups: list[Group]
    learned: LearnedFiles | None
    left_out: tuple[str, ...]

    def by_features(self) -> list[list[Group]]:
        """Groups that use parts of the same features are adjacent."""
        return [list(groups) for _, groups in groupby(self.groups, key=lambda group: (group.family, group.d))]


def select(options: Options) -> Selection:
    """Apply the filters.

    Raises:
        ValueError: The files of learned features do not match, only one was given, or no case is left.
    """
    if (options.real_features is None) != (options.fake_features is None):
        raise ValueError("--real-features and --fake-features go together")
    learned = None
    if options.real_features is not None and options.fake_features is not None:
        learned = LearnedFiles.open(options.real_features, options.fake_features)
    tools, tools_left_out = _tools(options)
    groups, groups_left_out = _groups(options, learned)
    if not tools or not groups:
        raise ValueError("; ".join(["nothing to run", *tools_left_out, *groups_left_out]))
    return Selection(tools, groups, learned, (*tools_left_out, *groups_left_out))


def _tools(options: Options) -> tuple[list[Tool], list[str]]:
    device = options.device
    if not options.tools:
        return [tool for tool in TOOLS.values() if device in tool.default_on], []
    named = [tool for tool in TOOLS.values() if tool.name in options.tools]
    left_out = [f"{tool.name}: does not run on {device}" for tool in named if device not in tool.devices]
    return [tool for tool in named if device in tool.devices], left_out


def _groups(options: Options, learned: LearnedFiles | None) -> tuple[list[Group], list[str]]:
    sizes = sorted(set(options.sizes)) or (_FULL_SIZES if options.full else _SIZES)
    dims = sorted(set(options.dims)) or (_FULL_DIMS if options.full else _DIMS)
    groups: list[Group] = []
    left_out: list[str] = []
    for family in FAMILIES:
        if options.families and family not in options.families:
            continue
        if family != "learned":
            groups += [Group(family, d, n) for d in dims for n in sizes]
        elif learned is None:
            left_out.append("learned: no --real-features and --fake-features were given")
        elif options.dims and learned.d not in options.dims:
            left_out.append(f"learned: the files hold {learned.d} features per row, not --d {dims}")
        else:
            groups += [Group(family, learned.d, n) for n in sizes if n <= learned.rows]
            left_out += [
                f"learned, n = {n:,}: the files hold {learned.rows:,} rows" for n in sizes if n > learned.rows
            ]
    return groups, left_out
