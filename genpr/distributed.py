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
import socket
import threading
import time
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from genpr.errors import GenprError, ResourceError, UsageError, short
from genpr.runtime import (
    LAUNCHER_VARIABLES,
    check_device,
    is_launched,
    is_out_of_memory,
    resolve_device,
    shared_machine,
    torch_threads,
    usable_cores,
)
from genpr.validation import check_seconds

if TYPE_CHECKING:
    import torch
    from torch import Tensor

_Item = TypeVar("_Item")
_Value = TypeVar("_Value")

_START_TIMEOUT = timedelta(minutes=5)
_CHUNK = 2**26  # bytes per operation
_PAUSE = 0.0003  # seconds between two looks at an operation
_STORE_PAUSE = 0.05
_CHECK_PAUSE = 0.2
_REPORT_TIME = 0.5  # seconds that other ranks get to read an error in the store, which may end with this rank
_TIMED_OUT = "given up"
_SAME_ARGUMENTS = "pass the same arguments on all ranks"
_ONE_DEVICE_EACH = (
    "each process needs a separate GPU as torch's current device (torchrun --nproc-per-node gpu, srun --gpus-per-task=1), or "
    "the CPU (--device cpu, in Python all_ranks(device='cpu'))"
)

_entries = itertools.count()  # uses of `all_ranks` in this process: equal on all ranks
# Of this process, by name and ranks: equal on all ranks that took part.
_barriers = defaultdict[str, Iterator[int]](itertools.count)


class Communicator:
    """The processes that compute together: a single process, or those of a process group."""

    rank = 0
    size = 1
    is_single_process = True
    is_rank_zero = True

    def __init__(self, group: Any = None) -> None:  # noqa: ANN401 - torch does not export the type
        self._group = group
        self._step = 0
        self.first_error: RankFailedError | None = None  # of any rank, once this one raised an error
        if group is not None:
            import torch.distributed as dist

            self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
            self.is_single_process, self.is_rank_zero = self.size == 1, self.rank == 0
            restarts = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
            self._store = _Store(f"genpr/ranks/{restarts}/{next(_entries)}", self.rank)
            self._checked = 0.0

    def share(self, items: Sequence[_Item]) -> Sequence[_Item]:
        """The `items` of this rank: r, r + size, ..."""
        return items[self.rank :: self.size]

    def all_gather(self, rows: Tensor, what: str = "rows") -> list[Tensor]:
        """The `rows` (n, ...) of every rank, by rank; n may differ. `what` they are must be equal on all ranks."""
        if self.is_single_process:
            return [rows]
        rows = rows.contiguous()
        counts = self._synchronize(f"all_gather {what} {rows.dtype} {tuple(rows.shape[1:])}", len(rows))
        parts: list[Tensor] = []
        for owner, count in enumerate(counts):
            parts.append(rows if owner == self.rank else rows.new_empty(count, *rows.shape[1:]))
            self._broadcast(parts[-1], owner)
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
            for owner, part in parts:
                self._broadcast(part, owner)

    def all_reduce_sum(self, counts: Tensor) -> Tensor:
        """The sum over ranks of integer `counts` of one shape."""
        if self.is_single_process:
            return counts
        import torch

        return torch.stack(self.all_gather(counts, "counts")).sum(dim=0, dtype=counts.dtype)

    def all_gather_object(self, value: Any, what: str = "object") -> list[Any]:  # noqa: ANN401 - plain JSON types
        """The `value`, of plain JSON types, of every rank, by rank; see `all_gather`."""
        if self.is_single_process:
            return [value]
        return [json.loads(part) for part in self._all_gather_bytes(json.dumps(value).encode(), what)]

    def check_same(
        self,
        own: Mapping[str, Any],
        what: str,
        advice: str = _SAME_ARGUMENTS,
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
        if not self.is_single_process:
            self._synchronize("finish")

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

    def _broadcast(self, part: Tensor, owner: int) -> None:
        """Fill a contiguous tensor with the data of the rank `owner`."""
        import torch
        import torch.distributed as dist

        # A dimension of length 1 may have any stride.
        content = torch.as_strided(part, (part.numel(),), (1,)).view(torch.uint8)
        for chunk in torch.split(content, _CHUNK) if len(content) else ():
            self._wait(dist.broadcast(chunk, src=owner, group=self._group, async_op=True))

    def _wait(self, work: Any) -> None:  # noqa: ANN401 - torch does not export the type
        """Wait until an operation is complete, or another rank failed."""
        try:
            while not work.is_completed():
                if time.monotonic() > self._checked + _CHECK_PAUSE:
                    self._check_ranks()
                time.sleep(_PAUSE)
            work.wait()
        except RuntimeError as error:
            if isinstance(error, ResourceError):
                raise
            self._check_ranks()
            raise _lost(self.rank, error) from error

    def _check_ranks(self) -> None:
        """Raise if a rank reported an error."""
        if self._store.has("failed"):
            raise RankFailedError(**self._store.get("failed"))
        self._checked = time.monotonic()

    def report(self, error: BaseException) -> None:
        """Report an error of this rank to the others, unless another one was first."""
        message = str(error) if isinstance(error, GenprError | KeyboardInterrupt) else repr(error)
        code = ResourceError.exit_code if is_out_of_memory(error) else getattr(error, "exit_code", 1)
        own: dict[str, Any] = {"rank": self.rank, "message": message, "exit_code": code}
        self.first_error = error if isinstance(error, RankFailedError) else RankFailedError(**own)
        with suppress(ResourceError):
            self.first_error = RankFailedError(**self._store.set_once("failed", own))
        if self.first_error.rank == self.rank:
            time.sleep(_REPORT_TIME)


class RankFailedError(ResourceError):
    """A rank failed, and ends all with its exit code."""

    def __init__(self, rank: int, message: str, exit_code: int) -> None:
        super().__init__(f"rank {rank} failed: {message}", code="rank-failed")
        self.rank, self.exit_code = rank, exit_code


def _lost(rank: int, error: RuntimeError) -> ResourceError:
    """The error of a rank of which another one ended without a report, or cannot be reached."""
    return ResourceError(
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
        self._store, self._rank = dist.distributed_c10d.PrefixStore(prefix, base), rank

    def get(self, key: str) -> Any:  # noqa: ANN401
        """The value of a key that is set."""
        return json.loads(self._call("get", key))

    def set_once(self, key: str, value: Any) -> Any:  # noqa: ANN401
        """Set a key unless a rank did, and return its value."""
        return json.loads(self._call("compare_set", key, "", json.dumps(value, allow_nan=False)))

    def has(self, *keys: str) -> bool:
        """Whether all keys are set."""
        return bool(self._call("check", [*keys]))

    def _call(self, method: str, *args: object) -> Any:  # noqa: ANN401
        try:
            return getattr(self._store, method)(*args)
        except RuntimeError as error:
            raise _lost(self._rank, error) from error


SINGLE_PROCESS = Communicator()
_current = threading.local()  # threads of the user do not communicate


def current_communicator() -> Communicator:
    """The communicator of this thread."""
    found: Communicator = getattr(_current, "communicator", SINGLE_PROCESS)
    return found


@contextmanager
def use_communicator(communicator: Communicator) -> Iterator[Communicator]:
    """Use `communicator` for this thread in the block."""
    before, _current.communicator = current_communicator(), communicator
    try:
        yield communicator
    finally:
        _current.communicator = before


single_process = partial(use_communicator, SINGLE_PROCESS)
"""Compute without other processes in this thread, in the block."""


def rank_zero_only() -> bool:
    """Wait for all ranks and end the communication of this thread; True on rank 0, which continues alone."""
    communicator = current_communicator()
    communicator.finish()
    _current.communicator = SINGLE_PROCESS
    return communicator.is_rank_zero


@contextmanager
def all_ranks(*, timeout: float = 7200.0, device: str | torch.device = "auto") -> Iterator[Communicator]:
    """Compute the scores of this block with all processes that a launcher such as torchrun started.

    All processes must enter the block and make the same calls. Each computes its share, and gets the whole result, which does not
    depend on the number of processes. Without a launcher nothing changes, and outside of such a block genpr does not
    communicate with other processes.

    An existing process group is used; otherwise one is created, and destroyed after the block. On GPUs, each process uses
    torch's current device, or device LOCAL_RANK if the group is created here, or the only GPU that it sees.

    Args:
        timeout: Maximum seconds that a rank waits for the others.
        device: The device that "auto" selects in the block; "cpu" does not initialize a GPU.

    Yields:
        The communicator; `is_rank_zero` is true in one of the processes.

    Raises:
        UsageError: Other ranks have other options or extractors ("ranks-differ"); for images or features it is a DataError.
        ResourceError: Other ranks are missing, fail or make different calls ("ranks-missing", "ranks-lost", "rank-failed",
            "ranks-apart"); or there is no GPU for each ("no-cuda").

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
    check_device(device)
    import torch
    import torch.distributed as dist

    exists = dist.is_available() and dist.is_initialized()
    if not current_communicator().is_single_process or not (exists or is_launched()):
        yield current_communicator()
        return
    on_gpu = not str(device).startswith("cpu") and torch.cuda.is_available()
    if on_gpu and not exists:
        torch.cuda.set_device(_gpu_of_rank(torch.cuda.device_count()))
    resolve_device("cuda" if on_gpu else device)  # a single rank must not fall back to the CPU
    try:
        if not exists:
            dist.init_process_group("gloo", timeout=_START_TIMEOUT)
    except (RuntimeError, ValueError) as error:
        variables = " ".join(f"{name}={os.environ[name]}" for name in LAUNCHER_VARIABLES)
        text = f"the other processes of the environment ({variables}) were not found ({_one_line(error)}); if these variables "
        raise ResourceError(
            f"{text}remain from a training, set GENPR_ALONE=1", code="ranks-missing"
        ) from error
    if dist.get_world_size() == 1:
        yield current_communicator()
        return
    # Before the first collective operation, whose backends depend on it.
    own = {"device": "cuda" if on_gpu else "cpu"}
    barrier("genpr.all_ranks", timeout=timeout, hint="call all_ranks on every rank", own=own)
    has_nccl = on_gpu and dist.is_nccl_available()
    group = dist.new_group(
        backend="cpu:gloo,cuda:nccl" if has_nccl else "gloo", timeout=timedelta(seconds=timeout)
    )
    communicator = Communicator(group)
    try:
        with _machine_share(communicator, on_gpu), use_communicator(communicator):
            yield communicator
            current_communicator().finish()  # of a single process after `rank_zero_only`
    except BaseException as error:
        communicator.report(error)
        if has_nccl:  # a kernel that waits for a failed rank would keep the process running
            with suppress(Exception):  # torch has no public function for this
                dist.distributed_c10d._abort_process_group(group)
        raise
    # Not after an error, since it would wait for ranks that have ended.
    dist.destroy_process_group(group if exists else None)


def _gpu_of_rank(count: int) -> int:
    """The index of the GPU of this process among the `count` that it sees: LOCAL_RANK, or the only GPU."""
    number = os.environ.get("LOCAL_RANK", "0") if count > 1 else "0"
    if number not in map(str, range(count)):
        text = f"LOCAL_RANK is {number!r}, but this process sees {count} GPUs; {_ONE_DEVICE_EACH}"
        raise ResourceError(text, code="no-cuda")
    return int(number)  # `_machine_share` checks that other processes use other GPUs


@contextmanager
def _machine_share(communicator: Communicator, on_gpu: bool) -> Iterator[None]:
    """Use this rank's share of the cores and memory of its machine, and check that it has a separate GPU."""
    import torch

    own: dict[str, Any] = {
        "machine": socket.gethostname(),
        "cores": sorted(os.sched_getaffinity(0)),
        "gpu": None,
    }
    if on_gpu:
        own["gpu"] = str(torch.cuda.get_device_properties(torch.cuda.current_device()).uuid)
    everywhere = communicator.all_gather_object(own, "machines")
    here = [each for each in everywhere if each["machine"] == own["machine"]]
    on_each = Counter((each["machine"], each["gpu"]) for each in everywhere if each["gpu"])
    if on_each and max(on_each.values()) > 1:
        ((machine, gpu), count), *_ = on_each.most_common()
        text = f"{count} ranks use the same GPU of {machine} ({gpu}); {_ONE_DEVICE_EACH}"
        raise ResourceError(text, code="no-cuda")
    overlapping = [each for each in here if {*each["cores"]} & {*own["cores"]}]
    shares = {"cores": len(overlapping), "memory": len(here), "gpus": int(on_gpu)}
    with shared_machine(**shares), torch_threads(usable_cores()):
        yield


def barrier(
    name: str,
    *,
    timeout: float,
    hint: str,
    own: Mapping[str, Any] | None = None,
    group: Any = None,  # noqa: ANN401 - torch's types for groups differ between backends
) -> None:
    """Wait for all ranks of a process group (None: the world); raise if some do not arrive, or if `own` (JSON types) differs.

    A collective operation that only one rank enters would block until the time limit of the group.
    """
    import torch.distributed as dist

    if not (dist.is_available() and dist.is_initialized()):
        return
    # torch 2.6 does not know None.
    ranks = sorted(dist.get_process_group_ranks(dist.group.WORLD if group is None else group))
    if len(ranks) == 1:
        return
    rank, counter = dist.get_rank(), f"{name}/{'-'.join(map(str, ranks))}"
    store = _Store("genpr/barrier", rank)
    key = f"{counter}/{next(_barriers[counter])}"
    while store.has(key) and store.get(key) == _TIMED_OUT:  # of an earlier call
        key = f"{counter}/{next(_barriers[counter])}"
    store.set_once(f"{key}/{rank}", own or {})
    end, everyone = time.monotonic() + timeout, [f"{key}/{each}" for each in ranks]
    while not (has_all := store.has(*everyone)) and time.monotonic() < end:
        time.sleep(_STORE_PAUSE)
    if store.set_once(key, "go" if has_all else _TIMED_OUT) == _TIMED_OUT:
        missing = [str(each) for each in ranks if not store.has(f"{key}/{each}")]
        others = f"rank{'s' * (len(missing) > 1)} {', '.join(missing)}" if missing else "another rank"
        text = f"rank {rank} reached {name}, but {others} did not within {timeout:g} s; {hint}"
        raise ResourceError(text, code="ranks-missing")
    found = _difference({each: store.get(f"{key}/{each}") for each in ranks}, f"options of {name}")
    if found is not None:
        time.sleep(_REPORT_TIME)
        raise UsageError(f"{found}; {_SAME_ARGUMENTS}", code="ranks-differ")


def _difference(by_rank: Mapping[int, Mapping[str, Any]], what: str) -> str | None:
    """The first entry that differs between ranks, as text; None if none does."""
    (first, own), *others = by_rank.items()
    for name in dict.fromkeys(itertools.chain(*by_rank.values())):
        for rank, other in others:
            if own.get(name) != other.get(name):
                mine, theirs = own.get(name), other.get(name)
                if isinstance(mine, dict) and isinstance(theirs, dict):
                    return _difference({first: mine, rank: theirs}, f"{what} of {name}")
                values = f"{short(str(mine))} and {short(str(theirs))}"
                return f"rank {first} and rank {rank} have different {what} ({name}: {values})"
    return None


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:160]
