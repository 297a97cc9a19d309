"""Notices of the order, the classes and the number of fakes: when they appear and when not."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

import genpr
from genpr.cli.main import run
from genpr.evaluation import protocols
from genpr.evaluation.protocols import find_protocol
from genpr.features.extractor import ExtractorInfo
from genpr.features.feature_set import FeatureSet
from genpr.images.source import choose_rows

CHUNK = 200


@pytest.fixture
def change_protocol(monkeypatch):
    def change(name, **fields):
        changed = {**protocols.PROTOCOLS, name: replace(find_protocol(name), **fields)}
        monkeypatch.setattr(protocols, "PROTOCOLS", changed)

    return change


def notice_of(result, code):
    found = [item.message for item in result.notices if item.code == code]
    assert len(found) <= 1
    return found[0] if found else None


# The order of classes ----------------------------------------------------------------------------------------


def probabilities(labels, rng, classes=20):
    logits = rng.normal(size=(len(labels), classes)) + 6.0 * np.eye(classes)[labels]
    logits = np.exp(logits)
    return logits / logits.sum(axis=1, keepdims=True)


def score_in_parts(p):
    """The definition in float64."""
    parts = [p[start : start + CHUNK] for start in range(0, len(p), CHUNK)]
    scores = [np.exp((part * np.log(part / part.mean(axis=0))).sum(axis=1).mean()) for part in parts]
    return np.mean(scores)


@pytest.fixture
def inception_score_of(change_protocol):
    """Score probabilities under adm, with small parts and no numbers of images."""
    space = "inception-softmax"
    change_protocol("adm", extractor=space, inception_score_split_size=CHUNK, n_real=None, n_fake=None)

    def score(p):
        info = ExtractorInfo(space, p.shape[1], "none", None, comparable=True, cache_key="0" * 64)
        sets = (FeatureSet(torch.from_numpy(p), "s", info) for _ in range(2))
        return genpr.score(*sets, protocol="adm", metrics=["is"], control=False, device="cpu")

    return score


def test_class_ordered_samples_are_reported_with_both_scores(inception_score_of, rng):
    p = probabilities(np.sort(np.arange(5 * CHUNK) % 20), rng)
    message = notice_of(inception_score_of(p), "class-ordered-samples")
    shuffled = score_in_parts(p[np.random.RandomState(2020).permutation(len(p))])
    assert f"is {score_in_parts(p):.4g} in parts of 200" in message
    assert f"{shuffled:.4g} in the same parts of shuffled images" in message
    assert shuffled > 3 * score_in_parts(p)


def test_randomly_ordered_samples_and_single_parts_are_not_reported(inception_score_of, rng):
    labels = np.arange(2 * CHUNK) % 20
    for _ in range(6):
        random = probabilities(rng.permutation(labels), rng)
        assert notice_of(inception_score_of(random), "class-ordered-samples") is None
    ends = np.concatenate([random, random[random.argmax(axis=1) == 3][:8]])
    assert notice_of(inception_score_of(ends), "class-ordered-samples") is None, "a part of 8 of one class"
    ordered = probabilities(np.arange(2 * CHUNK - 1) // 20, rng)
    assert notice_of(inception_score_of(ordered), "class-ordered-samples") is None, "one whole part"


# The balance of classes --------------------------------------------------------------------------------------


@pytest.fixture
def score_labeled(change_protocol, rng, tmp_path):
    """Score fakes with labels in arr_1 or as folders under a protocol that expects balanced ones."""

    def score(stated, *, balanced=True, folder=None, **options):
        change_protocol("prdc", balanced_labels=balanced, max_fake=60)
        reals, images = (rng.integers(0, 256, (n, 8, 8, 3), dtype=np.uint8) for n in (20, len(stated)))
        fakes = tmp_path / (folder or "fakes.npz")
        if folder is None:
            np.savez(fakes, arr_0=images, arr_1=stated)
        for row, label in enumerate(stated if folder else ()):
            (fakes / str(label)).mkdir(parents=True, exist_ok=True)
            Image.fromarray(images[row]).save(fakes / str(label) / f"{row}.png")
        options = {"extractor": "pixels", "control": False, "device": "cpu", **options}
        return notice_of(genpr.score(reals, fakes, protocol="prdc", **options), "unbalanced-labels")

    return score


def test_unequal_class_sizes_are_reported_if_the_protocol_expects_equal_ones(score_labeled, tmp_path):
    message = score_labeled(np.repeat([0, 1, 2], [10, 7, 13]))
    assert "prdc expects" in message
    assert "of 3 classes 1 has 7 and 2 has 13 fakes" in message
    assert "0 has 9 and 1 has 12 fakes" in score_labeled(np.repeat([0, 1], [9, 12]), folder="classes")
    (tmp_path / "labels.csv").write_text("".join(f"[{row}],{row < 12}\n" for row in range(30)))
    given = genpr.LabelOptions(fake_labels=tmp_path / "labels.csv", real_labels=["True", "False"] * 10)
    assert "False has 18" in score_labeled(np.arange(30) % 3, labels=given)
    used = np.bincount(choose_rows(90, 60, 0) // 45)
    assert f"1 has {used[1]} and 0 has {used[0]} fakes" in score_labeled(np.arange(90) // 45)


def test_balanced_unknown_and_irrelevant_classes_are_not_reported(score_labeled):
    assert score_labeled(np.arange(31) % 3) is None, "11, 10 and 10 cannot be more equal"
    assert score_labeled(np.repeat([0, 1], [10, 20]), balanced=False) is None
    assert score_labeled(np.zeros((20, 2))) is None, "no labels, and no metric needs any"
    few = np.repeat([0, 1, 2], [5, 6, 9])
    assert score_labeled(few, folder="shards") is None, "folders of fewer than 10 images"


# Vendi -------------------------------------------------------------------------------------------------------


def test_command_reports_few_images_for_vendi(capsys, rng, tmp_path):
    rows = rng.normal(size=(20_000, 3))
    for n in (19_999, 20_000):
        np.save(tmp_path / "f.npy", rows[:n])
        np.save(tmp_path / "r.npy", rows[:10])
        sides = map(str, (tmp_path / "r.npy", tmp_path / "f.npy"))
        assert run(["score", *sides, "--metrics", "vendi", "--no-control", "--json"]) == 0
        notices = {item["code"]: item["message"] for item in json.loads(capsys.readouterr().out)["notices"]}
        assert ("vendi of 19,999" in notices.get("vendi-not-converged", "")) == (n == 19_999)
