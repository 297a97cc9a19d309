"""Labels: where they are read from, which image they belong to, what is said where they do not fit."""

from __future__ import annotations

import json
import zipfile

import numpy as np
import pytest
import torch

from genpr.errors import DataError, UsageError
from genpr.evaluation.labels import FolderLabels, LabeledImages, labels_of, open_labels
from genpr.evaluation.per_class import check_classes
from genpr.images.policy import BadImagePolicy


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
def test_sub_folders(names, expected):
    assert of(FolderLabels(), names) == expected


class TestCsv:
    def read(self, tmp_path, text, name="labels.csv"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return open_labels(path, "x", "real")

    @pytest.mark.parametrize(
        "text",
        [
            "a/1.png,cat\nb.png,dog\n",
            "name,label\na/1.png,cat\nb.png,dog\n",
            "\ufeffFilename,Class\r\na/1.png,cat\r\nb.png,dog\r\n",
            "id,label,path\n7,cat,a/1.png\n8,dog,b.png\n",
            'name,label\n"a/1.png","cat"\n\n./b.png, dog \n',
            "a\\1.png,cat\nb.png,dog\nother.png,cow\nother.png,cow\n",
        ],
    )
    def test_what_people_write(self, tmp_path, text):
        assert of(self.read(tmp_path, text), ["a/1.png", "b.png"]) == ["cat", "dog"]

    @pytest.mark.parametrize(
        ("text", "code"),
        [
            ("", "labels-damaged"),
            ("a.png\n", "labels-damaged"),
            ("a.png,cat\nb.png,dog,3\n", "labels-damaged"),
            ("id,label\na,b,c\n", "labels-damaged"),
            ("a.png,cat\na.png,dog\n", "label-conflict"),
            ('a.png,"cat\n', "bad-csv"),
        ],
    )
    def test_bad_ones(self, tmp_path, text, code):
        with pytest.raises(DataError) as caught:
            self.read(tmp_path, text)
        assert caught.value.code == code
        assert "labels.csv" in str(caught.value)
        assert str(caught.value).isprintable()


class TestDatasetJson:
    ENTRIES = (["00000/img0.png", 6], ["00000/img1.png", 10])

    def test_in_a_folder(self, tmp_path):
        (tmp_path / "dataset.json").write_text(json.dumps({"labels": self.ENTRIES}))
        labels = open_labels(None, tmp_path, "real")
        assert of(labels, ["00000/img1.png", "00000/img0.png", "x.png"]) == ["10", "6", None]
        assert "dataset.json" in labels.origin
        assert isinstance(open_labels("folders", tmp_path, "real"), FolderLabels)

    @pytest.mark.parametrize("top", ["", "ds/"])
    def test_in_a_zip(self, tmp_path, top):
        with zipfile.ZipFile(tmp_path / "d.zip", "w") as archive:
            archive.writestr(f"{top}dataset.json", json.dumps({"labels": self.ENTRIES}))
            archive.writestr(f"{top}deep/dataset.json", "{}")
        labels = open_labels(None, tmp_path / "d.zip", "real")
        assert of(labels, [f"{top}00000/img0.png"]) == ["6"]

    @pytest.mark.parametrize(
        ("text", "code"),
        [
            ('{"labels": null}', "no-labels"),
            ("{", "labels-damaged"),
            ("[" * 100_000, "labels-damaged"),
            ("[]", "labels-damaged"),
            ("{}", "labels-damaged"),
            ('{"labels": [["a.png"]]}', "labels-damaged"),
            ('{"labels": [[3, "a.png"]]}', "labels-damaged"),
            ('{"labels": [["a.png", [0, 1]]]}', "label-kind"),
            ('{"labels": [["a.png", 0.5]]}', "label-kind"),
            ('{"labels": [["a.png", true]]}', "label-kind"),
        ],
    )
    def test_bad_ones(self, tmp_path, text, code):
        path = tmp_path / "dataset.json"
        path.write_text(text)
        with pytest.raises(DataError) as caught:
            open_labels(None, tmp_path, "real")
        assert caught.value.code == code
        assert "\n" not in str(caught.value)


class TestRows:
    @pytest.mark.parametrize(
        "labels",
        [
            [3, 1],
            ("3", "1"),
            np.array([3, 1], np.uint8),
            np.array(["3", "1"]),
            np.array(["3", 1], object),
            torch.tensor([3, 1]),
        ],
    )
    def test_sequences(self, labels):
        assert of(open_labels(labels, "x", "real"), ["[0]", "[1]"]) == ["3", "1"]

    def test_files(self, tmp_path):
        np.save(tmp_path / "l.npy", np.array([0, 7]))
        assert of(open_labels(str(tmp_path / "l.npy"), "x", "real"), ["p", "q"]) == ["0", "7"]
        np.savez(tmp_path / "s.npz", np.zeros((2, 4, 4, 3), np.uint8), np.array([4, 2]))
        assert of(open_labels(None, tmp_path / "s.npz", "real"), ["[0]", "[1]"]) == ["4", "2"]
        np.savez(tmp_path / "t.npz", np.zeros((2, 4, 4, 3), np.uint8))
        assert isinstance(open_labels(None, tmp_path / "t.npz", "real"), FolderLabels)

    @pytest.mark.parametrize(
        "labels", [np.eye(3), np.array([0.5, 1]), [1.0], [True], b"ab", {"a": 1}, 7, [[1]]], ids=str
    )
    def test_what_is_no_class(self, labels):
        with pytest.raises(DataError, match="one class per image") as caught:
            open_labels(labels, "x", "real")
        assert caught.value.code == "label-kind"

    def test_pickles_are_not_opened(self, tmp_path):
        np.save(tmp_path / "l.npy", np.array([{}], object))
        with pytest.raises(DataError, match=r"not an intact \.npy file"):
            open_labels(tmp_path / "l.npy", "x", "real")


@pytest.mark.parametrize("name", ["none.csv", "x" * 4000, "labels", "a\0b"])
def test_no_such_file(tmp_path, name):
    with pytest.raises(UsageError, match="there is no file") as caught:
        open_labels(str(tmp_path / name), "x", "fake")
    assert caught.value.code == "path-not-found"


class TestSides:
    def check(self, real, fake, *, action="error", share=0.01):
        sides = [
            LabeledImages(
                role, f"{role}/", "sub-folders", [f"{role}{i}.png" for i in range(len(labels))], labels
            )
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
            (["00", "Cat"], ["0", "cat"], "labels-disagree", "letter by letter"),
        ],
    )
    def test_what_does_not_fit(self, real, fake, code, words):
        with pytest.raises(DataError, match=words) as caught:
            self.check(real, fake)
        assert caught.value.code == code

    def test_images_without_a_label_may_be_left_out(self):
        real = ["a", "b"] * 10
        self.check(real, [*real[:19], None], action="skip", share=0.05)
        with pytest.raises(DataError, match=r"at most 4\.0% may be left out"):
            self.check(real, [*real[:19], None], action="skip", share=0.04)
