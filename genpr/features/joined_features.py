"""Several feature files as one set: the shards of one source in their order, or whole files one after another.

The rows of each file are read to where they belong, so that there is never a second copy of all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from genpr.errors import FeatureError, some
from genpr.features.extractor import check_same_extractor
from genpr.features.feature_set import FeatureHead, FeatureSet, ImageFacts, read_features, read_head
from genpr.images.item import printable, short_names
from genpr.images.policy import BadImagePolicy, choices_in, in_order
from genpr.images.shards import ShardPlace, Share
from genpr.memory import empty_rows
from genpr.notices import notice

_File = tuple[Path, FeatureHead]


def load_joined(paths: Sequence[Path], name: str) -> FeatureSet:
    """Read several feature files as one set.

    Args:
        paths: The files; their order is that of files that are no shards.
        name: What the user calls them all.

    Returns:
        Of shards, what one run over the whole source would have given. Of other files a set with a notice that they were
        put one after another ("features-joined").

    Raises:
        DataError: One of them is damaged.
        BadImagesError: More images of all are unusable than the shards accept.
        FeatureError: Shards are missing ("shards-missing") or there twice ("shards-twice"); or the files are of different
            extractors ("other-extractor"), sources or decodings ("features-differ").
    """
    files = [(path, read_head(path)) for path in paths]
    shards = [_Shard(path, head, head.shard) for path, head in files if head.shard is not None]
    if not shards and len(files) == 1:
        return read_features(paths[0])
    if not shards:
        return _concatenate(files, name)
    if len(shards) < len(files):
        whole = next(path for path, head in files if head.shard is None)
        raise _mismatch(
            name, f"{_shown(shards[0].path)} is a shard, and {_shown(whole)} is none; name the shards only"
        )
    return _join_shards(sorted(shards, key=lambda shard: shard.place.index), name)


class _Shard(NamedTuple):
    path: Path
    head: FeatureHead
    place: ShardPlace


def _join_shards(shards: Sequence[_Shard], name: str) -> FeatureSet:
    _check_complete(shards, name)
    for shard in shards:
        _check_compatible(shards[0][:2], shard[:2], name, shards[0].head.decoder == shard.head.decoder)
    parts, rows = _read([shard[:2] for shard in shards])
    for shard, part in zip(shards, parts, strict=True):
        if len(part) + len(part.skipped) != shard.place.end - shard.place.start:
            images = f"the {shard.place.end - shard.place.start:,} images of its shard"
            raise _mismatch(name, f"{_shown(shard.path)} has not {images}")
    joined = _merge(parts, rows, name)
    most = min(shard.place.max_bad for shard in shards)
    BadImagePolicy("skip", most).check(joined.skipped, total=shards[0].place.total, source=name)
    sizes: Counter[tuple[int, int]] = Counter()
    formats: Counter[str] = Counter()
    for part in parts:
        sizes.update(part.sizes)
        formats.update(part.facts.formats)
    return replace(joined, origin=parts[0].origin, sizes=sizes, facts=ImageFacts.of(formats, sizes))


def _check_complete(shards: Sequence[_Shard], name: str) -> None:
    """Shards of one whole, in their order: all of them, each once."""
    first_path, _, first = shards[0]
    for path, _, place in shards:
        pair = f"{_shown(first_path)} and {_shown(path)}"
        if place.count != first.count:
            raise _mismatch(name, f"{pair} are of {first.count} and of {place.count} shards")
        if place.total != first.total:
            raise _mismatch(name, f"{pair} are of sources of {first.total:,} and of {place.total:,} images")
        if place.names_sha256 != first.names_sha256:
            raise _mismatch(name, f"{pair} are of sources whose images have different names")
        if Share(place.index, place.count).rows(place.total) != range(place.start, place.end):
            raise _mismatch(
                name, f"{_shown(path)} holds other images than its shard has; was it made by another version?"
            )
    by_index: dict[int, Path] = {}
    for path, _, place in shards:
        if place.index in by_index:
            raise FeatureError(
                f"{printable(name)} has shard {place.share} twice, in {_shown(by_index[place.index])} and {_shown(path)}; "
                "remove one, or name the shards only",
                code="shards-twice",
                path=str(path),
            )
        by_index[place.index] = path
    missing = [str(index) for index in range(1, first.count + 1) if index not in by_index]
    if missing:
        raise FeatureError(
            f"{printable(name)} has {len(by_index)} of {first.count} shards; missing: {some(missing, 10)}; make them with "
            f"--shard {missing[0]}/{first.count}",
            code="shards-missing",
            path=name,
        )


def _concatenate(files: Sequence[_File], name: str) -> FeatureSet:
    chosen = choices_in(files[0][1].decoder)
    for file in files:
        _check_compatible(files[0], file, name, chosen == choices_in(file[1].decoder))
    parts, rows = _read(files)
    joined = _merge(parts, rows, name)
    if len(set(joined.names)) < len(joined.names):
        prefixes = short_names([path for path, _ in files])
        names = (
            f"{prefix}/{each}" for prefix, part in zip(prefixes, parts, strict=True) for each in part.names
        )
        joined = replace(joined, names=tuple(names))
    joined_files = notice("features-joined", source=printable(name), count=len(parts))
    return replace(joined, notices=(joined_files,), facts=ImageFacts.joined([part.facts for part in parts]))


def _check_compatible(first: _File, file: _File, name: str, is_decoded_alike: bool) -> None:
    """Features of one function, from images that were decoded in one way."""
    (first_path, known), (path, head) = first, file
    pair = f"{_shown(first_path)} and {_shown(path)}"
    if known.extractor is not None and head.extractor is not None:
        check_same_extractor(_shown(first_path), known.extractor, _shown(path), head.extractor)
    elif known.extractor != head.extractor:
        raise _mismatch(name, f"only one of {pair} says what made it")
    if len(head.shape) != 2 or head.shape[1] != known.shape[-1]:
        raise FeatureError(
            f"{_shown(path)} holds {head.shape} where {_shown(first_path)} holds {known.shape}; features are (images, "
            "dimensions), with as many dimensions in all files of a set",
            code="feature-shape",
            path=str(path),
        )
    if not is_decoded_alike:
        keys = sorted({*known.decoder, *head.decoder})
        ways = [(key, known.decoder.get(key, "default"), head.decoder.get(key, "default")) for key in keys]
        unlike = some([f"{key} {a} and {b}" for key, a, b in ways if a != b], 5, longest=100)
        raise _mismatch(name, f"{pair} were decoded in different ways: {unlike}")


def _read(files: Sequence[_File]) -> tuple[list[FeatureSet], Tensor]:
    """The files, and the memory in which their rows lie one after another."""
    rows = empty_rows(sum(head.shape[0] for _, head in files), files[0][1].shape[1], torch.float32)
    parts, start = list[FeatureSet](), 0
    for path, head in files:
        parts.append(read_features(path, into=rows[start : start + head.shape[0]]))
        start += head.shape[0]
    return parts, rows


def _merge(parts: Sequence[FeatureSet], rows: Tensor, name: str) -> FeatureSet:
    """What all files have, of what is there without them."""
    named = all(len(part.names) == len(part) for part in parts)
    identities = [part.identities for part in parts if part.identities is not None]
    flags: Counter[str] = Counter()
    for part in parts:
        flags.update(part.flags)
    return FeatureSet(
        features=rows,
        source=name,
        extractor=parts[0].extractor,
        names=tuple(chain.from_iterable(part.names for part in parts)) if named else (),
        identities=torch.cat(identities) if len(identities) == len(parts) else None,
        flags=in_order(flags),
        skipped=tuple(chain.from_iterable(part.skipped for part in parts)),
        decoder=parts[0].decoder,
    )


def _mismatch(name: str, difference: str) -> FeatureError:
    return FeatureError(
        f"the files of {printable(name)} do not belong together: {difference}",
        code="features-differ",
        path=name,
    )


def _shown(path: Path) -> str:
    return printable(str(path))
