"""The statistics of features that OpenAI's reference batches carry beside, or instead of, their images.

`VIRTUAL_imagenet256_labeled.npz` and its siblings hold `arr_0`, images; `mu` and `sigma`, mean and covariance of
the 2048 pooled Inception features; and `mu_s` and `sigma_s`, those of 2023 spatial ones.

References:
    github.com/openai/guided-diffusion, evaluations/README.md and evaluator.py.
"""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from genpr.errors import DataError, printable
from genpr.images.archive import damage_reported
from genpr.images.arrays import Header, read_array

_DIM_MAX = 4096  # a sigma of 128 MiB, four times OpenAI's
_BYTES_MAX = 8 * _DIM_MAX**2 + 2**14
_ASYMMETRY_MAX = 1e-6  # of the largest entry; a covariance in float32 is symmetric to rounding


@dataclass(frozen=True, eq=False)
class ReferenceStatistics:
    """Mean and covariance of reference features, float64.

    Attributes:
        mu: Mean of the pooled features, (d,).
        sigma: Their covariance, (d, d).
        mu_s: Mean of the spatial features, (e,); None where the file has none.
        sigma_s: Their covariance, (e, e); None where the file has none.
    """

    mu: NDArray[np.float64]
    sigma: NDArray[np.float64]
    mu_s: NDArray[np.float64] | None = None
    sigma_s: NDArray[np.float64] | None = None


def read_statistics(path: Path | str) -> ReferenceStatistics | None:
    """Read the statistics in an .npz file, and nothing else of it; nothing is ever unpickled.

    Args:
        path: An .npz file.

    Returns:
        The statistics; `None` if the file is whole and holds no `mu` with a `sigma`.

    Raises:
        DataError: The file cannot be read ("unreadable"), or is damaged or incomplete ("statistics-damaged"); a key
            in it holds objects ("statistics-pickle"), no floats ("statistics-dtype"), a wrong shape
            ("statistics-shape"), or more than any statistics need ("statistics-bomb"); NaN or infinity
            ("non-finite"); or what is no covariance ("statistics-covariance").
    """
    path = Path(path)
    with damage_reported(path, ".npz file", code="statistics-damaged"), zipfile.ZipFile(path) as archive:
        if not _has(archive, "mu", "sigma"):
            return None
        mu, sigma = _read_pair(path, archive, "mu", "sigma")
        if not (_has(archive, "mu_s") or _has(archive, "sigma_s")):
            return ReferenceStatistics(mu, sigma)
        return ReferenceStatistics(mu, sigma, *_read_pair(path, archive, "mu_s", "sigma_s"))


def _has(archive: zipfile.ZipFile, *keys: str) -> bool:
    return {f"{key}.npy" for key in keys} <= set(archive.namelist())


def _read_pair(
    path: Path, archive: zipfile.ZipFile, mean: str, covariance: str
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """A mean and its covariance."""
    for key, other in ((mean, covariance), (covariance, mean)):
        if not _has(archive, key):
            raise _refusal(path, f"has {other!r} but no {key!r}; was a key lost?", "damaged")
    mu, sigma = (_read(path, archive, key) for key in (mean, covariance))
    if mu.ndim != 1 or not len(mu) or sigma.shape != mu.shape * 2:
        needed = f"{mean!r} of shape (d,) and {covariance!r} of (d, d)"
        raise _refusal(path, f"needs {needed}, got {mu.shape} and {sigma.shape}", "shape")
    for key, array in ((mean, mu), (covariance, sigma)):
        _check_finite(path, key, array)
    _check_covariance(path, covariance, sigma)
    return mu, sigma


def _read(path: Path, archive: zipfile.ZipFile, key: str) -> NDArray[np.float64]:
    """The array of a key, if its header promises floats that fit the file and the limit."""
    size = archive.getinfo(f"{key}.npy").file_size
    if size > _BYTES_MAX:
        facts = f"{size:,} bytes for {key!r}, more than the {_BYTES_MAX:,} that any statistics need"
        raise _refusal(path, f"declares {facts}; a decompression bomb?", "bomb")

    def check(header: Header) -> None:
        if header.dtype.hasobject:
            reason = (
                f"holds Python objects in {key!r}, which only pickle can load and which could then run code"
            )
            raise _refusal(path, reason, "pickle")
        if header.dtype.kind != "f" or header.dtype.itemsize > 8:
            raise _refusal(path, f"needs floats in {key!r}, got {header.dtype}", "dtype")
        if header.total_bytes != size:
            reason = f"declares {header.shape} in {key!r}, {header.total_bytes:,} bytes, but has {size:,}"
            raise _refusal(path, f"{reason}; it was cut short or edited", "damaged")

    with damage_reported(path, f"statistics file at its key {key!r}", code="statistics-damaged"):
        return np.ascontiguousarray(read_array(archive, f"{key}.npy", check=check), dtype=np.float64)


def _check_finite(path: Path, key: str, array: NDArray[np.float64]) -> None:
    finite = np.isfinite(array)
    if not finite.all():
        where = [int(index) for index in np.argwhere(~finite)[0]]
        raise DataError(
            f"{printable(str(path))} has {array[tuple(where)]} in {key!r} at {where}; nothing can be measured against that",
            code="non-finite",
            path=str(path),
        )


def _check_covariance(path: Path, key: str, sigma: NDArray[np.float64]) -> None:
    """Refuse what is not symmetric, or has a negative variance."""
    allowed = _ASYMMETRY_MAX * float(np.abs(sigma).max())
    with np.errstate(over="ignore"):
        difference = np.abs(sigma - sigma.T)
    row, column = divmod(int(difference.argmax()), len(sigma))
    if difference[row, column] > allowed:
        reason = (
            f"[{row}, {column}] is {sigma[row, column]:.6g} and [{column}, {row}] is {sigma[column, row]:.6g}"
        )
        raise _refusal(path, f"has a {key!r} that is not symmetric: {reason}", "covariance")
    lowest = int(sigma.diagonal().argmin())
    if sigma[lowest, lowest] < -allowed:
        reason = f"a negative variance in {key!r}: [{lowest}, {lowest}] is {sigma[lowest, lowest]:.6g}"
        raise _refusal(path, f"has {reason}", "covariance")


def _refusal(path: Path, reason: str, code: str) -> DataError:
    return DataError(f"{printable(str(path))} {reason}", code=f"statistics-{code}", path=str(path))
