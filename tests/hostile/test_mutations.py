"""Damaged files of every kind end in a score or a `GenprError`, in bounded time and memory and without side effects.

`GENPR_EXAMPLES=100000 python -m pytest tests/hostile/test_mutations.py` tries as many per kind, and new ones each time.
"""

import hashlib
import json
import os
import pickle
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cache
from itertools import islice
from pathlib import Path

import pytest
import torch
from archives import tar_of, zip_of
from hostile import valid_files as valid
from hostile.side_effects import limited_effects
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import genpr
from genpr.checkpoints.score_log import ScoreLog
from genpr.conditional.prompts import open_prompts
from genpr.errors import GenprError, ImageError
from genpr.evaluation.compare import compare, load_results
from genpr.evaluation.labels import open_labels
from genpr.features.cache import FeatureCache
from genpr.features.feature_set import FeatureSet
from genpr.features.source_features import open_input
from genpr.features.statistics import read_statistics
from genpr.features.weights import WeightsFile, load_weights
from genpr.images.arrays import peek_array
from genpr.images.decode import decode
from genpr.images.policy import DecodePolicy
from genpr.images.source import open_source
from genpr.metrics.manifold import KNNManifold

MOST_IMAGES = 300  # of an archive; a damaged one may hold any number of copies
EXAMPLES = int(os.environ.get("GENPR_EXAMPLES", "0"))

Read = Callable[[Path], object]


def read_image(path: Path) -> None:
    policy = DecodePolicy() if path.stat().st_size % 2 else DecodePolicy(prepare="resize:9")
    decoded = decode(path.read_bytes(), name="x.png", policy=policy)
    height, width, channels = decoded.pixels.shape
    assert (decoded.pixels.dtype.name, channels) == ("uint8", 3)
    assert 0 < height * width <= policy.max_pixels


def read_values(path: Path) -> None:
    policy = DecodePolicy(value_range="0:4095", bands="all" if path.stat().st_size % 2 else "1")
    try:
        decoded = decode(path.read_bytes(), name="x.tif", policy=policy)
    except ImageError as error:
        if error.code != "image-values":  # such as NaN
            raise
        check_message(error)
        return
    height, width, channels = decoded.pixels.shape
    assert decoded.pixels.dtype.name == "uint8"
    assert 1 <= channels <= 16
    assert 0 < height * width <= policy.max_pixels


def read_source(path: Path) -> None:
    """Every usable image, and the labels of the source."""
    source = open_source(path)
    for item in islice(source, MOST_IMAGES):
        try:
            decode(item.read(), name=item.name, policy=DecodePolicy())
        except ImageError as error:
            check_message(error)
    names = [item.name for item in islice(open_source(path), MOST_IMAGES)]
    open_labels(None, path, "fake").match(names, range(len(names)), len(names))


def read_list(path: Path) -> None:
    for number, image in enumerate(valid.images()[:2]):
        (path.parent / f"{number}.png").write_bytes(image)
    read_source(path)


def read_input(path: Path) -> None:
    """Images, features or labels, depending on the file."""
    header = peek_array(path)
    if path.suffix == ".npz":
        open_labels(None, path, "fake")
    elif header is not None and len(header[0]) == 1:
        open_labels(path, path, "fake")
        return
    opened = open_input(path, "fake")
    if not isinstance(opened, FeatureSet):
        read_source(path)
        return
    width = opened.features.shape[-1] // 8 if opened.features.ndim else 1
    reals = replace(opened, features=valid.features(9).repeat(1, max(1, width)), names=(), identities=None)
    metrics = ["precision", "recall", "density", "coverage"]
    result = genpr.score(reals, opened, metrics=metrics, intervals=False, control=False, k=3)
    assert 0 <= result["precision"] <= 1
    json.loads(result.to_json())


def read_shard(path: Path) -> None:
    """A shard of the cache gives the stored features or nothing."""
    cached = FeatureCache(path.parent, valid.INFO, "cpu")
    path.rename(cached.folder / f"{'0' * 32}.safetensors")
    cached = FeatureCache(path.parent, valid.INFO, "cpu")
    for row, image in enumerate(valid.images()):
        found = cached.get(hashlib.sha256(image).digest())
        assert found is None or torch.equal(found.features, valid.features(3, 3)[row])


def read_manifold(path: Path) -> None:
    """A saved manifold gives the same counts, or is an error."""
    queries = valid.features(6)
    expected = KNNManifold.fit(valid.features(4, 12), k=3).count(queries)
    assert torch.equal(KNNManifold.load(path, device="cpu").count(queries), expected)


def read_weights(path: Path) -> None:
    url = "https://example.org/x"
    entry = WeightsFile(name=path.name, url=url, size=None, sha256=None, license="none", used_by=("x",))
    assert all(isinstance(tensor, torch.Tensor) for tensor in load_weights(entry, path).tensors.values())


def read_labels(path: Path) -> None:
    labels = open_labels(path, path.parent, "real")
    assert len(labels.match(valid.NAMES, range(4), 4)) == 4


def read_answers(path: Path) -> None:
    json.loads(genpr.score_entities(valid.EXPECTED, path).to_json())


def read_results(path: Path) -> None:
    comparison = compare({**load_results(path), "other": valid.result(7)}, force=True)
    for each in comparison.results.values():
        json.loads(each.to_json())


def read_log(path: Path) -> None:
    with ScoreLog(path) as log:
        json.dumps([log.best, log.records], allow_nan=False)


def json_lines(*values: object) -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


@cache
def kinds() -> dict[str, tuple[str, Sequence[bytes], Read]]:
    """For each kind: the name of the file, valid files, and the function that reads one."""
    members, methods = valid.members(), (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
    names = [[name, int("b" in name)] for name in valid.NAMES]
    table = b"name,label\n" + b"".join(f"{n},{c}\n".encode() for n, c in names)
    prompts = {"file_name": "a/0.png", "text": "a cat"}, {"file_name": "b/2.png", "text": "a dog"}
    texts = ['Sure! {"entities": ["cat", "dog"]}', "```json\n[\"cat\", 'dog',]\n```"]
    texts += ["Entities:\n- cat\n", "none"]
    answers = [{"id": str(number), "answer": text} for number, text in enumerate(texts)]
    return {name: ("x.png", files, read_image) for name, files in valid.image_files().items()} | {
        "zip": ("x.zip", [zip_of(members, method) for method in methods], read_source),
        "tar": ("x.tar", [tar_of(members)], read_source),
        "parquet": ("x.parquet", [valid.table()], read_source),
        "list": ("x.txt", [b"0.png\n1.png\n", b"1.png\0./0.png\0"], read_list),
        "values": ("x.tif", valid.value_files(), read_values),
        "npy": ("x.npy", valid.arrays(), read_input),
        "npz": ("x.npz", valid.zipped_arrays(), read_input),
        "features": ("x.safetensors", [valid.feature_file(), valid.tensors()], read_input),
        "cache": ("shard.safetensors", [valid.shard()], read_shard),
        "manifold": ("x.safetensors", [valid.manifold()], read_manifold),
        "weights": ("x.safetensors", [valid.tensors()], read_weights),
        "checkpoint": ("x.pth", [valid.checkpoint()], read_weights),
        "labels.csv": ("x.csv", [table], read_labels),
        "labels.json": ("x.json", [json.dumps({"labels": names}).encode()], read_labels),
        "prompts.jsonl": ("x.jsonl", [json_lines(*prompts)], open_prompts),
        "answers": ("x.jsonl", [json_lines(*answers)], read_answers),
        "results": ("x.json", valid.results(), read_results),
        "statistics": ("x.npz", [valid.statistics(4)[0]], read_statistics),
        "pickle": ("x.pkl", [valid.statistics(protocol)[1] for protocol in (2, 4, 5)], read_statistics),
        "log": ("genpr.jsonl", [valid.log()], read_log),
    }


KINDS = list(kinds())
NUMBERS = [0, 1, 2, 127, 128, 255, 256, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1]
TEXTS = [
    *("", "\0", "../../../x", "a" * 5000, "a\nb\rc", "\x1b[2J\x1b]0;x\x07", "\u202egnp.exe"),
    *("=cmd|' /C calc'!A0", "<script>alert(1)</script>", "{{7*7}}${7*7}%s%n{0}", "\u2028\ufeff"),
    *("nan", "1e999", "9" * 5000, "[" * 5000),
]
VALUES = st.sampled_from(
    [*TEXTS, None, True, -1, 1.5, 10**30, 1e308, float("nan"), float("inf"), [], {}, [[]]]
)


@st.composite
def damaged(draw: st.DrawFn, files: Sequence[bytes]) -> bytes:
    """A valid file with some changed bytes, lengths, ranges or JSON values."""
    data = draw(st.sampled_from(files))
    for _ in range(draw(st.integers(1, 3))):
        near_start = draw(st.booleans())
        start = draw(st.integers(0, min(len(data), 64) if near_start else len(data)))
        length = draw(st.sampled_from([1, 2, 4, 8, 64, 512]))
        match draw(st.integers(0, 7)):
            case 0:  # flip a bit
                flipped = bytes([data[start] ^ 1 << draw(st.integers(0, 7))]) if start < len(data) else b""
                data = data[:start] + flipped + data[start + 1 :]
            case 1:  # a number of another size
                size = draw(st.sampled_from([1, 2, 4, 8]))
                value = draw(st.sampled_from(NUMBERS)) % 2 ** (8 * size)
                order = draw(st.sampled_from(["little", "big"]))
                data = data[:start] + value.to_bytes(size, order) + data[start + size :]
            case 2:  # a cut end
                data = data[:start]
            case 3:  # a missing stretch
                data = data[:start] + data[start + length :]
            case 4:  # a repeated stretch
                stretch = data[start : start + length] * draw(st.sampled_from([2, 50, 1000]))
                data = data[:start] + stretch + data[start:]
            case 5:  # other bytes
                data = data[:start] + draw(st.binary(max_size=16)) + data[start:]
            case 6:  # a hostile text
                text = draw(st.sampled_from(TEXTS)).encode()
                data = data[:start] + text + data[start + draw(st.sampled_from([0, length])) :]
            case _:
                data = with_other_value(draw, data)
    return data


def with_other_value(draw: st.DrawFn, data: bytes) -> bytes:
    """JSON or JSON lines with one changed value; any other data unchanged."""
    lines = data.split(b"\n") if data.count(b"\n") > 1 else [data]
    at = draw(st.integers(0, len(lines) - 1))
    try:
        root = [json.loads(lines[at])]
    except (ValueError, RecursionError):
        return data
    parent, key = root, 0
    while isinstance(parent[key], dict | list) and parent[key] and draw(st.integers(0, 4)):
        parent = parent[key]
        key = draw(st.sampled_from(sorted(parent) if isinstance(parent, dict) else range(len(parent))))
    parent[key] = draw(VALUES)
    lines[at] = json.dumps(root[0]).encode()
    return b"\n".join(lines)


def check_message(error: GenprError) -> None:
    """Assert that the message is one line without control characters."""
    text = str(error)
    assert text
    assert not {*"\n\r\x1b\0"} & {*text}, f"not one line: {text!r:.300}"


def outcome_of(kind: str, data: bytes) -> str:
    """Read a file as genpr does: "score", or the code of the error.

    Raises:
        AssertionError: It took too long or too much memory, or had forbidden side effects.
    """
    name, _, read = kinds()[kind]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="genpr-damaged-")))
        path = folder / name
        path.write_bytes(data)
        os.environ["GENPR_CACHE"] = str(folder / "cache")  # the fixture `_private_cache` restores it
        with limited_effects(folder, seconds=5, memory=2**30):
            try:
                read(path)
            except GenprError as error:
                check_message(error)
                return error.code
    return "score"


@pytest.mark.parametrize("kind", KINDS)
def test_valid_files_are_read(kind):
    assert {outcome_of(kind, data) for data in kinds()[kind][1]} == {"score"}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", KINDS)
def test_damaged_files_end_in_a_score_or_an_error(kind):
    @settings(
        max_examples=EXAMPLES or 30,
        derandomize=not EXAMPLES,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(damaged(kinds()[kind][1]))
    def check(data: bytes) -> None:
        outcome_of(kind, data)

    check()


@pytest.mark.parametrize(
    "act",
    [
        lambda _: Path("/tmp/genpr-elsewhere").write_text("x"),
        lambda _: pickle.loads(pickle.dumps(Path("x"))),
        lambda _: subprocess.run([sys.executable, "-c", ""], check=True),
        lambda path: (path.parents[1] / "genpr-elsewhere").unlink(missing_ok=True),
    ],
)
def test_forbidden_side_effects_are_detected(monkeypatch, act):
    monkeypatch.setitem(kinds(), "ppm", ("x.ppm", [b""], act))
    with pytest.raises(AssertionError):
        outcome_of("ppm", b"")
