"""Notices of the order and the number of fakes: when they appear and when not."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

import genpr
from genpr.cli.main import run
from genpr.evaluation import protocols
from genpr.evaluation.protocols import find_protocol
from genpr.features.extractor import ExtractorInfo
from genpr.features.feature_set import FeatureSet

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
