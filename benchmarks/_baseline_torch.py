"""Baseline with float32 tiles in torch, on CPU or GPU, without filters or bounds."""

from __future__ import annotations

import torch
from _cases import Outcome
from torch import Tensor

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


def torch_tiles(real: Tensor, fake: Tensor, k: int) -> Outcome:
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


def torch_cdist(real: Tensor, fake: Tensor, k: int) -> Outcome:
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


def _outcome(*, inside_real: Tensor, inside_fake: Tensor, fakes_per_ball: Tensor, k: int) -> Outcome:
    return Outcome(
        {
            "precision": inside_real.double().mean().item(),
            "recall": inside_fake.double().mean().item(),
            "density": fakes_per_ball.double().sum().item() / (k * len(inside_real)),
            "coverage": (fakes_per_ball > 0).double().mean().item(),
        }
    )
