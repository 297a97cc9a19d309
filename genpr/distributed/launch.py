"""Enter a team of processes that a launcher such as torchrun started."""

from __future__ import annotations

import itertools
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

from genpr.distributed.environment import NEEDED, is_launched
from genpr.distributed.exchange import Ranks
from genpr.distributed.failures import Failures
from genpr.distributed.team import Team, current_team, working_in
from genpr.errors import ResourceError, UsageError
from genpr.runtime import own_cores, resolve_device, shared_machine, torch_threads, usable_cores

_TO_MEET = timedelta(minutes=5)
_SAID_AFTER = 5.0  # seconds

_entries = itertools.count()  # how often this process entered a team: the same number on every rank


@contextmanager
def all_ranks(*, timeout: float = 7200.0) -> Iterator[Team]:
    """Let all processes that a launcher such as torchrun started compute the scores of this block together.

    Every one of them must enter it, and do the same there: each decodes and embeds its share of the images and looks at
    its share of all pairs, and each gets the whole result. Numbers do not depend on how many there are. Without a launcher
    nothing changes, and outside of such a block genpr never talks to other processes: a training that scores on its
    first rank alone goes on as before.

    A process group that exists already is used; else one is made, and ended with the block. On GPUs, each process works on
    the one that torch's current device is, or on number LOCAL_RANK if the group is made here.

    Args:
        timeout: Seconds that one rank waits for the others at most, who may be busy for long.

    Yields:
        The team; `team.is_first` is true in one of the processes.

    Raises:
        UsageError: The launcher's variables make no sense ("bad-option").
        ResourceError: The others do not come ("ranks-missing"), end without a word ("ranks-lost"), or fail
            ("rank-failed"), or are elsewhere in the program ("ranks-apart").

    Example:
        >>> import genpr
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> with genpr.all_ranks() as team:  # in a script that torchrun starts
        ...     result = genpr.score(rng.normal(size=(200, 4)), rng.normal(size=(200, 4)))
        >>> team.size if team.is_first else 0
        1
    """
    if not timeout > 0:
        raise UsageError(f"timeout must be a positive number of seconds, not {timeout!r}", code="bad-option")
    if not current_team().is_alone:
        yield current_team()
        return
    with entered(timeout) as (team, failures):
        try:
            yield team
        except BaseException as error:
            if failures is not None:
                failures.tell(error)
            raise


@contextmanager
def entered(
    timeout: float = 7200.0, *, when_waiting: Callable[[str], None] | None = None
) -> Iterator[tuple[Team, Failures | None]]:
    """The team of this process, and what its members know of each other's errors; None for one that is alone.

    Args:
        timeout: As of `all_ranks`.
        when_waiting: Called in a thread, with what is waited for, if the others have not come after some seconds.
    """
    import torch.distributed as dist

    exists = dist.is_available() and dist.is_initialized()
    if not exists and not is_launched():
        yield current_team(), None
        return
    if not exists:
        with _notice_of_waiting(when_waiting):
            _make_group()
    if dist.get_world_size() == 1:
        yield current_team(), None
        return
    group = dist.new_group(backend=_backend(), timeout=timedelta(seconds=timeout))
    base = dist.distributed_c10d._get_default_store()  # the only door to it
    prefix = f"genpr/team/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}/{next(_entries)}"
    store = dist.distributed_c10d.PrefixStore(prefix, base)
    failures = Failures(store, dist.get_rank(), dist.get_world_size())
    try:
        team = Ranks(group, failures)
        with _share_of_the_machine(team), working_in(team):
            yield team, failures
        team.part()
    finally:
        failures.close()
    # Not after an error: it would wait for those who are gone.
    dist.destroy_process_group(None if not exists else group)


@contextmanager
def _notice_of_waiting(tell: Callable[[str], None] | None) -> Iterator[None]:
    """Call `tell` if the block takes longer than processes take that start together."""
    variables = " ".join(f"{name}={os.environ[name]}" for name in NEEDED)
    text = (
        f"waiting up to {_TO_MEET.total_seconds() / 60:.0f} minutes for the other processes that the environment names "
        f"({variables}); if a training left these variables, set GENPR_ALONE=1"
    )
    timer = threading.Timer(_SAID_AFTER, lambda: tell(text) if tell is not None else None)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()  # what it writes must not mix with what follows


def _make_group() -> None:
    """The process group of what the launcher said in the environment."""
    import torch
    import torch.distributed as dist

    if resolve_device().type == "cuda":
        torch.cuda.set_device(_own_gpu(torch.cuda.device_count()))
    try:
        dist.init_process_group("gloo", timeout=_TO_MEET)
    except (RuntimeError, ValueError) as error:
        text = " ".join(str(error).split())[:200]
        raise ResourceError(
            f"the other ranks were not found at {os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']} ({text}); were as "
            f"many processes started as WORLD_SIZE={os.environ['WORLD_SIZE']} says? If a training started this one by itself, set GENPR_ALONE=1",
            code="ranks-missing",
        ) from error


def _own_gpu(count: int) -> int:
    """Which of the `count` GPUs of this machine is for this process."""
    number = os.environ.get("LOCAL_RANK", "0")
    if not (number.isascii() and number.isdecimal() and len(number) < 10):
        raise UsageError(
            f"LOCAL_RANK says which process of its machine this is, from 0, and was set to {number!r}; launchers such as "
            "torchrun set it",
            code="bad-option",
        )
    if int(number) >= count:
        raise ResourceError(
            f"this is process {int(number) + 1} on a machine with {count} GPUs; start one process per GPU "
            "(torchrun --nproc-per-node gpu)",
            code="no-cuda",
        )
    return int(number)


def _backend() -> str:
    import torch.distributed as dist

    return "cpu:gloo,cuda:nccl" if resolve_device().type == "cuda" and dist.is_nccl_available() else "gloo"


@contextmanager
def _share_of_the_machine(team: Team) -> Iterator[None]:
    """Use the cores and the memory that are left when every rank on this machine takes its part.

    Torch would use one thread in each, as torchrun tells it to, or all cores in each.
    """
    own = {"machine": socket.gethostname(), "cores": own_cores()}
    here = [other for other in team.told(own) if other["machine"] == own["machine"]]
    beside = [other for other in here if {*other["cores"]} & {*own["cores"]}]
    with shared_machine(cores=len(beside), memory=len(here)), torch_threads(usable_cores()):
        yield
