"""Reference statistics: mean and covariance of the features of reference images, from published files.

Supported are `.npz` files of ADM, pytorch-fid, torch-fidelity's forks, JAX repositories and `genpr stats`, and pickled dicts
such as those of EDM2, of which only arrays are resolved (`genpr.features.plain_pickle`). Importing this module does not import
torch.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
import zipfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from genpr import __version__
from genpr.errors import DataError, UsageError, some
from genpr.features.extractor import ExtractorInfo
from genpr.features.plain_pickle import MAX_BYTES, read_plain_pickle
from genpr.features.registry import is_same_extractor, network_module, parse_name
from genpr.features.representations import FDR6
from genpr.images.archive import CORRUPT_FILE_ERRORS, open_npz, reraise_corrupt
from genpr.images.arrays import Header, read_array
from genpr.images.paths import check_exists
from genpr.limits import parse_json, read_bytes
from genpr.storage import check_output, from_dict, open_regular, place_of
from genpr.validation import check_moments

Floats = NDArray[np.float64]
PROVENANCE = "genpr"
"""The key of the JSON text that `genpr stats` writes to an .npz file."""
_FORMAT = "genpr.statistics/1"
_PICKLES = (".pkl", ".pickle")
_MEANS = ("mu", "ref_mu")
_SPATIAL = "mu_s"
_PICKLED = {
    "fid": "inception",
    "fd_dinov2": "dinov2-vitl14@torch-bicubic-antialias",
    **{each.statistics: each.extractor for each in FDR6},
}
# Published files of Inception's moments by their digest, since they have equal keys and shapes but other FIDs. Most have no
# public sha256, but the git blob SHA-1 in their repository (LTH14/mar, LTH14/torch-fidelity, LTH14/JiT). Each digest was read
# from a git tree, or from public scripts that assert it (nanovisionx/nanogen-evals-stats).
KNOWN_STATISTICS = {
    "git-sha1:1da4c17607fe959d54999fd098105649a0c05e15": "ADM's ImageNet-256 statistics, used by MAR and xAR",
    "git-sha1:9f01d3efdb40292e4b8f2af4054e66ffb3c7ef16": "ADM's ImageNet-512 statistics",
    "git-sha1:98cd9e0156880187d2c56998ef638a6f21868598": "FFHQ statistics of LTH14's torch-fidelity",
    "git-sha1:3c94ea961be94d06efa9e5bf4da71eff52deaebb": "JiT's ImageNet-256 statistics",
    "git-sha1:349293d82b5625afe1c66c9409f3fa198485a19f": "JiT's ImageNet-512 statistics",
    "sha256:925e8b5b4ced42137f9847f97a63250a2bd59b70f33f3f356e03453d0775f1ac": (
        "DiffusionBench's ImageNet-256 statistics, reported to be those of JiT and iMF"
    ),
}
_PROVENANCE_BYTES_MAX = 2**18
_NAME_MAX = 5000  # characters of the name of an extractor, which may be a path
_DAMAGED = "statistics-damaged"


@dataclass(frozen=True, eq=False)
class FeatureMoments:
    """Mean and covariance of the features of one extractor."""

    key: str  # the key of the mean in the file, such as "mu"
    mean: Floats  # (d,)
    covariance: Floats  # (d, d), over n - 1
    info: ExtractorInfo | None = None  # the extractor; None if unknown

    def __post_init__(self) -> None:
        try:
            check_moments(self.mean, self.covariance)
        except ValueError as error:
            raise ValueError(f"{self.key!r} and its covariance: {error}") from error
        if self.info is not None and self.info.dim != len(self.mean):
            text = f"{self.key!r} has {len(self.mean)} entries, but {self.info.name} has {self.info.dim} features"
            raise ValueError(text)

    @property
    def extractor(self) -> str | None:
        """The name of the extractor."""
        return None if self.info is None else self.info.name

    @property
    def is_labeled(self) -> bool:
        """Whether the file says which network computed the features; a name that genpr does not know says too little."""
        if self.info is None:
            return False
        return network_module(self.info.name) is not None or self.info != _stated(self.info.name, self.mean)

    def is_of(self, extractor: object, primary: object) -> bool:
        """Whether these are moments of the features `extractor`; those without an extractor are taken for `primary`."""
        name = extractor if isinstance(extractor, str) else getattr(extractor, "name", "")
        if self.extractor is not None:
            return is_same_extractor(self.extractor, name)
        return parse_name(name).base == "inception-spatial" if self.key == _SPATIAL else extractor == primary


@dataclass(frozen=True, eq=False)
class ReferenceStatistics:
    """The content of one file of reference statistics."""

    source: str  # the file, or the embedded source
    moments: tuple[FeatureMoments, ...]  # the main ones first
    count: int | None = None  # number of images; None if the file does not record it
    sha256: str | None = None  # of the file; None for files of more than 256 MiB
    known: str | None = None  # what the matching published file is
    decoder: Mapping[str, str] = field(default_factory=dict)  # as in `FeatureSet`, written by `genpr stats`
    images_sha256: str | None = None  # of the contents of all images, written by `genpr stats`
    passed_over: Mapping[str, int] = field(default_factory=dict)  # as in `FeatureSet`; not in the file

    def __post_init__(self) -> None:
        named = [each.extractor for each in self.moments if each.extractor is not None]
        if len(set(named)) < len(named):
            raise ValueError(f"two means have the same extractor, among {some(named, 6)}")
        if self.count is not None and not 0 < self.count < 2**63:
            raise ValueError("its number of images is invalid")

    @property
    def held(self) -> str:
        """What the file has, for messages."""
        names = [
            each.extractor or f"unknown features ({each.key}, {len(each.mean)}-d)" for each in self.moments
        ]
        return f"mean and covariance of {some(names, 6)}"

    @property
    def content(self) -> str:
        """Hex sha256 of all moments, independent of the file format."""
        digest = hashlib.sha256()
        for each in self.moments:
            digest.update(each.mean.astype("<f8").tobytes() + each.covariance.astype("<f8").tobytes())
        return digest.hexdigest()


def holds_statistics(path: Path) -> bool:
    """Whether a file has moments without images, by its name and its keys; damage is not reported."""
    if os.path.isdir(path):  # noqa: PTH112 - a Path raises for names that are too long
        return any((path / each.statistics).is_file() for each in FDR6)
    suffix = path.suffix.lower()
    if suffix not in {".npz", *_PICKLES} or not os.path.isfile(path):  # noqa: PTH113 - as above
        return False
    if suffix in _PICKLES:
        return True
    try:
        with open_npz(path) as archive:
            keys = {name.removesuffix(".npy") for name in archive.namelist()}
    except (*CORRUPT_FILE_ERRORS, OSError):
        return False
    return "arr_0" not in keys and _main_of(keys) is not None


def find_statistics(path: Path) -> ReferenceStatistics | None:
    """The statistics in an .npz file, with or without images; None if it has none. Damage is a `DataError`."""
    return _read(path) if path.suffix.lower() == ".npz" else None


def read_statistics(source: object) -> ReferenceStatistics:
    """Read a file of reference statistics; `ReferenceStatistics` are returned unchanged.

    The source is an `.npz` with `mu` and `sigma` or `ref_mu` and `ref_sigma` of pooled features, and optionally `mu_s` and
    `sigma_s` of spatial features, where other keys are ignored; a `.pkl` of a dict of dicts with `mu` and `sigma`, as published
    by EDM2 and FD-loss; or a folder of FD-loss' `.npz` files (`genpr.features.representations.FDR6`).

    Raises:
        UsageError: The file does not exist, or is of another kind.
        DataError: The file has no statistics ("no-statistics"), or is damaged ("statistics-damaged").
    """
    if isinstance(source, ReferenceStatistics):
        return source
    if not isinstance(source, str | os.PathLike):
        text = f"reference statistics must be a path or the result of genpr.reference_statistics, found {type(source).__name__}"
        raise UsageError(text, code="source-kind")
    path = Path(os.fsdecode(source))
    check_exists(str(path))
    if holds_statistics(path) and path.is_dir():
        return _of_folder(path)
    if path.suffix.lower() not in {".npz", *_PICKLES} or not path.is_file():
        text = (
            f"{path} is not a file of reference statistics; expected .npz with mu and sigma, or EDM2's .pkl"
        )
        raise UsageError(text, code="source-kind", path=str(path))
    statistics = _read(path)
    if statistics is None:
        text = f"{path} has no mu and sigma; `genpr stats SOURCE OUT.npz` writes them"
        raise DataError(text, code="no-statistics", path=str(path))
    return statistics


def _of_folder(path: Path) -> ReferenceStatistics:
    """The main moments of FD-loss' files, whose names identify the extractor."""
    moments = []
    for each in FDR6:
        if (path / each.statistics).is_file():
            main = read_statistics(path / each.statistics).moments[0]
            info = _stated(each.extractor, main.mean)
            moments.append(replace(main, key=each.statistics, info=info))
    return ReferenceStatistics(str(path), tuple(moments))


def _read(path: Path) -> ReferenceStatistics | None:
    with reraise_corrupt(path, "file of statistics", code=_DAMAGED, also=(KeyError, TypeError)):
        if path.suffix.lower() == ".npz":
            with open_npz(path) as archive:
                infos, facts = _means_in(archive)
                read = partial(_read_floats, archive)
                moments = _checked(
                    FeatureMoments(key, read(key), read(covariance_key(key)), info)
                    for key, info in infos.items()
                )
        else:
            with open_regular(path) as file:
                data = read_bytes(file, MAX_BYTES, name=str(path), what="statistics", code=_DAMAGED)
            unchecked, facts = _of_pickle(read_plain_pickle(data))
            moments = _checked(unchecked)
        if not moments:
            return None
        sha256, git = _digests(path)
        known = KNOWN_STATISTICS.get(f"sha256:{sha256}") or KNOWN_STATISTICS.get(f"git-sha1:{git}")
        if known is not None:
            main = moments[0]
            moments = (replace(main, info=_stated("inception", main.mean)), *moments[1:])
        return ReferenceStatistics(str(path), moments, sha256=sha256, known=known, **facts)


def _checked(moments: Iterable[FeatureMoments]) -> tuple[FeatureMoments, ...]:
    """The moments; ValueError if they are too large in total or have invalid names."""
    checked, total = list[FeatureMoments](), 0
    for each in moments:
        total += each.covariance.nbytes
        if total > MAX_BYTES:
            raise ValueError(f"its covariances have more than {MAX_BYTES:,} bytes in float64")
        if (name := each.extractor) is not None:
            if not 0 < len(name) <= _NAME_MAX:
                raise ValueError(f"the name of an extractor has {len(name):,} characters")
            try:
                parse_name(name)
            except UsageError as error:
                raise ValueError(str(error)) from error
        checked.append(each)
    return tuple(checked)


def _stated(name: str, mean: Floats) -> ExtractorInfo:
    """The record of an extractor of which only the name is known."""
    return ExtractorInfo(name, len(mean), "unknown", None, comparable=False)


def _check_floats(key: str, dtype: np.dtype[Any], count: int) -> None:
    if dtype.kind != "f" or dtype.itemsize not in {4, 8}:
        raise ValueError(f"{key!r} must be float32 or float64, found {dtype}")
    if 8 * count > MAX_BYTES:
        raise ValueError(f"{key!r} exceeds the size limit of statistics")


def _digests(path: Path) -> tuple[str | None, str | None]:
    """Hex sha256 and git blob SHA-1 of a file; neither for large files, which have images."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > MAX_BYTES:
            return None, None
        data = file.read(size)
    blob = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
    blob.update(data)
    return hashlib.sha256(data).hexdigest(), blob.hexdigest()


# --- .npz -----------------------------------------------------------------------------------------------------------


def covariance_key(mean: str) -> str:
    """The key of the covariance of a mean: "sigma" of "mu", "ref_sigma", "sigma_s" or "NAME/sigma"."""
    return re.sub(r"mu(_s)?$", r"sigma\1", mean)


def _main_of(keys: Collection[str]) -> str | None:
    """The key of the mean of pooled features that also has a covariance."""
    return next((mean for mean in _MEANS if mean in keys and covariance_key(mean) in keys), None)


def _means_in(archive: zipfile.ZipFile) -> tuple[dict[str, ExtractorInfo | None], dict[str, Any]]:
    """The keys of the means in a file with their extractors, the main one first; and recorded facts about the images."""
    keys = {name.removesuffix(".npy") for name in archive.namelist()}
    if PROVENANCE in keys:
        record = _record_in(archive)
        kinds = {"count": int | None, "decoder": Mapping[str, str], "images_sha256": str | None}
        facts = {name: from_dict(kind, record[name]) for name, kind in kinds.items()}
        return dict(from_dict(Mapping[str, ExtractorInfo | None], record["extractors"])), facts
    main = _main_of(keys)
    if main is None:
        return {}, {}
    return dict.fromkeys([main, _SPATIAL] if {_SPATIAL, covariance_key(_SPATIAL)} & keys else [main]), {}


def _record_in(archive: zipfile.ZipFile) -> dict[str, Any]:
    """The record of `genpr stats`."""

    def check(header: Header) -> None:
        if header.dtype.kind != "U" or header.shape or header.total_bytes > _PROVENANCE_BYTES_MAX:
            raise ValueError(f"{PROVENANCE!r} is not a record of genpr")

    record = parse_json(str(read_array(archive, f"{PROVENANCE}.npy", check=check)[()]))
    if record["format"] != _FORMAT:
        text = f"its format is {record['format']!r}, expected {_FORMAT!r}; update genpr if a later version wrote it"
        raise ValueError(text)
    return dict(record)


def check_statistics_file(
    path: Path, source: str, *, inputs: Iterable[Path] = (), overwrite: bool = False
) -> None:
    """`check_output` for statistics of `source`; those of another source are kept."""

    def is_of_source(other: Path) -> bool:
        try:
            with zipfile.ZipFile(other) as archive:
                return bool(source and _record_in(archive)["place"] == place_of(source))
        except CORRUPT_FILE_ERRORS:
            return False

    check_output(path, (".npz",), is_of_source, inputs=inputs, overwrite=overwrite)


def _read_floats(archive: zipfile.ZipFile, key: str) -> Floats:
    """The array of a key, after a check of the dtype and size in its header."""
    member = f"{key}.npy"
    if member not in archive.namelist():
        raise ValueError(f"it has no {key!r}")

    def check(header: Header) -> None:
        _check_floats(key, header.dtype, math.prod(header.shape))

    try:
        return np.ascontiguousarray(read_array(archive, member, check=check), dtype=np.float64)
    except CORRUPT_FILE_ERRORS as error:
        raise ValueError(f"at its key {key!r}: {error}") from error


def provenance_of(statistics: ReferenceStatistics) -> dict[str, Any]:
    """The record of `genpr stats` next to the moments, as plain JSON types."""
    infos = {each.key: None if each.info is None else asdict(each.info) for each in statistics.moments}
    return {
        "format": _FORMAT,
        "genpr": __version__,
        "source": statistics.source,
        "place": place_of(statistics.source),
        "count": statistics.count,
        "extractors": infos,
        "decoder": dict(statistics.decoder),
        "images_sha256": statistics.images_sha256,
    }


# --- pickles --------------------------------------------------------------------------------------------------------


def _of_pickle(content: object) -> tuple[Iterator[FeatureMoments], dict[str, Any]]:
    """The moments in a dict or in its nested dicts, and the recorded number of images."""
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise TypeError(f"expected a dict of statistics by name, found {type(content).__name__}")
    parts = {"": content, **content}
    means = {key: _main_of(part) for key, part in parts.items() if isinstance(part, dict)}
    if not any(means.values()):
        raise ValueError(f"expected a dict with mu and sigma, found {some(list(content), 5)}")

    def moments() -> Iterator[FeatureMoments]:
        for key, name in means.items():
            if name is not None:
                mean, sigma = (_as_floats(each, parts[key][each]) for each in (name, covariance_key(name)))
                info = _stated(_PICKLED.get(key, key.removesuffix(".npz")), mean) if key else None
                yield FeatureMoments(key or name, mean, sigma, info)

    count = content.get("num_images")
    return moments(), {"count": count if type(count) is int and 0 < count < 2**63 else None}


def _as_floats(key: str, array: object) -> Floats:
    if not isinstance(array, np.ndarray):
        raise TypeError(f"{key!r} must be an array")
    _check_floats(key, array.dtype, array.size)
    return np.ascontiguousarray(array, dtype=np.float64)
