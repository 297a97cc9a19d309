"""Scores computed by several processes: their communication, and the propagation of errors among them.

Every rank runs the same code. Shared work is a list of items in a fixed order, of which rank r computes items r, r + size, ...,
and all ranks get all results in that order. So no result depends on the number of ranks. Importing this module does not
import torch, so that the command line can use it before a command runs.
"""

from __future__ import annotations

import io
import itertools
import json
import os
import signal
import socket
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from genpr.errors import GenprError, ResourceError, UsageError, short
from genpr.runtime import (
    LAUNCHER_VARIABLES,
    available_cores,
    check_device,
    is_launched,
    is_out_of_memory,
    resolve_device,
    shared_machine,
    torch_threads,
    usable_cores,
)

if TYPE_CHECKING:
    import torch
    from torch import Tensor

_Item = TypeVar("_Item")
_Value = TypeVar("_Value")

_START_TIMEOUT = timedelta(minutes=5)
_MAX_SECONDS = 365 * 86_400
_NOTICE_AFTER = 5.0  # seconds of waiting for the other processes
_CHUNK = 2**26  # bytes of one rank per operation
_GATHERED = 2**24  # bytes of all ranks per gather; gloo, which copies them, is slower with 4 or 64 MB
_STORE_PAUSES = 0.005, 0.25  # seconds between two reads of the store: first and maximum
_COLLECTIVE_PAUSES = 0.00005, 0.005
_WATCH_PAUSE = 0.2
# Seconds for a rank that closed a connection to report its error, and for others to read it.
_REPORT_TIME = 1.0
_ALL_ARRIVED, _TIMED_OUT = "go", "given up"
SAME_ARGUMENTS = "pass the same arguments on all ranks"
_ONE_DEVICE_EACH = (
    "each process needs a separate GPU as torch's current device (torchrun --nproc-per-node gpu, srun --gpus-per-task=1), or "
    "the CPU (--device cpu, in Python all_ranks(device='cpu'))"
)

_entries = itertools.count()  # calls of `join_ranks` in this process: equal on all ranks
_rendezvous_counts = Counter[str]()  # of this process, by name and ranks: equal on all ranks that took part


class Communicator:
    """The processes that compute together: a single process, or those of a process group."""

    rank = 0
    size = 1
    is_single_process = True
    is_rank_zero = True
    is_one_machine = False  # whether all processes are known to run on one machine

    def __init__(self, group: Any = None, monitor: FailureMonitor | None = None) -> None:  # noqa: ANN401
        self._group, self._monitor = group, monitor
        self._step = 0
        self._is_finished = False
        if group is not None:
            import torch.distributed as dist

            self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
            self.is_single_process, self.is_rank_zero = self.size == 1, self.rank == 0

    def share(self, items: Sequence[_Item]) -> Sequence[_Item]:
        """The `items` of this rank: r, r + size, ..."""
        return items[self.rank :: self.size]

    def all_gather(self, rows: Tensor, what: str = "rows") -> list[Tensor]:
        """The `rows` (n, ...) of every rank, by rank; n may differ. `what` they are must be equal on all ranks."""
        if self.is_single_process:
            return [rows]
        rows = rows.contiguous()
        counts = self._synchronize(f"all_gather {what} {rows.dtype} {tuple(rows.shape[1:])}", len(rows))
        parts = [
            rows if rank == self.rank else rows.new_empty(count, *rows.shape[1:])
            for rank, count in enumerate(counts)
        ]
        self._fill(parts)
        return parts

    def all_gather_tensors(
        self, results: Sequence[tuple[Tensor, ...]], device: torch.device
    ) -> list[list[tuple[Tensor, ...]]]:
        """The `results` of every rank, by rank: any number of tuples of tensors of any shape, on `device`."""
        if self.is_single_process:
            return [[*results]]
        import torch

        buffer = io.BytesIO()
        # torch.save writes the whole storage of a view.
        torch.save([tuple(part.clone() for part in each) for each in results], buffer)
        parts = map(io.BytesIO, self._all_gather_bytes(buffer.getvalue(), "tensors"))
        return [torch.load(part, map_location=device, weights_only=True) for part in parts]

    def broadcast_parts(self, parts: Sequence[tuple[int, Tensor]]) -> None:
        """Copy each part of a tensor from its rank to all other ranks, in place."""
        if parts and not self.is_single_process:
            self._synchronize(f"broadcast_parts {[(owner, tuple(part.shape)) for owner, part in parts]}")
            by_owner = ([part for owner, part in parts if owner == rank] for rank in range(self.size))
            for one_each in itertools.zip_longest(*by_owner, fillvalue=parts[0][1][:0]):
                self._fill(one_each)

    def all_reduce_sum(self, counts: Tensor) -> Tensor:
        """The sum over ranks of integer `counts` of one shape."""
        if self.is_single_process:
            return counts
        import torch
        import torch.distributed as dist

        self._synchronize(f"all_reduce_sum {counts.dtype} {tuple(counts.shape)}")
        total = counts.clone(memory_format=torch.contiguous_format)
        self._wait(dist.all_reduce(total, group=self._group, async_op=True))
        return total

    def all_gather_object(self, value: Any, what: str = "object") -> list[Any]:  # noqa: ANN401 - plain JSON types
        """The `value`, of plain JSON types, of every rank, by rank; see `all_gather`."""
        if self.is_single_process:
            return [value]
        return [json.loads(part) for part in self._all_gather_bytes(json.dumps(value).encode(), what)]

    def check_same(
        self,
        own: Mapping[str, Any],
        what: str,
        advice: str = SAME_ARGUMENTS,
        error: Callable[..., GenprError] = UsageError,
    ) -> None:
        """Raise an error on all ranks that names what differs between them ("ranks-differ"); `own` are plain JSON types."""
        if not self.is_single_process:
            found = _difference(dict(enumerate(self.all_gather_object(own, what))), what)
            if found is not None:
                self.raise_on_all_ranks(error(f"{found}; {advice}", code="ranks-differ"))

    def raise_on_all_ranks(self, error: GenprError) -> NoReturn:
        """Raise an error that every rank has found, when all have found it: an error interrupts other ranks."""
        with suppress(ResourceError):
            self._synchronize("raise")
        raise error

    def broadcast_from_rank0(self, compute: Callable[[], _Value]) -> _Value:
        """The result of `compute`, of plain JSON types, which is called on rank 0 only."""
        if self.is_single_process:
            return compute()
        value = None
        if self.is_rank_zero:
            with single_process():
                value = compute()
        found: _Value = self.all_gather_object(value, f"result of {getattr(compute, '__qualname__', '')}")[0]
        return found

    def finish(self) -> None:
        """Wait for all ranks, after the last operation."""
        if not self.is_single_process and not self._is_finished:
            self._synchronize("finish")
            self._is_finished = True

    def _all_gather_bytes(self, data: bytes, what: str) -> list[bytes]:
        import torch

        parts = self.all_gather(torch.frombuffer(bytearray(data), dtype=torch.uint8), what)
        return [part.numpy().tobytes() for part in parts]

    def _synchronize(self, operation: str, number: int = 0) -> list[int]:
        """Check that all ranks call this `operation`, and return the `number` of every rank."""
        import torch
        import torch.distributed as dist

        self._step += 1
        own = torch.tensor([self._step, zlib.crc32(operation.encode()), number], device="cpu")
        found = [torch.empty_like(own) for _ in range(self.size)]
        self._wait(dist.all_gather(found, own, group=self._group, async_op=True))
        steps, operations, numbers = torch.stack(found).T.tolist()
        if len({*zip(steps, operations, strict=True)}) > 1:
            raise ResourceError(
                f"the ranks are out of sync (this one is at step {self._step}, {operation[:80]}); start all with the same "
                "arguments and version of genpr, and do not catch errors on some of them only",
                code="ranks-apart",
            )
        return [int(each) for each in numbers]

    def _fill(self, parts: Sequence[Tensor]) -> None:
        """Fill the part of every other rank with the data of that rank.

        All ranks send at once, unless few of them have most of the data, or all are on one machine, where gloo then copies less.
        """
        import torch
        import torch.distributed as dist

        contents = list(map(_content, parts))
        longest, total = max(map(len, contents)), sum(map(len, contents))
        if self.size * longest > 2 * total or (self.is_one_machine and not parts[0].is_cuda):
            for owner, content in enumerate(contents):
                for chunk in torch.split(content, _CHUNK) if len(content) else ():
                    self._wait(dist.broadcast(chunk, src=owner, group=self._group, async_op=True))
            return
        for start in range(0, longest, _GATHERED // self.size):
            pieces = [content[start : start + _GATHERED // self.size] for content in contents]
            width = max(map(len, pieces))
            padded = [piece if len(piece) == width else piece.new_empty(width) for piece in pieces]
            if padded[self.rank] is not pieces[self.rank]:
                padded[self.rank][: len(pieces[self.rank])] = pieces[self.rank]
            self._wait(dist.all_gather(padded, padded[self.rank], group=self._group, async_op=True))
            for piece, found in zip(pieces, padded, strict=True):
                if found is not piece:
                    piece.copy_(found[: len(piece)])

    def _wait(self, work: Any) -> None:  # noqa: ANN401 - torch does not export the type
        """Wait until an operation is complete, or another rank failed."""
        assert self._monitor is not None
        pause, longest = _COLLECTIVE_PAUSES
        try:
            while not work.is_completed():
                self._monitor.check()
                time.sleep(pause)
                pause = min(2 * pause, longest)
            work.wait()
        except RuntimeError as error:
            if isinstance(error, ResourceError):
                raise
            time.sleep(_REPORT_TIME)
            self._monitor.check()
            raise RanksLostError(self.rank, error) from error


def _content(part: Tensor) -> Tensor:
    """The bytes of a contiguous tensor."""
    import torch

    # A dimension of length 1 may have any stride.
    return torch.as_strided(part, (part.numel(),), (1,)).view(torch.uint8)


_SINGLE_PROCESS = Communicator()
_current = threading.local()  # threads of the user do not communicate


def current_communicator() -> Communicator:
    """The communicator of this thread."""
    found: Communicator = getattr(_current, "communicator", _SINGLE_PROCESS)
    return found


@contextmanager
def use_communicator(communicator: Communicator) -> Iterator[Communicator]:
    """Use `communicator` for this thread in the block."""
    before, _current.communicator = current_communicator(), communicator
    try:
        yield communicator
    finally:
        _current.communicator = before


single_process = partial(use_communicator, _SINGLE_PROCESS)
"""Compute without other processes in this thread, in the block."""


def rank_zero_only() -> bool:
    """Wait for all ranks and end the communication of this thread; True on rank 0, which continues alone."""
    communicator = current_communicator()
    communicator.finish()
    _current.communicator = _SINGLE_PROCESS
    return communicator.is_rank_zero


def check_seconds(name: str, seconds: float, *, may_be_zero: bool = False) -> None:
    """Check a time, which the system must be able to wait for."""
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not is_number or not 0 <= seconds <= _MAX_SECONDS or (not seconds and not may_be_zero):
        least = "from 0" if may_be_zero else "above 0 and up"
        text = f"{name} must be a number of seconds {least} to {_MAX_SECONDS:,} (a year), not {seconds!r:.60}"
        raise UsageError(text, code="bad-option")


@contextmanager
def all_ranks(*, timeout: float = 7200.0, device: str | torch.device = "auto") -> Iterator[Communicator]:
    """Compute the scores of this block with all processes that a launcher such as torchrun started.

    All processes must enter the block and make the same calls. Each decodes and embeds its share of the images, searches its
    share of all pairs, and gets the whole result. Results do not depend on the number of processes. Without a launcher
    nothing changes. Outside of such a block genpr does not communicate with other processes, so a training that scores on
    its first rank only is not affected.

    An existing process group is used; otherwise one is created, and destroyed after the block. On GPUs, each process uses
    torch's current device, or device LOCAL_RANK if the group is created here, or the only GPU that it sees, as
    with `srun --gpus-per-task=1`.

    Args:
        timeout: Maximum seconds that a rank waits for the others.
        device: The device that "auto" selects in the block; "cpu" does not initialize a GPU.

    Yields:
        The communicator; `is_rank_zero` is true in one of the processes.

    Raises:
        UsageError: An argument is invalid ("bad-option"), or other ranks have other options or extractors ("ranks-differ"); for
            other images or features it is a DataError.
        ResourceError: Other ranks do not start ("ranks-missing"), end without a report ("ranks-lost"), fail
            ("rank-failed"), or make different calls ("ranks-apart"); or there is no GPU for each ("no-cuda").

    Example:
        >>> import genpr
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> with genpr.all_ranks() as communicator:  # in a script that torchrun starts
        ...     result = genpr.score(rng.normal(size=(200, 4)), rng.normal(size=(200, 4)))
        >>> communicator.size if communicator.is_rank_zero else 0
        1
    """
    check_seconds("timeout", timeout)
    if not current_communicator().is_single_process:
        yield current_communicator()
        return
    with join_ranks(timeout, device=device) as (communicator, monitor):
        try:
            yield communicator
        except BaseException as error:
            if monitor is not None:
                monitor.report(error)
            raise


@contextmanager
def join_ranks(
    timeout: float = 7200.0,
    *,
    device: str | torch.device = "auto",
    on_waiting: Callable[[str], None] = lambda _: None,
) -> Iterator[tuple[Communicator, FailureMonitor | None]]:
    """As `all_ranks`, but errors of the block are reported to the other ranks by the caller."""
    import torch
    import torch.distributed as dist

    exists = dist.is_available() and dist.is_initialized()
    if not (exists or is_launched()):
        yield current_communicator(), None
        return
    check_device(device)
    on_gpu = not str(device).startswith("cpu") and torch.cuda.is_available()
    if on_gpu and not exists:
        torch.cuda.set_device(_gpu_of_rank(torch.cuda.device_count()))
    resolve_device("cuda" if on_gpu else device)  # a single rank must not fall back to the CPU
    if not exists:
        _init_process_group(on_waiting)
    if dist.get_world_size() == 1:
        yield current_communicator(), None
        return
    # Before the first collective operation, whose backends depend on it.
    hint, own = "call all_ranks on every rank", {"device": "cuda" if on_gpu else "cpu"}
    TrainingRanks.from_group().barrier("genpr.all_ranks", timeout=timeout, hint=hint, own=own)
    has_nccl = on_gpu and dist.is_nccl_available()
    group = dist.new_group(
        backend="cpu:gloo,cuda:nccl" if has_nccl else "gloo", timeout=timedelta(seconds=timeout)
    )
    monitor = FailureMonitor(dist.get_rank(), dist.get_world_size())
    try:
        communicator = Communicator(group, monitor)
        with _machine_share(communicator, on_gpu), use_communicator(communicator):
            yield communicator, monitor
        communicator.finish()
    except BaseException:
        if has_nccl:
            _abort(group)
        raise
    finally:
        monitor.close()
    # Not after an error, since it would wait for ranks that have ended.
    dist.destroy_process_group(group if exists else None)


def _abort(group: Any) -> None:  # noqa: ANN401 - torch's types for groups differ between backends
    """Abort pending operations: an NCCL kernel that waits for a failed rank would keep the process running."""
    from torch.distributed import distributed_c10d

    with suppress(Exception):  # torch has no public function for this
        distributed_c10d._abort_process_group(group)


def _init_process_group(on_waiting: Callable[[str], None]) -> None:
    """Create the process group of the launcher's environment; `on_waiting` is called with a text if that takes long."""
    import torch.distributed as dist

    variables = " ".join(f"{name}={os.environ[name]}" for name in LAUNCHER_VARIABLES)
    who = f"the other processes of the environment ({variables})"
    hint = "if these variables remain from a training, set GENPR_ALONE=1"
    minutes = _START_TIMEOUT.total_seconds() / 60
    timer = threading.Timer(
        _NOTICE_AFTER, on_waiting, [f"waiting up to {minutes:.0f} minutes for {who}; {hint}"]
    )
    timer.daemon = True
    timer.start()
    try:
        dist.init_process_group("gloo", timeout=_START_TIMEOUT)
    except (RuntimeError, ValueError) as error:
        text = f"{who} were not found ({_one_line(error)}); {hint}"
        raise ResourceError(text, code="ranks-missing") from error
    finally:
        timer.cancel()


def _gpu_of_rank(count: int) -> int:
    """The index of the GPU of this process among the `count` that it sees: LOCAL_RANK, or the only GPU."""
    number = os.environ.get("LOCAL_RANK", "0")
    if count == 1 and number.isdecimal():
        return 0  # `_machine_share` checks that other processes use other GPUs
    if number not in map(str, range(count)):
        text = f"LOCAL_RANK is {number!r}, but this process sees {count} GPUs; {_ONE_DEVICE_EACH}"
        raise ResourceError(text, code="no-cuda")
    return int(number)


@contextmanager
def _machine_share(communicator: Communicator, on_gpu: bool) -> Iterator[None]:
    """Use this rank's share of the cores and memory of its machine, and check that it has a separate GPU."""
    import torch

    own: dict[str, Any] = {"machine": socket.gethostname(), "cores": available_cores(), "gpu": None}
    if on_gpu:
        own["gpu"] = str(torch.cuda.get_device_properties(torch.cuda.current_device()).uuid)
    everywhere = communicator.all_gather_object(own, "machines")
    owners: dict[tuple[str, str], int] = {}
    for rank, each in enumerate(everywhere):
        machine, gpu = each["machine"], each["gpu"]
        first = owners.setdefault((machine, gpu), rank)
        if gpu is not None and first != rank:
            text = f"ranks {first} and {rank} use the same GPU of {machine} ({gpu}); {_ONE_DEVICE_EACH}"
            raise ResourceError(text, code="no-cuda")
    here = [each for each in everywhere if each["machine"] == own["machine"]]
    communicator.is_one_machine = len(here) == communicator.size
    overlapping = [each for each in here if {*each["cores"]} & {*own["cores"]}]
    shares = {"cores": len(overlapping), "memory": len(here), "gpus": int(on_gpu)}
    with shared_machine(**shares), torch_threads(usable_cores()):
        yield


@dataclass(frozen=True)
class Failure:
    """The error of one rank."""

    rank: int
    code: str
    message: str
    exit_code: int  # of the command line

    @classmethod
    def from_error(cls, rank: int, error: BaseException, signal_number: int | None = None) -> Failure:
        """From an error, or from the signal that ended the rank."""
        if isinstance(error, KeyboardInterrupt) or signal_number is not None:
            code = "terminated" if signal_number == signal.SIGTERM else "interrupted"
            return cls(rank, code, code, 128 + (signal_number or signal.SIGINT))
        if isinstance(error, GenprError):
            return cls(rank, error.code, str(error), error.exit_code)
        exit_code = (
            ResourceError.exit_code if is_out_of_memory(error) else getattr(error, "exit_code", 1)
        )  # of click
        return cls(rank, "bug", f"{type(error).__name__}: {error}", exit_code)

    @property
    def is_signal(self) -> bool:
        """Whether a signal ended the rank."""
        return self.code in ("interrupted", "terminated")


class RankFailedError(ResourceError):
    """Another rank failed; see `failure`."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(f"rank {failure.rank} failed: {failure.message}", code="rank-failed")
        self.failure = failure


class RanksLostError(ResourceError):
    """Another rank ended without a report, or cannot be reached ("ranks-lost")."""

    def __init__(self, rank: int, error: RuntimeError) -> None:
        super().__init__(
            f"rank {rank} lost contact with another rank ({_one_line(error)}), which may have been killed or run out of memory; "
            "look for the error of the rank that ended first. Embedded features are in the cache",
            code="ranks-lost",
        )


class _Store:
    """A part of the key-value store of the process group, with JSON values.

    It is polled, since a long wait would block other threads that use the store, such as NCCL's watchdog, and Ctrl-C.
    """

    def __init__(self, prefix: str, rank: int) -> None:
        import torch.distributed as dist

        base = dist.distributed_c10d._get_default_store()  # torch has no public function for this
        self._store = dist.distributed_c10d.PrefixStore(prefix, base)
        self._rank = rank

    def get(self, key: str) -> Any:  # noqa: ANN401
        """The value of a key that is set."""
        return json.loads(self._call("get", key))

    def set(self, key: str, value: Any = True) -> None:  # noqa: ANN401
        self._call("set", key, json.dumps(value, allow_nan=False))

    def set_once(self, key: str, value: Any) -> Any:  # noqa: ANN401
        """Set a key unless another rank did, and return its value."""
        return json.loads(self._call("compare_set", key, "", json.dumps(value)))

    def count(self, key: str) -> int:
        """Add one to a counter, and return it."""
        return int(self._call("add", key, 1))

    def has(self, *keys: str) -> bool:
        """Whether all keys are set."""
        return bool(self._call("check", [*keys]))

    def wait(self, *keys: str, seconds: float) -> bool:
        """Wait until all keys are set; False after `seconds`."""
        end, (pause, longest) = time.monotonic() + seconds, _STORE_PAUSES
        while not self.has(*keys):
            left = end - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(pause, left))
            pause = min(2 * pause, longest)
        return True

    def _call(self, method: str, *args: object) -> Any:  # noqa: ANN401
        try:
            return getattr(self._store, method)(*args)
        except RuntimeError as error:
            raise RanksLostError(self._rank, error) from error


class FailureMonitor:
    """Reports errors of this rank to the others, and detects theirs within a second."""

    def __init__(self, rank: int, size: int) -> None:
        restarts = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        self._rank, self._others = rank, [each for each in range(size) if each != rank]
        self._store = _Store(f"genpr/ranks/{restarts}/{next(_entries)}", rank)
        self._found: RankFailedError | RanksLostError | None = None
        self.on_failure: Callable[[Failure], None] | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="genpr-ranks", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop watching."""
        self._stop.set()
        self._thread.join(timeout=5)

    def check(self) -> None:
        """Raise if a rank is known to have failed."""
        if self._found is not None:
            raise self._found

    def report(self, error: BaseException, *, signal_number: int | None = None) -> Failure:
        """Report an error of this rank, or a signal, and return the first report of any rank."""
        if isinstance(error, RankFailedError):
            return error.failure
        own = first = Failure.from_error(self._rank, error, signal_number)
        with suppress(RanksLostError):
            first = Failure(**self._store.set_once("first", asdict(own)))
            self._store.set(f"heard/{self._rank}")
            if first.rank == self._rank and not own.is_signal:  # the store may end with this rank
                self._store.wait(*(f"heard/{rank}" for rank in self._others), seconds=_REPORT_TIME)
        return first

    def mark_printed(self) -> None:
        """Record that the first error was printed, for ranks in `wait_until_printed`."""
        with suppress(RanksLostError):
            self._store.set("printed")

    def wait_until_printed(self, seconds: float) -> None:
        """Wait until the first error was printed, since a launcher ends all ranks when one of them ends."""
        with suppress(RanksLostError):
            self._store.wait("printed", seconds=seconds)

    def _watch(self) -> None:
        while not self._stop.wait(_WATCH_PAUSE):
            try:
                if self._store.has("first"):
                    failure = Failure(**self._store.get("first"))
                    self._store.set(f"heard/{self._rank}")
                    self._found = RankFailedError(failure)
                    if self.on_failure is not None:
                        self.on_failure(failure)
                    return
            except RanksLostError as error:
                self._found = error
                return


@dataclass(frozen=True)
class TrainingRanks:
    """The ranks of a process group of the user, which synchronize through its key-value store.

    A collective operation that only one rank enters blocks until the time limit of the group; waiting in the store can be
    stopped.
    """

    rank: int  # of this process in the world
    ranks: tuple[int, ...]  # of all of them, ascending

    @classmethod
    def from_group(cls, group: Any = None) -> TrainingRanks:  # noqa: ANN401 - torch's types for groups differ between backends
        """The ranks of a process group; None is the world, or this process only if torch.distributed is not initialized."""
        import torch.distributed as dist

        if not (dist.is_available() and dist.is_initialized()):
            return cls(0, (0,))
        # torch 2.6 does not know None.
        members = dist.get_process_group_ranks(dist.group.WORLD if group is None else group)
        return cls(dist.get_rank(), tuple(sorted(members)))

    @property
    def is_single_process(self) -> bool:
        """Whether there are no other processes."""
        return len(self.ranks) == 1

    def barrier(self, name: str, *, timeout: float, hint: str, own: Mapping[str, Any] | None = None) -> None:
        """Wait for all ranks; raise on all ranks that arrived if others do not, or if `own`, of plain JSON types, differs."""
        if self.is_single_process:
            return
        store, key = self._rendezvous("barrier", name)
        while store.has(key) and store.get(key) == _TIMED_OUT:  # of an earlier call
            store, key = self._rendezvous("barrier", name)
        store.set(f"{key}/{self.rank}", own or {})
        if store.count(f"{key}/arrived") == len(self.ranks):
            store.set_once(key, _ALL_ARRIVED)
        elif not store.wait(key, seconds=timeout):
            store.set_once(key, _TIMED_OUT)
        if store.get(key) == _ALL_ARRIVED:
            by_rank = {rank: store.get(f"{key}/{rank}") for rank in self.ranks}
            found = _difference(by_rank, f"options of {name}")
            if found is None:
                return
            with suppress(RanksLostError):  # the store may end with any rank
                store.set(f"{key}/{self.rank}/read")
                store.wait(*(f"{key}/{rank}/read" for rank in self.ranks), seconds=_REPORT_TIME)
            raise UsageError(f"{found}; {SAME_ARGUMENTS}", code="ranks-differ")
        missing = [str(rank) for rank in self.ranks if not store.has(f"{key}/{rank}")]
        others = f"rank{'s' * (len(missing) > 1)} {', '.join(missing)}" if missing else "another rank"
        text = f"rank {self.rank} reached {name}, but {others} did not within {timeout:g} s; {hint}"
        raise ResourceError(text, code="ranks-missing")

    def broadcast_from_rank0(self, name: str, compute: Callable[[], _Value], *, timeout: float) -> _Value:
        """The result of `compute`, which is called on the first rank only; the others wait."""
        if self.is_single_process:
            return compute()
        (store, answer), first = self._rendezvous("broadcast", name), self.ranks[0]
        if self.rank == first:
            try:
                value = compute()
                store.set(answer, {"value": value})
            except BaseException as error:
                store.set(answer, {"failed": f"{type(error).__name__}: {error}"})
                raise
            return value
        if not store.wait(answer, seconds=timeout):
            text = f"rank {self.rank} waited for {name} on rank {first}, which did not finish within {timeout:g} s"
            raise ResourceError(text, code="ranks-missing")
        found = store.get(answer)
        if "failed" in found:
            raise ResourceError(f"{name} failed on rank {first}: {found['failed']}", code="rank-failed")
        result: _Value = found["value"]
        return result

    def check_same_as_rank0(self, own: Mapping[str, Any], what: str, *, timeout: float) -> None:
        """Raise an error on a rank whose `own` options, of plain JSON types, are not those of rank 0, which does not wait."""
        first = self.broadcast_from_rank0(what, lambda: own, timeout=timeout)
        if found := _difference({self.ranks[0]: first, self.rank: own}, what):
            raise UsageError(f"{found}; {SAME_ARGUMENTS}", code="ranks-differ")

    def _rendezvous(self, kind: str, name: str) -> tuple[_Store, str]:
        """The store, and the key of the next synchronization of this name."""
        key = f"{kind}/{name}/{'-'.join(map(str, self.ranks))}"
        _rendezvous_counts[key] += 1
        return _Store("genpr/training", self.rank), f"{key}/{_rendezvous_counts[key]}"


def _difference(by_rank: Mapping[int, Mapping[str, Any]], what: str) -> str | None:
    """The first entry that differs between ranks, as text; None if none does."""
    (first, own), *others = by_rank.items()
    for name in dict.fromkeys(itertools.chain(*by_rank.values())):
        for rank, other in others:
            if own.get(name) != other.get(name):
                mine, theirs = own.get(name), other.get(name)
                if isinstance(mine, dict) and isinstance(theirs, dict):
                    return _difference({first: mine, rank: theirs}, f"{what} of {name}")
                values = f"{_shown(mine)} and {_shown(theirs)}"
                return f"rank {first} and rank {rank} have different {what} ({name}: {values})"
    return None


def _shown(value: object) -> str:
    if value is None:
        return "not set"
    return short(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def content_hash(content: Tensor) -> str:
    """A checksum of a tensor on any device, with its type and shape."""
    checksum = zlib.crc32(content.detach().cpu().contiguous().numpy().data)
    return f"{checksum:08x} of {str(content.dtype).removeprefix('torch.')} {tuple(content.shape)}"


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:160]
