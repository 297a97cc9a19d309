"""Output of the command line: data on stdout, everything else on stderr, printable on any terminal."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from genpr.cli.grouped import grouped_option
from genpr.errors import ResourceError, limited, printable

if TYPE_CHECKING:
    from genpr.features.options import StageProgress
    from genpr.notices import Notice

# Not from the option records: `genpr doctor` must start without numpy, which these import.
JSON_HELP = "Print JSON instead of text."
as_json = grouped_option("--json", "as_json", is_flag=True, help=JSON_HELP)
cache_dir = grouped_option(
    "--cache-dir",
    type=click.Path(path_type=Path),
    metavar="DIR",
    unset="GENPR_CACHE, or the user's cache folder",
    help="Folder of the feature cache.",
)

RESULT_PRINTED = "the result was printed before this error"
"""Note of an error that `--json` prints on stderr only, so that stdout has one document."""

_IN_ASCII = str.maketrans({"─": "-", "±": "+-", "…": "...", "×": "x", "²": "^2"})
_REPORTED_AFTER = 5.0  # seconds; the pace is known by then
_LONG = 90.0  # seconds


def print_stderr(message: str) -> None:
    """Print one line on stderr. Line ends within names are escaped, since they could imitate an error or a score."""
    with suppress(OSError):  # a message that cannot be written does not cost the result
        click.echo(_encodable(limited(printable(limited(message))), sys.stderr), err=True)


def _encodable(text: str, stream: TextIO) -> str:
    """Replace characters that the encoding of a stream lacks, because click would write them as UTF-8."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    with suppress(UnicodeEncodeError):
        text.encode(encoding)
        return text
    return text.translate(_IN_ASCII).encode(encoding, "backslashreplace").decode(encoding, "replace")


def print_stdout(text: str) -> None:
    """Print the result on stdout; a reader that closes the pipe (`| head`) is not an error."""
    try:
        click.echo(_encodable(text, sys.stdout))
    except OSError as error:
        _drop_stdout()
        if not isinstance(error, BrokenPipeError):
            raise ResourceError(
                f"the result cannot be written to stdout ({error.strerror}); redirect stdout to a pipe, or to a file on a disk with free space",
                code="stdout",
            ) from error


def finish_stdout(code: int) -> int:
    """Flush stdout, and return the exit code: 4 instead of 0 if stdout cannot be written."""
    try:
        sys.stdout.flush()
    except OSError as error:
        _drop_stdout()
        if not code:
            sys.stderr.write(f"error: the output cannot be written to stdout ({error.strerror})\n")
            return ResourceError.exit_code
    return code


def _drop_stdout() -> None:
    """Redirect stdout to the null device, so that a failed write is reported only once."""
    with Path(os.devnull).open("w") as null:
        os.dup2(null.fileno(), sys.stdout.fileno())


def show_notices(notices: Sequence[Notice]) -> None:
    """Print each notice on stderr: in one line, or wrapped to the width of a terminal."""
    if not sys.stderr.isatty():
        for item in notices:
            print_stderr(str(item))
        return
    from rich.console import Console

    from genpr.report.text import wrapped

    width = Console(stderr=True).width
    for item in notices:
        click.echo(_encodable(wrapped(limited(str(item)), width=width), sys.stderr), err=True)


@contextmanager
def progress_bars(*, quiet: bool, in_bytes: bool = False) -> Iterator[StageProgress | None]:
    """Show a progress bar per stage on a terminal, else one line for stages that take minutes; nothing if `quiet`.

    Meanwhile stdout is redirected to stderr, so that output of libraries and custom extractors does not mix with the result.
    """
    with redirect_stdout(sys.stderr):
        if quiet:
            yield None
        elif sys.stderr.isatty():
            with _bars(in_bytes=in_bytes) as update:
                yield update
        else:
            yield _long_stages()


def _long_stages() -> StageProgress:
    """Print one line for a stage that will take minutes, as soon as that is known."""
    current, started, before, is_reported = "", 0.0, 0, False

    def update(stage: str, done: int, total: int | None) -> None:
        nonlocal current, started, before, is_reported
        if stage != current or done < before:
            current, started, is_reported = stage, time.monotonic(), False
        before, seconds = done, time.monotonic() - started
        if total and done and not is_reported and seconds >= _REPORTED_AFTER:
            is_reported, left = True, seconds * (total - done) / done
            if left > _LONG:
                print_stderr(f"{stage}: {done:,} of {total:,}, about {left / 60:.0f} min left")

    return update


@contextmanager
def _bars(*, in_bytes: bool) -> Iterator[StageProgress]:
    from rich import progress as bars
    from rich.console import Console

    count = bars.DownloadColumn() if in_bytes else bars.MofNCompleteColumn()
    columns = (bars.TextColumn("{task.description:<10}"), bars.BarColumn(), count, bars.TimeRemainingColumn())
    with bars.Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        tasks: dict[str, bars.TaskID] = {}

        def update(stage: str, done: int, total: int | None) -> None:
            if stage not in tasks:
                tasks[stage] = progress.add_task(stage, total=total)
            elif done < progress.tasks[tasks[stage]].completed:
                progress.reset(tasks[stage], total=total)  # the next search
            progress.update(tasks[stage], completed=done, total=total)

        yield update
