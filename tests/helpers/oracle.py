"""An independent numpy implementation of the definitions, without any code of genpr."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray


def once(function: Callable[..., Any]) -> Callable[..., Any]:
    """Cache a function of arrays by their contents, since many tests use the same case."""

    @functools.lru_cache(maxsize=256)
    def of_bytes(*given: tuple[bytes, tuple[int, ...], str]) -> Any:
        return function(*(np.frombuffer(data, dtype).reshape(shape) for data, shape, dtype in given))

    return lambda *arrays: of_bytes(*((each.tobytes(), each.shape, each.dtype.str) for each in arrays))


def sq_distances(x: NDArray, y: NDArray) -> NDArray:
    """(n, m) of all rows of x (n, d) to all rows of y (m, d), float64.

    The sum of squared differences, halved pairwise over float32 vectors padded with zeros to one length.
    """
    return _sq_distances(x, y).copy()


@once
def _sq_distances(x: NDArray, y: NDArray) -> NDArray:
    out = np.empty((len(x), len(y)))
    width = 1 << (x.shape[1] - 1).bit_length()
    y = y.astype(np.float64)
    for i, row in enumerate(x.astype(np.float64)):
        terms = np.zeros((len(y), width))
        terms[:, : x.shape[1]] = (row - y) ** 2
        half = width // 2
        while half:
            terms = terms[:, :half] + terms[:, half:]
            half //= 2
        out[i] = terms[:, 0]
    return out


def sq_distance(x: NDArray, y: NDArray) -> float:
    """The squared distance of two rows."""
    return float(sq_distances(x[None], y[None])[0, 0])


def kth_sq_distances(x: NDArray, ks: list[int]) -> NDArray:
    """(len(ks), n): to the k-th nearest other row."""
    sq = sq_distances(x, x)
    out = np.empty((len(ks), len(x)))
    for i in range(len(x)):
        others = np.sort(np.delete(sq[i], i))
        out[:, i] = [others[k - 1] for k in ks]
    return out


def memberships(sq: NDArray, sq_radii: NDArray, ties: str) -> NDArray:
    """Membership of the m columns in the balls around the n rows, (n, m) bool."""
    return sq <= sq_radii[:, None] if ties == "closed" else sq < sq_radii[:, None]


def manifold_metrics(
    real: NDArray, fake: NDArray, k: int, ties: str = "closed"
) -> tuple[float, float, float, float]:
    """Precision, recall, density, coverage."""
    sq = sq_distances(real, fake)
    in_real = memberships(sq, kth_sq_distances(real, [k])[0], ties)
    in_fake = memberships(sq.T, kth_sq_distances(fake, [k])[0], ties)
    precision = int(in_real.any(axis=0).sum()) / len(fake)
    recall = int(in_fake.any(axis=0).sum()) / len(real)
    density = int(in_real.sum()) / (k * len(fake))
    coverage = int(in_real.any(axis=1).sum()) / len(real)
    return precision, recall, density, coverage
