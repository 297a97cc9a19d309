"""A rule against near-duplicates that the hold-out benchmark tries; it is no part of genpr.

Near-duplicates shrink the balls of k neighbors, so that even a perfect generator misses the reals. Two rows of a set are
near-duplicates if each is much nearer to the other than to its own 30th neighbor. The limit depends on the dimension of the
set, estimated from its 15th and 30th neighbors: a set without near-duplicates has .02 of them per row on average, and the
limit is never above .3 of the distance to the 30th neighbor. Groups are connected components; one row of each is kept.
The constants were chosen on Gaussians, t distributions, a Swiss roll and six modes with bursts, which are no hold-out cases.
"""

from __future__ import annotations

import numpy as np
from _holdout_distributions import Rows
from numpy.typing import NDArray

_NEIGHBORS = 30
_HALF = 15
_EXPECTED = 0.02  # near-duplicates per row where there are none but by chance
_MOST = 0.3  # of the distance to the last neighbor


def groups(rows: Rows) -> NDArray[np.int64]:
    """Number (n,) of the group of near-duplicates that each row (n, d) belongs to, mostly alone."""
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    index, distance = _neighbors(rows)
    limit = _limit(distance) * distance[:, -1]
    near = distance <= np.minimum(limit[:, None], limit[index])
    left, at = near.nonzero()
    edges = coo_matrix((np.ones(len(left)), (left, index[left, at])), shape=(len(rows), len(rows)))
    found: NDArray[np.int64] = connected_components(edges, directed=False)[1].astype(np.int64)
    return found


def _neighbors(rows: Rows) -> tuple[NDArray[np.int64], Rows]:
    """Indices of the nearest other rows and their distances, ascending, (n, 30) each."""
    sq = np.square(rows).sum(axis=1)
    near = sq[:, None] + sq - 2 * rows @ rows.T
    np.fill_diagonal(near, np.inf)
    index = np.argpartition(near, _NEIGHBORS - 1, axis=1)[:, :_NEIGHBORS]
    # Anew, because differences of squares are inexact where rows are alike.
    distance = np.stack([np.linalg.norm(rows[of] - row, axis=1) for row, of in zip(rows, index, strict=True)])
    order = np.argsort(distance, axis=1)
    return np.take_along_axis(index, order, axis=1), np.take_along_axis(distance, order, axis=1)


def _limit(distance: Rows) -> float:
    """Share of the distance to the last neighbor up to which two rows are near-duplicates."""
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(distance[:, -1] / distance[:, _HALF - 1])
    logs = logs[np.isfinite(logs)]
    if not len(logs) or np.median(logs) <= 0:
        return _MOST
    dimension = np.log(_NEIGHBORS / _HALF) / np.median(logs)
    return float(min(_MOST, (_EXPECTED / _NEIGHBORS) ** (1 / dimension)))
