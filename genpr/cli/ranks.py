"""One command as several processes started by torchrun: rank 0 writes the output, and an error is printed once.

All other ranks are silent. A launcher that sees one process end with an error ends the rest at once, so no rank ends before
the error was printed. The rank that met the error prints it, since rank 0 may not know its details.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Sequence
from typing import Any

import click

from genpr.cli.console import complain
from genpr.cli.main import run
from genpr.cli.process import MutableOutput, SignalReport, signal_of
from genpr.distributed import Failure, FailureMonitor, join_ranks
from genpr.errors import UsageError
from genpr.runtime import is_launched, launched_rank

_SHARED = {"score", "features"}
_ON_RANK_ZERO = {None, "list", "cache", "weights"}
_ONE_GPU = re.compile(r"(--device=)?cuda:[0-9]+")
_PRINT_TIME = 15.0  # seconds in which another rank prints its error
_COMMON_TIME = 2.0  # seconds in which all ranks meet the same error


def run_as_launched(args: Sequence[str], report: SignalReport, output: MutableOutput) -> int:
    """Run the command line `args`, on all ranks if a launcher started several, and return the exit code."""
    if not is_launched():
        return run(args, report)
    command = next((arg for arg in args if not arg.startswith("-")), None)
    needs_one_rank = command in _ON_RANK_ZERO or bool({"-h", "--help", "--version"} & {*args})
    rank = _CommandRank(launched_rank(), output)
    refusal = None if needs_one_rank else _refusal(command, args)
    if rank.number and (needs_one_rank or refusal):
        return 0
    if needs_one_rank:
        return run(args, report)

    def shared(call: Callable[[], Any]) -> Any:  # noqa: ANN401
        if refusal:
            raise UsageError(refusal, code="not-shared")
        return rank.run_shared(call)

    try:
        code = run(args, report, shared)
    except _PrintedElsewhereError as error:
        return error.exit_code
    if code and rank.monitor is not None:
        output.mute()  # torch writes to stderr about ranks that have ended
        rank.monitor.mark_printed()
    return code


class _PrintedElsewhereError(BaseException):
    """Another rank prints the error that ended the command."""

    def __init__(self, exit_code: int) -> None:
        super().__init__()
        self.exit_code = exit_code


def _refusal(command: str | None, args: Sequence[str]) -> str | None:
    """Why several processes cannot run this together; None if they can."""
    if command not in _SHARED:
        return "only `genpr score` and `genpr features` can be shared by processes; run this command without torchrun"
    if any(_ONE_GPU.fullmatch(arg) for arg in args):
        return "each process takes a GPU of its own; leave the number out: --device cuda"
    return None


class _CommandRank:
    """This process among those that run the command; all ranks but the first are silent until they have an error."""

    def __init__(self, number: int, output: MutableOutput) -> None:
        self.number = number
        self.monitor: FailureMonitor | None = None
        self._output = output

    def run_shared(self, call: Callable[[], Any]) -> Any:  # noqa: ANN401
        """Run `call` as one of the ranks; what it raises is for this rank to print."""
        try:
            with join_ranks(when_waiting=self._print_waiting) as (_, self.monitor):
                if self.monitor is not None:
                    self.monitor.when_found = self._mute_after
                return call()
        except (KeyboardInterrupt, click.Abort) as error:
            self._report_signal(error)
            raise
        except Exception as error:
            self._report(error)
            raise

    def _print_waiting(self, text: str) -> None:
        """On every rank: if there are no others, none may be rank 0."""
        self._output.unmute()
        complain(f"rank {self.number}: {text}")
        if self.number:
            self._output.mute()

    def _report_signal(self, error: BaseException) -> None:
        """Every rank gets it, and rank 0 prints it."""
        number = signal_of(error)
        if number == signal.SIGTERM:
            complain("a launcher ends all ranks when one of them ends: its report says which, and how")
        if self.monitor is not None:
            self.monitor.report(error, signal_number=number)

    def _report(self, error: Exception) -> None:
        """Return if this rank has to print the error; else raise _PrintedElsewhereError once another rank has."""
        if self.monitor is None:  # the ranks never met
            self._output.unmute()
            _add_rank(error, self.number)
            return
        first = self.monitor.report(error)
        if first.rank != self.number:
            if first.is_signal and self.number == 0:
                complain(f"error: rank {first.rank}: {first.message}")
            self._output.mute()
            self.monitor.wait_until_printed(_PRINT_TIME)
            raise _PrintedElsewhereError(first.exit_code) from error
        is_common = self.monitor.is_common(first, seconds=_COMMON_TIME)
        self._output.unmute()
        if not is_common and self.number:
            _add_rank(error, self.number)

    def _mute_after(self, failure: Failure) -> None:
        """Write nothing more after an error of another rank, which prints it."""
        if failure.rank != self.number and not failure.is_signal:
            self._output.mute()


def _add_rank(error: Exception, rank: int) -> None:
    """Put the rank in front of the message of an error."""
    if error.args and isinstance(error.args[0], str) and not error.args[0].startswith("rank "):
        error.args = (f"rank {rank}: {error.args[0]}", *error.args[1:])
