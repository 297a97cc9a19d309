"""Feature sets: learned features from files, and synthetic features with a known spectrum."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

FAMILIES = ("learned", "power-law-1.0", "power-law-1.5", "gaussian")

_EXPONENTS = {"power-law-1.0": 1.0, "power-law-1.5": 1.5, "gaussian": 0.0}
_FAKE_SCALES = {"power-law-1.0": 0.95, "power-law-1.5": 0.95, "gaussian": 0.995}
# In an isotropic Gaussian all 2048 directions count: at 0.95 every fake would lie in dozens of real balls and
# hardly any real in a fake one.

_BLOCK = 1000
_SEED = 20190415


@dataclass(frozen=True, slots=True)
class LearnedFiles:
    """Two files written by `genpr features`.

    Attributes:
        real: safetensors with a tensor "features".
        fake: The same for the fakes.
        d: Features per row of both.
        rows: Rows of the shorter file.
    """

    real: Path
    fake: Path
    d: int
    rows: int

    @classmethod
    def open(cls, real: Path, fake: Path) -> LearnedFiles:
        """Read the shapes.

        Raises:
            ValueError: A file holds no features, or the two are of different width.
        """
        (n_real, d_real), (n_fake, d_fake) = _shape(real), _shape(fake)
        if d_real != d_fake:
            raise ValueError(f"{real} has {d_real} features per row but {fake} has {d_fake}")
        return cls(real, fake, d_real, min(n_real, n_fake))


@dataclass(frozen=True, slots=True)
class FeaturePair:
    """Reals and fakes as float32 .npy files; a case of n takes the first n rows of each."""

    real: Path
    fake: Path

    def delete(self) -> None:
        """Delete both files."""
        self.real.unlink()
        self.fake.unlink()


def write_features(
    family: str, *, d: int, rows: int, folder: Path, learned: LearnedFiles | None
) -> FeaturePair:
    """Write both sides of `family` into `folder`; the first rows are the same whatever `rows` is.

    Args:
        family: One of `FAMILIES`.
        d: Features per row.
        rows: Rows per side.
        folder: Holds the files, and one rotation per d for later calls.
        learned: Where the learned features are; needed for that family only.
    """
    pair = FeaturePair(folder / f"{family}-{d}-real.npy", folder / f"{family}-{d}-fake.npy")
    if family == "learned":
        if learned is None:
            raise ValueError("learned features need two files")
        for side, (source, path) in enumerate([(learned.real, pair.real), (learned.fake, pair.fake)]):
            np.save(path, shuffled(read_features(source), seed=_SEED + side)[:rows])
        return pair
    rotation = None if family == "gaussian" else _rotation(d, folder)
    exponent = _EXPONENTS[family]
    for side, (path, scale) in enumerate([(pair.real, 1.0), (pair.fake, _FAKE_SCALES[family])]):
        seed = [_SEED, FAMILIES.index(family), side]
        write_gaussian(path, rows=rows, d=d, exponent=exponent, scale=scale, rotation=rotation, seed=seed)
    return pair


def write_gaussian(
    path: Path,
    *,
    rows: int,
    d: int,
    exponent: float,
    scale: float,
    rotation: NDArray[np.float32] | None,
    seed: list[int],
    dtype: type[np.floating[Any]] = np.float32,
) -> None:
    """Write draws of a Gaussian with covariance eigenvalues i^-exponent, block by block, each with its own seed.

    Args:
        path: The .npy file.
        rows: How many draws.
        d: Features per draw.
        exponent: Decay of the spectrum; 0 is isotropic.
        scale: Multiplies every draw.
        rotation: (d, d) orthogonal; without it the eigenvectors are the axes.
        seed: Same seed, same rows.
        dtype: Of the file.
    """
    deviations = (scale * np.arange(1, d + 1, dtype=np.float64) ** (-exponent / 2)).astype(np.float32)
    out = np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=(rows, d))
    for block, start in enumerate(range(0, rows, _BLOCK)):
        draws = np.random.default_rng([*seed, block]).standard_normal((_BLOCK, d), dtype=np.float32)
        draws *= deviations
        rotated = draws if rotation is None else draws @ rotation
        out[start : start + _BLOCK] = rotated[: rows - start]
    out.flush()


def random_rotation(d: int) -> NDArray[np.float32]:
    """A (d, d) orthogonal matrix, the same for the same d."""
    square = torch.from_numpy(np.random.default_rng([_SEED, d]).standard_normal((d, d), dtype=np.float32))
    q, r = torch.linalg.qr(square)
    rotation: NDArray[np.float32] = (q * r.diagonal().sign()).numpy()
    return rotation


def read_rows(path: str, n: int) -> torch.Tensor:
    """The first n rows of a .npy file, (n, d) float32, contiguous and in memory."""
    return torch.from_numpy(np.array(np.load(path, mmap_mode="r")[:n], dtype=np.float32, order="C"))


def _rotation(d: int, folder: Path) -> NDArray[np.float32]:
    path = folder / f"rotation-{d}.npy"
    if not path.exists():
        np.save(path, random_rotation(d))
    rotation: NDArray[np.float32] = np.load(path)
    return rotation


def _shape(path: Path) -> tuple[int, int]:
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        if "features" not in file.keys():  # noqa: SIM118 - not a dictionary
            raise ValueError(f"{path} holds no tensor named 'features'; write it with `genpr features`")
        n, d = file.get_slice("features").get_shape()
        return n, d


def read_features(path: Path) -> NDArray[np.float32]:
    """Features by `genpr features`, (n, d)."""
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        features: NDArray[np.float32] = file.get_tensor("features").float().numpy()
        return features


def shuffled(features: NDArray[np.float32], *, seed: int) -> NDArray[np.float32]:
    """Shuffle the rows: files list images class by class, and the first rows would be of a few classes only."""
    return features[np.random.default_rng(seed).permutation(len(features))]
