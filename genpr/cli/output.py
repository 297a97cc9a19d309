"""The steps that all commands share: progress, the result on stdout, files, notices, and the exit code."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from genpr.cli.console import RESULT_PRINTED, print_stderr, print_stdout, progress_bars
from genpr.cli.options import INPUT, GroupedCommand, SourceType, follow_symlinks, option_group
from genpr.errors import some
from genpr.evaluation.options import PATTERN
from genpr.features.options import option
from genpr.images.paths import paths_of
from genpr.metrics.registry import ALL_METRICS, similar_metrics
from genpr.report.files import is_own_table
from genpr.storage import check_output, marked_by, replace_file

if TYPE_CHECKING:
    from genpr.evaluation.result import Result
    from genpr.notices import Notice

T = TypeVar("T")
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

    as_json: bool = option(False, "Print JSON instead of text.", flag="--json")
    quiet: bool = option(False, "Print no progress and no notices.", flag=("-q", "--quiet"))

    def run(self, compute: Callable[..., T], *inputs: object, options: Any) -> T:  # noqa: ANN401 - an option record
        """Call `compute(*inputs, options)` with progress bars."""
        with progress_bars(quiet=self.quiet) as progress:
            return compute(*inputs, replace(options, progress=progress))

    def show(self, notices: Iterable[Notice], text: str, *writes: Callable[[], object]) -> None:
        """Write each file that can be written, print the result in any case and notices once, then raise the first error."""
        errors = list[Exception]()
        for write in writes:
            try:
                write()
            except Exception as error:  # noqa: BLE001 - raised below
                errors.append(error)
        print_stdout(text)
        for notice in dict.fromkeys(notices):
            self.note(str(notice))
        for each in errors[1:]:
            print_stderr(f"error: {each}")
        if errors:
            errors[0].add_note(RESULT_PRINTED)
            raise errors[0]

    def show_record(self, record: object, text: str, notices: Iterable[Notice] = ()) -> None:
        """Print a record as JSON, or the text that says the same."""
        self.show(notices, json.dumps(record, allow_nan=False) if self.as_json else text)

    def note(self, text: str) -> None:
        """Print a line on stderr unless quiet."""
        if not self.quiet:
            print_stderr(text)


def input_paths() -> list[Path]:
    """The files and folders that the running command reads, as far as they are on the command line."""
    context, found = click.get_current_context(), list[Path]()
    for each in context.command.params:
        value = context.params.get(each.name or "") if each.name not in _OUTPUTS else None
        for item in value if isinstance(value, tuple | list) else [value]:
            text = item[1] if isinstance(item, tuple) else item  # SETTING=FAKES of a sweep
            if isinstance(text, str | os.PathLike) and not str(text).startswith(PATTERN):
                is_pattern = isinstance(each.type, SourceType) or text is not item
                found += paths_of(str(text)) if is_pattern else [Path(text)]
    return found


@dataclass(frozen=True, kw_only=True)
class FileOutput(TextOutput):
    """The same, and files."""

    overwrite: bool = option(
        False, "Replace an existing output file even if genpr did not write it.", group="output"
    )

    def check_file(self, path: Path, suffixes: Sequence[str], is_own: Callable[[Path], bool]) -> None:
        """Refuse a file that the running command reads, or that genpr did not write."""
        check_output(path, suffixes, is_own, inputs=input_paths(), overwrite=self.overwrite)


@dataclass(frozen=True, kw_only=True)
class PageOutput(FileOutput):
    """The same, and an HTML page."""

    html: Path | None = option(None, "Also write a self-contained HTML page to FILE (.html).", **FILE)

    def __post_init__(self) -> None:
        self.check_files()

    def check_files(self) -> None:
        """Refuse files that cannot be written, before anything is computed; see `genpr.storage.check_output`."""
        if self.html is not None:
            self.check_file(self.html, (".html", ".htm"), _is_own_page)

    def check_several(self, count: int) -> None:
        """Refuse a page that compares results if there is only one."""
        if self.html is not None and count < 2:
            raise click.UsageError("--html compares several results, but there is only one")

    def write_page(self, page: Callable[[], str]) -> None:
        """Write the page if it is requested."""
        if self.html is None:
            return
        import_matplotlib()
        text = page()
        self.check_files()  # again, since a file may have been created meanwhile
        replace_file(self.html, text)
        self.note(f"wrote {self.html}")

    def write_comparison(self, results: Mapping[str, Result], *, by: str = "f1") -> None:
        """Write the page that compares results if it is requested."""
        self.check_several(len(results))
        if self.html is not None:
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
        (), "Exit with code 5 if a metric is above X, such as fid=10.", group="output", **LIMITS
    )

    def check_files(self) -> None:
        """Also the table."""
        super().check_files()
        if self.table is not None:
            self.check_file(self.table, (".csv",), is_own_table)

    @property
    def _limits(self) -> list[tuple[str, str, float]]:
        """The side of each threshold on which it is missed, its metric, and the threshold."""
        both = ("under", self.fail_under), ("over", self.fail_over)
        return [(side, *limit) for side, limits in both for limit in limits]

    def check(self, computed: Sequence[str]) -> None:
        """Refuse thresholds that cannot be missed, before anything is computed."""
        for side, metric, _ in self._limits:
            text = f"--fail-{side} {metric}=...: "
            if metric not in computed:
                like = similar_metrics(metric, computed)
                text += f"this is not among the computed metrics{like}: {some(computed, 20)}"
                raise click.UsageError(text)
            if (side, ALL_METRICS[metric].better) in (("under", "lower"), ("over", "higher")):
                raise click.UsageError(f"{text}{ALL_METRICS[metric].better} is better for this metric")

    def finish(self, result: Result, page: Callable[[], str], table: Callable[..., int] | None = None) -> int:
        """Write table and page if they are requested, print a result and its notices, and return the exit code."""
        from genpr.report.score_tables import result_text

        text = result.to_json() if self.as_json else result_text(result)
        self.show(result.notices, text, partial(self.write_table, table), partial(self.write_page, page))
        return self.exit_code({result.protocol: result})

    def write_table(self, write: Callable[..., int] | None) -> None:
        """Write the table if it is requested; `write` returns its number of rows."""
        if self.table is not None and write is not None:
            count = write(self.table, overwrite=self.overwrite)
            self.note(f"wrote {count:,} rows to {self.table}")

    def exit_code(self, results: Mapping[str, Result]) -> int:
        """Print missed thresholds on stderr, and return 0, or 5 if there are any."""
        code = 0
        for name, result in results.items():
            under = f" under {name}" if len(results) > 1 else ""
            for side, metric, limit in self._limits:
                found = result.metrics.get(metric)
                is_elsewhere = any(metric in each.metrics for each in results.values())
                if found is None and is_elsewhere and metric not in result.undefined:
                    continue  # this result has other metrics
                if found is None:
                    print_stderr(f"missed: {metric} has no value with these images")
                elif found.value < limit if side == "under" else found.value > limit:
                    word = {"under": "below", "over": "above"}[side]
                    print_stderr(f"missed: {metric} is {found.value:.4f}{under}, {word} {limit:g}")
                else:
                    continue
                code = THRESHOLD_MISSED
        return code


def source_command(
    *arguments: str, options: type[Any], output: type[TextOutput], without: Collection[str] = ()
) -> Callable[[Callable[..., Any]], click.Command]:
    """A command with the name of a function, which gets sources (or `out`), and records as `options` and `output`."""

    def add(function: Callable[..., Any]) -> click.Command:
        function = option_group(output, "output", without=without)(function)
        function = option_group(options)(follow_symlinks(function))
        for each in reversed(arguments):
            function = click.argument(each, type=OUTPUT if each == "out" else INPUT)(function)
        return click.command(cls=GroupedCommand)(function)

    return add
