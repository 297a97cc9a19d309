"""Features with everything that is known about where they came from, and the file that carries both."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor

from genpr.errors import FeatureError, ImageError, UsageError
from genpr.features.extractor import ExtractorInfo
from genpr.features.foreign_files import load_array, only_matrix
from genpr.features.image_facts import ImageFacts
from genpr.features.packing import pack_names, pack_sizes, unpack_names, unpack_sizes
from genpr.images.arrays import peek_array
from genpr.images.policy import FLAGS
from genpr.images.shards import ShardPlace
from genpr.limits import parse_json
from genpr.memory import part_of
from genpr.notices import Notice
from genpr.storage import (
    check_feature_file,
    from_dict,
    load_tensors,
    read_header,
    read_metadata,
    save_tensors,
)

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
        members = 1 if self.extractor is None else self.extractor.members
        return self.features.chunk(members, dim=1)

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
        return FeatureSet(_put(load_array(path), into), source=str(path))
    if read_metadata(path).get("format") != _FORMAT:
        tensors, _ = load_tensors(path, require_checksum=False)
        return FeatureSet(_put(only_matrix(tensors, path), into), source=str(path))
    places = None if into is None else {"features": into}
    tensors, metadata = load_tensors(path, require_checksum=False, into=places)
    with _damage_told(path):
        return _set_of(tensors, metadata, str(path))


def _set_of(tensors: Mapping[str, Tensor], metadata: Mapping[str, str], source: str) -> FeatureSet:
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
    with _damage_told(path):
        return FeatureHead(
            shapes["features"],
            _extractor_of(metadata),
            from_dict(Mapping[str, str], parse_json(metadata["decoder"])),
            _shard_of(metadata),
        )


@contextmanager
def _damage_told(path: Path) -> Iterator[None]:
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


def _put(rows: Tensor, into: Tensor | None) -> Tensor:
    if into is not None and rows.shape != into.shape:
        raise FeatureError(
            f"features of shape {tuple(rows.shape)} where {tuple(into.shape)} were; did the file change?",
            code="changed",
        )
    return rows if into is None else into.copy_(rows)
