"""One score by several processes: who they are, what they exchange, and how an error of one of them ends all.

Every rank runs the same code. Work that is worth sharing is cut into items in one order, each rank does every `size`-th,
and all ranks get all results in that order: no number depends on how many ranks there are. Importing this module does not
import torch, so that the command line can ask before a command runs.
"""

from __future__ import annotations

import io
import itertools
import json
import math
import os
import signal
import socket
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from genpr.errors import GenprError, ResourceError, UsageError
from genpr.runtime import (
    LAUNCHER_VARIABLES,
    available_cores,
    check_device,
    is_launched,
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
_NOTICE_AFTER = 5.0  # seconds of waiting for the other processes
_CHUNK = 2**26  # bytes of one rank per exchange
_GATHERED = 2**24  # bytes of all ranks per gather: gloo, which copies them, takes longer for 4 or 64 MB
_STORE_PAUSES = 0.005, 0.25  # seconds between two reads of the store: at first, and at most
_COLLECTIVE_PAUSES = 0.00005, 0.005
_WATCH_PAUSE = 0.2
_REPORT_TIME = 1.0  # seconds in which a rank that ended a connection can report why, and others read a report
_ALL_ARRIVED, _TIMED_OUT = "go", "given up"
_ONE_DEVICE_EACH = (
    "each needs one of its own as torch's current device (torchrun --nproc-per-node gpu, srun --gpus-per-task=1), or the "
    "CPU (--device cpu, in Python all_ranks(device='cpu'))"
)

_entries = itertools.count()  # of this process into `join_ranks`: the same number on every rank
_rendezvous_counts = Counter[
    str
]()  # of this process, by name and ranks: the same on every rank that was there


class Communicator:
    """The processes that compute together: a single one, which has nothing to exchange, or those of a process group."""

    rank = 0
    size = 1
    is_single_process = True
    is_rank_zero = True
    is_one_machine = False  # whether all processes are known to be on one

    def __init__(self, group: Any = None, monitor: FailureMonitor | None = None) -> None:  # noqa: ANN401
        self._group, self._monitor = group, monitor
        self._step = 0
        self._is_finished = False
        if group is not None:
            import torch.distributed as dist

            self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
            self.is_single_process, self.is_rank_zero = self.size == 1, self.rank == 0

    def share(self, items: Sequence[_Item]) -> Sequence[_Item]:
        """The `items` that this rank does: every `size`-th."""
        return items[self.rank :: self.size]

    def all_gather(self, rows: Tensor) -> list[Tensor]:
        """The `rows` (n, ...) of every rank, by rank; n may differ."""
        if self.is_single_process:
            return [rows]
        rows = rows.contiguous()
        counts = self._synchronize(f"all_gather {rows.dtype} {tuple(rows.shape[1:])}", len(rows))
        parts = [
            rows if rank == self.rank else rows.new_empty(count, *rows.shape[1:])
            for rank, count in enumerate(counts)
        ]
        self._fill(parts)
        return parts

    def rotate(self, rows: Tensor, step: int) -> Tensor:
        """The `rows` (n, ...) of the rank `step` places before this one in a ring of all ranks; n may differ.

        Memory holds nothing but these and its own.
        """
        import torch.distributed as dist

        if step % self.size == 0:
            return rows
        rows = rows.contiguous()
        counts = self._synchronize(f"rotate {step} {rows.dtype} {tuple(rows.shape[1:])}", len(rows))
        source, target = (self.rank - step) % self.size, (self.rank + step) % self.size
        found = rows.new_empty(counts[source], *rows.shape[1:])
        sent, received = _content(rows), _content(found)
        row_bytes = math.prod(rows.shape[1:]) * rows.itemsize
        for start in range(0, max(counts) * row_bytes, _CHUNK):
            out, own = received[start : start + _CHUNK], sent[start : start + _CHUNK]
            to, of = [0] * self.size, [0] * self.size
            to[target], of[source] = len(own), len(out)
            self._wait(dist.all_to_all_single(out, own, of, to, group=self._group, async_op=True))
        return found

    def all_gather_tensors(
        self, results: Sequence[tuple[Tensor, ...]], device: torch.device
    ) -> list[list[tuple[Tensor, ...]]]:
        """The `results` of every rank, by rank: any number of tuples of tensors of any shape, on `device`."""
        if self.is_single_process:
            return [[*results]]
        import torch

        buffer = io.BytesIO()
        # A view would be written with all of its storage.
        torch.save([tuple(part.clone() for part in each) for each in results], buffer)
        parts = map(io.BytesIO, self._all_gather_bytes(buffer.getvalue()))
        return [torch.load(part, map_location=device, weights_only=True) for part in parts]

    def broadcast_parts(self, parts: Sequence[tuple[int, Tensor]]) -> None:
        """Copy parts of a tensor from one rank to all others, in place."""
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

    def all_gather_object(self, value: Any) -> list[Any]:  # noqa: ANN401 - plain JSON types
        """The `value`, of plain JSON types, of every rank, by rank."""
        if self.is_single_process:
            return [value]
        return [json.loads(part) for part in self._all_gather_bytes(json.dumps(value).encode())]

    def broadcast_from_rank0(self, compute: Callable[[], _Value]) -> _Value:
        """The result of `compute`, of plain JSON types, which is called on rank 0 only."""
        if self.is_single_process:
            return compute()
        value = None
        if self.is_rank_zero:
            with single_process():
                value = compute()
        found: _Value = self.all_gather_object(value)[0]
        return found

    def finish(self) -> None:
        """Wait until every rank is here, after the last exchange."""
        if not self.is_single_process and not self._is_finished:
            self._synchronize("finish")
            self._is_finished = True

    def _all_gather_bytes(self, data: bytes) -> list[bytes]:
        import torch

        parts = self.all_gather(torch.frombuffer(bytearray(data), dtype=torch.uint8))
        return [part.numpy().tobytes() for part in parts]

    def _synchronize(self, operation: str, number: int = 0) -> list[int]:
        """The `number` of every rank, once it is clear that all of them are at this `operation`."""
        import torch
        import torch.distributed as dist

        self._step += 1
        own = torch.tensor([self._step, zlib.crc32(operation.encode()), number], device="cpu")
        found = [torch.empty_like(own) for _ in range(self.size)]
        self._wait(dist.all_gather(found, own, group=self._group, async_op=True))
        steps, operations, numbers = torch.stack(found).T.tolist()
        if len({*zip(steps, operations, strict=True)}) > 1:
            raise ResourceError(
                f"the ranks are not at the same point (this one at step {self._step}, {operation[:80]}); start all with the same "
                "arguments and version of genpr, and do not catch an error on one of them only",
                code="ranks-apart",
            )
        return [int(each) for each in numbers]

    def _fill(self, parts: Sequence[Tensor]) -> None:
        """Fill the part of every other rank, by rank, with what is there.

        All send at once, unless few have much to send, or only memory is between them, which gloo then copies less.
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
        """Wait until the others have come, or one of them has failed."""
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

    # A dimension of one may have any stride.
    return torch.as_strided(part, (part.numel(),), (1,)).view(torch.uint8)


_SINGLE_PROCESS = Communicator()
_current = threading.local()  # other ranks know nothing of a thread that a user starts


def current_communicator() -> Communicator:
    """The processes that share the work of this thread."""
    found: Communicator = getattr(_current, "communicator", _SINGLE_PROCESS)
    return found


@contextmanager
def use_communicator(communicator: Communicator) -> Iterator[Communicator]:
    """Share the work of this thread in the block with the processes of `communicator`."""
    before, _current.communicator = current_communicator(), communicator
    try:
        yield communicator
    finally:
        _current.communicator = before


single_process = partial(use_communicator, _SINGLE_PROCESS)
"""Do the work of this thread in the block without other processes."""


def rank_zero_only() -> bool:
    """End the sharing of this thread, once all ranks are here; whether this is rank 0, which continues alone."""
    communicator = current_communicator()
    communicator.finish()
    _current.communicator = _SINGLE_PROCESS
    return communicator.is_rank_zero


def check_seconds(name: str, seconds: float) -> None:
    """Check a time limit."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0:
        raise UsageError(f"{name} must be a positive number of seconds, not {seconds!r}", code="bad-option")


@contextmanager
def all_ranks(*, timeout: float = 7200.0, device: str | torch.device = "auto") -> Iterator[Communicator]:
    """Let all processes that a launcher such as torchrun started compute the scores of this block together.

    Every one of them must enter it, and do the same there: each decodes and embeds its share of the images and looks at
    its share of all pairs, and each gets the whole result. Numbers do not depend on how many there are. Without a launcher
    nothing changes, and outside of such a block genpr never talks to other processes: a training that scores on its
    first rank alone is not affected.

    A process group that exists already is used; else one is made, and ended with the block. On GPUs, each process works on
    the one that torch's current device is, or on number LOCAL_RANK if the group is made here; where it sees a single
    GPU, as with `srun --gpus-per-task=1`, on that.

    Args:
        timeout: Seconds that one rank waits for the others at most, who may be busy for long.
        device: What "auto" is in the block: "cpu" needs no GPU for a process, and sets up nothing on one.

    Yields:
        The communicator; `is_rank_zero` is true in one of the processes.

    Raises:
        UsageError: The launcher's variables make no sense ("bad-option").
        ResourceError: The others do not come ("ranks-missing"), end without a report ("ranks-lost"), or fail
            ("rank-failed"), or are elsewhere in the program ("ranks-apart"); or there is no GPU for each ("no-cuda").

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
    resolve_device("cuda" if on_gpu else device)  # a rank does not go to the CPU alone
    if not exists:
        _init_process_group(on_waiting)
    if dist.get_world_size() == 1:
        yield current_communicator(), None
        return
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
    # Not after an error: it would wait for ranks that have ended.
    dist.destroy_process_group(group if exists else None)


def _abort(group: Any) -> None:  # noqa: ANN401 - torch's types for groups differ between backends
    """End what is pending on this GPU: a kernel of NCCL that waits for a rank that failed would keep the process."""
    from torch.distributed import distributed_c10d

    with suppress(Exception):  # no public function of torch does it
        distributed_c10d._abort_process_group(group)


def _init_process_group(on_waiting: Callable[[str], None]) -> None:
    """Make the process group that the launcher's environment describes; `on_waiting` gets a text where that takes long."""
    import torch.distributed as dist

    variables = " ".join(f"{name}={os.environ[name]}" for name in LAUNCHER_VARIABLES)
    who = f"the other processes that the environment names ({variables})"
    hint = "if a training left these variables, set GENPR_ALONE=1"
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
    """The number of the GPU, of the `count` that this process sees, that is for it: LOCAL_RANK, or the only one."""
    number = os.environ.get("LOCAL_RANK", "0")
    if count == 1 and number.isdecimal():
        return 0  # which `_machine_share` compares with those of the other processes
    if number not in map(str, range(count)):
        text = f"LOCAL_RANK is {number!r} where processes see {count} GPUs; {_ONE_DEVICE_EACH}"
        raise ResourceError(text, code="no-cuda")
    return int(number)


@contextmanager
def _machine_share(communicator: Communicator, on_gpu: bool) -> Iterator[None]:
    """Use this rank's share of the cores and memory of its machine, and a GPU of its own."""
    import torch

    own: dict[str, Any] = {"machine": socket.gethostname(), "cores": available_cores(), "gpu": None}
    if on_gpu:
        own["gpu"] = str(torch.cuda.get_device_properties(torch.cuda.current_device()).uuid)
    everywhere = communicator.all_gather_object(own)
    owners: dict[tuple[str, str], int] = {}
    for rank, each in enumerate(everywhere):
        machine, gpu = each["machine"], each["gpu"]
        first = owners.setdefault((machine, gpu), rank)
        if gpu is not None and first != rank:
            text = f"ranks {first} and {rank} see the same GPU of {machine} ({gpu}); {_ONE_DEVICE_EACH}"
            raise ResourceError(text, code="no-cuda")
    here = [each for each in everywhere if each["machine"] == own["machine"]]
    communicator.is_one_machine = len(here) == communicator.size
    beside = [each for each in here if {*each["cores"]} & {*own["cores"]}]
    shares = {"cores": len(beside), "memory": len(here), "gpus": int(on_gpu)}
    with shared_machine(**shares), torch_threads(usable_cores()):
        yield


@dataclass(frozen=True)
class Failure:
    """The error of one rank."""

    rank: int  # its number
    code: str  # of the error
    message: str  # its text
    exit_code: int  # what the command line ends with

    @classmethod
    def from_error(cls, rank: int, error: BaseException, signal_number: int | None = None) -> Failure:
        """From what was raised, after a signal if there was one."""
        if isinstance(error, KeyboardInterrupt) or signal_number is not None:
            code = "terminated" if signal_number == signal.SIGTERM else "interrupted"
            return cls(rank, code, code, 128 + (signal_number or signal.SIGINT))
        if isinstance(error, GenprError):
            return cls(rank, error.code, str(error), error.exit_code)
        return cls(rank, "bug", f"{type(error).__name__}: {error}", 1)

    @property
    def is_signal(self) -> bool:
        """Whether a signal ended the rank."""
        return self.code in ("interrupted", "terminated")


class RankFailedError(ResourceError):
    """Another rank failed; `failure` says how."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(f"rank {failure.rank} failed: {failure.message}", code="rank-failed")
        self.failure = failure


class RanksLostError(ResourceError):
    """Another rank ended without a report, or cannot be reached ("ranks-lost")."""

    def __init__(self, rank: int, error: RuntimeError) -> None:
        super().__init__(
            f"rank {rank}: another rank ended without a word, or cannot be reached ({_one_line(error)}); was it killed, or "
            "its machine out of memory? Look for the error of the rank that ended first; what was embedded is in the cache",
            code="ranks-lost",
        )


class _Store:
    """A part of the key-value store by which the ranks found each other, with JSON values.

    It is polled: one long wait would keep the store from other threads, such as NCCL's watchdog, and from Ctrl-C.
    """

    def __init__(self, prefix: str, rank: int) -> None:
        import torch.distributed as dist

        base = dist.distributed_c10d._get_default_store()  # there is no public access to it
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
        """Wait until all keys are set; whether they were before the time was up."""
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
    """Reports errors of this rank to the others, and learns of theirs within a second."""

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
        """Tell the ranks in `wait_until_printed` that the user has the first error."""
        with suppress(RanksLostError):
            self._store.set("printed")

    def wait_until_printed(self, seconds: float) -> None:
        """Wait until the user has the first error: a launcher that sees one rank end ends the others at once."""
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
    """The ranks of a user's own process group, which meet in its key-value store.

    A collective operation that one rank enters alone blocks it for the time limit of the group; a meeting in the store
    can be given up.
    """

    rank: int  # number of this process in the world
    ranks: tuple[int, ...]  # the numbers of all of them, ascending

    @classmethod
    def from_group(cls, group: Any = None) -> TrainingRanks:  # noqa: ANN401 - torch's types for groups differ between backends
        """The ranks of a process group; None is all, and this process alone without torch.distributed."""
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

    def barrier(self, name: str, *, timeout: float, hint: str) -> None:
        """Return when all ranks are here; or raise, on all that are."""
        if self.is_single_process:
            return
        store, meeting = self._rendezvous("barrier", name)
        while store.has(meeting) and store.get(meeting) == _TIMED_OUT:  # by ranks that came here once more
            store, meeting = self._rendezvous("barrier", name)
        store.set(f"{meeting}/{self.rank}")
        if store.count(f"{meeting}/arrived") == len(self.ranks):
            store.set_once(meeting, _ALL_ARRIVED)
        elif not store.wait(meeting, seconds=timeout):
            store.set_once(meeting, _TIMED_OUT)
        if store.get(meeting) == _ALL_ARRIVED:
            return
        missing = [str(rank) for rank in self.ranks if not store.has(f"{meeting}/{rank}")]
        others = f"rank{'s' * (len(missing) > 1)} {', '.join(missing)}" if missing else "another rank"
        text = f"rank {self.rank} came to {name}, but {others} did not within {timeout:g} s; {hint}"
        raise ResourceError(text, code="ranks-missing")

    def broadcast_from_rank0(self, name: str, compute: Callable[[], _Value], *, timeout: float) -> _Value:
        """The result of `compute` on the first of the ranks, on all of them; the others wait."""
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
            text = f"rank {self.rank} waited for {name} on rank {first}, not done within {timeout:g} s"
            raise ResourceError(text, code="ranks-missing")
        found = store.get(answer)
        if "failed" in found:
            raise ResourceError(f"{name} failed on rank {first}: {found['failed']}", code="rank-failed")
        result: _Value = found["value"]
        return result

    def _rendezvous(self, kind: str, name: str) -> tuple[_Store, str]:
        """The next meeting of this name: the store, and a key in it."""
        key = f"{kind}/{name}/{'-'.join(map(str, self.ranks))}"
        _rendezvous_counts[key] += 1
        return _Store("genpr/training", self.rank), f"{key}/{_rendezvous_counts[key]}"


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:160]
