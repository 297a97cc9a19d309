"""Labels: sources, matching with images, and errors on mismatch."""

import io
import json
import tarfile
import zipfile

import numpy as np
import pytest
import torch
from image_files import encode
from raising import raising

import genpr
from genpr.errors import DataError, UsageError
from genpr.evaluation.labels import (
    FolderLabels,
    LabeledImages,
    check_complete,
    labels_of,
    look_like_classes,
    open_labels,
)
from genpr.evaluation.modes import find_modes
from genpr.evaluation.per_class import check_classes
from genpr.evaluation.tables import unlike_numbers
from genpr.features.source_features import Embedder
from genpr.images.policy import BadImagePolicy
from genpr.report.score_tables import modes_table


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


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (r"^(.+)_\d+\.png$", ["cat", "sub/big dog", None, None]),
        (r"[a-z]+(?=_)", ["cat", "dog", None, None]),
        (r"(\d)\.(png|jpg)", ["1", "2", "3", None]),
        (r"^(?:[a-z/]+ )?([a-z]*)_?\d", ["cat", "dog", None, None]),  # an empty or unused group is no label
    ],
    ids=range(4),
)
def test_labels_are_parts_of_names(expression, expected):
    names = ["cat_01.png", ".\\sub\\big dog_12.png", "3.jpg", "x.gif"]
    assert of(open_labels(f"pattern:{expression}", "x", "real"), names) == expected


def test_patterns_that_find_nothing_are_errors():
    for expression in ("(", "*", "a{99999999999999999999}", "(" * 5000 + ")" * 5000):
        with raising(UsageError, "bad-pattern"):
            open_labels(f"pattern:{expression}", "x", "real")
    with raising(DataError, "labels-match-nothing"):
        of(open_labels(r"pattern:(\d+)", "x", "real"), ["a.png", "b.png"])
    assert of(open_labels("pattern:a", "x", "real"), []) == []


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
        ('{"labels": {"a.png": 1, "a.png": 2}}', "labels-damaged"),
    ],
    ids=range(11),
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


TENSORS = [torch.ones(2).bfloat16(), torch.ones(2).long().to_sparse(), torch.ones(2, device="meta")]


@pytest.mark.parametrize(
    "labels", [np.eye(3), np.array([0.5, 1]), [1.0], [True], b"a", {"a": 1}, 7, [[1]], *TENSORS], ids=str
)
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
    check_classes(*(check_complete(side, BadImagePolicy(action, share)) for side in sides))


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


SHADES = {"dark": 30, "light": 220}
PIXELS = {"extractor": "pixels", "device": "cpu", "cache": False}
OPTIONS = PIXELS | {"clusters": 2}


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
    assert found.modes.uncovered[0].classes[0][0] == "light"
    assert set(found.origins) == {"real"}, "the fakes have none, and need none"


def test_labels_of_both_sets_name_missed_and_invented_modes(shaded):
    kinds, some, dark = shaded
    labels = {"real_labels": ["dark"] * 60, "fake_labels": np.array(kinds)}
    found = find_modes(dark, some, **labels, **OPTIONS)
    assert found.modes.outside[0].classes[0][0] == "light"
    assert found.origins == {"real": "real_labels", "fake": "fake_labels"}
    assert found.to_dict()["labels"] == found.origins
    assert modes_table(found).endswith("real labels: real_labels; fake labels: fake_labels")


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
    with raising((DataError, UsageError), code):
        find_modes(write_images("real", real), write_images("fake", fake), **labels, **OPTIONS)


UNPADDED = [f"{row}.png" for row in range(60)]


def codes_of(found):
    return [item.code for item in found.notices]


@pytest.fixture
def unpadded(shaded, write_images, tmp_path):
    """Kinds of images as an array file and by name, and two folders of the images, the second with unpadded names."""
    kinds, real, _ = shaded
    np.save(tmp_path / "kinds.npy", kinds)
    by_name = {"labels": dict(zip(UNPADDED, kinds, strict=True))}
    (tmp_path / "kinds.json").write_text(json.dumps(by_name))
    return kinds, tmp_path, write_images("a", real), write_images("b", real, "{}.png")


@pytest.mark.parametrize("given", ["list", "kinds.npy", "kinds.json", "padded"])
def test_labels_in_order_of_unpadded_names_are_a_warning(unpadded, given):
    kinds, folder, padded, source = unpadded
    source, labels = padded if given == "padded" else source, folder / given if "." in given else kinds
    chosen = genpr.LabelOptions(real_labels=kinds, fake_labels=labels)
    options = {"metrics": ["precision"], "control": False, "intervals": False, "max_images": 11}
    found = genpr.score(padded, source, labels=chosen, **options, **PIXELS)
    assert codes_of(found).count("name-order") == (given in {"list", "kinds.npy"})


def test_modes_classes_and_predictions_warn_of_labels_in_order_of_unpadded_names(unpadded):
    kinds, folder, padded, source = unpadded
    modes = find_modes(padded, source, real_labels=kinds, fake_labels=kinds, **OPTIONS)
    options = {"metrics": ["precision"], "control": False, "intervals": False}
    evaluator = genpr.Evaluator(padded, **options, **PIXELS)
    classes = evaluator.score_classes(source, real_labels=kinds, fake_labels=kinds, min_per_class=10)
    predicted = genpr.LabelOptions(fake_labels=folder / "kinds.json", classifier=folder / "kinds.npy")
    score = genpr.score(padded, source, labels=predicted, **options, **PIXELS)
    for found in (modes, classes.overall, score):
        assert codes_of(found).count("name-order") == 1


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["1.png", "10.png", "2.png"], ("10.png", "2.png")),
        (["a/1.png", "a/2.png", "b/10.png", "b/9.png"], ("b/10.png", "b/9.png")),
        (["1.tar/0.png", "10.tar/0.png", "2.tar/0.png"], ("10.tar/0.png", "2.tar/0.png")),
        (
            [f"{part}.parquet/[{row}]" for part in (1, 10, 2) for row in range(11)],
            ("10.parquet/", "2.parquet/"),
        ),
        (["1.png", "2.png", "10.png"], None),
        (["10.png", "2.png", "1.png"], None),
        (["01.png", "02.png", "10.png"], None),
        (["0a1b.png", "10c2.png", "1d33.png", "9e00.png"], None),
        (["12a345.png", "1a2345.png"], None),
        ([f"[{row}]" for row in range(12)], None),
        ([f"row {row}" for row in range(12)], None),
        ([], None),
    ],
    ids=range(12),
)
def test_only_sorted_names_with_numbers_in_another_order_are_ambiguous(names, expected):
    assert unlike_numbers(names) == expected


def test_labels_of_the_source_itself_are_never_ambiguous(shaded, write_images, tmp_path):
    kinds, real, _ = shaded
    folder = write_images("b", real, "{}.png")
    with tarfile.open(tmp_path / "b.tar", "w") as archive:
        for name, kind in zip(UNPADDED, kinds, strict=True):
            archive.add(folder / name, name)
            label = tarfile.TarInfo(name.replace("png", "cls"))
            label.size = len(kind)
            archive.addfile(label, io.BytesIO(kind.encode()))
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as archive:
        archive.writestr(
            "dataset.json", json.dumps({"labels": [*map(list, zip(UNPADDED, kinds, strict=True))]})
        )
        for name in UNPADDED:
            archive.write(folder / name, name)
    for source in (tmp_path / "b.tar", f"{tmp_path}/[b].tar", f"{tmp_path}/[b].zip"):
        found = find_modes(source, real, fake_labels=kinds, **OPTIONS)
        assert set(found.origins) == {"real", "fake"}
        assert "name-order" not in codes_of(found)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_different_images_of_one_name_cannot_have_labels_by_name(shaded, tmp_path):
    """Two zips with equal names are in one, with the labels of the first."""
    (kinds, real, fake), joined = shaded, tmp_path / "joined.zip"
    with zipfile.ZipFile(joined, "w") as archive:
        labels = [[f"{row}.png", kind] for row, kind in enumerate(kinds[:30])]
        archive.writestr("dataset.json", json.dumps({"labels": labels}))
        for row, image in enumerate(real):
            archive.writestr(f"{row % 30}.png", encode(image))
    with raising(DataError, "repeated-name", "name '0.png'"):
        find_modes(joined, fake, **OPTIONS)
    with raising(DataError, "repeated-name"):
        find_modes(joined, fake, real_labels=kinds, max_images=55, **OPTIONS)
    assert set(find_modes(joined, fake, real_labels=kinds, **OPTIONS).origins) == {"real"}


def test_one_file_may_be_twice_in_a_list(shaded, write_images, tmp_path):
    kinds, real, fake = shaded
    folder = write_images("real", real)
    rows = [row % 50 for row in range(60)]
    (folder / "list.txt").write_text("\n".join(f"{row:05}.png" for row in rows))
    pairs = [[f"{row:05}.png", kinds[row]] for row in range(60)]
    (tmp_path / "kinds.json").write_text(json.dumps({"labels": pairs}))
    given = [kinds[row] for row in rows]
    by_name = find_modes(folder / "list.txt", fake, real_labels=tmp_path / "kinds.json", **OPTIONS)
    in_order = find_modes(folder / "list.txt", fake, real_labels=given, max_images=55, **OPTIONS)
    assert by_name.origins["real"].endswith("kinds.json")
    assert in_order.origins == {"real": "real_labels"}


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
