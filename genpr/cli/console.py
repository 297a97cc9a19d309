"""Output of the command line: data on stdout, everything else on stderr, printable on any terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from genpr.errors import ResourceError, limited, printable

if TYPE_CHECKING:
    from genpr.features.options import StageProgress

RESULT_PRINTED = "the result was printed before this error"
"""Note of an error that `--json` prints on stderr only, so that stdout has one document."""


def print_stderr(message: str) -> None:
    """Print one line on stderr. Line ends within names are escaped, since they could imitate an error or a score."""
    with suppress(OSError):  # a message that cannot be written does not cost the result
        print(limited(printable(limited(message))), file=sys.stderr, flush=True)  # noqa: T201


def print_stdout(text: str) -> None:
    """Print the result on stdout; a reader that closes the pipe (`| head`) is not an error."""
    try:
        print(text, flush=True)  # noqa: T201
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
            print_stderr(f"error: the output cannot be written to stdout ({error.strerror})")
            return ResourceError.exit_code
    return code


def _drop_stdout() -> None:
    """Redirect stdout to the null device, so that a failed write is reported only once."""
    with Path(os.devnull).open("w") as null:
        os.dup2(null.fileno(), sys.stdout.fileno())


@contextmanager
def progress_bars(*, quiet: bool, in_bytes: bool = False) -> Iterator[StageProgress | None]:
    """Show a progress bar per stage on a terminal, unless `quiet`.

    Meanwhile stdout is redirected to stderr, so that output of libraries and custom extractors does not mix with the result.
    """
    with redirect_stdout(sys.stderr):
        if quiet or not sys.stderr.isatty():
            yield None
            return
        from rich import progress as bars
        from rich.console import Console

        count = bars.DownloadColumn() if in_bytes else bars.MofNCompleteColumn()
        columns = (
            bars.TextColumn("{task.description:<10}"),
            bars.BarColumn(),
            count,
            bars.TimeRemainingColumn(),
        )
        with bars.Progress(*columns, console=Console(stderr=True), transient=True) as progress:
            tasks: dict[str, bars.TaskID] = {}

            def update(stage: str, done: int, total: int | None) -> None:
                if stage not in tasks:
                    tasks[stage] = progress.add_task(stage, total=total)
                elif done < progress.tasks[tasks[stage]].completed:
                    progress.reset(tasks[stage], total=total)  # the next search
                progress.update(tasks[stage], completed=done, total=total)

            yield update
