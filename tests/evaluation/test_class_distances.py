"""Distances per class, and their unweighted mean, which is known as intra-FID."""

import json
import math

import numpy as np
import pytest
import torch
from raising import raising
from scipy.linalg import sqrtm

import genpr
from genpr.errors import FeatureError, UsageError
from genpr.evaluation.per_class import worst_first
from genpr.evaluation.result import ClassScore
from genpr.metrics.metric import MetricValue
from genpr.metrics.registry import DEFAULT_METRICS
from genpr.metrics.uncertainty import standard_error, student_quantile
from genpr.report.score_tables import result_text
from genpr.report.text import number

DISTANCES = ["fd", "fd_infinity", "kd", "mind"]


class QuarterMeans:
    """Gray means of the four quarters of an image."""

    name, dim = "quarter-means", 4

    def __call__(self, images):
        return torch.nn.functional.adaptive_avg_pool2d(images.float().mean(dim=1, keepdim=True), 2).flatten(1)


def frechet(real, fake):
    """The distance by the matrix square root, as in the code of its authors."""
    of_real, of_fake = (np.cov(each, rowvar=False) for each in (real, fake))
    shift = real.mean(axis=0) - fake.mean(axis=0)
    return shift @ shift + np.trace(of_real + of_fake - 2 * sqrtm(of_real @ of_fake).real)


def draw(rng, sizes, d=4, shift=0.0, spread=1.0):
    """Classes with distant means, in random order; `sizes` are by label."""
    labels = rng.permutation(np.repeat([*sizes], [*sizes.values()]))
    centers = {label: 9.0 * at for at, label in enumerate(sizes)}
    points = spread * rng.normal(size=(len(labels), d)) + shift
    return points + np.array([centers[label] for label in labels])[:, None], labels


def score_classes(sides, *, metrics=None, least=20, **options):
    (real, real_labels), (fake, fake_labels) = sides
    evaluator = genpr.Evaluator(real, metrics=metrics, **{"control": False} | options)
    return evaluator.score_classes(
        fake, real_labels=real_labels, fake_labels=fake_labels, min_per_class=least
    )


def test_intra_fid_with_all_training_images_of_a_class_and_fewer_samples(rng):
    """takuhirok/rGAN#2, takuhirok/NR-GAN#4: all training images of a class against the samples of this class."""
    sizes = {"plane": 90, "car": 70, "ship": 60}
    sides = draw(rng, sizes), draw(rng, dict.fromkeys(sizes, 40), shift=0.3)
    found = score_classes(sides, metrics=["fd"])
    (real, real_labels), (fake, fake_labels) = sides
    own = {name: (real[real_labels == name], fake[fake_labels == name]) for name in sizes}
    for name, pair in own.items():
        assert found[name]["fd"] == pytest.approx(frechet(*pair), rel=1e-5)
        assert (found[name].n_real, found[name].n_fake) == (sizes[name], 40)
    assert found.macro["fd"].value == pytest.approx(
        np.mean([frechet(*each) for each in own.values()]), rel=1e-5
    )
    assert found.overall["fd"] == pytest.approx(frechet(real, fake), rel=1e-5)
    assert "intra-FID" in result_text(found.overall, found)


def test_fid_of_each_class_is_that_of_a_run_on_its_images(write_images, tmp_path, rng):
    """batmanlab/twin-auxiliary-classifiers-gan#4: FID of each class of a data set in folders by class."""
    for side, high in (("real", 256), ("fake", 200)):
        for label in ("apple", "beaver", "bowl"):
            write_images(f"{side}/{label}", rng.integers(0, high, (24, 8, 8, 3), dtype=np.uint8))
    options = {"extractor": QuarterMeans(), "control": False}
    metrics = ["precision", *DISTANCES]
    found = genpr.Evaluator(tmp_path / "real", metrics=metrics, **options).score_classes(
        tmp_path / "fake", min_per_class=20
    )
    for each in found.classes:
        own = (tmp_path / side / each.label for side in ("real", "fake"))
        alone = genpr.score(*own, metrics=metrics, **options)
        # A result names the extractor of each metric, too.
        assert [*each.metrics] == ["precision", *DISTANCES]
        for name, value in each.metrics.items():
            assert (value.value, value.interval) == (alone[name], alone.metrics[name].interval)
            assert (value.bias, value.variant) == (alone.metrics[name].bias, alone.metrics[name].variant)
    assert set(found.macro) == {"precision", *DISTANCES}
    assert set(found.micro) == {"precision"}, "no weighted mean of distances is published"


def test_mean_and_not_sum_over_classes_in_one_command(rng):
    """POSTECH-CVLab/PyTorch-StudioGAN#180, pfnet-research/sngan_projection#34: where intra-FID is, and that it is a mean."""
    sizes = dict.fromkeys("abcd", 30)
    found = score_classes((draw(rng, sizes), draw(rng, sizes, spread=0.8)))
    record = json.loads(found.to_json())["per_class"]
    values = [each["metrics"]["fd"]["value"] for each in record["classes"]]
    assert record["macro"]["fd"]["value"] == pytest.approx(math.fsum(values) / 4, rel=1e-12)
    biases = [each["metrics"]["fd"]["bias"] for each in record["classes"]]
    assert record["macro"]["fd"]["bias"] == pytest.approx(math.fsum(biases) / 4, rel=1e-12)
    assert [*record["macro"]] == [*DEFAULT_METRICS, "fd", "kd"], "distances are computed by default"
    assert [*found.overall.metrics] == [*DEFAULT_METRICS], "the score of all images stays as it is"


def test_intra_fid_is_not_the_fid_of_all_images(rng):
    """rosinality/sagan-pytorch#7: a swap of two classes leaves FID as it is, and shows in intra-FID."""
    sizes = dict.fromkeys("ab", 200)
    (real, labels), (fake, own) = draw(rng, sizes), draw(rng, sizes)
    swapped = np.where(own == "a", "b", "a")
    right, wrong = (score_classes(((real, labels), (fake, each)), metrics=["fd"]) for each in (own, swapped))
    assert right.overall["fd"] == wrong.overall["fd"] < 1
    assert right.macro["fd"].value < 1
    assert wrong.macro["fd"].value == pytest.approx(4 * 9.0**2, rel=0.1)


def test_interval_and_bias_of_intra_fid_contain_the_expectation(rng):
    """Of perfect generators, whose intra-FID is its bias: 60 draws of three classes of 200 images."""
    sizes, inside, biases, values = dict.fromkeys("abc", 200), 0, [], []
    expected = np.mean([frechet(*rng.normal(size=(2, 200, 4))) for _ in range(400)])
    for _ in range(60):
        found = score_classes((draw(rng, sizes), draw(rng, sizes)), metrics=["fd"]).macro["fd"]
        inside += found.interval[0] <= expected <= found.interval[1]
        biases.append(found.bias)
        values.append(found.value)
    assert inside >= 52
    assert np.mean(biases) == pytest.approx(np.mean(values), rel=0.15)


def test_interval_of_a_mean_distance_by_its_definition(rng):
    sizes = {"a": 40, "b": 60}
    found = score_classes((draw(rng, sizes), draw(rng, sizes, shift=0.5)), metrics=["fd", "kd"])
    for name in ("fd", "kd"):
        mean = np.mean([each.metrics[name].replicates for each in found.classes], axis=0)
        half = student_quantile(len(mean)) * standard_error(mean)
        average = found.macro[name]
        assert average.interval == pytest.approx((average.value - half, average.value + half), abs=1e-9)


def test_lower_bounds_of_unbiased_means_may_be_negative(rng):
    sizes = dict.fromkeys("abc", 100)
    found = score_classes((draw(rng, sizes, d=8), draw(rng, sizes, d=8)), metrics=["fd", "kd", "mind"])
    assert found.macro["kd"].interval[0] < 0
    assert found.macro["kd"].bias is None
    assert min(found.macro[name].interval[0] for name in ("fd", "mind")) >= 0


def test_classes_without_more_images_than_dimensions_are_reported(rng):
    """Covariances of rank 29 at most: no interval, no bias, and a notice; more images have all of them."""
    few, many = {"a": 30, "b": 31}, {"a": 31, "b": 40}
    for sizes, count in ((few, "1 of 2"), (many, None)):
        found = score_classes((draw(rng, sizes, d=30), draw(rng, sizes, d=30)), metrics=["fd", "kd"])
        notices = [each for each in found.overall.notices if each.code == "few-images-per-class"]
        assert [count in each.message for each in notices] == [True] * (count is not None)
        assert (
            (found["a"].metrics["fd"].interval is None)
            == (found["a"].metrics["fd"].bias is None)
            == bool(count)
        )
        assert (found.macro["fd"].interval is None) == (found.macro["fd"].bias is None) == bool(count)
        assert found.macro["kd"].interval is not None
    only_kd = score_classes((draw(rng, few, d=30), draw(rng, few, d=30)), metrics=["kd"])
    assert "few-images-per-class" not in {each.code for each in only_kd.overall.notices}


def of(label, **metrics):
    values = {
        name: MetricValue(value, 3, null=1.0, null_source="closed form")
        if name == "recall"
        else MetricValue(value, None)
        for name, value in metrics.items()
    }
    return ClassScore(label, 60, 60, values)


def test_order_of_classes():
    """By metrics with a null where there are any, else by the mean rank of distances, of which more is worse."""
    near, far = of("near", recall=0.5, fd=1.0), of("far", recall=0.9, fd=90.0)
    assert worst_first([far, near]) == (near, far)
    assert (near.mean_relative, far.mean_relative) == (0.5, 0.9)
    tied = of("tied", recall=0.5, fd=2.0)
    assert worst_first([near, far, tied]) == (tied, near, far)
    classes = [of("a", fd=1e6, kd=-0.4), of("b", fd=2.0, kd=0.5), of("c", fd=1.0, kd=-0.3)]
    assert [each.label for each in worst_first(classes)] == ["b", "a", "c"]
    assert classes[0].mean_relative is None


def test_metrics_that_classes_do_not_have_are_named(rng):
    sizes = dict.fromkeys("ab", 30)
    found = score_classes((draw(rng, sizes), draw(rng, sizes)), metrics=["recall", "fd", "vendi"])
    assert set(found.macro) == {"recall", "fd"}
    assert "not of each class: vendi" in result_text(found.overall, found)


def test_order_is_stated_for_distances_alone(rng):
    sizes = dict.fromkeys("ab", 30)
    found = score_classes((draw(rng, sizes), draw(rng, sizes)), metrics=["fd"])
    text = result_text(found.overall, found)
    assert "sorted by their distances" in text
    assert "micro" not in text
    assert json.loads(found.to_json())["per_class"]["classes"][0]["standing"] is None


def test_reference_statistics_have_no_classes(tmp_path, rng):
    """Mean and covariance of all reals say nothing about one class: the other metrics are computed."""
    sides = draw(rng, {"a": 30, "b": 30}), draw(rng, {"a": 30, "b": 30})
    real = sides[0][0].astype(np.float32)
    np.savez(tmp_path / "stats.npz", mu=real.mean(0), sigma=np.cov(real, rowvar=False))
    options = {"reference_statistics": tmp_path / "stats.npz"}
    found = score_classes(sides, metrics=["recall", "fd"], **options)
    assert set(found.macro) == {"recall"}
    assert "not of each class: fd" in result_text(found.overall, found)
    with raising(UsageError, "per-class-metrics"):
        score_classes(sides, metrics=["fd"], **options)


def test_protocol_without_numbers_of_images_scores_its_own_metrics(write_images, tmp_path, rng):
    for side in ("real", "fake"):
        for label in ("a", "b"):
            write_images(f"{side}/{label}", rng.integers(0, 256, (24, 8, 8, 3), dtype=np.uint8))
    evaluator = genpr.Evaluator(
        tmp_path / "real", protocol="prdc", extractor=QuarterMeans(), control=False, intervals=False
    )
    found = evaluator.score_classes(tmp_path / "fake", min_per_class=20)
    assert [*found.macro] == ["precision", "recall", "density", "coverage"], "a protocol adds nothing"


def test_values_beyond_float64_are_an_error(rng):
    real, fake = 1e36 * rng.normal(size=(2, 60, 4)).clip(-3, 3).astype(np.float32)
    fake = np.concatenate([fake, real]) * 100
    labels = np.repeat(["a", "b", "a", "b"], 30)
    with raising(FeatureError, "overflow"):
        score_classes(((real, labels[:60]), (fake, labels)))


def test_small_distances_are_shown_with_digits(rng):
    sizes = dict.fromkeys("ab", 30)
    sides = draw(rng, sizes, spread=0.01), draw(rng, sizes, spread=0.02)
    found = score_classes([(points / 100, labels) for points, labels in sides], metrics=["kd"])
    assert 0 < abs(found.macro["kd"].value) < 0.005
    assert number(found.macro["kd"].value) in result_text(found.overall, found)
