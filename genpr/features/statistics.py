"""Reference statistics: mean and covariance of the features of reference images, from the files that repositories publish.

`.npz` files of ADM, pytorch-fid, torch-fidelity's forks, JAX repositories and `genpr stats`, and pickled dicts as those of EDM2,
which are never executed (`genpr.features.plain_pickle`). Importing this module does not import torch.
"""

from __future__ import annotations

import hashlib
import os
import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from genpr import __version__
from genpr.errors import DataError, UsageError, some
from genpr.features.extractor import ExtractorInfo
from genpr.features.known_statistics import KnownStatistics, find_known
from genpr.features.plain_pickle import MOST_BYTES, read_plain_pickle
from genpr.features.registry import is_same_extractor, parse_name
from genpr.features.representations import FDR6
from genpr.images.archive import DAMAGE, damage_reported
from genpr.images.arrays import Header, read_array
from genpr.images.paths import check_there
from genpr.limits import parse_json, read_bytes
from genpr.storage import from_dict, open_regular

Floats = NDArray[np.float64]
PROVENANCE = "genpr"
"""The key of an .npz file under which `genpr stats` writes a JSON text."""
_FORMAT = "genpr.statistics/1"
_PICKLES = (".pkl", ".pickle")
_PAIRS = (("mu", "sigma"), ("ref_mu", "ref_sigma"))
_SPATIAL = ("mu_s", "sigma_s")
_PICKLED = {
    "fid": "inception",
    "fd_dinov2": "dinov2-vitl14@torch-bicubic-antialias",
    **{each.statistics: each.extractor for each in FDR6},
}
_ARRAY_BYTES_MAX = 8 * 4096**2 + 2**14  # a sigma of 128 MiB, four times OpenAI's
_PROVENANCE_BYTES_MAX = 2**18
_ASYMMETRY_MAX = 1e-6  # of the largest entry; a covariance in float32 is symmetric to rounding
_DAMAGED = "statistics-damaged"


@dataclass(frozen=True, eq=False)
class FeatureMoments:
    """Mean and covariance of the features of one extractor."""

    key: str  # what the file calls the mean, such as "mu"
    mean: Floats  # (d,)
    covariance: Floats  # (d, d), over n - 1
    extractor: str | None = None  # what made the features; None where nothing says it
    info: ExtractorInfo | None = (
        None  # the same with weights and resize rule, where `genpr stats` recorded it
    )

    def __post_init__(self) -> None:
        mu, sigma = self.mean, self.covariance
        if mu.ndim != 1 or not len(mu) or sigma.shape != mu.shape * 2:
            shapes = f"{mu.shape} and {sigma.shape}"
            raise ValueError(f"{self.key!r} must be (d,) and its covariance (d, d), got {shapes}")
        if not (np.isfinite(mu).all() and np.isfinite(sigma).all()):
            raise ValueError(f"{self.key!r} or its covariance holds NaN or infinity")
        allowed = _ASYMMETRY_MAX * float(np.abs(sigma).max())
        with np.errstate(over="ignore"):
            asymmetry = np.abs(sigma - sigma.T).max()
        if asymmetry > allowed or sigma.diagonal().min() < -allowed:
            raise ValueError(
                f"beside {self.key!r} is no covariance: not symmetric, or with a negative variance"
            )

    def is_of(self, space: object, primary: object) -> bool:
        """Whether these are moments of the features `space`; without an extractor, they are those of `primary`."""
        name = space if isinstance(space, str) else getattr(space, "name", "")
        if self.extractor is not None:
            return is_same_extractor(self.extractor, name)
        is_spatial = parse_name(name).base == "inception-spatial"
        return is_spatial if self.key == _SPATIAL[0] else space == primary and not is_spatial


@dataclass(frozen=True, eq=False)
class ReferenceStatistics:
    """What one file of reference statistics holds."""

    source: str  # the file, or what was embedded
    moments: tuple[FeatureMoments, ...]  # the main ones first
    count: int | None = None  # images that they are of; None where the file does not say
    sha256: str | None = None  # of the file; None for one of more than 256 MiB
    known: KnownStatistics | None = None  # which published file it is
    decoder: Mapping[str, str] = field(default_factory=dict)  # as of a `FeatureSet`, from `genpr stats`
    images_sha256: str | None = None  # of the contents of all images, likewise

    @property
    def content(self) -> str:
        """Hex sha256 of all moments, however they are written."""
        digest = hashlib.sha256()
        for each in self.moments:
            digest.update(each.mean.astype("<f8").tobytes() + each.covariance.astype("<f8").tobytes())
        return digest.hexdigest()


def holds_statistics(path: Path) -> bool:
    """Whether a file is one of moments without images, by its name and the keys in it; nothing damaged is reported."""
    if os.path.isdir(path):  # noqa: PTH112 - a Path raises for names that are too long
        return any((path / each.statistics).is_file() for each in FDR6)
    if path.suffix.lower() in _PICKLES:
        return path.is_file()
    if path.suffix.lower() != ".npz" or not path.is_file():
        return False
    try:
        with zipfile.ZipFile(path) as archive:
            keys = _keys_of(archive)
    except (*DAMAGE, OSError):
        return False
    return "arr_0" not in keys and any(_pairs_in(keys))


def find_statistics(path: Path) -> ReferenceStatistics | None:
    """The statistics in an .npz file, if it has some beside or instead of images; damage is a `DataError`."""
    return _read(path) if path.suffix.lower() == ".npz" else None


def read_statistics(source: object) -> ReferenceStatistics:
    """Read a file of reference statistics; what is one already is returned.

    `.npz` with `mu` and `sigma` or `ref_mu` and `ref_sigma`, of pooled features, and `mu_s` and `sigma_s` of spatial ones where
    it has them, other keys being ignored; `.pkl` of a dict of dicts with `mu` and `sigma`, as EDM2 and FD-loss publish them; or a
    folder of FD-loss' `.npz` files (`genpr.features.representations.FDR6`).

    Raises:
        UsageError: There is no such file, or it is of another kind.
        DataError: It has no statistics ("no-statistics"), or is damaged ("statistics-damaged").
    """
    if isinstance(source, ReferenceStatistics):
        return source
    if not isinstance(source, str | os.PathLike):
        text = f"reference statistics are a path, or what genpr.reference_statistics returns, not {type(source).__name__}"
        raise UsageError(text, code="source-kind")
    path = Path(os.fsdecode(source))
    check_there(str(path))
    if holds_statistics(path) and path.is_dir():
        return _of_folder(path)
    if path.suffix.lower() not in {".npz", *_PICKLES}:
        text = f"{path} is no file of reference statistics; needed is .npz with mu and sigma, or EDM2's .pkl"
        raise UsageError(text, code="source-kind", path=str(path))
    found = _read(path)
    if found is None:
        text = f"{path} holds no mu with a sigma; `genpr stats SOURCE OUT.npz` writes them"
        raise DataError(text, code="no-statistics", path=str(path))
    return found


def _of_folder(path: Path) -> ReferenceStatistics:
    """The main moments of FD-loss' files, whose names say of which features they are."""
    moments = []
    for each in FDR6:
        if (path / each.statistics).is_file():
            main = read_statistics(path / each.statistics).moments[0]
            moments.append(replace(main, key=each.statistics, extractor=each.extractor))
    return ReferenceStatistics(str(path), tuple(moments))


def _read(path: Path) -> ReferenceStatistics | None:
    facts: dict[str, Any] = {}
    with damage_reported(path, "file of statistics", code=_DAMAGED, also=(KeyError, TypeError)):
        if path.suffix.lower() == ".npz":
            with zipfile.ZipFile(path) as archive:
                keys = _keys_of(archive)
                moments = [_of_npz(archive, *pair) for pair in _pairs_in(keys)]
                if moments and {*_SPATIAL} & keys:
                    moments.append(_of_npz(archive, *_SPATIAL))
                if PROVENANCE in keys:
                    moments, facts = _with_provenance(archive, moments)
        else:
            with open_regular(path) as file:
                data = read_bytes(file, MOST_BYTES, name=str(path), what="statistics", code=_DAMAGED)
            moments, facts = _of_pickle(read_plain_pickle(data))
        sha256, git = _digests(path)
    if not moments:
        return None
    known = find_known(f"sha256:{sha256}", f"git-sha1:{git}")
    if known is not None:
        moments = [
            FeatureMoments(moments[0].key, moments[0].mean, moments[0].covariance, known.extractor),
            *moments[1:],
        ]
    return ReferenceStatistics(str(path), tuple(moments), sha256=sha256, known=known, **facts)


def _digests(path: Path) -> tuple[str | None, str | None]:
    """Hex sha256, and the SHA-1 by which git names the content; of large files, which hold images, neither."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > MOST_BYTES:
            return None, None
        data = file.read(size)
    blob = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
    blob.update(data)
    return hashlib.sha256(data).hexdigest(), blob.hexdigest()


# --- .npz -----------------------------------------------------------------------------------------------------------


def _keys_of(archive: zipfile.ZipFile) -> set[str]:
    return {name.removesuffix(".npy") for name in archive.namelist()}


def _pairs_in(keys: Iterable[str]) -> Iterator[tuple[str, str]]:
    """The keys of mean and covariance of pooled features, the main ones first; `genpr stats` writes others."""
    present = set(keys)
    yield from [pair for pair in _PAIRS if present.issuperset(pair)][:1]
    for mean in sorted(each for each in present if each.endswith("/mu")):
        yield mean, covariance_key(mean)


def covariance_key(mean: str) -> str:
    """The key of the covariance beside a mean of `genpr stats`: "mu", "mu_s" or "NAME/mu"."""
    return re.sub(r"mu(_s)?$", r"sigma\1", mean)


def _of_npz(archive: zipfile.ZipFile, mean: str, covariance: str) -> FeatureMoments:
    return FeatureMoments(mean, _read_floats(archive, mean), _read_floats(archive, covariance))


def _read_floats(archive: zipfile.ZipFile, key: str) -> Floats:
    """The array of a key, if its header promises floats within the limit."""
    member = f"{key}.npy"
    if member not in archive.namelist():
        raise ValueError(f"it has no {key!r}")
    if archive.getinfo(member).file_size > _ARRAY_BYTES_MAX:
        raise ValueError(f"{key!r} is larger than any statistics need")

    def check(header: Header) -> None:
        if header.total_bytes != archive.getinfo(member).file_size:
            raise ValueError(f"{key!r} is cut short")
        _check_floats(key, header.dtype)

    try:
        return np.ascontiguousarray(read_array(archive, member, check=check), dtype=np.float64)
    except DAMAGE as error:
        raise ValueError(f"at its key {key!r}: {error}") from error


def _check_floats(key: str, dtype: np.dtype[Any]) -> None:
    if dtype.kind != "f" or dtype.itemsize > 8:
        raise ValueError(f"needs floats in {key!r}, got {dtype}")


def _with_provenance(
    archive: zipfile.ZipFile, moments: Iterable[FeatureMoments]
) -> tuple[list[FeatureMoments], dict[str, Any]]:
    """What `genpr stats` recorded of moments; of another format, nothing."""

    def check(header: Header) -> None:
        if header.dtype.kind != "U" or header.shape or header.total_bytes > _PROVENANCE_BYTES_MAX:
            raise ValueError(f"{PROVENANCE!r} is not what genpr writes")

    record = parse_json(str(read_array(archive, f"{PROVENANCE}.npy", check=check)[()]))
    if record["format"] != _FORMAT:
        raise ValueError(
            f"its format is {record['format']!r} instead of {_FORMAT!r}; update genpr if a later one wrote it"
        )
    infos = from_dict(Mapping[str, ExtractorInfo | None], record["extractors"])
    found = []
    for each in moments:
        info = infos.get(each.key)
        name = None if info is None else info.name
        found.append(FeatureMoments(each.key, each.mean, each.covariance, name, info))
    facts = {
        "count": from_dict(int | None, record["count"]),
        "decoder": from_dict(Mapping[str, str], record["decoder"]),
        "images_sha256": from_dict(str | None, record["images_sha256"]),
    }
    return found, facts


def provenance_of(statistics: ReferenceStatistics) -> dict[str, Any]:
    """What `genpr stats` records beside the moments, as plain JSON types."""
    infos = {each.key: None if each.info is None else asdict(each.info) for each in statistics.moments}
    return {
        "format": _FORMAT,
        "genpr": __version__,
        "source": statistics.source,
        "count": statistics.count,
        "extractors": infos,
        "decoder": dict(statistics.decoder),
        "images_sha256": statistics.images_sha256,
    }


# --- pickles --------------------------------------------------------------------------------------------------------


def _of_pickle(content: object) -> tuple[list[FeatureMoments], dict[str, Any]]:
    """The moments in a dict, or in the dicts in it, and the number of images that it states."""
    if not isinstance(content, dict):
        raise TypeError(f"it holds no dict of statistics, but {type(content).__name__}")
    moments = []
    for key, part in {"": content, **content}.items():
        pair = next((pair for pair in _PAIRS if isinstance(part, dict) and part.keys() >= {*pair}), None)
        if pair is None:
            continue
        mean, covariance = (_as_floats(name, part[name]) for name in pair)
        extractor = _PICKLED.get(key, key.removesuffix(".npz")) or None
        moments.append(FeatureMoments(key or pair[0], mean, covariance, extractor))
    if not moments:
        raise ValueError(f"it has no dict with mu and sigma, but {some(list(map(str, content)), 5)}")
    count = content.get("num_images")
    return moments, {"count": count if type(count) is int and count > 0 else None}


def _as_floats(key: str, array: object) -> Floats:
    if not isinstance(array, np.ndarray):
        raise TypeError(f"{key!r} is no array")
    _check_floats(key, array.dtype)
    return np.ascontiguousarray(array, dtype=np.float64)
