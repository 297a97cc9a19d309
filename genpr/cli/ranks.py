"""One command as many processes: torchrun starts them, the first one speaks, and an error is said once.

All others write nothing. A launcher that sees one process end with an error ends the rest at once, so nobody ends before
the error was said; and the rank that met it says it, for the first may know nothing of it.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from genpr.cli.console import complain
from genpr.cli.main import run
from genpr.cli.signals import Farewell, signal_of
from genpr.cli.voice import Voice
from genpr.distributed.environment import is_launched, launched_rank
from genpr.errors import UsageError

if TYPE_CHECKING:
    from genpr.distributed.failures import Failure, Failures

_SHARED = {"score", "features"}
_HARMLESS = {"list", "cache", "weights"}  # the first does them alone
_TO_BE_SAID = 15.0  # seconds that an error may take to be said
_ONE_GPU = re.compile(r"(--device=)?cuda:[0-9]+")
_ALIKE = 2.0  # seconds in which all ranks meet the same error


def run_as_launched(args: Sequence[str], farewell: Farewell, voice: Voice) -> int:
    """Run the command line `args`, together with others if a launcher started several, and return the exit code."""
    if not is_launched():
        return run(args, farewell)
    command = next((arg for arg in args if not arg.startswith("-")), None)
    asks_only = command is None or command in _HARMLESS or bool({"-h", "--help", "--version"} & {*args})
    member = _Member(launched_rank(), voice)
    refusal = _refusal(command, args)
    if member.rank and (asks_only or refusal):
        return 0
    if asks_only:
        return run(args, farewell)
    try:
        code = run(args, farewell, partial(_refuse, refusal) if refusal else member.together)
    except _SilentError as silence:
        return silence.exit_code
    if code and member.failures is not None:
        voice.mute()  # torch writes to stderr of others that are gone
        member.failures.announce()
    return code


class _SilentError(BaseException):
    """Another rank says what happened."""

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


def _refuse(refusal: str, _call: Callable[[], Any]) -> Any:  # noqa: ANN401
    raise UsageError(refusal, code="not-shared")


class _Member:
    """This process among those that run the command.

    Args:
        rank: Its number.
        voice: Of this process; all but the first are silent until they have an error to tell.
    """

    def __init__(self, rank: int, voice: Voice) -> None:
        self.rank = rank
        self.failures: Failures | None = None
        self._voice = voice

    def together(self, call: Callable[[], Any]) -> Any:  # noqa: ANN401
        """Do `call` as one of the ranks; what it raises is for this one to say."""
        from genpr.distributed.launch import entered

        try:
            with entered(when_waiting=self._say_waiting) as (_, self.failures):
                if self.failures is not None:
                    self.failures.when_found = self._heard
                return call()
        except Exception as error:
            self._leave_or_prepare(error)
            raise
        except KeyboardInterrupt as error:
            self._tell_signal(error)
            raise

    def _say_waiting(self, text: str) -> None:
        """On every rank: where there are no others, this one may be none of the first."""
        self._voice.unmute()
        complain(f"rank {self.rank}: {text}")
        if self.rank:
            self._voice.mute()

    def _tell_signal(self, error: BaseException) -> None:
        """Every rank gets it, and the first one says it."""
        number = signal_of(error)
        if number == signal.SIGTERM:
            complain("a launcher ends all ranks when one of them ends: its report says which, and how")
        if self.failures is not None:
            self.failures.tell(error, number=number)

    def _leave_or_prepare(self, error: Exception) -> None:
        """Leave it to another rank to say what happened, or make ready to say it here."""
        failures = self.failures
        if failures is None:  # it never met the others
            self._voice.unmute()
            _name(error, self.rank)
            return
        if type(error).__name__ == "Abort":
            self._tell_signal(error)
            return
        first = failures.tell(error)
        if first.rank != self.rank:
            if first.is_by_signal and self.rank == 0:
                complain(f"error: rank {first.rank}: {first.message}")
            self._voice.mute()
            failures.await_announcement(_TO_BE_SAID)
            raise _SilentError(first.exit_code) from error
        is_common = failures.is_common(first, seconds=_ALIKE)
        self._voice.unmute()
        if not is_common and self.rank:
            _name(error, self.rank)

    def _heard(self, failure: Failure) -> None:
        """Another rank failed: it will say so, and this one nothing, whatever ends it."""
        if failure.rank != self.rank and not failure.is_by_signal:
            self._voice.mute()


def _name(error: Exception, rank: int) -> None:
    """Say in an error on which rank it was."""
    if error.args and isinstance(error.args[0], str) and not error.args[0].startswith("rank "):
        error.args = (f"rank {rank}: {error.args[0]}", *error.args[1:])
