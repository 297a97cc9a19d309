"""Labels: sources, matching with images, and errors on mismatch."""

import json
import zipfile

import numpy as np
import pytest
import torch
from raising import raising

from genpr.errors import DataError, UsageError
from genpr.evaluation.labels import FolderLabels, LabeledImages, labels_of, look_like_classes, open_labels
from genpr.evaluation.modes import find_modes
from genpr.evaluation.per_class import check_classes
from genpr.features.source_features import Embedder
from genpr.images.policy import BadImagePolicy
from genpr.report.detail_tables import modes_table


def of(labels, names):
    return labels_of(labels, names, range(len(names)), len(names))


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["a/1.png", "b/1.png"], ["a", "b"]),
        (["train/a/1.png", "train/b/deep/1.png"], ["a", "b"]),
        (["a/x/1.png", "a/y/1.png"], ["x", "y"]),
        (["1.png", "a/1.png"], [None, "a"]),
        (["train/1.png", "train/a/1.png"], [None, "a"]),
        (["a/1.png", "a/2.png"], ["a", "a"]),
        (["train/a/1.png", "train/a/2.png"], ["a", "a"]),
        (["1.png", "2.png"], [None, None]),
        (["[0]", "[1]"], [None, None]),
        (["a\\1.png", "b\\1.png"], ["a", "b"]),
        ([], []),
    ],
)
def test_labels_are_names_of_subfolders(names, expected):
    assert of(FolderLabels(), names) == expected


def labels_csv(tmp_path, text):
    (tmp_path / "labels.csv").write_bytes(text.encode())
    return open_labels(tmp_path / "labels.csv", "x", "real")


@pytest.mark.parametrize(
    "text",
    [
        "a/1.png,cat\nb.png,dog\n",
        "name,label\na/1.png,cat\nb.png,dog\n",
        "\ufeffFilename,Class\r\na/1.png,cat\r\nb.png,dog\r\n",
        "id,label,path\n7,cat,a/1.png\n8,dog,b.png\n",
        'name,label\n"a/1.png","cat"\n\n./b.png, dog \n',
        "a\\1.png,cat\nb.png,dog\nb.png,\nother.png,cow\nother.png,cow\n",
    ],
    ids=range(6),
)
def test_all_forms_of_label_files_are_read(tmp_path, text):
    assert of(labels_csv(tmp_path, text), ["a/1.png", "b.png"]) == ["cat", "dog"]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        *((text, "labels-damaged") for text in ("", "a\n", "a,cat\nb,dog,3\n", "id,label\na,b,c\n")),
        ("a.png,cat\na.png,dog\n", "label-conflict"),
        ('a.png,"cat\n', "bad-csv"),
    ],
    ids=range(6),
)
def test_damaged_csv_files_are_errors(tmp_path, text, code):
    with pytest.raises(DataError, match=r"labels\.csv") as caught:
        labels_csv(tmp_path, text)
    assert caught.value.code == code
    assert str(caught.value).isprintable()


ENTRIES = json.dumps({"labels": [["00000/img0.png", 6], ["00000/img1.png", 10]]})


def test_labels_in_dataset_json_of_a_folder(tmp_path):
    (tmp_path / "dataset.json").write_text(ENTRIES)
    labels = open_labels(None, tmp_path, "real")
    assert of(labels, ["00000/img1.png", "00000/img0.png", "x.png"]) == ["10", "6", None]
    assert "dataset.json" in labels.origin
    assert isinstance(open_labels("folders", tmp_path, "real"), FolderLabels)


@pytest.mark.parametrize("top", ["", "ds/"])
def test_labels_in_dataset_json_of_a_zip(tmp_path, top):
    with zipfile.ZipFile(tmp_path / "d.zip", "w") as archive:
        archive.writestr(f"{top}dataset.json", ENTRIES)
        archive.writestr(f"{top}deep/dataset.json", "{}")
    assert of(open_labels(None, tmp_path / "d.zip", "real"), [f"{top}00000/img0.png"]) == ["6"]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ('{"labels": null}', "no-labels"),
        *((text, "labels-damaged") for text in ("{", "[" * 100_000, "[]", "{}")),
        *((f'{{"labels": [{each}]}}', "labels-damaged") for each in ('["a.png"]', '[3, "a.png"]')),
        *((f'{{"labels": [["a.png", {each}]]}}', "label-kind") for each in ("[0, 1]", "0.5", "true")),
    ],
    ids=range(10),
)
def test_damaged_dataset_json_is_an_error(tmp_path, text, code):
    (tmp_path / "dataset.json").write_text(text)
    with raising(DataError, code):
        open_labels(None, tmp_path, "real")


ARRAYS = (np.array([3, 1], np.uint8), np.array(["3", "1"]), np.array(["3", 1], object), torch.tensor([3, 1]))


@pytest.mark.parametrize("labels", [[3, 1], ("3", "1"), *ARRAYS], ids=range(6))
def test_labels_in_the_order_of_the_images(labels):
    assert of(open_labels(labels, "x", "real"), ["[0]", "[1]"]) == ["3", "1"]


def test_labels_are_read_from_array_files(tmp_path):
    np.save(tmp_path / "l.npy", np.array([0, 7]))
    assert of(open_labels(str(tmp_path / "l.npy"), "x", "real"), ["p", "q"]) == ["0", "7"]
    np.savez(tmp_path / "s.npz", np.zeros((2, 4, 4, 3), np.uint8), np.array([4, 2]))
    assert of(open_labels(None, tmp_path / "s.npz", "real"), ["[0]", "[1]"]) == ["4", "2"]
    np.savez(tmp_path / "t.npz", np.zeros((2, 4, 4, 3), np.uint8))
    assert isinstance(open_labels(None, tmp_path / "t.npz", "real"), FolderLabels)
    np.save(tmp_path / "pickle.npy", np.array([{}], object))
    with pytest.raises(DataError, match=r"not an intact \.npy file"):
        open_labels(tmp_path / "pickle.npy", "x", "real")


@pytest.mark.parametrize("labels", [np.eye(3), np.array([0.5, 1]), [1.0], [True], b"a", {"a": 1}, 7, [[1]]])
def test_values_that_are_not_classes_are_errors(labels):
    with raising(DataError, "label-kind", "one class per image"):
        open_labels(labels, "x", "real")


@pytest.mark.parametrize("name", ["none.csv", "x" * 4000, "labels", "a\0b"])
def test_missing_label_file_is_an_error(tmp_path, name):
    with raising(UsageError, "path-not-found", "there is no file"):
        open_labels(str(tmp_path / name), "x", "fake")


def check(real, fake, *, action="error", share=0.01):
    sides = [
        LabeledImages(role, f"{role}/", "sub-folders", [f"{role}{i}.png" for i in range(len(labels))], labels)
        for role, labels in (("real", real), ("fake", fake))
    ]
    check_classes(*sides, BadImagePolicy(action, share))


@pytest.mark.parametrize(
    ("real", "fake", "code", "words"),
    [
        (["a", "b"], [None], "no-labels", "fake has no labels"),
        ([None], [None], "no-labels", "real has no labels"),
        (["a", "b"], ["a", None], "unlabeled", r"1 of 2 fake images .*fake1\.png"),
        (["a", "a"], ["a"], "one-class", "real has 1 class .*fake has 1 class"),
        (["a", "b"], ["c"], "labels-disagree", "real has 2 classes .*fake has 1 class"),
        (["00", "Cat"], ["0", "cat"], "labels-disagree", "Matching of labels is exact"),
    ],
    ids=range(6),
)
def test_mismatched_labels_are_errors(real, fake, code, words):
    with raising(DataError, code, words):
        check(real, fake)


def test_images_without_a_label_may_be_left_out():
    real = ["a", "b"] * 10
    check(real, [*real[:19], None], action="skip", share=0.05)
    with pytest.raises(DataError, match=r"at most 4\.0% may be left out"):
        check(real, [*real[:19], None], action="skip", share=0.04)


KINDS = ("ant", "bee", "cat", "dog")


@pytest.fixture(scope="module")
def sides():
    """120 reals of four kinds; 90 fakes with eels, which no real has, instead of cats."""
    rng = np.random.default_rng(0)
    centers = 8 * rng.normal(size=(5, 6))
    real, fake = np.arange(120) % 4, np.array([0, 1, 3, 4])[np.arange(90) % 4]
    drawn = [(centers[kinds] + rng.normal(size=(len(kinds), 6))).astype(np.float32) for kinds in (real, fake)]
    names = [[(*KINDS, "eel")[kind] for kind in kinds] for kinds in (real, fake)]
    return drawn, names


def test_labels_of_both_sets_name_missed_and_invented_modes(sides):
    labels = {"real_labels": sides[1][0], "fake_labels": np.array(sides[1][1])}
    found = find_modes(*sides[0], clusters=5, device="cpu", **labels)
    assert [found.modes.missed[0].classes[0][0], found.modes.invented[0].classes[0][0]] == ["cat", "eel"]
    assert found.origins == {"real": "real_labels", "fake": "fake_labels"}
    assert found.to_dict()["labels"] == found.origins
    assert modes_table(found).endswith("real labels: real_labels; fake labels: fake_labels")


SHADES = {"dark": 30, "light": 220}
OPTIONS = {"extractor": "pixels", "device": "cpu", "cache": False, "clusters": 2}


def pixels(rng, kinds):
    shades = np.array([SHADES[kind] for kind in kinds])[:, None, None, None]
    return np.clip(rng.normal(shades, 12, (len(kinds), 8, 8, 3)), 0, 255).astype(np.uint8)


@pytest.fixture
def shaded(rng):
    """60 reals, alternately light and dark, and 60 dark fakes."""
    kinds = ["dark", "light"] * 30
    return kinds, pixels(rng, kinds), pixels(rng, ["dark"] * 60)


def test_labels_of_the_source_are_used(shaded, write_images):
    kinds, real, fake = shaded
    source = write_images("real", real)
    pairs = [[f"{row:05}.png", kind] for row, kind in enumerate(kinds)]
    (source / "dataset.json").write_text(json.dumps({"labels": pairs}))
    found = find_modes(source, write_images("fake", fake), **OPTIONS)
    assert found.modes.missed[0].classes[0][0] == "light"
    assert set(found.origins) == {"real"}, "the fakes have none, and need none"


@pytest.mark.parametrize(
    ("labels", "code"),
    [
        ({"real_labels": "none.csv"}, "path-not-found"),
        ({"fake_labels": ["a"] * 61}, "label-count"),
        ({"real_labels": ["a"] * 50 + [None] * 10}, "unlabeled"),
    ],
    ids=range(3),
)
def test_mismatched_labels_are_an_error_before_embedding(shaded, write_images, monkeypatch, labels, code):
    monkeypatch.setattr(Embedder, "embed", lambda *_: pytest.fail("embedded"))
    _, real, fake = shaded
    with pytest.raises((DataError, UsageError)) as raised:
        find_modes(write_images("real", real), write_images("fake", fake), **labels, **OPTIONS)
    assert raised.value.code == code


def names_in(folders, count=10):
    return [f"{folder}/{row}.png" for folder in folders for row in range(count)]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (names_in(["a", "b"]), True),
        (names_in(["train/a/x", "train/b/x"]), True),
        (names_in(["a"], 20), False),
        (names_in(["."], 20), False),
        (names_in(["a", "b"], 9), False),
        ([*names_in(["a", "b"]), "top.png"], False),
        ([], False),
    ],
    ids=range(7),
)
def test_folders_are_classes_only_if_they_look_like_classes(names, expected):
    assert look_like_classes(FolderLabels().match(names, range(len(names)), len(names))) is expected
