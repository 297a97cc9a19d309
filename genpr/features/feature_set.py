"""Features with their provenance, the file format of both, and the joining of shards."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from genpr.errors import FeatureError, ImageError, UsageError, printable, some
from genpr.features.extractor import ExtractorInfo, check_same_extractor
from genpr.features.statistics import ReferenceStatistics
from genpr.images.archive import CORRUPT_FILE_ERRORS, open_npz
from genpr.images.arrays import read_array, read_npy
from genpr.images.policy import FLAGS, BadImagePolicy, in_order
from genpr.images.shards import ShardInfo
from genpr.limits import parse_json
from genpr.memory import empty_rows, fits, float_rows, part_of
from genpr.notices import Notice, notice
from genpr.storage import (
    check_feature_file,
    from_dict,
    load_tensors,
    place_of,
    read_header,
    save_tensors,
)
from genpr.validation import Features, check_integers, merged_rows

_FORMAT = "genpr.features/1"
_SHOWN = 5
_EMBED_AGAIN = "embed all shards again with the same source and options"
_COMMON = 0.9  # share of one size from which on it is that of the set
_SMALL = 32  # pixels; the smallest training images of networks
_LOSSLESS = {"PNG", "BMP", "PPM", "TIFF", "WEBP lossless"}


@dataclass(frozen=True)
class ImageFacts:
    """Formats of the images from files, and sizes of all images."""

    formats: Mapping[str, int] = field(default_factory=dict)  # counts by format, such as {"PNG": 900}
    # The five most frequent, such as {"640 x 480": 900}.
    sizes: Mapping[str, int] = field(default_factory=dict)
    n_sizes: int = 0  # number of different sizes
    n_small: int = 0  # images with a side of less than 32 pixels

    @classmethod
    def from_counts(cls, formats: Counter[str], sizes: Counter[tuple[int, int]]) -> ImageFacts:
        """From counts of formats and of (width, height)."""
        ordered = sorted(sizes.items(), key=lambda entry: (-entry[1], entry[0]))
        commonest = {f"{width} x {height}": count for (width, height), count in ordered[:_SHOWN]}
        n_small = sum(count for size, count in ordered if min(size) < _SMALL)
        return cls(dict(sorted(formats.items())), commonest, len(sizes), n_small)

    @property
    def common_size(self) -> str | None:
        """The size of nearly all images; None without one."""
        if not self.sizes:
            return None
        (size, most), *_ = self.sizes.items()
        others = (self.n_sizes - len(self.sizes)) * min(self.sizes.values())  # at most
        return size if most >= _COMMON * (sum(self.sizes.values()) + others) else None

    @property
    def codec(self) -> str | None:
        """The compression of most images: "lossless" or a lossy format; None without a majority."""
        codecs: Counter[str] = Counter()
        for name, count in self.formats.items():
            codecs["lossless" if name in _LOSSLESS else name] += count
        if not codecs:
            return None
        [(codec, count)] = codecs.most_common(1)
        return codec if 2 * count > codecs.total() else None

    @property
    def shown_sizes(self) -> str:
        """The most frequent sizes as text."""
        rest = self.n_sizes - len(self.sizes)
        listed = [f"{size} ({count:,})" for size, count in self.sizes.items()]
        return ", ".join([*listed, f"and {rest:,} more"] if rest else listed)


@dataclass(frozen=True)
class FeatureSet:
    """The features of one source, a row per image in the order of the source."""

    features: Tensor  # float32 (n, d), on the CPU; large ones may be memory-mapped
    source: str  # the source as given by the user
    extractor: ExtractorInfo | None = None  # None if the file or array does not name it
    names: tuple[str, ...] = ()  # one name per row; empty if unknown
    identities: Tensor | None = None  # uint8 (n, 32), sha256 of each image's bytes
    # Number of images by flag of `genpr.images.policy.FLAGS`.
    flags: Mapping[str, int] = field(default_factory=dict)
    skipped: tuple[ImageError, ...] = ()  # errors of the unusable images
    n_embedded: int = 0  # rows embedded in this run; 0 for feature files
    n_cached: int = 0  # rows from the feature cache
    decoder: Mapping[str, str] = field(default_factory=dict)  # versions, and non-default decoding options
    seconds: float = 0.0  # time to embed
    notices: tuple[Notice, ...] = ()
    facts: ImageFacts = field(default_factory=ImageFacts)
    # Number of images behind `flags` and counts, if rows were removed later; 0 for all rows.
    n_decoded: int = 0
    origin: str = ""  # the embedded source, if `source` is a feature file
    place: str = ""  # its `place_of`
    sizes: Mapping[tuple[int, int], int] = field(default_factory=dict)  # number of images by (width, height)
    shard: ShardInfo | None = None  # position of a shard; None for a whole source
    passed_over: Mapping[str, int] = field(default_factory=dict)  # other files in the source, by suffix
    statistics: ReferenceStatistics | None = None  # replaces the rows of reals with statistics only
    # int64 (n,), numbers from 0 of groups of dependent images, such as slices of a volume; None if all are independent
    groups: Tensor | None = None

    @classmethod
    def without_rows(cls, statistics: ReferenceStatistics) -> FeatureSet:
        """A set of reals with mean and covariance only."""
        rows, decoder = torch.empty(0, 1), statistics.decoder
        return cls(rows, statistics.source, decoder=decoder, statistics=statistics)

    def __len__(self) -> int:
        return len(self.features)

    def name_of(self, row: int) -> str:
        """The name of the image of a row."""
        return self.names[row] if self.names else f"row {row}"

    def select(self, rows: Tensor) -> FeatureSet:
        """A set with the given rows only (ascending indices)."""
        return replace(
            self,
            features=part_of(self.features, rows),
            names=tuple(map(self.name_of, rows.tolist())),
            identities=None if self.identities is None else self.identities[rows],
            n_decoded=self.n_decoded or len(self),
            groups=None if self.groups is None else torch.unique(self.groups[rows], return_inverse=True)[1],
        )

    def split(self, parts: Sequence[ExtractorInfo]) -> list[FeatureSet]:
        """One set per layer, if rows are concatenated layers."""
        columns = torch.split(self.features, [part.dim for part in parts], dim=1)
        pairs = zip(columns, parts, strict=True)
        return [replace(self, features=layer, extractor=part) for layer, part in pairs]


def save_features(path: str | os.PathLike[str], features: FeatureSet, *, overwrite: bool = False) -> None:
    """Write `features` to a `.safetensors` file: rows, names, image hashes, extractor, weights hash, resize rule.

    Only features of the same source are replaced, or any file with `overwrite`.
    """
    path, source = Path(path), features.origin or features.source
    place = features.place or place_of(source)
    check_feature_file(path, place, overwrite=overwrite)
    tensors = {"features": features.features}
    if features.names:  # separated by NUL, which no file name has
        data = bytearray()
        # One by one, since joining and encoding would take three times the memory.
        for name in features.names:
            data += name.encode("utf-8", "surrogateescape") + b"\0"
        tensors["names"] = torch.frombuffer(data[:-1] or bytearray(1), dtype=torch.uint8)
    if features.identities is not None:
        tensors["identities"] = features.identities
    record: dict[str, object] = {
        "source": source,  # JSON escapes what is not UTF-8 in a folder's name
        "place": place,
        "extractor": None if features.extractor is None else asdict(features.extractor),
        "flags": dict(features.flags),
        "skipped": [[error.code, error.path, str(error)] for error in features.skipped],
        "decoder": dict(features.decoder),
        "facts": asdict(features.facts),
        "passed_over": dict(features.passed_over),
    }
    if features.shard is not None:
        record["shard"] = asdict(features.shard)
        sizes = [[*size, count] for size, count in sorted(features.sizes.items())]
        tensors["sizes"] = torch.tensor(sizes, dtype=torch.int64).view(-1, 3)
    metadata = {name: json.dumps(value) for name, value in record.items()}
    save_tensors(path, tensors, {"format": _FORMAT, **metadata})


def load_features(path: str | os.PathLike[str]) -> FeatureSet:
    """Read features from `.safetensors` (with the record of `save_features`) or from a 2-D `.npy` or `.npz`."""
    path = Path(path)
    if path.suffix.lower() != ".safetensors":
        return converted_set(array := _load_array(path), float_rows(array), str(path))
    is_own = read_header(path)[0].get("format") == _FORMAT
    tensors, metadata = load_tensors(path, require_checksum=False)
    if not is_own:
        return _only_matrix(tensors, path)
    features = _parse(tensors, metadata, path)
    if features.shard is not None and features.shard.count > 1:
        raise FeatureError(
            f"{path} is shard {features.shard.shard} of {features.shard.total:,} images, but all {features.shard.count} shards are "
            "needed; give them as one pattern in quotes, such as 'real_*.safetensors'",
            code="shards-missing",
            path=str(path),
        )
    return features


def _parse(tensors: Mapping[str, Tensor], metadata: Mapping[str, str], path: Path) -> FeatureSet:
    """The features in the tensors of `save_features`. Everything is validated, since a checksum is not a signature."""
    try:
        return _set_of(
            tensors, {key: parse_json(value) for key, value in metadata.items() if key != "format"}, str(path)
        )
    except (UsageError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        text = f"{path} is not a valid feature file of genpr ({type(error).__name__}: {error})"
        raise FeatureError(text, code="file-damaged", path=str(path)) from error


def _set_of(tensors: Mapping[str, Tensor], record: Mapping[str, Any], source: str) -> FeatureSet:
    features, identities, names = tensors["features"], tensors.get("identities"), tuple[str, ...]()
    n, dim = features.shape
    if "names" in tensors:
        packed = bytes(tensors["names"].numpy())
        names = tuple(packed.decode("utf-8", "surrogateescape").split("\0"))
        if len(names) != n:
            raise ValueError(f"{len(names)} names of {n} rows")
    if identities is not None and (identities.shape != (n, 32) or identities.dtype != torch.uint8):
        raise ValueError(f"hashes of shape {tuple(identities.shape)} of {n} rows")
    info: ExtractorInfo | None = from_dict(ExtractorInfo | None, record["extractor"])
    if info is not None and info.dim != dim:
        raise ValueError(f"{dim} features a row, of an extractor with {info.dim}")
    flags = from_dict(Mapping[str, int], record["flags"])
    if not set(flags) <= set(FLAGS):
        raise ValueError(f"flags {sorted(flags)}")
    skipped = from_dict(tuple[tuple[str, str | None, str], ...], record["skipped"])
    sizes = tensors["sizes"].tolist() if "sizes" in tensors else []
    return FeatureSet(
        features=features,
        source=source,
        extractor=info,
        names=names,
        identities=identities,
        flags=flags,
        skipped=tuple(ImageError(message, code=code, path=name) for code, name, message in skipped),
        decoder=from_dict(Mapping[str, str], record["decoder"]),
        facts=from_dict(ImageFacts, record.get("facts", {})),
        passed_over=from_dict(Mapping[str, int], record.get("passed_over", {})),
        origin=from_dict(str, record["source"]),
        place=from_dict(str, record.get("place", "")),
        sizes={(width, height): count for width, height, count in sizes},
        shard=from_dict(ShardInfo | None, record.get("shard")),
    )


def converted_set(given: Features, rows: Tensor, source: str) -> FeatureSet:
    """The set of `rows`, which are the features `given` as float32, with a notice if different rows became equal."""
    converted = FeatureSet(rows.cpu(), source=source)
    if merged := merged_rows(given, rows):
        facts = {"count": f"{merged:,}", "total": f"{len(rows):,}", "source": source}
        converted = replace(converted, notices=(notice("float32-ties", **facts),))
    return converted


def _load_array(path: Path) -> NDArray[Any]:
    """The matrix of a `.npy` or `.npz` file."""
    try:
        if path.suffix.lower() == ".npy":
            array = read_npy(path, mapped=not fits(path.stat().st_size))
        else:
            with open_npz(path) as archive:
                members = archive.namelist()
                if "arr_0.npy" not in members and len(members) != 1:
                    raise ValueError(f"needed arr_0 or exactly one array, found {some(members, 5) or 'none'}")
                array = read_array(archive, "arr_0.npy" if "arr_0.npy" in members else members[0])
    except (*CORRUPT_FILE_ERRORS, KeyError, OSError) as error:
        text = f"{path} is not a readable array file ({error}); check that it is complete and holds no pickled objects"
        raise FeatureError(text, code="file-damaged", path=str(path)) from error
    if array.dtype.kind not in "fiu" or array.ndim != 2:
        text = f"{path} has {array.dtype} of shape {array.shape}; expected numbers (images, dimensions), or images, uint8 (n, h, w, 3)"
        raise FeatureError(text, code="feature-shape", path=str(path))
    check_integers(array, str(path))
    return array


def _only_matrix(tensors: Mapping[str, Tensor], path: Path) -> FeatureSet:
    """The features in a safetensors file of another program."""
    named = [tensors["features"]] if "features" in tensors else tensors.values()
    matrices = [x for x in named if x.ndim == 2 and x.dtype != torch.bool and not x.is_complex()]
    try:
        (matrix,) = [x for x in matrices if x.is_floating_point()] or matrices
        rows = matrix.float()
    except (ValueError, NotImplementedError) as error:  # the latter for packed types such as 4-bit floats
        kinds = [f"{name} ({x.dtype} {tuple(x.shape)})" for name, x in sorted(tensors.items())]
        text = f"{path} has {some(kinds, 5) or 'no tensors'}; expected 2-D 'features', or exactly one 2-D tensor of floats"
        text += "; images belong in a .npy or .npz file, uint8 (n, h, w, 3)"
        raise FeatureError(text, code="feature-shape", path=str(path)) from error
    check_integers(matrix, str(path))
    return converted_set(matrix, rows, str(path))


def load_joined(paths: Sequence[Path], name: str) -> FeatureSet:
    """Read and join the shards of the source `name` without a second copy; equal to the features of a single run."""
    heads = [_read_head(path) for path in paths]
    if len(paths) == 1 and heads[0].shard is None:
        return load_features(paths[0])
    for head in heads:
        if head.shard is None:
            raise _mismatch(
                name,
                f"{printable(head.source)} is not a shard; several files must be shards, as `genpr features --shard` writes them",
            )
        _check_compatible(heads[0], head, name)
    shards = sorted(heads, key=lambda head: _info(head).index)
    _check_complete(shards, name)
    rows = empty_rows(sum(map(len, shards)), shards[0].features.shape[1], torch.float32)
    parts, start = list[FeatureSet](), 0
    for shard in shards:
        path, info = Path(shard.source), _info(shard)
        into = {"features": rows[start : start + len(shard)]}
        part = _parse(*load_tensors(path, require_checksum=False, into=into), path)
        if len(part) + len(part.skipped) != info.end - info.start:
            text = f"expected {info.end - info.start:,} images in shard {info.shard}, found {len(part)}"
            raise _mismatch(str(path), f"{text}; {_EMBED_AGAIN}")
        parts.append(part)
        start += len(shard)
    return _merge(parts, rows, name)


def _read_head(path: Path) -> FeatureSet:
    """The record of a file, with features on the device "meta", which are not read."""
    metadata, shapes = read_header(path) if path.suffix.lower() == ".safetensors" else ({}, {})
    if metadata.get("format") != _FORMAT:
        return FeatureSet(torch.empty(0, 0, device="meta"), source=str(path))
    return _parse({"features": torch.empty(shapes.get("features", ()), device="meta")}, metadata, path)


def _info(features: FeatureSet) -> ShardInfo:
    assert features.shard is not None
    return features.shard


def _check_compatible(first: FeatureSet, other: FeatureSet, name: str) -> None:
    """Raise an error unless two shards are of one source, one extractor and one decoding."""
    if first.extractor is not None and other.extractor is not None:
        check_same_extractor(first.source, first.extractor, other.source, other.extractor)
    mine, theirs = (
        {
            "the number of shards": _info(shard).count,
            "the images of the source": _info(shard).total,
            "the hash of their names": _info(shard).names_sha256[:16],
            "naming the extractor": shard.extractor is not None,
            "dimensions": shard.features.shape[1],
            "decoding": dict(shard.decoder),
        }
        for shard in (first, other)
    )
    for key, fact in mine.items():
        if theirs[key] != fact:
            pair = f"{printable(first.source)} and {printable(other.source)}"
            raise _mismatch(name, f"{pair} differ in {key}: {fact} and {theirs[key]}; {_EMBED_AGAIN}")


def _check_complete(shards: Sequence[FeatureSet], name: str) -> None:
    """Raise an error unless sorted shards are complete, without duplicates, and have the images of their position."""
    source_of: dict[int, str] = {}
    for info, source in ((_info(shard), printable(shard.source)) for shard in shards):
        rows = info.shard.rows(info.total)
        if rows != range(info.start, info.end):
            text = f"expected the images {rows.start:,} to {rows.stop:,} in shard {info.shard}, found {info.start:,} to {info.end:,}"
            raise _mismatch(name, f"{text}; {_EMBED_AGAIN}")
        if info.index in source_of:
            message = (
                f"{source_of[info.index]} and {source} are both shard {info.shard}; give each shard once"
            )
            raise FeatureError(message, code="shards-twice", path=name)
        source_of[info.index] = source
    count = _info(shards[0]).count
    if len(source_of) < count:
        absent = (str(index) for index in range(1, count + 1) if index not in source_of)
        missing = list(islice(absent, 10))  # a damaged file may state a huge count
        more = ", ..." * (count - len(source_of) > len(missing))
        text = (
            f"expected {count} shards in {printable(name)}, found {len(source_of)}; missing: {', '.join(missing)}{more}; "
            f"write each with `genpr features SOURCE OUT --shard {missing[0]}/{count}`"
        )
        raise FeatureError(text, code="shards-missing", path=name)


def _merge(parts: Sequence[FeatureSet], rows: Tensor, name: str) -> FeatureSet:
    """The joined set; facts that a shard lacks are left out."""
    named = all(len(part.names) == len(part) for part in parts)
    identities = [part.identities for part in parts if part.identities is not None]
    sizes = sum((Counter(part.sizes) for part in parts), Counter[tuple[int, int]]())
    formats = sum((Counter(part.facts.formats) for part in parts), Counter[str]())
    skipped = tuple(chain.from_iterable(part.skipped for part in parts))
    most = min(_info(part).max_bad for part in parts)
    BadImagePolicy("skip", most).check(skipped, total=_info(parts[0]).total, source=name)
    return replace(
        parts[0],
        features=rows,
        source=name,
        names=tuple(chain.from_iterable(part.names for part in parts)) if named else (),
        identities=torch.cat(identities) if len(identities) == len(parts) else None,
        flags=in_order(sum((Counter(part.flags) for part in parts), Counter[str]())),
        skipped=skipped,
        sizes=sizes,
        facts=ImageFacts.from_counts(formats, sizes),
        shard=None,
    )


def _mismatch(name: str, difference: str) -> FeatureError:
    text = f"the files of {printable(name)} do not belong together: {difference}"
    return FeatureError(text, code="features-differ", path=name)
