"""How many rows of a subset of a set lie in the ball of another row of the subset: the mean over subsets of one size.

The choice of subsets depends on the content of the set, not on the order of its rows. The balls of many subsets of more than a
third of the rows follow from the neighbor lists of the whole set (`resample.py` explains how). Smaller subsets are disjoint,
have at least half of the rows together, and each is searched.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from genpr.content_order import content_order
from genpr.memory import part_of
from genpr.neighbors.balls import BallKind
from genpr.neighbors.counts import Neighborhood
from genpr.neighbors.engine import ENGINE, Engine, places
from genpr.neighbors.halves import Hits, counted, neighbors_needed, packed
from genpr.neighbors.index import IndexedPoints
from genpr.neighbors.nearest import NeighborLists, extended_lists
from genpr.neighbors.resample import BYTES_PER_ENTRY, ROWS, at_once, tables_of_lists
from genpr.validation import Ties

SUBSETS = 128
"""Subsets of more than a third of the rows."""
_LISTED_RATIO = 3  # of rows to those of a subset, up to which lists cost less than searches
_LEAST = 5  # subsets that are searched, where there are as many
_MOST_TIMES = 8  # multiple of the usual length of lists beyond which too many rows are equally far
_LISTED = 2**22  # neighbors that are listed at a time


def covered_share_of_subsets(
    points: IndexedPoints, lists: NeighborLists, size: int, k: int, *, ties: Ties, engine: Engine = ENGINE
) -> float:
    """Mean share of rows in the ball of another row of their subset, over subsets of `size` rows, fewer than all.

    A row is left out when the balls of others are fitted, as in `Neighborhood.in_degrees`. `lists` may have any length.
    """
    n, covered = len(points.features), None
    subsets = drawn_subsets(points.features, size)
    if len(subsets) > n // size:
        covered = _covered_by_lists(points, lists, subsets, k, ties, engine)
    if covered is None:
        subsets = subsets[: n // size]  # disjoint
        covered = sum(_covered_by_search(points, subset, k, ties, engine) for subset in subsets)
    return covered / (len(subsets) * size)


def drawn_subsets(features: Tensor, size: int) -> NDArray[np.bool_]:
    """Random subsets (count, n) of `size` of n rows (n, d): disjoint where possible, else in pairs with few common rows."""
    n, order, inside = len(features), content_order(features).numpy(), list[NDArray[np.bool_]]()
    count = SUBSETS if _LISTED_RATIO * size > n else max(min(_LEAST, n // size), n // (2 * size))
    # Streams of a bit generator never change between versions of NumPy; permutations may.
    raw = np.random.PCG64(np.random.SeedSequence([n, size]))
    while len(inside) < count:
        shuffled = order[np.argsort(raw.random_raw(n), kind="stable")]
        for start in np.linspace(0, n - size, min(count, max(2, n // size))).astype(int):
            inside.append(np.zeros(n, dtype=bool))
            inside[-1][shuffled[start : start + size]] = True
    return np.stack(inside)


def _covered_by_search(
    points: IndexedPoints, subset: NDArray[np.bool_], k: int, ties: Ties, engine: Engine
) -> int:
    rows = torch.from_numpy(subset.nonzero()[0]).to(points.features.device)
    some = points.projection.place(part_of(points.features, rows))
    in_degrees = Neighborhood.from_points(some, [BallKind(k)], ties=ties, engine=engine).in_degrees
    assert in_degrees is not None
    return int((in_degrees[0] >= 1).sum())


def _covered_by_lists(
    points: IndexedPoints,
    lists: NeighborLists,
    subsets: NDArray[np.bool_],
    k: int,
    ties: Ties,
    engine: Engine,
) -> int | None:
    """Covered rows of all subsets (count, n); None if lists of reasonable length leave rows out that are as far as others."""
    usual = neighbors_needed(k)
    masks = packed(torch.from_numpy(subsets).T).to(points.features.device)
    hits = Hits(masks, 1)
    short = torch.arange(len(points.features), device=points.features.device)
    if lists.index.shape[1]:
        short = _add(hits, short, lists, masks, k, ties)
    length = max(lists.index.shape[1], usual // 2)
    with engine.search(points.features.device, features=points, k=k, ties=ties) as search:
        while len(short):
            if length > _MOST_TIMES * usual:
                return None
            length, still_short = 2 * length, list[Tensor]()
            for rows in torch.split(short, max(1, _LISTED // length)):
                longer = extended_lists(points, rows, length, search)
                still_short.append(_add(hits, rows, longer, masks, k, ties))
            short = torch.cat(still_short)
    return int(counted(hits.planes[0] & masks).sum())


def _add(hits: Hits, rows: Tensor, lists: NeighborLists, masks: Tensor, k: int, ties: Ties) -> Tensor:
    """Add the neighbors in the balls of `rows` (r,) with `lists`; returns the rows whose lists are too short.

    A neighbor is in the ball of a row if fewer than k others are nearer, or, for open balls, as near. Of others at one
    distance, a list that is long enough has all or needs none.
    """
    is_strict, length, short = ties == "strict", lists.index.shape[1], list[Tensor]()
    fewer = k + is_strict  # others that are as near include the neighbor itself
    step = at_once(ROWS, (length + 1) * BYTES_PER_ENTRY, rows.device)
    blocks = (torch.split(each, step) for each in (rows, lists.index, lists.sq))
    for some, index, sq in zip(*blocks, strict=True):
        (table,) = tables_of_lists(index, masks[some], masks, [fewer])
        sq = sq.contiguous()
        place = torch.searchsorted(sq, sq, right=is_strict)
        needed = (table != 0).any(dim=2).sum(dim=1)
        is_enough = needed <= (length if is_strict else place[:, -1])
        if length == len(masks) - 1:
            is_enough[:] = True
        enough = places(is_enough)
        bits = table[enough].gather(1, place[enough, :, None].expand(-1, -1, table.shape[2]))
        hits.add(index[enough].flatten(), bits.flatten(0, 1))
        short.append(some[~is_enough])
    return torch.cat(short)
