"""Output of a command in addition to stdout: a page, a table, an exit code."""

from __future__ import annotations

import contextlib
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from genpr.cli.console import (
    JSON_HELP,
    RESULT_PRINTED,
    print_stderr,
    print_stdout,
    show_notices,
)
from genpr.cli.grouped import SourceType
from genpr.errors import similar, some
from genpr.features.options import option
from genpr.images.paths import paths_of
from genpr.report.files import is_own_table
from genpr.storage import check_output, marked_by, replace_file

if TYPE_CHECKING:
    from genpr.evaluation.result import Result
    from genpr.notices import Notice

THRESHOLD_MISSED = 5
"""Exit code."""
_OUTPUTS = {"html", "table", "log", "out", "cache_dir", "folder"}  # of a watch, where its log is
_is_own_page = marked_by(
    lambda head: re.match(
        rb'<!doctype html>\n<html lang="en">\n<head>\n(<meta [^>]*>\n){4}<meta name="generator" content="genpr ',
        head,
    )
)
OUTPUT = click.Path(path_type=Path, readable=False)  # which may replace a file that cannot be read
FILE: dict[str, Any] = {"type": OUTPUT, "metavar": "FILE"}


def threshold(text: str) -> tuple[str, float]:
    """Parse `metric=number`."""
    metric, separator, number = text.partition("=")
    try:
        least = float(number)
    except ValueError:
        least = math.nan
    if not math.isfinite(least):  # the threshold would always be missed, or never
        expected = "a finite number after =" if separator else "metric=x, such as precision=0.7"
        raise click.BadParameter(f"{text!r}: expected {expected}")
    return metric, least


LIMITS: dict[str, Any] = {"type": threshold, "metavar": "METRIC=X", "multiple": True}


def import_matplotlib() -> None:
    """Import matplotlib with the folder of its defaults as working directory, since a `matplotlibrc` there may make it fail."""
    spec = find_spec("matplotlib")
    assert spec is not None
    assert spec.origin is not None
    folder = Path(spec.origin).parent / "mpl-data"
    # The working directory may have been removed.
    with contextlib.suppress(FileNotFoundError), contextlib.chdir(folder):
        import matplotlib  # noqa: F401


@dataclass(frozen=True, kw_only=True)
class TextOutput:
    """Output format of a command, and whether it prints notices and progress."""

    as_json: bool = option(False, JSON_HELP, flag="--json")
    quiet: bool = option(False, "Print no progress and no notices.", flag=("-q", "--quiet"))

    def show(self, notices: Iterable[Notice], text: str) -> None:
        """Print the result, then notices, each once, unless quiet."""
        print_stdout(text)
        if not self.quiet:
            show_notices(tuple(dict.fromkeys(notices)))

    def write_and_show(self, notices: Iterable[Notice], text: str, *writes: Callable[[], object]) -> None:
        """Write each file that can be written, print the result in any case, then raise the first error."""
        errors = list[Exception]()
        for write in writes:
            try:
                write()
            except Exception as error:  # noqa: BLE001 - raised below
                errors.append(error)
        self.show(notices, text)
        for each in errors[1:]:
            print_stderr(f"error: {each}")
        if errors:
            errors[0].add_note(RESULT_PRINTED)
            raise errors[0]

    def note(self, text: str) -> None:
        """Print a line on stderr unless quiet."""
        if not self.quiet:
            print_stderr(text)


def input_paths() -> list[Path]:
    """The files and folders that the running command reads, as far as they are on the command line."""
    context, found = click.get_current_context(), list[Path]()
    for each in context.command.params:
        if each.name in _OUTPUTS:
            continue
        for text in _texts(context.params.get(each.name or "")):
            if isinstance(each.type, SourceType):
                found += paths_of(text)
            elif isinstance(each.type, click.Path) or os.path.isfile(text):  # noqa: PTH113 - for any text
                found.append(Path(text))
    return found


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str | os.PathLike):
        yield os.fsdecode(value)
    elif isinstance(value, tuple | list):
        for each in value:
            yield from _texts(each)


@dataclass(frozen=True, kw_only=True)
class FileOutput(TextOutput):
    """The same, and files."""

    overwrite: bool = option(
        False, "Replace an existing output file even if genpr did not write it.", group="output"
    )

    def check_file(self, path: Path, suffixes: Sequence[str], is_own: Callable[[Path], bool]) -> None:
        """Refuse an output before anything is computed; see `genpr.storage.check_output`."""
        check_output(path, suffixes, is_own, inputs=input_paths(), overwrite=self.overwrite)


@dataclass(frozen=True, kw_only=True)
class PageOutput(FileOutput):
    """The same, and an HTML page."""

    html: Path | None = option(None, "Also write a self-contained HTML page to FILE (.html).", **FILE)

    def check_place(self) -> None:
        """Refuse a page that cannot be written, before anything is computed."""
        if self.html is not None:
            self.check_file(self.html, (".html", ".htm"), _is_own_page)

    def check_several(self, count: int, what: str) -> None:
        """The same for a page that compares several results."""
        if self.html is not None and count < 2:
            raise click.UsageError(f"--html compares several {what}, but there is only one")
        self.check_place()

    def write_page(self, page: Callable[..., str], *sources: object, **labels: object) -> None:
        """Write the page if it is requested; `page` renders it from the sources."""
        if self.html is None:
            return
        import_matplotlib()
        text = page(*sources, **labels)
        self.check_place()  # again, since a file may have been created meanwhile
        replace_file(self.html, text)
        self.note(f"wrote {self.html}")

    def write_comparison(self, results: Mapping[str, Result], *, by: str = "f1") -> None:
        """Write the page that compares results if it is requested."""
        if self.html is not None and len(results) < 2:
            print_stderr(
                f"{self.html} was not written: --html compares several results, but there is only one"
            )
        elif self.html is not None:
            from genpr.evaluation.compare import compare
            from genpr.report.compare_page import compare_report

            self.write_page(partial(compare_report, compare(results, force=True), by=by))


@dataclass(frozen=True, kw_only=True)
class ScoreOutput(PageOutput):
    """The same, a table of images, and thresholds of metrics."""

    table: Path | None = option(
        None, "Also write the values of each image to FILE (.csv).", group="output", flag="--csv", **FILE
    )
    fail_under: Sequence[tuple[str, float]] = option(
        (), "Exit with code 5 if a metric is below X.", group="output", **LIMITS
    )
    fail_over: Sequence[tuple[str, float]] = option(
        (),
        "Exit with code 5 if a metric is above X, such as fid=10.",
        group="output",
        **LIMITS,
    )

    def check(self, computed: Sequence[str]) -> None:
        """Refuse files that cannot be written and thresholds that cannot be missed, before anything is computed."""
        from genpr.metrics.registry import ALL_METRICS

        directions = (
            ("under", "higher", "over", self.fail_under),
            ("over", "lower", "under", self.fail_over),
        )
        for direction, better, other, limits in directions:
            for metric, _ in limits:
                wrong = ""
                if metric not in computed:
                    wrong = f"this is not among the computed metrics{similar(metric, computed)}: {some(computed, 20)}"
                elif ALL_METRICS[metric].better not in (
                    better,
                    "at null",
                ):  # such a metric can be too low or too high
                    wrong = f"{ALL_METRICS[metric].better} is better for this metric; use --fail-{other}"
                if wrong:
                    raise click.UsageError(f"--fail-{direction} {metric}=...: {wrong}")
        if self.table is not None:
            self.check_file(self.table, (".csv",), is_own_table)
        self.check_place()

    def write_table(self, write: Callable[..., int]) -> None:
        """Write the table if it is requested; `write` returns its number of rows."""
        if self.table is not None:
            count = write(self.table, overwrite=self.overwrite)
            self.note(f"wrote {count:,} rows to {self.table}")

    def exit_code(self, results: Mapping[str, Result]) -> int:
        """Print missed thresholds on stderr, and return 0, or 5 if there are any."""
        code = 0
        directions = [(each, "below") for each in self.fail_under] + [
            (each, "above") for each in self.fail_over
        ]
        for name, result in results.items():
            under = f" under {name}" if len(results) > 1 else ""
            for (metric, limit), direction in directions:
                found = result.metrics.get(metric)
                is_elsewhere = any(metric in each.metrics for each in results.values())
                if found is None and is_elsewhere and metric not in result.undefined:
                    continue  # this result has other metrics
                if found is None:
                    print_stderr(f"missed: {metric} has no value with these images")
                elif found.value < limit if direction == "below" else found.value > limit:
                    print_stderr(f"missed: {metric} is {found.value:.4f}{under}, {direction} {limit:g}")
                else:
                    continue
                code = THRESHOLD_MISSED
        return code
