"""The ranks of a distributed run wait for each other for a limited time, and learn why the others do not come.

A collective operation that one rank enters alone blocks it for the time limit of the whole process group, ten to thirty
minutes, and NCCL then aborts the process. So the ranks meet first, in the key-value store by which the group was made:
that works with every backend, can be given up, and leaves nothing half done.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch.distributed as dist

from genpr.errors import ResourceError, UsageError

_GO, _GIVEN_UP = b"go", b"given up"
_SHORTEST, _LONGEST = 0.005, 0.25  # seconds between two looks

_rounds: Counter[str] = (
    Counter()
)  # how often this process met, by occasion: the same on every rank that was there


@dataclass(frozen=True)
class Place:
    """This process among those that work together.

    Attributes:
        rank: Its number in the world.
        ranks: The numbers of all of them, ascending.
    """

    rank: int
    ranks: tuple[int, ...]

    @property
    def is_alone(self) -> bool:
        """Whether there is nobody to wait for."""
        return len(self.ranks) == 1


def place_of(group: Any = None) -> Place:  # noqa: ANN401 - torch's types for groups differ between backends
    """Where this process stands in a process group; None is the world, and alone without torch.distributed."""
    if not (dist.is_available() and dist.is_initialized()):
        return Place(0, (0,))
    members = dist.get_process_group_ranks(
        dist.group.WORLD if group is None else group
    )  # older torch knows no None
    return Place(dist.get_rank(), tuple(sorted(members)))


def check_seconds(name: str, seconds: float) -> None:
    """Refuse what is no time.

    Raises:
        UsageError: It is not a positive number ("bad-option").
    """
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0:
        raise UsageError(f"{name} must be a positive number of seconds, not {seconds!r}", code="bad-option")


def meet(occasion: str, place: Place, *, timeout: float, hint: str) -> None:
    """Return when all ranks are here; or raise, on all that are.

    Whether they met is decided once, by whoever is first: the last rank to arrive, or one that gave up. So no rank goes
    on into a collective operation that another will not join. One that comes too late waits for the next meeting.

    Args:
        occasion: What they meet for.
        place: This process.
        timeout: Seconds to wait.
        hint: What to do, for the message.

    Raises:
        ResourceError: Others did not come in time ("ranks-missing"), or cannot be reached ("ranks-lost").
    """
    if place.is_alone:
        return
    with _reached(occasion) as store:
        base = f"genpr/{occasion}/{'-'.join(map(str, place.ranks))}"
        while _decision(store, key := f"{base}/{_rounds[base]}") == _GIVEN_UP:
            _rounds[base] += 1
        _rounds[base] += 1
        store.set(f"{key}/{place.rank}", "here")
        if store.add(f"{key}/arrived", 1) == len(place.ranks):
            _decide(store, key, _GO)
        if not _appears(store, f"{key}/decision", timeout):
            _decide(store, key, _GIVEN_UP)
        if _appears(store, f"{key}/decision", timeout) and _decision(store, key) == _GO:
            return
        missing = [rank for rank in place.ranks if not store.check([f"{key}/{rank}"])]
    raise ResourceError(
        f"rank {place.rank} came to {occasion}, but {_named(missing)} did not within {timeout:g} s; {hint}",
        code="ranks-missing",
    )


def from_rank_zero(occasion: str, place: Place, compute: Callable[[], Any], *, timeout: float) -> Any:  # noqa: ANN401
    """What `compute` gives on the first rank, on every rank; the others wait.

    Args:
        occasion: What it is.
        place: This process.
        compute: Returns plain JSON types; called on the first rank only.
        timeout: Seconds that the others wait.

    Raises:
        ResourceError: On the others: the first rank failed ("rank-failed"), did not finish in time ("ranks-missing"), or
            cannot be reached ("ranks-lost").
    """
    if place.is_alone:
        return compute()
    base = f"genpr/{occasion}/{'-'.join(map(str, place.ranks))}/told"
    key = f"{base}/{_rounds[base]}"
    _rounds[base] += 1
    first = place.ranks[0]
    if place.rank == first:
        return _told(compute, key, occasion)
    with _reached(occasion) as store:
        if not _appears(store, key, timeout):
            raise ResourceError(
                f"rank {place.rank} waited for {occasion} on rank {first}, which was not done within {timeout:g} s",
                code="ranks-missing",
            )
        answer = json.loads(store.get(key))
    if "failed" in answer:
        raise ResourceError(f"{occasion} failed on rank {first}: {answer['failed']}", code="rank-failed")
    return answer["value"]


def _told(compute: Callable[[], Any], key: str, occasion: str) -> Any:  # noqa: ANN401
    try:
        value = compute()
        text = json.dumps({"value": value}, allow_nan=False)
    except BaseException as error:
        with _reached(occasion) as store:
            store.set(key, json.dumps({"failed": f"{type(error).__name__}: {error}"}))
        raise
    with _reached(occasion) as store:
        store.set(key, text)
    return value


@contextmanager
def _reached(occasion: str) -> Iterator[Any]:
    """The store; what it raises means that the process which keeps it is gone."""
    try:
        yield dist.distributed_c10d._get_default_store()  # the only door to it
    except ResourceError:
        raise
    except RuntimeError as error:
        text = " ".join(str(error).split())[:200]
        raise ResourceError(
            f"the other ranks cannot be reached for {occasion} ({text}); look for the error of the one that ended first",
            code="ranks-lost",
        ) from error


def _decide(store: Any, key: str, decision: bytes) -> None:  # noqa: ANN401
    """Say how a meeting ended, unless another rank did."""
    if store.add(f"{key}/claim", 1) == 1:
        store.set(f"{key}/decision", decision.decode())


def _decision(store: Any, key: str) -> bytes | None:  # noqa: ANN401
    name = f"{key}/decision"
    return bytes(store.get(name)) if store.check([name]) else None


def _appears(store: Any, key: str, timeout: float) -> bool:  # noqa: ANN401
    """Whether a key is set before the time is up.

    It looks again and again: one long wait would keep the store from other threads, such as NCCL's watchdog, and from
    Ctrl-C.
    """
    end, pause = time.monotonic() + timeout, _SHORTEST
    while not store.check([key]):
        left = end - time.monotonic()
        if left <= 0:
            return False
        time.sleep(min(pause, left))
        pause = min(2 * pause, _LONGEST)
    return True


def _named(ranks: Sequence[int]) -> str:
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}" if ranks else "another rank"
