"""Pieces of work shared by the ranks of a team, each of which gets the results of all.

A rank does every so-manieth piece. Results come in the order of the pieces, so that nothing after them can tell how
many ranks there were.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from genpr.distributed.exchange import bytes_of
from genpr.distributed.team import Team, current_team
from genpr.neighbors.workers import Workers

_Item = TypeVar("_Item")
_WORD = 8  # bytes that every tensor begins at a multiple of, as tensors must


def spread(
    workers: Workers, work: Callable[[_Item], tuple[Tensor, ...]], items: Sequence[_Item]
) -> Iterator[tuple[Tensor, ...]]:
    """What `work` makes of each of `items`, in their order.

    Args:
        workers: Who works here.
        work: The same on every rank, with results on the device of the workers.
        items: The same on every rank.
    """
    team = current_team()
    if team.is_alone:
        yield from workers.map(work, items)
        return
    own = list(workers.map(work, team.share(items)))
    of_ranks = [iter(results) for results in _of_all(own, team, workers.device)]
    for number in range(len(items)):
        yield next(of_ranks[number % team.size])


def from_first(parts: list[Tensor], device: torch.device) -> list[Tensor]:
    """The `parts` of the first rank, on every rank: what may be rounded differently on another machine."""
    team = current_team()
    if team.is_alone:
        return parts
    (first, *_) = _of_all([(part,) for part in parts] if team.is_first else [], team, device)
    return [part for (part,) in first]


def _of_all(
    results: Sequence[tuple[Tensor, ...]], team: Team, device: torch.device
) -> list[list[tuple[Tensor, ...]]]:
    """The `results` of every rank, in their order."""
    shapes = [
        [[str(part.dtype).removeprefix("torch."), list(part.shape)] for part in each] for each in results
    ]
    told = team.told(shapes)
    packed = team.gathered(_packed([part for each in results for part in each], device))
    found = []
    for shapes, data in zip(told, packed, strict=True):
        start, mine = 0, []
        for shaped in shapes:
            parts = []
            for name, shape in shaped:
                dtype: torch.dtype = getattr(torch, name)
                count = torch.Size(shape).numel() * dtype.itemsize
                parts.append(data[start : start + count].view(dtype).view(shape))
                start += _rounded_up(count)
            mine.append(tuple(parts))
        found.append(mine)
    return found


def _packed(parts: Sequence[Tensor], device: torch.device) -> Tensor:
    """All bytes of all parts, (b,) uint8."""
    counts = [part.numel() * part.dtype.itemsize for part in parts]
    data = torch.zeros(sum(map(_rounded_up, counts)), dtype=torch.uint8, device=device)
    start = 0
    for part, count in zip(parts, counts, strict=True):
        data[start : start + count] = bytes_of(part.contiguous())
        start += _rounded_up(count)
    return data


def _rounded_up(count: int) -> int:
    return -(-count // _WORD) * _WORD
