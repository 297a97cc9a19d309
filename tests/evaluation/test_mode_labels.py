"""Labels of `genpr modes`: those of `genpr score --per-class`, but none need be there."""

from __future__ import annotations

import json
import zipfile

import numpy as np
import pytest

from genpr.errors import DataError, UsageError
from genpr.evaluation.labels import FolderLabels, look_like_classes
from genpr.evaluation.modes import find_modes
from genpr.features.source_features import Embedder
from genpr.images.policy import BadImagePolicy
from genpr.report.detail_tables import modes_table

KINDS = ("ant", "bee", "cat", "dog")
STRICT = BadImagePolicy("error", 0.01)


@pytest.fixture(scope="module")
def sides():
    """120 reals of four kinds; the 90 fakes lack cats and have eels instead, which the reals lack."""
    rng = np.random.default_rng(0)
    centers = 8 * rng.normal(size=(5, 6))
    real, fake = np.arange(120) % 4, np.array([0, 1, 3, 4])[np.arange(90) % 4]
    drawn = [(centers[kinds] + rng.normal(size=(len(kinds), 6))).astype(np.float32) for kinds in (real, fake)]
    names = [[(*KINDS, "eel")[kind] for kind in kinds] for kinds in (real, fake)]
    return drawn, names


def found_in(sides, **options):
    return find_modes(*sides[0], clusters=5, device="cpu", **options)


def named(found):
    """Classes of the first missed and of the first invented cluster."""
    modes = found.modes
    clusters = modes.missed[0].classes, modes.invented[0].classes
    return [each[0][0] if each else None for each in clusters]


def test_labels_of_both_sides_name_what_is_missed_and_what_is_invented(sides):
    found = found_in(sides, real_labels=sides[1][0], fake_labels=np.array(sides[1][1]))
    assert named(found) == ["cat", "eel"]
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
    """60 reals, light and dark by turns, and 60 fakes that are dark."""
    kinds = ["dark", "light"] * 30
    return kinds, pixels(rng, kinds), pixels(rng, ["dark"] * 60)


@pytest.mark.parametrize("how", ["dataset.json", "zip", "arr_1"])
def test_what_the_source_says_is_found(shaded, write_images, tmp_path, how):
    kinds, real, fake = shaded
    fakes = write_images("fake", fake)
    if how == "arr_1":
        source = tmp_path / "real.npz"
        np.savez(source, arr_0=real, arr_1=np.array(kinds))
    else:
        source = write_images("real", real)
        pairs = [[f"{row:05}.png", kind] for row, kind in enumerate(kinds)]
        (source / "dataset.json").write_text(json.dumps({"labels": pairs}))
        if how == "zip":
            with zipfile.ZipFile(tmp_path / "real.zip", "w") as archive:
                for path in sorted(source.iterdir()):
                    archive.write(path, f"inside/{path.name}")
            source = tmp_path / "real.zip"
    found = find_modes(source, fakes, **OPTIONS)
    assert named(found)[0] == "light"
    assert set(found.origins) == {"real"}, "the fakes have none, and need none"


@pytest.mark.parametrize(
    ("labels", "code"),
    [
        ({"real_labels": "none.csv"}, "path-not-found"),
        ({"fake_labels": "labels.txt"}, "labels-kind"),
        ({"real_labels": ["a"] * 59}, "label-count"),
        ({"fake_labels": ["a"] * 61}, "label-count"),
        ({"real_labels": ["a"] * 50 + [None] * 10}, "unlabeled"),
        ({"fake_labels": "other.csv"}, "labels-match-nothing"),
        ({"real_labels": "folders"}, "unlabeled"),
        ({"real_labels": [0.5] * 60}, "label-kind"),
    ],
    ids=range(8),
)
def test_labels_that_do_not_fit_are_told_before_anything_is_embedded(
    shaded, write_images, tmp_path, monkeypatch, labels, code
):
    monkeypatch.setattr(Embedder, "embed", lambda *_: pytest.fail("embedded"))
    _, real, fake = shaded
    folders = write_images("real", real), write_images("fake", fake)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "labels.txt").write_text("a")
    (tmp_path / "other.csv").write_text("x.png,a\ny.png,b\n")
    with pytest.raises((DataError, UsageError)) as raised:
        find_modes(*folders, **labels, **OPTIONS)
    assert raised.value.code == code


def labels_of(names):
    return FolderLabels().match(names, range(len(names)), len(names))


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ([f"{folder}/{row}.png" for folder in "ab" for row in range(10)], True),
        ([f"train/{folder}/x/{row}.png" for folder in "ab" for row in range(10)], True),
        ([f"a/{row}.png" for row in range(20)], False),
        ([f"{row}.png" for row in range(20)], False),
        ([f"{folder}/{row}.png" for folder in "ab" for row in range(9)], False),
        ([*(f"{folder}/{row}.png" for folder in "ab" for row in range(10)), "top.png"], False),
        ([], False),
    ],
)
def test_folders_that_nobody_calls_classes_must_look_like_some(names, expected):
    assert look_like_classes(labels_of(names)) is expected
