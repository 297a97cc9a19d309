"""The tools that bench_manifold.py compares: genpr, published ones by their own functions, and baselines without filters."""

from __future__ import annotations

import importlib
import io
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Ties: TypeAlias = Literal["closed", "strict"]
Values: TypeAlias = dict[str, float]
"""Any of precision, recall, density and coverage."""


def genpr_metrics(real: Tensor, fake: Tensor, k: int, ties: Ties = "closed") -> Values:
    """`genpr.manifold_metrics`: all four metrics."""
    import faiss  # noqa: F401 - whether or not the small warm-up needs it

    import genpr

    return genpr.manifold_metrics(real, fake, k=k, ties=ties, device=real.device)._asdict()


def prdc(real: Tensor, fake: Tensor, k: int) -> Values:
    """`prdc.compute_prdc`: all four metrics from whole n x n distance matrices."""
    compute_prdc = importlib.import_module("prdc").compute_prdc
    with redirect_stdout(io.StringIO()):  # prdc prints the sizes
        values: dict[str, Any] = compute_prdc(real.numpy(), fake.numpy(), k)
    return {name: float(value) for name, value in values.items()}


def torch_fidelity(real: Tensor, fake: Tensor, k: int) -> Values:
    """Compute metrics as `torch_fidelity.calculate_metrics(prc=True)` does with its default settings."""
    return _torch_fidelity(real, fake, k, save_cpu_ram=False)


def torch_fidelity_save_ram(real: Tensor, fake: Tensor, k: int) -> Values:
    """The same with its `save_cpu_ram=True`: blocks of 10,000 rows, and a fourth pass."""
    return _torch_fidelity(real, fake, k, save_cpu_ram=True)


def _torch_fidelity(real: Tensor, fake: Tensor, k: int, *, save_cpu_ram: bool) -> Values:
    metric_prc = importlib.import_module("torch_fidelity.metric_prc")
    values: dict[str, float] = metric_prc.prc_features_to_metric(
        fake,  # its first argument is the generated set
        real,
        prc_neighborhood=k,
        prc_batch_size=10_000,  # its default
        save_cpu_ram=save_cpu_ram,
        verbose=False,
    )
    return {name: values[name] for name in ("precision", "recall")}


def scikit_learn(real: Tensor, fake: Tensor, k: int) -> Values:
    """Brute-force `NearestNeighbors` for the radii, `pairwise_distances_chunked` for the memberships in balls."""
    x, y = real.numpy(), fake.numpy()
    pairwise_distances_chunked = importlib.import_module("sklearn.metrics").pairwise_distances_chunked
    real_radii, fake_radii = _sklearn_radii(x, k), _sklearn_radii(y, k)
    inside_real, inside_fake = np.zeros(len(y), dtype=np.bool_), np.zeros(len(x), dtype=np.bool_)
    n_pairs = n_covered = start = 0
    for distances in pairwise_distances_chunked(x, y, metric="euclidean", working_memory=256):
        rows = slice(start, start + len(distances))
        inside = distances <= real_radii[rows, None]
        n_pairs += int(np.count_nonzero(inside))
        n_covered += int(np.count_nonzero(inside.any(axis=1)))
        inside_real |= inside.any(axis=0)
        inside_fake[rows] = (distances <= fake_radii).any(axis=1)
        start = rows.stop
    return {
        "precision": float(inside_real.mean()),
        "recall": float(inside_fake.mean()),
        "density": n_pairs / (k * len(y)),
        "coverage": n_covered / len(x),
    }


def _sklearn_radii(points: Any, k: int) -> Any:  # noqa: ANN401 - scikit-learn has no types
    neighbors = importlib.import_module("sklearn.neighbors")
    search = neighbors.NearestNeighbors(n_neighbors=k, algorithm="brute").fit(points)
    distances, _ = search.kneighbors()  # of the points themselves, each without itself
    return distances[:, -1]


def faiss_flat(real: Tensor, fake: Tensor, k: int) -> Values:
    """Flat k-NN searches for the radii, then one inner product range search per kind of ball.

    With c' = (2c, r^2 - |c|^2, 1) and y' = (y, 1, -|y|^2), y lies in the ball around c exactly when <c', y'> >= 0.
    """
    mean = real.mean(dim=0)
    x, y = (real - mean).numpy(), (fake - mean).numpy()
    real_sq_radii, fake_sq_radii = _faiss_sq_radii(x, k), _faiss_sq_radii(y, k)
    fakes_per_ball, inside_real = _faiss_range_search(x, real_sq_radii, y)
    _, inside_fake = _faiss_range_search(y, fake_sq_radii, x)
    return {
        "precision": float(inside_real.mean()),
        "recall": float(inside_fake.mean()),
        "density": float(fakes_per_ball.sum() / (k * len(y))),
        "coverage": float((fakes_per_ball > 0).mean()),
    }


def _faiss_sq_radii(points: NDArray[np.float32], k: int) -> NDArray[np.float32]:
    """Squared distance from each row to its k-th nearest other row."""
    faiss = importlib.import_module("faiss")
    sq_distances, index = faiss.knn(points, points, k + 1)
    is_self = index == np.arange(len(points))[:, None]
    is_self[:, -1] |= ~is_self.any(
        axis=1
    )  # the row itself is missing if it has more than k copies: drop the farthest
    others = sq_distances[~is_self].reshape(len(points), k)
    sq_radii: NDArray[np.float32] = others.max(axis=1)
    return sq_radii


def _faiss_range_search(
    centers: NDArray[np.float32], sq_radii: NDArray[np.float32], points: NDArray[np.float32]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the number of points in each ball, and whether each point lies in a ball."""
    faiss = importlib.import_module("faiss")
    d = points.shape[1]
    balls = np.empty((len(centers), d + 2), dtype=np.float32)
    np.multiply(centers, 2, out=balls[:, :d])
    balls[:, d] = sq_radii - np.einsum("ij,ij->i", centers, centers)
    balls[:, d + 1] = 1
    augmented = np.empty((len(points), d + 2), dtype=np.float32)
    augmented[:, :d] = points
    augmented[:, d] = 1
    augmented[:, d + 1] = -np.einsum("ij,ij->i", points, points)
    index = faiss.IndexFlatIP(d + 2)
    index.add(augmented)
    del augmented  # the index has its own copy
    limits, _, found = index.range_search(
        balls, -np.finfo(np.float32).tiny
    )  # it returns values strictly above
    inside = np.zeros(len(points), dtype=np.bool_)
    inside[found] = True
    return np.diff(limits.astype(np.int64)), inside


_TILES = {
    "cpu": (1024, 4096),
    "cuda": (8192, 8192),
}  # 1024 x 4096 multiplied fastest of eight shapes tried on CPU
_CDIST_ROWS = {"cpu": 1024, "cuda": 4096}


class _Tiles:
    """Keys <x, y> - |y|^2 / 2 tile by tile, in buffers that are allocated once; large where rows are close."""

    def __init__(self, device: torch.device) -> None:
        self.rows, self.columns = _TILES[device.type]
        self._keys = torch.empty(self.rows * self.columns, device=device)
        self._scratch = torch.empty_like(self._keys)

    def keys(self, x: Tensor, y: Tensor, y_half_sq: Tensor) -> Tensor:
        out = self._keys[: len(x) * len(y)].view(len(x), len(y))
        return torch.addmm(y_half_sq, x, y.T, beta=1, alpha=1, out=out)

    def scratch(self, like: Tensor) -> Tensor:
        return self._scratch[: like.numel()].view(like.shape)


def torch_tiles(real: Tensor, fake: Tensor, k: int) -> Values:
    """float32 matrix products in tiles: top-k for the radii, then one pass for both kinds of balls."""
    tiles = _Tiles(real.device)
    mean = real.mean(dim=0)
    x, y = real - mean, fake - mean
    x_half_sq, y_half_sq = (x * x).sum(dim=1) / 2, (y * y).sum(dim=1) / 2
    # a key reaches |x|^2 / 2 - r^2 / 2 exactly when the squared distance is at most r^2
    x_half_sq_radii = _half_sq_radii(x, x_half_sq, k, tiles)
    y_half_sq_radii = _half_sq_radii(y, y_half_sq, k, tiles)
    real_threshold = (x_half_sq - x_half_sq_radii)[:, None]
    fakes_per_ball = torch.zeros(len(x), device=x.device)
    inside_real = torch.zeros(len(y), dtype=torch.bool, device=x.device)
    inside_fake = torch.zeros(len(x), dtype=torch.bool, device=x.device)
    for rows in _slices(len(x), tiles.rows):
        for columns in _slices(len(y), tiles.columns):
            keys = tiles.keys(x[rows], y[columns], -y_half_sq[columns])
            reach = torch.add(keys, y_half_sq_radii[columns], out=tiles.scratch(keys))
            inside_fake[rows] |= reach.amax(dim=1) >= x_half_sq[rows]
            inside = keys.sub_(real_threshold[rows]).ge_(
                0
            )  # 1.0 and 0.0: summing those is faster than booleans
            fakes_per_ball[rows] += inside.sum(dim=1)
            inside_real[columns] |= inside.amax(dim=0) > 0
    return _outcome(inside_real=inside_real, inside_fake=inside_fake, fakes_per_ball=fakes_per_ball, k=k)


def _half_sq_radii(x: Tensor, half_sq: Tensor, k: int, tiles: _Tiles) -> Tensor:
    """Half the squared distance from each row to its k-th nearest other row."""
    radii = torch.empty(len(x), device=x.device)
    for rows in _slices(len(x), tiles.rows):
        nearest = torch.full((rows.stop - rows.start, k), -torch.inf, device=x.device)
        for columns in _slices(len(x), tiles.columns):
            keys = tiles.keys(x[rows], x[columns], -half_sq[columns])
            _exclude_self(keys, rows, columns)
            best = keys.topk(min(k, keys.shape[1]), dim=1, sorted=False).values
            nearest = torch.cat([nearest, best], dim=1).topk(k, dim=1).values
        radii[rows] = (half_sq[rows] - nearest[:, -1]).clamp_(min=0)
    return radii


def _exclude_self(keys: Tensor, rows: slice, columns: slice) -> None:
    start, stop = max(rows.start, columns.start), min(rows.stop, columns.stop)
    if start < stop:
        block = keys[start - rows.start : stop - rows.start, start - columns.start : stop - columns.start]
        block.fill_diagonal_(-torch.inf)


def _slices(n: int, step: int) -> list[slice]:
    return [slice(start, min(start + step, n)) for start in range(0, n, step)]


def torch_cdist(real: Tensor, fake: Tensor, k: int) -> Values:
    """The usual loop of evaluation scripts: `torch.cdist` on blocks of rows."""
    step = _CDIST_ROWS[real.device.type]
    real_radii, fake_radii = _cdist_radii(real, k, step), _cdist_radii(fake, k, step)
    fakes_per_ball: list[Tensor] = []
    inside_fake: list[Tensor] = []
    inside_real = torch.zeros(len(fake), dtype=torch.bool, device=real.device)
    for rows in _slices(len(real), step):
        distances = torch.cdist(real[rows], fake)
        inside = distances <= real_radii[rows, None]
        fakes_per_ball.append(inside.sum(dim=1))
        inside_real |= inside.any(dim=0)
        inside_fake.append((distances <= fake_radii).any(dim=1))
    return _outcome(
        inside_real=inside_real,
        inside_fake=torch.cat(inside_fake),
        fakes_per_ball=torch.cat(fakes_per_ball),
        k=k,
    )


def _cdist_radii(x: Tensor, k: int, step: int) -> Tensor:
    """The k-th distance to another row: the row itself is among the k + 1 smallest."""
    radii = [
        torch.cdist(x[rows], x).topk(k + 1, dim=1, largest=False).values[:, -1]
        for rows in _slices(len(x), step)
    ]
    return torch.cat(radii)


def _outcome(*, inside_real: Tensor, inside_fake: Tensor, fakes_per_ball: Tensor, k: int) -> Values:
    return {
        "precision": inside_real.double().mean().item(),
        "recall": inside_fake.double().mean().item(),
        "density": fakes_per_ball.double().sum().item() / (k * len(inside_real)),
        "coverage": (fakes_per_ball > 0).double().mean().item(),
    }


@dataclass(frozen=True, slots=True)
class Tool:
    """An implementation of the metrics, with the tie rule that it follows and the devices on which it runs by default or at all."""

    name: str
    module: str  # that must be installed
    run: Callable[[Tensor, Tensor, int], Values]
    ties: Ties = "closed"
    devices: tuple[str, ...] = ("cpu",)
    default_on: tuple[str, ...] = ("cpu",)
    bytes_per_pair: float = 0  # of memory, if it allocates n x n arrays
    is_slow: bool = False  # large n are left out by default outside the learned family

    @property
    def is_installed(self) -> bool:
        """Whether the module is installed."""
        return find_spec(self.module) is not None


_BOTH = ("cpu", "cuda")
TOOLS = {
    tool.name: tool
    for tool in (
        Tool("genpr", "genpr", genpr_metrics, devices=_BOTH, default_on=_BOTH),
        Tool("faiss-flat", "faiss", faiss_flat),
        Tool("torch-tiles", "torch", torch_tiles, devices=_BOTH, default_on=_BOTH),
        Tool("torch-cdist", "torch", torch_cdist, devices=_BOTH, default_on=("cuda",)),
        # 1.4 GB at n = 10,000
        Tool(
            "torch-fidelity", "torch_fidelity", torch_fidelity, devices=_BOTH, bytes_per_pair=14, is_slow=True
        ),
        Tool(
            "torch-fidelity-save-ram",
            "torch_fidelity",
            torch_fidelity_save_ram,
            devices=_BOTH,
            default_on=(),
            is_slow=True,
        ),
        Tool("scikit-learn", "sklearn", scikit_learn, is_slow=True),
        Tool("prdc", "prdc", prdc, ties="strict", bytes_per_pair=12, is_slow=True),
    )
}
"""In the order in which they run: genpr first, since the others are compared with it."""
