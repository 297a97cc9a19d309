"""Samples of WebDataset in tar shards, and archives with many members."""

import json
import tarfile

import numpy as np
import pytest
from image_files import PNG, raised, write_files
from little_memory import little_memory

from genpr.errors import DataError
from genpr.evaluation.labels import FolderLabels, SourceLabels, open_labels
from genpr.features.source_features import open_input
from genpr.images.policy import BadImagePolicy
from genpr.images.source import open_source, subset


def labels_of(path) -> list:
    opened = open_input(path, "real")
    labels = open_labels(None, opened.source, "real")
    names = opened.source.names()
    names = [item.name for item in opened.source] if names is None else list(names)
    return labels.match(names, range(len(names)), len(names))


def test_label_of_a_sample_is_its_class(make_tar):
    members = {"b/1.png": PNG, "b/1.cls": b"7", "b/0.v2.jpg": PNG, "b/0.cls": b" 12\n", "b/0.txt": b"caption"}
    members |= {"a/0.png": PNG, "a/0.cls": b"tabby cat", "c.d/3.seg.png": PNG}
    path = make_tar(members | {"b/1.json": b'{"cls": 5}'})
    found = dict(zip([item.name for item in open_source(path)], labels_of(path), strict=True))
    assert found == {"b/1.png": "7", "b/0.v2.jpg": "12", "a/0.png": "tabby cat", "c.d/3.seg.png": None}


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ("0.png 0.cls=1 1.png 1.cls=2 0.png 0.cls=3 1.png 1.cls=4", ["1", "3", "2", "4"]),
        ("0.cls=1 0.png 0.cls=3 0.png", ["1", "3"]),
        ("0.png 0.json 0.txt 0.cls=1 0.png 0.txt 0.cls=3", ["1", "3"]),
        ("0.png 0.cls=1 1.png 0.png", ["1", None, None]),
        ("0.png 0.mask.png 0.cls=7", ["7", "7"]),
        ("0.png 0.cls=1 0.v2.cls=1", ["1"]),
        ("0 0.cls=1 1.heic 1.cls=2 0.unknown 0.cls=3", ["1", "3", "2"]),
    ],
    ids=["joined", "label-first", "other-members", "unlabeled", "mask", "equal", "other-suffixes"],
)
def test_label_of_a_repeated_key_is_the_one_beside_the_image(make_tar, members, expected):
    assert labels_of(make_tar(members_of(members))) == expected


def members_of(text) -> list[tuple[str, bytes]]:
    pairs = (member.partition("=") for member in text.split())
    return [(name, label.encode() or PNG) for name, _, label in pairs]


@pytest.mark.parametrize(
    "members",
    [
        "0.png 1.png 0.png 1.png 0.cls=1 1.cls=2 0.cls=3 1.cls=4",
        "0.png 1.cls=2",
        "v.0.png v.0.cls=1 v.1.png v.1.cls=2",
    ],
    ids=["images-first", "no-image", "two-in-a-sample"],
)
def test_labels_of_a_repeated_key_that_cannot_be_assigned_are_an_error(make_tar, members):
    error = raised(DataError, labels_of, make_tar(members_of(members)))
    assert error.code == "label-conflict"


@pytest.mark.parametrize("data", [b"", b" \n", b"\xff\xfe", b"x" * 1001, b"\0" * 5000])
def test_broken_label_is_an_error_that_names_it(make_tar, data):
    path = make_tar({"0.png": PNG, "0.cls": data})
    error = raised(DataError, labels_of, path)
    assert (error.code, error.path) == ("labels-damaged", "0.cls")


def test_text_member_too_large_for_a_label_is_not_read(make_tar, monkeypatch):
    monkeypatch.setattr("genpr.images.archive.SMALL_TEXT_BYTES", 10)
    path = make_tar({"0.png": PNG, "0.cls": b" " * 11})
    with pytest.raises(DataError, match="11 bytes"):
        labels_of(path)


def test_labels_of_shards_are_concatenated(make_tar, tmp_path):
    for shard in range(3):
        label = {} if shard == 1 else {"0.cls": b"%d" % shard}
        make_tar({"0.png": PNG, **label, "1.png": PNG}, name=f"s{shard}.tar")
    assert labels_of(f"{tmp_path}/s*.tar") == ["0", None, None, None, "2", None]
    opened = open_input(f"{tmp_path}/s*.tar", "real")
    side = SourceLabels.open(None, opened, "real", BadImagePolicy("skip", 1.0)).named
    assert side is not None
    assert "s0.tar" in side.origin
    assert side.rows == {"0": [0], "2": [4]}


def test_folders_in_shards_are_classes_and_shards_are_not(make_tar, make_zip, tmp_path):
    for shard in range(2):
        make_tar({"x/cat/0.png": PNG, "x/dog/1.png": PNG}, name=f"s{shard}.tar")
        make_zip({"cat/0.png": PNG, "dog/1.png": PNG}, name=f"s{shard}.zip")
    for pattern in ("s?.tar", "s{0,1}.zip"):
        assert labels_of(f"{tmp_path}/{pattern}") == ["cat", "dog", "cat", "dog"]
    write_files(tmp_path, "cat/0.png", "dog/0.png")
    assert labels_of(f"{tmp_path}/*[tg]") == ["cat", "dog"]
    assert isinstance(open_labels(None, open_source(f"{tmp_path}/s?.tar"), "real"), FolderLabels)


def test_zips_and_arrays_in_a_pattern_have_labels(make_zip, tmp_path):
    stated = json.dumps({"labels": [["a.png", 7]]}).encode()
    make_zip({"a.png": PNG, "dataset.json": stated}, name="p0.zip")
    make_zip({"b.png": PNG}, name="p1.zip")
    assert labels_of(f"{tmp_path}/p?.zip") == ["7", None]
    for number in (0, 1):
        np.savez(tmp_path / f"n{number}.npz", np.zeros((2, 4, 4, 3), np.uint8), np.array([number, 5]))
    assert labels_of(f"{tmp_path}/n?.npz") == ["0", "5", "1", "5"]


# Very many members ------------------------------------------------------------------------------------------


def test_only_shards_with_selected_images_are_read(make_tar, tmp_path):
    for shard in range(8):
        make_tar({f"{n}.png": PNG for n in range(5)}, name=f"s{shard}.tar")
    source = open_source(f"{tmp_path}/s*.tar")
    part = subset(source, 3, seed=0)
    chosen = [[item.name for item in source][place] for place in part.rows]
    for shard in range(8):
        if f"s{shard}.tar" not in {name[:6] for name in chosen}:
            (tmp_path / f"s{shard}.tar").unlink()
    assert [(item.name, item.read()) for item in part] == [(name, PNG) for name in chosen]


def test_many_members_are_listed_in_little_memory(tmp_path):
    """In any order; a million members take 200 MB in one archive."""
    path, data = tmp_path / "x.tar", b"\x89PNG".ljust(512, b"\0")
    with path.open("wb") as file:
        for number in reversed(range(10_000)):
            info = tarfile.TarInfo(f"{number:09d}.png")
            info.size = 4
            file.write(info.tobuf(tarfile.USTAR_FORMAT) + data)
        file.write(bytes(1024))
    with little_memory(3 * 2**20):  # tarfile's own objects would be 20
        source = open_source(path)
    assert len(source) == 10_000
    assert next(iter(source)).name == "000000000.png"
