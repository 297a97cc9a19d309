"""Per-class scores equal scores of the images of each class; averages, order and classes that are left out."""

import json
import math

import numpy as np
import pytest
import torch
from raising import raising

import genpr
from genpr.errors import DataError, UsageError
from genpr.evaluation.per_class import worst_first
from genpr.evaluation.result import ClassScore, LeftOutClass, result_of
from genpr.images.source import choose_rows
from genpr.metrics.metric import MetricValue
from genpr.metrics.registry import DEFAULT_METRICS
from genpr.metrics.uncertainty import interval_of

NAMES = ["<b>", "cat", "dog"]
SIZES_REAL = {"<b>": 30, "cat": 24, "dog": 18, "few": 7, "unmatched": 5}
SIZES_FAKE = {"<b>": 20, "cat": 26, "dog": 30, "few": 20, "new": 9}


def draw(rng, sizes, worse=()):
    labels = np.array([label for label, n in sizes.items() for _ in range(n)])
    centers = {label: 20 * place for place, label in enumerate(sorted({*SIZES_REAL, *SIZES_FAKE}))}
    points = rng.normal(size=(len(labels), 3))
    points[:, 0] += [centers[label] for label in labels]
    points[np.isin(labels, worse)] += 1.0
    order = rng.permutation(len(labels))
    return points[order], labels[order]


@pytest.fixture(scope="module")
def sides():
    rng = np.random.default_rng(0)
    return draw(rng, SIZES_REAL), draw(rng, SIZES_FAKE, worse=["cat"])


@pytest.fixture(scope="module")
def scores(sides):
    (real, real_labels), (fake, fake_labels) = sides
    evaluator = genpr.Evaluator(real, control=False)
    return evaluator.score_classes(fake, real_labels=real_labels, fake_labels=fake_labels, min_per_class=12)


def test_each_class_scores_as_its_images(sides, scores):
    (real, real_labels), (fake, fake_labels) = sides
    assert sorted(found.label for found in scores.classes) == NAMES
    for found in scores.classes:
        own = real[real_labels == found.label], fake[fake_labels == found.label]
        alone = genpr.score(*own, metrics=[*DEFAULT_METRICS, "fd", "kd"], control=False)
        assert dict(found.metrics) == dict(alone.metrics), "values, nulls, intervals and replicates"
        assert (found.n_real, found.n_fake) == (alone.real.n, alone.fake.n)
    assert scores["cat"].metrics["fd"].interval is not None
    assert scores["cat"].metrics["fd"].bias > 0
    assert scores["cat"]["precision"] == scores["cat"].metrics["precision"].value
    with pytest.raises(KeyError):
        scores["few"]


def test_classes_that_are_left_out_have_a_reason(scores):
    assert set(scores.left_out) == {
        LeftOutClass("few", 7, 20, "too few reals"),
        LeftOutClass("unmatched", 5, 0, "no fakes"),
        LeftOutClass("new", 0, 9, "no reals"),
    }


def test_a_class_with_exactly_the_least_number_of_images_is_scored():
    x, labels = np.random.default_rng(0).normal(size=(40, 3)), ["a"] * 20 + ["b"] * 20
    evaluator = genpr.Evaluator(x, control=False, intervals=False)
    found = evaluator.score_classes(x + 0.1, real_labels=labels, fake_labels=labels, min_per_class=20)
    assert not found.left_out


def test_averages_equal_their_definitions(scores):
    for name in ("precision", "recall", "density", "coverage"):
        values = [found[name] for found in scores.classes]
        nulls = [found.metrics[name].null for found in scores.classes]
        assert scores.macro[name].value == pytest.approx(np.mean(values), abs=1e-12)
        assert scores.macro[name].null == pytest.approx(np.mean(nulls), abs=1e-12)
        over = [each.n_fake if name in {"precision", "density"} else each.n_real for each in scores.classes]
        assert scores.micro[name].value == pytest.approx(np.average(values, weights=over), abs=1e-12)
    hits = sum(round(found["recall"] * found.n_real) for found in scores.classes)
    assert scores.micro["recall"].value == pytest.approx(hits / sum(SIZES_REAL[name] for name in NAMES))
    assert scores.macro["recall"].value != pytest.approx(scores.micro["recall"].value)


def test_interval_of_an_average(scores):
    replicates = np.array([found.metrics["recall"].replicates for found in scores.classes])
    sizes = np.array([found.n_real for found in scores.classes])
    mean, n = torch.tensor(replicates.mean(axis=0)), int(9 / (1 / sizes).sum())
    expected = interval_of(scores.macro["recall"].value, mean, n=n)
    assert scores.macro["recall"].interval == pytest.approx((expected.low, expected.high), abs=1e-12)
    low, high = scores.macro["recall"].interval
    narrowest = min(np.diff(found.metrics["recall"].interval)[0] for found in scores.classes)
    assert high - low < narrowest, "several classes together are known better than any"


def metric(value, null=1.0, **more):
    return MetricValue(value, 3, null=null, null_source="closed form", **more)


def test_classes_are_ordered_by_value_over_null_cut_at_one():
    rich = ClassScore("dense", 60, 60, {"density": metric(9.0), "recall": metric(0.2)})
    even = ClassScore("even", 60, 60, {"density": metric(0.8), "recall": metric(0.8)})
    assert [found.label for found in worst_first([even, rich])] == ["dense", "even"]
    assert rich.mean_relative == pytest.approx(0.6)


@pytest.mark.parametrize(
    ("options", "kind", "code"),
    [
        *(({"min_per_class": n}, UsageError, "bad-option") for n in (5, 0, True, 20.5)),
        ({"evaluator": {"metrics": ["vendi"]}}, UsageError, "per-class-metrics"),
        ({"evaluator": {"metrics": ["fd_infinity"]}, "min_per_class": 2}, UsageError, "bad-option"),
        ({}, DataError, "classes-too-small"),
        ({"real_labels": None, "fake_labels": None}, DataError, "no-labels"),
    ],
    ids=range(8),
)
def test_invalid_options_and_labels_are_errors(rng, options, kind, code):
    real, fake = rng.normal(size=(2, 40, 2))
    evaluator = genpr.Evaluator(real, control=False, intervals=False, **options.pop("evaluator", {}))
    with raising(kind, code):
        labels = dict.fromkeys(("real_labels", "fake_labels"), ["a", "b"] * 20)
        evaluator.score_classes(fake, **labels | options)


@pytest.mark.parametrize("protocol", ["kynkaanniemi2019", "adm", "stylegan3", "dgm-eval"])
def test_protocols_of_whole_sets_are_an_error(protocol, rng):
    real, fake = rng.normal(size=(2, 20, 2))
    evaluator = genpr.Evaluator(real, protocol=protocol, metrics=["precision"], control=False)
    with raising(UsageError, "protocol-pinned"):
        evaluator.score_classes(fake)


def test_random_subset_keeps_the_label_of_each_image(rng):
    labels = rng.permutation(np.repeat(["a", "b"], 40))
    real, fake = rng.normal(size=(2, 80, 2)) + 100 * (labels == "b")[:, None]
    evaluator = genpr.Evaluator(real, control=False, intervals=False, max_images=60)
    found = evaluator.score_classes(fake, real_labels=labels, fake_labels=labels, min_per_class=12)
    rows = choose_rows(80, 60, 0)
    for each in found.classes:
        own = rows[labels[rows] == each.label]
        metrics = [*DEFAULT_METRICS, "fd", "kd"]
        alone = genpr.score(real[own], fake[own], metrics=metrics, control=False, intervals=False)
        assert (each.n_real, dict(each.metrics)) == (len(own), dict(alone.metrics))


@pytest.mark.parametrize("place", [0, 1])
def test_metric_that_is_undefined_in_a_class_has_no_average(rng, place):
    """No open ball of equal reals holds another of them, so the null of precision is 0."""
    labels = np.repeat(["a", "b"], 20)
    real, fake = rng.normal(size=(2, 40, 3))
    real[labels == "ab"[place]] = 1.0
    options = {"real_labels": labels, "fake_labels": labels, "min_per_class": 12}
    found = genpr.Evaluator(real, ties="strict", control=False).score_classes(fake, **options)
    assert "calibrated_precision" in found["ba"[place]].metrics
    assert "calibrated_precision" not in found["ab"[place]].metrics
    assert set(found.micro) == {"precision", "recall", "density", "coverage"}
    assert set(found.macro) == {*found.micro, "fd", "kd"}
    assert found.to_json()
    calibrated = genpr.Evaluator(real, ties="strict", metrics=["calibrated_precision"], control=False)
    found = calibrated.score_classes(fake, **options)
    assert found.macro == {}
    assert found.classes[0].label == "ab"[place]
    assert found.classes[0].mean_relative == 0


def test_mismatched_labels_are_an_error_before_anything_is_embedded(write_images, tmp_path, rng):
    for side in ("real", "fake"):
        for label in ("cat", "dog"):
            write_images(f"{side}/{label}", rng.integers(0, 255, (14, 8, 8, 3), dtype=np.uint8))
    text = "".join(f"{c}/{i:05d}.png,{n}\n" for n, c in enumerate(("cat", "dog")) for i in range(14))
    (tmp_path / "fake.csv").write_text(text)
    stages = []
    options = {"extractor": "pixels", "control": False, "progress": lambda stage, *_: stages.append(stage)}
    evaluator = genpr.Evaluator(tmp_path / "real", **options)
    with pytest.raises(DataError, match=r"real has 2 classes .*cat \(14\).* fake has 2 classes .* 0 \(14\)"):
        evaluator.score_classes(tmp_path / "fake", fake_labels=tmp_path / "fake.csv", min_per_class=10)
    assert "fake" not in stages


def test_json_has_all_values_and_no_nan(scores):
    record = json.loads(scores.to_json())
    found = record["per_class"]
    assert len(found["classes"]) == 3
    assert len(found["left_out"]) == 3
    assert found["macro"]["recall"]["value"] == scores.macro["recall"].value
    assert found["classes"][0]["standing"] == scores.classes[0].mean_relative
    assert "replicates" not in found["classes"][0]["metrics"]["recall"]
    assert scores.classes[0].metrics["recall"].replicates is not None
    assert result_of(record) == result_of(json.loads(scores.overall.to_json())), "genpr compare reads it"
    assert all(math.isfinite(each["value"]) for each in found["micro"].values())


def test_minimum_width_of_an_average_is_that_of_as_many_fakes(rng):
    """Fakes that are all precise, in every half: the exact binomial bound of n hits of n."""
    labels = {side: np.repeat(["a", "b"], sizes) for side, sizes in (("real", (40, 50)), ("fake", (30, 60)))}
    centers = {side: np.where(own == "a", 0.0, 50.0)[:, None] for side, own in labels.items()}
    real = centers["real"] + rng.normal(size=(90, 2))
    fake = centers["fake"] + 1e-3 * rng.normal(size=(90, 2))
    evaluator = genpr.Evaluator(real, metrics=["precision"], control=False)
    found = evaluator.score_classes(
        fake, real_labels=labels["real"], fake_labels=labels["fake"], min_per_class=30
    )
    for averages, n in ((found.macro, 80), (found.micro, 90)):  # 4 / (1 / 30 + 1 / 60), and all
        assert averages["precision"].interval == pytest.approx((0.025 ** (1 / n), 1.0))
