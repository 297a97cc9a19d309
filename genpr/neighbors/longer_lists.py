"""More of the nearest others, for a few rows of a set."""

from __future__ import annotations

import torch
from torch import Tensor

from genpr.neighbors.bounds import bounds_of_differences
from genpr.neighbors.engine import Engine
from genpr.neighbors.frame import Placed
from genpr.neighbors.lists import NeighbourLists, near_sq_distances
from genpr.neighbors.pairs import Pairs
from genpr.neighbors.sweep import sweep_between
from genpr.neighbors.workers import Workers

_ROWS, _COLUMNS = 512, 4096  # per product


def longer_lists(
    points: Placed, rows: Tensor, length: int, engine: Engine, workers: Workers
) -> NeighbourLists:
    """The `length` nearest others of `rows` (r,), or all others if there are not as many."""
    x, length = points.features, min(length, len(points) - 1)
    asked = points.frame.place(x[rows])
    blocks = torch.split(torch.arange(len(rows), device=rows.device), _ROWS)
    found = workers.map_shared(
        lambda block: (_first_reach(points, rows, asked, block, length, engine),), blocks
    )
    sq_reach = torch.cat([reach for (reach,) in found])
    nothing = sq_reach.new_full((len(points),), -torch.inf)

    def look(pairs: Pairs) -> tuple[Tensor, Tensor, Tensor]:
        others = (rows[pairs.i] != pairs.j).nonzero()[:, 0]
        i, j = pairs.i[others], pairs.j[others]
        return i, j, near_sq_distances(asked.features, x, i, j, engine)

    parts = [(rows[:0], rows[:0], sq_reach[:0])]  # a rank may find nothing
    parts += sweep_between(asked, points, sq_reach, nothing, engine, workers, look)
    found_here = (torch.cat(part) for part in zip(*parts, strict=True))
    i, j, sq = (torch.cat(workers.communicator.all_gather(part)) for part in found_here)
    order = j.argsort()  # so that of equally far ones, the first is listed, whoever found it
    order = order[sq[order].argsort(stable=True)]
    order = order[i[order].argsort(stable=True)]
    first = torch.searchsorted(i[order], torch.arange(len(rows), device=rows.device))
    order = order[first[:, None] + torch.arange(length, device=rows.device)]
    return NeighbourLists(j[order], sq[order])


def _first_reach(
    points: Placed, rows: Tensor, asked: Placed, block: Tensor, length: int, engine: Engine
) -> Tensor:
    """Upper bounds on the squared distances to the `length`-th nearest others of a `block` of `rows`: (b,) float64.

    Large products only propose; the distances to what they propose are a bound, whatever it is.
    """
    left, own = asked.view.left(block), rows[block]
    keys, near = left.new_empty(len(block), 0), block.new_empty(len(block), 0)
    for columns in torch.split(torch.arange(len(points), device=rows.device), _COLUMNS):
        products = left @ points.view.right(columns).T
        products[own[:, None] == columns] = -torch.inf
        keys = torch.cat([keys, products], dim=1)
        near = torch.cat([near, columns.expand(len(block), -1)], dim=1)
        keys, best = keys.topk(min(length, keys.shape[1]), dim=1)
        near = near.gather(1, best)
    sq = near_sq_distances(
        points.features, points.features, own.repeat_interleave(length), near.flatten(), engine
    )
    sq = sq.view(near.shape).max(dim=1).values
    return bounds_of_differences(sq, points.features.shape[1])[1]
