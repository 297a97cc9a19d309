"""A command in several processes started by torchrun: rank 0 writes the output, and an error is printed once.

All other ranks are silent. A launcher ends all processes when one of them fails. Therefore no rank exits before the rank with
the first error has printed it, since the other ranks may not know its details.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import click

from genpr.cli.console import print_stderr
from genpr.cli.main import COMMANDS, run
from genpr.cli.process import SignalReport, mute, signal_of, unmute
from genpr.distributed import Failure, FailureMonitor, join_ranks
from genpr.errors import ResourceError, UsageError
from genpr.runtime import is_launched, launched_rank

_SHARED = {"score", "features"}
_ONE_GPU = re.compile(r"(--device=)?cuda:[0-9]+")
_DEVICE = re.compile(r"--device[=\0]([^\0]*)")
_PRINT_TIME = 15.0  # seconds that another rank gets to print its error


def run_as_launched(args: Sequence[str], report: SignalReport) -> int:
    """Run the command line `args`, on all ranks if a launcher started several, and return the exit code."""
    if not is_launched():
        return run(args, report)
    rank = launched_rank()
    is_of_one_gpu = any(_ONE_GPU.fullmatch(arg) for arg in args)
    name = next((arg for arg in args if not arg.startswith("-")), None)
    is_shared = name in _SHARED
    if rank and (is_of_one_gpu or not is_shared):
        unmute()
        if name is not None and name not in COMMANDS:
            return run(args, report)
        print_stderr(f"rank {rank}: rank 0 runs this command, or refuses it; GENPR_ALONE=1 runs it here")
        return 0
    devices = _DEVICE.findall("\0".join(args))
    # The command itself checks the option.
    device = "cpu" if devices and devices[-1].startswith("cpu") else "auto"
    monitors: list[FailureMonitor] = []

    def shared(call: Callable[[], Any]) -> Any:  # noqa: ANN401
        if is_of_one_gpu:
            text = "each process uses its own GPU; give --device cuda without a number"
            raise UsageError(text, code="not-shared")
        return _run_shared(call, rank, device, monitors) if is_shared else call()

    try:
        code = run(args, report, shared)
    except _PrintedElsewhereError as error:
        return error.exit_code
    if code and monitors:
        mute()  # torch writes to stderr about ranks that have exited
        monitors[0].mark_printed()
    return code


class _PrintedElsewhereError(BaseException):
    """Another rank prints the error that ended the command."""

    def __init__(self, exit_code: int) -> None:
        super().__init__()
        self.exit_code = exit_code


def _run_shared(
    call: Callable[[], Any],
    rank: int,
    device: str,
    monitors: list[FailureMonitor],
) -> Any:  # noqa: ANN401
    """Run `call` as one of the ranks; raise its error, or _PrintedElsewhereError if another rank prints the error."""

    def print_waiting(text: str) -> None:  # on every rank, since rank 0 may be missing
        unmute()
        print_stderr(f"rank {rank}: {text}")
        if rank:
            mute()

    def mute_after(failure: Failure) -> None:
        if failure.rank != rank and not failure.is_signal:
            mute()

    try:
        with join_ranks(device=device, on_waiting=print_waiting) as (_, monitor):
            if monitor is not None:
                monitors.append(monitor)
                monitor.on_failure = mute_after
            return call()
    except (Exception, KeyboardInterrupt) as error:
        is_signal = isinstance(error, KeyboardInterrupt | click.Abort)
        if monitors:
            first = monitors[0].report(error, signal_number=signal_of(error) if is_signal else None)
            if first.rank != rank and not is_signal:
                if first.is_signal and not rank:  # the other rank may have no time to print it
                    ended = ResourceError(f"rank {first.rank}: {first.message}", code=first.code)
                    ended.exit_code = first.exit_code
                    raise ended from error
                mute()
                monitors[0].wait_until_printed(_PRINT_TIME)
                raise _PrintedElsewhereError(first.exit_code) from error
        if is_signal:  # every rank receives it, and rank 0 prints it
            raise
        unmute()
        if rank and error.args and not str(error.args[0]).startswith("rank "):
            error.args = (f"rank {rank}: {error.args[0]}", *error.args[1:])
        raise
