"""What the ranks of a team exchange, and how one waits for the others without waiting for ever."""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from genpr.distributed.failures import Failures
from genpr.distributed.team import Team, alone
from genpr.errors import ResourceError

_Kind = TypeVar("_Kind")
_PIECE = 2**26  # bytes at once
_SHORTEST, _LONGEST = 0.00005, 0.005  # seconds between two looks
_LAST_WORDS = 3.0  # seconds in which the rank that ended says why


class Ranks(Team):
    """Several processes.

    Tensors travel as bytes, so that not one bit changes: through NCCL those on a GPU, through gloo all others. Plain
    objects travel as JSON, of which none can be code.

    Args:
        group: Of torch.distributed, for this purpose alone.
        failures: What the ranks know of each other's errors.
    """

    def __init__(self, group: Any, failures: Failures) -> None:  # noqa: ANN401 - torch's type may be a number
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        self._group, self._failures = group, failures
        self._members = [dist.get_global_rank(group, rank) for rank in range(self.size)]
        self._step = 0
        self._has_parted = False

    def gathered(self, rows: Tensor) -> list[Tensor]:
        """See `Team.gathered`."""
        rows = rows.contiguous()
        counts = self._numbers(f"gathered {rows.dtype} {tuple(rows.shape[1:])}", len(rows))
        parts = [
            rows if rank == self.rank else rows.new_empty(count, *rows.shape[1:])
            for rank, count in enumerate(counts)
        ]
        self._broadcast(list(enumerate(parts)))
        return parts

    def fill(self, parts: Sequence[tuple[int, Tensor]]) -> None:
        """See `Team.fill`."""
        self._numbers(f"fill {[(owner, tuple(part.shape)) for owner, part in parts]}", 0)
        self._broadcast(parts)

    def total(self, counts: Tensor) -> Tensor:
        """See `Team.total`."""
        self._numbers(f"total {counts.dtype} {tuple(counts.shape)}", 0)
        counts = counts.clone(memory_format=torch.contiguous_format)
        if counts.numel():
            self._wait(dist.all_reduce(counts, group=self._group, async_op=True))
        return counts

    def told(self, value: Any) -> list[Any]:  # noqa: ANN401
        """See `Team.told`."""
        parts = self.gathered(_text_of(value))
        return [json.loads(part.numpy().tobytes()) for part in parts]

    def from_first(self, compute: Callable[[], _Kind]) -> _Kind:
        """See `Team.from_first`."""
        value = None
        if self.is_first:
            with alone():
                value = compute()
        found: _Kind = self.told(value)[0]
        return found

    def agreed(self, flag: bool) -> bool:
        """See `Team.agreed`."""
        return all(self._numbers("agreed", int(flag)))

    def part(self) -> None:
        """See `Team.part`."""
        if not self._has_parted:
            self._numbers("part", 0)
        self._has_parted = True

    def _numbers(self, what: str, number: int) -> list[int]:
        """The `number` of every rank, once it is clear that all of them are at `what`."""
        self._step += 1
        own = torch.tensor([self._step, zlib.crc32(what.encode()), number])
        found = [torch.empty_like(own) for _ in range(self.size)]
        self._wait(dist.all_gather(found, own, group=self._group, async_op=True))
        steps, places, numbers = torch.stack(found).T.tolist()
        if len({*zip(steps, places, strict=True)}) > 1:
            raise ResourceError(
                f"the ranks are not at the same point (this one at step {self._step}, {what[:80]}); did they get the same "
                "arguments, and the same versions of genpr, and was an error of one of them caught?",
                code="ranks-apart",
            )
        return [int(each) for each in numbers]

    def _broadcast(self, parts: Sequence[tuple[int, Tensor]]) -> None:
        """Each part from its rank to all others, in place."""
        for owner, part in parts:
            if part.numel():
                for piece in torch.split(bytes_of(part), _PIECE):
                    self._wait(
                        dist.broadcast(piece, src=self._members[owner], group=self._group, async_op=True)
                    )

    def _wait(self, work: Any) -> None:  # noqa: ANN401 - torch does not export the type
        """Until the others have come, or one of them has failed."""
        pause = _SHORTEST
        try:
            while not work.is_completed():
                self._failures.check()
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST)
            work.wait()
        except RuntimeError as error:
            if isinstance(error, ResourceError):
                raise
            end = time.monotonic() + _LAST_WORDS
            while time.monotonic() < end:
                self._failures.check()
                time.sleep(_LONGEST)
            raise self._failures.lost(error) from error


def bytes_of(tensor: Tensor) -> Tensor:
    """The memory of a contiguous tensor as (b,) uint8; a dimension of one may have any stride."""
    return torch.as_strided(tensor, (tensor.numel(),), (1,)).view(torch.uint8)


def _text_of(value: Any) -> Tensor:  # noqa: ANN401
    text = json.dumps(value).encode()
    return torch.frombuffer(bytearray(text), dtype=torch.uint8)
