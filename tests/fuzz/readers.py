"""What genpr does with a file of each kind, from its bytes to a number or an error."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path

import torch

import genpr
from fuzz import made
from genpr.checkpoints.score_log import ScoreLog
from genpr.conditional.parse_answers import read_entities
from genpr.conditional.prompts import open_prompts
from genpr.conditional.vocabulary import Vocabulary
from genpr.errors import ImageError
from genpr.evaluation.compare import compare, load_results
from genpr.evaluation.labels import open_labels
from genpr.features.cache import CachedImage, FeatureCache
from genpr.features.cache_files import find_folders
from genpr.features.feature_set import FeatureSet
from genpr.features.inputs import open_input
from genpr.features.weights.files import load_state_dict
from genpr.features.weights.known import WeightsFile
from genpr.images.arrays import peek_array
from genpr.images.decode import decode
from genpr.images.policy import FLAGS, DecodePolicy
from genpr.images.source import open_source
from genpr.metrics.knn_manifold import KNNManifold
from genpr.report.pages.compare_page import compare_report
from genpr.report.text.terminal import side_by_side_table

Read = Callable[[bytes, Path], object]

_POLICIES = (DecodePolicy(), DecodePolicy(alpha="white", exif="apply"))
_MOST_IMAGES = 300  # of an archive; a damaged one may hold any number of copies


def _written(data: bytes, folder: Path, name: str) -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


def read_image(data: bytes, folder: Path) -> None:
    """Decode it, under one policy or another."""
    del folder
    policy = _POLICIES[len(data) % 2]
    decoded = decode(data, name="x.png", policy=policy)
    height, width, channels = decoded.pixels.shape
    assert (decoded.pixels.dtype.name, channels) == ("uint8", 3)
    assert 0 < height * width <= policy.max_pixels
    assert set(decoded.flags) <= set(FLAGS)


def _read_images(source: object) -> None:
    """As embedding does: what cannot be used is passed over."""
    for item in islice(source, _MOST_IMAGES):
        try:
            decode(item.read(), name=item.name, policy=DecodePolicy())
        except ImageError as error:
            assert_is_fit_to_show(error)


def assert_is_fit_to_show(error: Exception) -> None:
    """One line of at most some thousand characters, which no terminal obeys."""
    text = str(error)
    assert text
    assert not {*"\n\r\x1b\0"} & {*text}, f"not one line: {text!r:.300}"


def read_archive(suffix: str) -> Read:
    """List an archive, decode its images and look for labels in it."""

    def read(data: bytes, folder: Path) -> None:
        path = _written(data, folder, f"x{suffix}")
        _read_images(open_source(path))
        names = [item.name for item in islice(open_source(path), _MOST_IMAGES)]
        open_labels(None, path, "fake").match(names, range(len(names)), len(names))

    return read


def read_list(data: bytes, folder: Path) -> None:
    """A list of files, two of which are there; labels are no part of it."""
    for number, image in enumerate(made.images()[:2]):
        (folder / f"{number}.png").write_bytes(image)
    _read_images(open_source(_written(data, folder, "x.txt")))


def read_arrays(suffix: str) -> Read:
    """An array file is images, features or labels, by its header."""

    def read(data: bytes, folder: Path) -> None:
        path = _written(data, folder, f"x{suffix}")
        header = peek_array(path)
        if suffix == ".npz" or header is None or len(header[0]) == 1:
            open_labels(path if suffix == ".npy" else None, path, "fake")
        side = open_input(path, "fake")
        if isinstance(side, FeatureSet):
            _score(side)
        else:
            _read_images(side.source)

    return read


def read_side(data: bytes, folder: Path) -> None:
    """Features in safetensors."""
    side = open_input(_written(data, folder, "x.safetensors"), "fake")
    assert isinstance(side, FeatureSet)
    _score(side)


def _score(side: FeatureSet) -> None:
    reals = replace(
        side,
        features=made.features(9).repeat(
            1, max(1, side.features.shape[-1] // 8 if side.features.ndim else 1)
        ),
        names=(),
        identities=None,
    )
    metrics = ["precision", "recall", "density", "coverage"]
    result = genpr.score(reals, side, metrics=metrics, intervals=False, control=False, k=3)
    assert 0 <= result["precision"] <= 1
    json.loads(result.to_json())


def _kept(data: bytes, folder: Path) -> list[CachedImage | None]:
    """What the cache says of three images, if this is its only shard."""
    cached = FeatureCache(folder, made.INFO, "cpu")
    (cached.folder / f"{'0' * 32}.safetensors").write_bytes(data)
    cached = FeatureCache(folder, made.INFO, "cpu")
    return [cached.get(hashlib.sha256(image).digest()) for image in made.images()]


def read_cached(data: bytes, folder: Path) -> None:
    """A shard of the cache gives the features that were kept, or nothing."""
    for row, found in enumerate(_kept(data, folder)):
        assert found is None or torch.equal(found.features, made.features(3, 3)[row])
    read_key(made.KEY, folder)


def read_planted(data: bytes, folder: Path) -> None:
    """One with a right checksum may give anything of the right shape."""
    for found in _kept(data, folder):
        assert found is None or (found.features.shape == (8,) and found.features.dtype == torch.float32)


def read_key(data: bytes, folder: Path) -> None:
    """The list of what is cached, by its descriptions."""
    cached = FeatureCache(folder, made.INFO, "cpu")
    (cached.folder / "key.json").write_bytes(data)
    for each in find_folders(folder):
        assert each.count_rows() >= 0
        assert isinstance(each.extractor, str)


def read_manifold(data: bytes, folder: Path) -> None:
    """A saved manifold counts as it did, or is refused."""
    queries = made.features(6)
    expected = KNNManifold.fit(made.features(4, 12), k=3).count(queries)
    manifold = KNNManifold.load(_written(data, folder, "x.safetensors"), device="cpu")
    assert torch.equal(manifold.count(queries), expected)


def read_planted_manifold(data: bytes, folder: Path) -> None:
    """One with a right checksum may count anything."""
    manifold = KNNManifold.load(_written(data, folder, "x.safetensors"), device="cpu")
    assert manifold.count(made.features(6)).shape == (6,)


def read_as_weights(suffix: str) -> Read:
    """Weights at their first use: nothing is published of them."""

    def read(data: bytes, folder: Path) -> None:
        name = f"x{suffix}"
        entry = WeightsFile(
            name=name, url="https://example.org/x", size=None, sha256=None, licence="none", used_by=("x",)
        )
        tensors = load_state_dict(entry, _written(data, folder, name))
        assert all(isinstance(tensor, torch.Tensor) for tensor in tensors.values())

    return read


def read_labels(suffix: str) -> Read:
    """Labels of four images."""

    def read(data: bytes, folder: Path) -> None:
        path = _written(data, folder, f"x{suffix}")
        for sets in (False, True):
            labels = open_labels(path, folder, "real", sets=sets)
            assert len(labels.match(made.NAMES, range(4), 4)) == 4

    return read


def read_prompts(suffix: str) -> Read:
    """Prompts of some images."""

    def read(data: bytes, folder: Path) -> None:
        open_prompts(_written(data, folder, f"x{suffix}"), folder)

    return read


def read_vocabulary(suffix: str) -> Read:
    """A vocabulary, and names looked for in a text."""

    def read(data: bytes, folder: Path) -> None:
        vocabulary = Vocabulary.load(_written(data, folder, f"x{suffix}"))
        vocabulary.find("a kitten and a puppy in New York" + data[:2000].decode("utf-8", "replace"))

    return read


def read_answers(data: bytes, folder: Path) -> None:
    """Answers scored, and the same bytes as one answer."""
    read_entities(data.decode("utf-8", "replace"))
    result = genpr.score_entities(made.EXPECTED, _written(data, folder, "x.jsonl"))
    json.loads(result.to_json())


def read_results(data: bytes, folder: Path) -> None:
    """Results read back, held against an untouched one, and shown in each way."""
    path = _written(data, folder, "x.json")
    other = made.result(7)
    found = {**load_results(path), "other": other}
    comparison = compare(found, force=True)
    side_by_side_table(comparison)
    for each in found.values():
        json.loads(each.to_json())
    if len(data) % 4 == 0:
        compare_report(comparison, [])


def read_log(data: bytes, folder: Path) -> None:
    """The scores of a watch, taken up again."""
    path = _written(data, folder, "genpr.jsonl")
    with ScoreLog(path, stylegan=True) as log:
        json.dumps([log.best, log.records], allow_nan=False)
