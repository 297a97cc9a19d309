"""What the command line writes: data to stdout, everything else to stderr; safe for any terminal."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from genpr.errors import ResourceError, limited, printable

if TYPE_CHECKING:
    from genpr.features.options import StageProgress
    from genpr.notices import Notice

as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
cache_dir = click.option(
    "--cache-dir", type=click.Path(path_type=Path), help="The cache.  [default: GENPR_CACHE]"
)

_IN_ASCII = str.maketrans({"─": "-", "±": "+-", "…": "...", "×": "x", "²": "^2"})
_TOLD_AFTER = 5.0  # seconds; by then the pace is known
_LONG = 90.0


def complain(message: str) -> None:
    """One line on stderr: a name with a line end in it could otherwise pose as an error, or as a score."""
    click.echo(_held(limited(printable(limited(message))), sys.stderr), err=True)


def _held(text: str, stream: TextIO) -> str:
    """In the characters that a stream of ASCII or of an old code page has, for click would write others as UTF-8."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    with suppress(UnicodeEncodeError):
        text.encode(encoding)
        return text
    return text.translate(_IN_ASCII).encode(encoding, "backslashreplace").decode(encoding, "replace")


def emit(text: str) -> None:
    """The result, on stdout; a reader that went away (`| head`) is no error."""
    try:
        click.echo(_held(text, sys.stdout))
    except OSError as error:
        _drop_stdout()
        if not isinstance(error, BrokenPipeError):
            raise ResourceError(
                f"the result cannot be written to stdout ({error.strerror}); redirect it to a file on a disk with room, or to a pipe",
                code="stdout",
            ) from error


def finish_stdout(code: int) -> int:
    """Write what is left for stdout, and return the exit code: 4 instead of 0 if that is not possible."""
    try:
        sys.stdout.flush()
    except OSError as error:
        _drop_stdout()
        if not code:
            sys.stderr.write(f"error: the output cannot be written to stdout ({error.strerror})\n")
            return ResourceError.exit_code
    return code


def _drop_stdout() -> None:
    """Let stdout lead nowhere, so that what cannot be written fails only once."""
    with Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


def show_notices(notices: Sequence[Notice]) -> None:
    """One line on stderr per notice."""
    for item in notices:
        complain(f"{item.level}: {item.message}" + (f" ({item.hint})" if item.hint else ""))


@contextmanager
def progress_bars(*, quiet: bool, in_bytes: bool = False) -> Iterator[StageProgress | None]:
    """A bar with the remaining time per stage on a terminal, else a line for stages of minutes; nothing if `quiet`.

    Meanwhile stdout is stderr: what libraries and a custom extractor print must not end up in the result.
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
    """One line for a stage that will take minutes, as soon as that is known."""
    current, started, before, is_told = "", 0.0, 0, False

    def update(stage: str, done: int, total: int | None) -> None:
        nonlocal current, started, before, is_told
        if stage != current or done < before:
            current, started, is_told = stage, time.monotonic(), False
        before, seconds = done, time.monotonic() - started
        if total and done and not is_told and seconds >= _TOLD_AFTER:
            is_told, left = True, seconds * (total - done) / done
            if left > _LONG:
                complain(f"{stage}: {done:,} of {total:,}, about {left / 60:.0f} min left")

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
