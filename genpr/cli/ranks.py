"""A command in several processes started by torchrun: rank 0 writes the output, and an error is printed once.

All other ranks are silent. A launcher ends all processes when one of them fails. Therefore a rank whose error is printed by
another one exits later than that.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import click

from genpr.cli.console import print_stderr
from genpr.cli.main import COMMANDS, run
from genpr.cli.process import Ending, as_signal, mute, unmute
from genpr.distributed import Communicator, all_ranks
from genpr.errors import UsageError
from genpr.runtime import is_launched, launched_rank

_SHARED = {"score", "features"}
_DEVICE = re.compile(r"--device[=\0]([^\0]*)")
_PRINT_TIME = 1.0  # seconds that another rank gets to print its error


def run_as_launched(args: Sequence[str], ending: Ending) -> int:
    """Run the command line `args`, on all ranks if a launcher started several, and return the exit code."""
    if not is_launched():
        return run(args, ending)
    name = next((arg for arg in args if not arg.startswith("-")), None)
    if name in _SHARED:
        return run(args, ending, _joined_ranks(args))
    unmute()
    if launched_rank() and name in COMMANDS:
        print_stderr(f"rank {launched_rank()}: rank 0 runs this command; GENPR_ALONE=1 runs it here")
        return 0
    return run(args, ending)


@contextmanager
def _joined_ranks(args: Sequence[str]) -> Iterator[None]:
    """Compute with the other ranks in the block; mute all ranks but the first with an error."""
    device = (_DEVICE.findall("\0".join(args)) or ["auto"])[-1]  # which the command checks
    rank, communicator = launched_rank(), Communicator()
    try:
        with all_ranks(device="cpu" if device.startswith("cpu") else "auto") as communicator:
            if re.fullmatch("cuda:[0-9]+", device):
                text = "each process uses its own GPU; give --device cuda without a number"
                raise UsageError(text, code="not-shared")  # noqa: TRY301 - as an error of the command
            try:
                yield
            except click.Abort as error:
                raise as_signal(error) from None
    except (Exception, KeyboardInterrupt) as error:
        first = communicator.first_error
        if first is not None and first.rank != rank:
            mute()
            time.sleep(_PRINT_TIME)
            raise
        unmute()
        if rank and error.args and not str(error.args[0]).startswith("rank "):
            error.args = (f"rank {rank}: {error.args[0]}", *error.args[1:])
        raise
