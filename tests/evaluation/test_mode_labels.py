"""Labels of `genpr modes`: those of `genpr score --per-class`, but none need be there."""

import json

import numpy as np
import pytest

from genpr.errors import DataError, UsageError
from genpr.evaluation.labels import FolderLabels, look_like_classes
from genpr.evaluation.modes import find_modes
from genpr.features.source_features import Embedder
from genpr.report.detail_tables import modes_table

KINDS = ("ant", "bee", "cat", "dog")


@pytest.fixture(scope="module")
def sides():
    """120 reals of four kinds; the 90 fakes lack cats and have eels instead, which the reals lack."""
    rng = np.random.default_rng(0)
    centers = 8 * rng.normal(size=(5, 6))
    real, fake = np.arange(120) % 4, np.array([0, 1, 3, 4])[np.arange(90) % 4]
    drawn = [(centers[kinds] + rng.normal(size=(len(kinds), 6))).astype(np.float32) for kinds in (real, fake)]
    names = [[(*KINDS, "eel")[kind] for kind in kinds] for kinds in (real, fake)]
    return drawn, names


def test_labels_of_both_sides_name_what_is_missed_and_what_is_invented(sides):
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
    """60 reals, light and dark by turns, and 60 fakes that are dark."""
    kinds = ["dark", "light"] * 30
    return kinds, pixels(rng, kinds), pixels(rng, ["dark"] * 60)


def test_what_the_source_says_is_found(shaded, write_images):
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
def test_labels_that_do_not_fit_are_told_first(shaded, write_images, monkeypatch, labels, code):
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
def test_folders_that_nobody_calls_classes_must_look_like_some(names, expected):
    assert look_like_classes(FolderLabels().match(names, range(len(names)), len(names))) is expected
