"""The kinds of input: for each some valid files, ways to damage them, and what genpr does with the outcome."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from fuzz import formats, made
from fuzz.images import image_files
from fuzz.lines import LINE_DAMAGES, VALID_LINES, run_line, workplace
from fuzz.raw import RAW, Damage
from fuzz.readers import (
    read_answers,
    read_archive,
    read_arrays,
    read_as_weights,
    read_cached,
    read_image,
    read_key,
    read_labels,
    read_list,
    read_log,
    read_manifold,
    read_planted,
    read_planted_manifold,
    read_prompts,
    read_results,
    read_side,
    read_vocabulary,
)
from fuzz.signed import signed
from fuzz.texts import JSON, TEXT


@dataclass(frozen=True)
class Kind:
    """One kind of input.

    Attributes:
        files: Valid ones.
        damages: What is done to them, each as likely as it is often there.
        read: Does with one what genpr does; `folder` is empty and may be written to.
    """

    files: Sequence[bytes]
    damages: Sequence[Damage]
    read: Callable[[bytes, Path], object]


_OF_IMAGES: dict[str, Sequence[Damage]] = {
    "png": (*RAW, *[formats.png] * 5),
    "jpeg": (*RAW, *[formats.jpeg] * 5),
    "webp": (*RAW, *[formats.riff] * 5),
    "tiff": (*RAW, *[formats.tiff] * 7),
    "avif": (*RAW, *[formats.boxes] * 3),
}


@cache
def kinds() -> dict[str, Kind]:
    """All kinds by name."""
    workplace()
    images = image_files()
    found = {name: Kind(files, _OF_IMAGES.get(name, RAW), read_image) for name, files in images.items()}
    members = made.members(images)
    in_zip = (*RAW, *[formats.zip_fields] * 6, *[formats.zip_members] * 4)
    in_tar = (*RAW, *[formats.tar_header] * 8)
    packed = (*RAW[:4], *[formats.tar_packed] * 6)
    array, tensors = (*RAW, *[formats.npy_header] * 8), (*RAW, *[formats.safetensors_header] * 10)
    zips = [
        formats.zip_of(members, method)
        for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA)
    ]
    found |= {
        "zip": Kind(zips, in_zip, read_archive(".zip")),
        "tar": Kind([formats.tar_of(members, "w")], in_tar, read_archive(".tar")),
        "tar.gz": Kind([formats.tar_of(members, "w:gz")], packed, read_archive(".tar.gz")),
        "tar.xz": Kind([formats.tar_of(members, "w:xz")], packed, read_archive(".tar.xz")),
        "parquet": Kind(made.tables()[".parquet"], RAW, read_archive(".parquet")),
        "arrow": Kind(made.tables()[".arrow"], RAW, read_archive(".arrow")),
        "list": Kind([b"0.png\n1.png\n", b"1.png\0./0.png\0"], TEXT, read_list),
        "npy": Kind(made.arrays(), array, read_arrays(".npy")),
        "npz": Kind(made.zipped_arrays(), in_zip, read_arrays(".npz")),
        "features": Kind(made.feature_files(), tensors, read_side),
        "features, signed": Kind(made.feature_files(), [signed], read_side),
        "cache": Kind([made.shard()], tensors, read_cached),
        "cache, signed": Kind([made.shard()], [signed], read_planted),
        "cache key": Kind([made.KEY], JSON, read_key),
        "manifold": Kind([made.manifold()], tensors, read_manifold),
        "manifold, signed": Kind([made.manifold()], [signed], read_planted_manifold),
        "weights": Kind([made.tensors()], tensors, read_as_weights(".safetensors")),
        "checkpoint": Kind(made.checkpoints(), in_zip, read_as_weights(".pth")),
        "labels.csv": Kind(made.LABEL_ROWS, TEXT, read_labels(".csv")),
        "labels.json": Kind([made.DATASET_JSON], JSON, read_labels(".json")),
        "prompts.csv": Kind(made.PROMPT_ROWS, TEXT, read_prompts(".csv")),
        "prompts.jsonl": Kind([made.PROMPT_LINES], JSON, read_prompts(".jsonl")),
        "prompts.json": Kind(made.PROMPT_JSON, JSON, read_prompts(".json")),
        "prompts.txt": Kind([b"a cat\na dog\na bird\n"], TEXT, read_prompts(".txt")),
        "vocabulary.json": Kind(made.VOCABULARIES, JSON, read_vocabulary(".json")),
        "vocabulary.csv": Kind([b"cat,kitten\ndog,puppy,hound\n"], TEXT, read_vocabulary(".csv")),
        "answers.jsonl": Kind(made.ANSWER_LINES, JSON, read_answers),
        "results": Kind(made.results(), JSON, read_results),
        "log": Kind([made.log()], JSON, read_log),
        "command": Kind([json.dumps(line).encode() for line in VALID_LINES], LINE_DAMAGES, run_line),
    }
    return found
