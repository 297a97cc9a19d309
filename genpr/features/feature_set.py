"""Features with everything that is known about where they came from, and the file that carries both."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import torch
from torch import Tensor

from genpr.errors import FeatureError, ImageError, UsageError
from genpr.features.extractor import ExtractorInfo
from genpr.features.image_facts import ImageFacts
from genpr.images.array_file import read_member, read_npy
from genpr.images.damage import DAMAGE
from genpr.memory import fits, float_rows, part_of
from genpr.notices import Notice
from genpr.rebuild import rebuilt
from genpr.storage import check_place, load_tensors, save_tensors

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

    def __len__(self) -> int:
        return len(self.features)

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


def check_output(path: Path) -> None:
    """Refuse a path that `save_features` could not write, before anything is embedded.

    Raises:
        UsageError: `path` has another suffix than `.safetensors`, or no file can be written there.
    """
    if path.suffix.lower() != ".safetensors":
        raise UsageError(
            f"{path} must end in .safetensors, the only feature format genpr writes", code="output-suffix"
        )
    check_place(path)


def save_features(path: Path, features: FeatureSet) -> None:
    """Write `features` to a `.safetensors` file: rows, names, image hashes, extractor, weights hash, resize rule.

    Raises:
        UsageError: `path` has another suffix or its folder does not exist.
    """
    check_output(path)
    tensors = {"features": features.features}
    if features.names:
        tensors["names"] = _pack_names(features.names)
    if features.identities is not None:
        tensors["identities"] = features.identities
    metadata = {
        "format": _FORMAT,
        "source": json.dumps(features.source),  # escapes what is not UTF-8 in a folder's name
        "extractor": json.dumps(None if features.extractor is None else asdict(features.extractor)),
        "flags": json.dumps(dict(features.flags)),
        "skipped": json.dumps([[error.code, error.path, str(error)] for error in features.skipped]),
        "decoder": json.dumps(dict(features.decoder)),
        "facts": json.dumps(asdict(features.facts)),
    }
    save_tensors(path, tensors, metadata)


def load_features(path: Path) -> FeatureSet:
    """Read features from `.safetensors` (with what `save_features` recorded) or from a 2-D `.npy` or `.npz`.

    Raises:
        DataError: The file is damaged.
        FeatureError: It holds no 2-D array of floats.
    """
    if path.suffix.lower() != ".safetensors":
        return FeatureSet(_load_array(path), source=str(path))
    tensors, metadata = load_tensors(path, require_checksum=False)
    if metadata.get("format") != _FORMAT:
        return FeatureSet(_only_matrix(tensors, path), source=str(path))
    try:
        return _recorded(tensors, metadata, path)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise FeatureError(
            f"{path} is not as `genpr features` writes it ({type(error).__name__}: {error}); it was made by something else",
            code="file-damaged",
            path=str(path),
        ) from error


def _recorded(tensors: Mapping[str, Tensor], metadata: Mapping[str, str], path: Path) -> FeatureSet:
    """What `save_features` wrote. A checksum is no signature: nothing is taken for what it should be.

    Raises:
        KeyError, TypeError, ValueError, RecursionError: It is something else.
    """
    skipped = rebuilt(tuple[tuple[str, str | None, str], ...], json.loads(metadata["skipped"]))
    found = FeatureSet(
        features=tensors["features"],
        source=str(path),
        extractor=rebuilt(ExtractorInfo | None, json.loads(metadata["extractor"])),
        names=_unpack_names(tensors["names"]) if "names" in tensors else (),
        identities=tensors.get("identities"),
        flags=rebuilt(Mapping[str, int], json.loads(metadata["flags"])),
        skipped=tuple(ImageError(message, code=code, path=name) for code, name, message in skipped),
        decoder=rebuilt(Mapping[str, str], json.loads(metadata["decoder"])),
        facts=rebuilt(ImageFacts, json.loads(metadata.get("facts", "{}"))),
    )
    if found.features.ndim != 2:
        return found  # whoever scores it says what is wrong
    info, (n, dim) = found.extractor, found.features.shape
    if found.names and len(found.names) != n:
        raise ValueError(f"{len(found.names)} names of {n} rows")
    if found.identities is not None and (found.identities.shape, found.identities.dtype) != ((n, 32), torch.uint8):
        raise ValueError(f"identities of shape {tuple(found.identities.shape)}")
    if info is not None and (info.dim != dim or info.members < 1 or dim % info.members):
        raise ValueError(f"{dim} features a row, of an extractor with {info.dim}")
    return found


def _load_array(path: Path) -> Tensor:
    try:
        if path.suffix.lower() == ".npy":
            array = read_npy(path, mapped=not fits(path.stat().st_size))
        else:
            with ZipFile(path) as archive:
                array = read_member(archive, _only_array(archive.namelist()))
    except (*DAMAGE, KeyError, OSError) as error:
        raise FeatureError(
            f"{path} is not a readable array file ({error}); was it cut short, or does it hold pickled objects?",
            code="file-damaged",
            path=str(path),
        ) from error
    if array.dtype.kind != "f":
        raise FeatureError(
            f"{path} holds {array.dtype} of shape {array.shape}; features are a 2-D array of floats, (images, dimensions)",
            code="feature-shape",
            path=str(path),
        )
    return float_rows(array) if array.ndim == 2 else torch.from_numpy(array.astype(np.float32))


def _only_array(members: list[str]) -> str:
    """`arr_0`, or the single array under another name."""
    if "arr_0.npy" not in members and len(members) != 1:
        found = [member.removesuffix(".npy") for member in members]
        raise ValueError(f"needed arr_0 or exactly one array, found {found}")
    return "arr_0.npy" if "arr_0.npy" in members else members[0]


def _only_matrix(tensors: Mapping[str, Tensor], path: Path) -> Tensor:
    """The features of a safetensors file that another program wrote."""
    if "features" in tensors:
        return tensors["features"].float()
    matrices = [tensor for tensor in tensors.values() if tensor.ndim == 2 and tensor.is_floating_point()]
    if len(matrices) != 1:
        raise FeatureError(
            f"{path} holds {sorted(tensors)}; needed a tensor named 'features', or exactly one 2-D tensor of floats",
            code="feature-shape",
            path=str(path),
        )
    return matrices[0].float()


def _pack_names(names: tuple[str, ...]) -> Tensor:
    """NUL-separated bytes: the one character that no file name holds."""
    data = "\0".join(names).encode("utf-8", "surrogateescape")
    return torch.frombuffer(bytearray(data or b"\0"), dtype=torch.uint8)


def _unpack_names(packed: Tensor) -> tuple[str, ...]:
    if packed.dtype != torch.uint8:
        raise TypeError(f"names in {packed.dtype}")
    return tuple(packed.numpy().tobytes().decode("utf-8", "surrogateescape").split("\0"))
