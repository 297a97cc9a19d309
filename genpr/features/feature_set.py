"""Features with everything that is known about where they came from, and the file that carries both."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from operator import itemgetter
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import torch
from torch import Tensor

from genpr.errors import FeatureError, ImageError, UsageError, some
from genpr.features.extractor import ExtractorInfo
from genpr.images.archive import DAMAGE
from genpr.images.arrays import peek_array, read_array, read_npy
from genpr.images.policy import FLAGS
from genpr.images.shards import ShardPlace
from genpr.limits import parse_json
from genpr.memory import fits, float_rows, part_of
from genpr.notices import Notice
from genpr.storage import (
    check_feature_file,
    from_dict,
    load_tensors,
    read_header,
    read_metadata,
    save_tensors,
)

_SHOWN = 5
_SMALL = 32  # pixels; the smallest images that networks were trained on
_LOSSLESS = {"PNG", "BMP", "PPM", "TIFF", "WEBP lossless"}


@dataclass(frozen=True)
class ImageFacts:
    """Of the images that came as files.

    Attributes:
        formats: How many are of which format, such as {"PNG": 900}.
        sizes: The commonest sizes, such as {"640 x 480": 900}, at most five; of images whose size is known.
        n_sizes: How many different sizes there are.
        n_small: Images with a side of less than 32 pixels.
    """

    formats: Mapping[str, int] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    n_sizes: int = 0
    n_small: int = 0

    @classmethod
    def of(cls, formats: Counter[str], sizes: Counter[tuple[int, int]]) -> ImageFacts:
        """From counts of formats and of (width, height)."""
        commonest: dict[str, int] = {}
        n_small = 0
        for (width, height), count in sorted(sorted(sizes.items()), key=itemgetter(1), reverse=True):
            if len(commonest) < _SHOWN:
                commonest[f"{width} x {height}"] = count
            if min(width, height) < _SMALL:
                n_small += count
        return cls(dict(sorted(formats.items())), commonest, len(sizes), n_small)

    @classmethod
    def joined(cls, parts: Sequence[ImageFacts]) -> ImageFacts:
        """Of several sets together; of a set with many sizes only the commonest are known, so there are at least so many."""
        formats: Counter[str] = Counter()
        sizes: Counter[str] = Counter()
        for part in parts:
            formats.update(part.formats)
            sizes.update(part.sizes)
        return cls(
            formats=dict(sorted(formats.items())),
            sizes=dict(sorted(sizes.items(), key=lambda entry: (-entry[1], entry[0]))[:_SHOWN]),
            n_sizes=max([len(sizes), *(part.n_sizes for part in parts)]),
            n_small=sum(part.n_small for part in parts),
        )

    @property
    def codec(self) -> str | None:
        """How most images are compressed: "lossless", or a format that loses something; None if none prevails."""
        codecs: Counter[str] = Counter()
        for name, count in self.formats.items():
            codecs["lossless" if name in _LOSSLESS else name] += count
        for codec, count in codecs.items():
            if 2 * count > codecs.total():
                return codec
        return None

    @property
    def shown_sizes(self) -> str:
        """The commonest sizes in words."""
        rest = self.n_sizes - len(self.sizes)
        listed = [f"{size} ({count:,})" for size, count in self.sizes.items()]
        return ", ".join([*listed, f"and {rest:,} more"] if rest else listed)


def pack_names(names: tuple[str, ...]) -> Tensor:
    """NUL-separated bytes: the one character that no file name holds."""
    data = bytearray()
    for name in names:  # one by one: joined, encoded and copied, a million names would be there three times
        data += name.encode("utf-8", "surrogateescape") + b"\0"
    del data[-1:]
    return torch.frombuffer(data or bytearray(1), dtype=torch.uint8)


def unpack_names(packed: Tensor) -> tuple[str, ...]:
    """Names back from what `pack_names` gave.

    Raises:
        TypeError: It is something else.
    """
    if packed.dtype != torch.uint8:
        raise TypeError(f"names in {packed.dtype}")
    return tuple(packed.numpy().tobytes().decode("utf-8", "surrogateescape").split("\0"))


def pack_sizes(sizes: Mapping[tuple[int, int], int]) -> Tensor:
    """int64 (m, 3): width, height, and how many."""
    return torch.tensor([[*size, count] for size, count in sorted(sizes.items())], dtype=torch.int64).view(
        -1, 3
    )


def unpack_sizes(packed: Tensor) -> dict[tuple[int, int], int]:
    """Sizes back from what `pack_sizes` gave.

    Raises:
        TypeError, ValueError: It is something else.
    """
    return {(width, height): count for width, height, count in packed.tolist()}


def load_array(path: Path) -> Tensor:
    """The array of a `.npy` or `.npz` file, as float32 if it has two dimensions.

    Raises:
        FeatureError: The file is damaged ("file-damaged"), or holds something other than floats ("feature-shape").
    """
    try:
        if path.suffix.lower() == ".npy":
            array = read_npy(path, mapped=not fits(path.stat().st_size))
        else:
            with ZipFile(path) as archive:
                array = read_array(archive, _only_array(archive.namelist()))
    except (*DAMAGE, KeyError, OSError) as error:
        raise FeatureError(
            f"{path} is not a readable array file ({error}); was it cut short, or does it hold pickled objects?",
            code="file-damaged",
            path=str(path),
        ) from error
    if array.dtype.kind != "f" or not array.ndim:
        raise FeatureError(
            f"{path} holds {array.dtype} of shape {array.shape}; features are a 2-D array of floats, (images, dimensions)",
            code="feature-shape",
            path=str(path),
        )
    return float_rows(array) if array.ndim == 2 else torch.from_numpy(array.astype(np.float32))


def _only_array(members: list[str]) -> str:
    """`arr_0`, or the single array under another name."""
    if "arr_0.npy" not in members and len(members) != 1:
        found = some([member.removesuffix(".npy") for member in members], 5) or "none"
        raise ValueError(f"needed arr_0 or exactly one array, found {found}")
    return "arr_0.npy" if "arr_0.npy" in members else members[0]


def only_matrix(tensors: Mapping[str, Tensor], path: Path) -> Tensor:
    """The features among the tensors of a safetensors file.

    Raises:
        FeatureError: Which they are is not clear ("feature-shape").
    """
    matrices = [tensor for tensor in tensors.values() if tensor.ndim == 2 and tensor.is_floating_point()]
    if "features" in tensors and tensors["features"].ndim and not tensors["features"].is_complex():
        matrices = [tensors["features"]]
    if len(matrices) != 1:
        raise FeatureError(
            f"{path} holds {some(sorted(tensors), 5) or 'nothing'}; needed a tensor named 'features', or exactly one 2-D tensor of floats",
            code="feature-shape",
            path=str(path),
        )
    try:
        return matrices[0].float()
    except NotImplementedError as error:  # two numbers in a byte, for example
        raise FeatureError(
            f"{path} holds features of type {matrices[0].dtype}, which torch cannot convert; needed float32 or float16",
            code="feature-shape",
            path=str(path),
        ) from error


_FORMAT = "genpr.features/1"


@dataclass(frozen=True)
class FeatureSet:
    """One side of a comparison: a row of features per image, in the order of its source.

    Attributes:
        features: float32 (n, d), on the CPU; large ones as `memory.float_rows` keeps them.
        source: What was embedded, as the user wrote it.
        extractor: Which function made the features; None when the file or array does not say.
        names: One label per row; empty when unknown.
        identities: uint8 (n, 32), sha256 of each image's bytes; None when unknown.
        flags: How many images each decoding flag of `genpr.images.decode.FLAGS` applies to.
        skipped: The images that could not be used.
        n_embedded: How many rows went through the extractor in this run; 0 for feature files.
        n_cached: How many rows came out of the feature cache.
        decoder: Versions of the image decoder that made the pixels, and what was chosen of it that is not the default;
            empty when unknown.
        seconds: Time spent embedding.
        notices: What happened on the way that a reader should know.
        facts: Formats and sizes of the files.
        n_decoded: Images that `flags` and the counts are of, where only some of them are left; 0 for all.
        origin: What was embedded, where `source` is the file that the features were read from.
        sizes: How many files have images of which (width, height); of what this run embedded, and of shards.
        shard: Which share of a whole this is; None for the whole.
    """

    features: Tensor
    source: str
    extractor: ExtractorInfo | None = None
    names: tuple[str, ...] = ()
    identities: Tensor | None = None
    flags: Mapping[str, int] = field(default_factory=dict)
    skipped: tuple[ImageError, ...] = ()
    n_embedded: int = 0
    n_cached: int = 0
    decoder: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    notices: tuple[Notice, ...] = ()
    facts: ImageFacts = field(default_factory=ImageFacts)
    n_decoded: int = 0
    origin: str = ""
    sizes: Mapping[tuple[int, int], int] = field(default_factory=dict)
    shard: ShardPlace | None = None

    def __len__(self) -> int:
        return len(self.features)

    @property
    def networks(self) -> tuple[Tensor, ...]:
        """The features of each network of an extractor of several random networks, (n, d / members) each; usually one."""
        if self.extractor is None or self.extractor.members == 1:
            return (self.features,)
        return tuple(map(float_rows, self.features.chunk(self.extractor.members, dim=1)))

    def name_of(self, row: int) -> str:
        """What to call the image of a row."""
        return self.names[row] if self.names else f"row {row}"

    def select(self, rows: Tensor) -> FeatureSet:
        """The same set with the given rows (indices, ascending) only."""
        return replace(
            self,
            features=part_of(self.features, rows),
            names=tuple(map(self.name_of, rows.tolist())),
            identities=None if self.identities is None else self.identities[rows],
            n_decoded=self.n_decoded or len(self),
        )

    def split(self, parts: Sequence[ExtractorInfo]) -> list[FeatureSet]:
        """One set per layer, where the rows hold several layers side by side."""
        columns = torch.split(self.features, [part.dim for part in parts], dim=1)
        return [
            replace(self, features=layer, extractor=part) for layer, part in zip(columns, parts, strict=True)
        ]


def save_features(path: Path, features: FeatureSet) -> None:
    """Write `features` to a `.safetensors` file: rows, names, image hashes, extractor, weights hash, resize rule.

    Raises:
        UsageError: `path` has another suffix or its folder does not exist.
    """
    check_feature_file(path)
    tensors = {"features": features.features}
    if features.names:
        tensors["names"] = pack_names(features.names)
    if features.identities is not None:
        tensors["identities"] = features.identities
    metadata = {
        "format": _FORMAT,
        "source": json.dumps(
            features.origin or features.source
        ),  # escapes what is not UTF-8 in a folder's name
        "extractor": json.dumps(None if features.extractor is None else asdict(features.extractor)),
        "flags": json.dumps(dict(features.flags)),
        "skipped": json.dumps([[error.code, error.path, str(error)] for error in features.skipped]),
        "decoder": json.dumps(dict(features.decoder)),
        "facts": json.dumps(asdict(features.facts)),
    }
    if features.shard is not None:
        metadata["shard"] = json.dumps(asdict(features.shard))
        tensors["sizes"] = pack_sizes(features.sizes)
    save_tensors(path, tensors, metadata)


def load_features(path: Path) -> FeatureSet:
    """Read features from `.safetensors` (with what `save_features` recorded) or from a 2-D `.npy` or `.npz`.

    Raises:
        DataError: The file is damaged.
        FeatureError: It holds no 2-D array of floats, or one shard of several ("shards-missing").
    """
    features = read_features(path)
    if features.shard is not None and features.shard.count > 1:
        raise FeatureError(
            f"{path} is shard {features.shard.share} of {features.shard.total:,} images, and no others are given; give all "
            f"as one pattern in quotes, such as '{path.parent / '*.safetensors'}'",
            code="shards-missing",
            path=str(path),
        )
    return features


def read_features(path: Path, into: Tensor | None = None) -> FeatureSet:
    """As `load_features`, of a shard, too.

    Args:
        path: The file.
        into: float32 (n, d) memory for its features; None takes new memory.

    Raises:
        DataError: The file is damaged.
        FeatureError: It holds no 2-D array of floats.
    """
    if path.suffix.lower() != ".safetensors":
        return FeatureSet(_copy_into(load_array(path), into), source=str(path))
    if read_metadata(path).get("format") != _FORMAT:
        tensors, _ = load_tensors(path, require_checksum=False)
        return FeatureSet(_copy_into(only_matrix(tensors, path), into), source=str(path))
    places = None if into is None else {"features": into}
    tensors, metadata = load_tensors(path, require_checksum=False, into=places)
    with _reporting_damage(path):
        return _parse(tensors, metadata, str(path))


def _parse(tensors: Mapping[str, Tensor], metadata: Mapping[str, str], source: str) -> FeatureSet:
    """What `save_features` wrote. A checksum is no signature: nothing is taken for what it should be."""
    features, identities = tensors["features"], tensors.get("identities")
    names = unpack_names(tensors["names"]) if "names" in tensors else ()
    if not features.ndim:
        raise ValueError("a single number")
    if names and len(names) != len(features):
        raise ValueError(f"{len(names)} names of {len(features)} rows")
    if identities is not None and (
        identities.shape != (len(features), 32) or identities.dtype != torch.uint8
    ):
        raise ValueError(f"hashes of shape {tuple(identities.shape)} of {len(features)} rows")
    info = _extractor_of(metadata)
    if info is not None and features.ndim == 2 and (info.dim != features.shape[1] or info.dim % info.members):
        raise ValueError(f"{features.shape[1]} features a row, of an extractor with {info.dim}")
    flags = from_dict(Mapping[str, int], parse_json(metadata["flags"]))
    if not set(flags) <= set(FLAGS):
        raise ValueError(f"flags {sorted(flags)}")
    skipped = from_dict(tuple[tuple[str, str | None, str], ...], parse_json(metadata["skipped"]))
    return FeatureSet(
        features=features,
        source=source,
        extractor=info,
        names=names,
        identities=identities,
        flags=flags,
        skipped=tuple(ImageError(message, code=code, path=name) for code, name, message in skipped),
        decoder=from_dict(Mapping[str, str], parse_json(metadata["decoder"])),
        facts=from_dict(ImageFacts, parse_json(metadata.get("facts", "{}"))),
        origin=from_dict(str, parse_json(metadata["source"])),
        sizes=unpack_sizes(tensors["sizes"]) if "sizes" in tensors else {},
        shard=_shard_of(metadata),
    )


@dataclass(frozen=True)
class FeatureHead:
    """What a feature file says before its features are read.

    Attributes:
        shape: Of the features.
        extractor: Which function made them; None if the file does not say.
        decoder: As in `FeatureSet`.
        shard: Which shard it is; None for a whole.
    """

    shape: tuple[int, ...]
    extractor: ExtractorInfo | None = None
    decoder: Mapping[str, str] = field(default_factory=dict)
    shard: ShardPlace | None = None


def read_head(path: Path) -> FeatureHead:
    """Read what a feature file says of itself.

    Raises:
        DataError: The file is damaged, or holds no features.
    """
    if path.suffix.lower() != ".safetensors":
        header = peek_array(path)
        return FeatureHead(tuple(read_features(path).features.shape) if header is None else header[0])
    metadata, shapes = read_header(path)
    if metadata.get("format") != _FORMAT:
        return FeatureHead(shapes.get("features") or tuple(read_features(path).features.shape))
    with _reporting_damage(path):
        return FeatureHead(
            shapes["features"],
            _extractor_of(metadata),
            from_dict(Mapping[str, str], parse_json(metadata["decoder"])),
            _shard_of(metadata),
        )


@contextmanager
def _reporting_damage(path: Path) -> Iterator[None]:
    """Whatever may be wrong with what a file says of itself."""
    try:
        yield
    except (
        UsageError,
        ArithmeticError,
        AttributeError,
        KeyError,
        RuntimeError,
        TypeError,
        ValueError,
    ) as error:
        raise FeatureError(
            f"{path} does not hold what genpr writes into its feature files ({type(error).__name__}: {error}); was it "
            "edited, or written by another version?",
            code="file-damaged",
            path=str(path),
        ) from error


def _extractor_of(metadata: Mapping[str, str]) -> ExtractorInfo | None:
    found: ExtractorInfo | None = from_dict(ExtractorInfo | None, parse_json(metadata["extractor"]))
    if found is not None and (found.dim < 1 or found.members < 1):
        raise ValueError(f"an extractor of {found.dim} features")
    return found


def _shard_of(metadata: Mapping[str, str]) -> ShardPlace | None:
    return from_dict(ShardPlace, parse_json(metadata["shard"])) if "shard" in metadata else None


def _copy_into(rows: Tensor, into: Tensor | None) -> Tensor:
    if into is not None and rows.shape != into.shape:
        raise FeatureError(
            f"features of shape {tuple(rows.shape)} where {tuple(into.shape)} were; did the file change?",
            code="changed",
        )
    return rows if into is None else into.copy_(rows)
