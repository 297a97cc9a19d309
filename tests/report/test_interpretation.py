"""Sentences about a score follow from its values and intervals, and claim no defect without evidence."""

from dataclasses import replace

import numpy as np
import pytest
from page_results import NULLS, a_result

from genpr.metrics import ball_metrics
from genpr.report.interpretation import Grade, interpret, share_of

DEFECTS = ("misses", "not look like any", "lmost none", "leaves out", "contradicts")
PRDC = ("precision", "recall", "density", "coverage")
CALIBRATED = {"calibrated_precision": 1.0, "calibrated_recall": 1.0}


def found(precision, recall, *, coverage=None, arm=0.03, **changes):
    """The summary and the caveats of a score."""
    coverage = recall if coverage is None else coverage
    values = dict(zip(PRDC, (precision, recall, 1.0, coverage), strict=True))
    return interpret(a_result(values, arm=arm, **changes))


def calibrated(precision, recall, *, arm=0.03):
    values = {"precision": precision, "recall": recall}
    shares = {f"calibrated_{name}": share for name, share in values.items()} | values
    return a_result(shares, nulls={**NULLS, **CALIBRATED}, arm=arm)


@pytest.mark.parametrize("n", [60, 3000])
def test_random_draws_of_a_perfect_generator_rarely_have_reported_defects(n):
    rng, blamed, repeats = np.random.default_rng(n), 0, 400
    error = 1.4 * np.sqrt(0.1 / 0.9 / n)  # of metrics of neighbors, relative to a null of .9
    for _ in range(repeats):
        precision, recall = 1 + error * rng.normal(size=2)
        summary, caveats = found(precision, recall, coverage=1.0, arm=2 * error)
        blamed += any(word in " ".join([summary, *caveats]) for word in DEFECTS)
    assert blamed <= 0.05 * repeats


@pytest.mark.parametrize(
    ("value", "arm", "grade"),
    [
        (1.0, 0.03, Grade.WHOLE),
        (0.97, 0.2, Grade.UNCERTAIN),
        (0.93, 0.05, Grade.WHOLE),
        (0.93, 0.03, Grade.PART),
        (0.5, 0.03, Grade.PART),
        (0.05, 0.21, Grade.PART),
        (0.05, 0.1, Grade.NONE),
    ],
)
def test_grades_follow_the_interval(value, arm, grade):
    assert share_of(a_result({"precision": value}, arm=arm), ball_metrics.precision).grade is grade


@pytest.mark.parametrize(
    ("precision", "recall", "arm", "summary"),
    [
        (1.0, 1.0, 0.03, "{F} look like real ones; no missing variety was found. {P} from a perfect one."),
        (1.0, 2 / 3, 0.03, "{F} look like real ones; the generator misses about 33 % {V}."),
        (0.5, 1.0, 0.03, "About 50 % of {f} do not look like any real image; no missing variety was found."),
        (1.0, 0.6, 0.2, "Up to 20 % of {f} may {N}; the generator misses between 20 % and 60 % {V}."),
        (0.95, 0.95, 0.25, "Up to 30 % of {f} may {N}; up to 30 % of the variety may be missing."),
        (0.01, 0.01, 0.01, "Almost none of {f} {L}; the generator covers almost none of the variety."),
        (0.0, 1.0, 0.01, "Almost none of {f} {L}; diversity therefore cannot be assessed."),
        (0.5, None, 0.03, "About 50 % of {f} do not look like any real image; diversity was not scored."),
        (None, 0.5, 0.03, "The generator misses about 50 % {V}; fidelity was not scored."),
        (None, None, 0.03, ""),
    ],
)
def test_summary_of_a_score(precision, recall, arm, summary):
    texts = {"F": "The generated images", "f": "the generated images", "L": "look like real ones"}
    texts |= {"N": "not look like real ones", "V": "of the variety (by recall)"}
    texts["P"] = "Precision and recall do not distinguish the generator"
    known = {"precision": precision, "recall": recall, "density": 1.0}
    result = a_result({name: value for name, value in known.items() if value is not None}, arm=arm)
    assert interpret(result) == (summary.format(**texts), [])


def test_coverage_overrides_contradictory_recall():
    """Balls of scattered noise contain every real."""
    summary, caveats = found(0.9, 1.05, coverage=0.3, arm=0.02)
    assert "misses about" in summary
    assert any("coverage contradicts it" in text for text in caveats)
    assert "no missing variety" not in found(0.0, 1.0, coverage=0.0, arm=0.01)[0]


def test_coverage_is_relative_to_the_share_of_good_images():
    """A fifth of the good fakes covers (1 - 1.2^-5) / (1 - 2^-5) of the reals that all would cover."""
    summary, _ = found(0.2, 1.0, coverage=(1 - 1.2**-5) / (1 - 2**-5), arm=0.01)
    assert "no missing variety was found" in summary
    covered = (1 - 1.05**-5) / (1 - 1.25**-5)  # by a fifth of a quarter as many fakes
    result = a_result({"precision": 0.2, "recall": 1.0, "coverage": covered}, arm=0.01)
    few = replace(result, fake=replace(result.fake, n=250))
    assert "no missing variety was found" in interpret(few)[0]


@pytest.mark.parametrize(
    ("code", "copied", "words"),
    [
        ("copied-reals", 400, "40 % of the generated images are copies of real images, so these values do"),
        ("copied-reals", 20, ""),  # too few to change the values; the warning counts them
        ("near-copies", 0, "memorization"),
        ("copying", 0, "memorization"),
    ],
)
def test_copies_of_reals_come_first_in_the_summary(code, copied, words):
    summary, _ = found(1.0, 1.0, codes=[code], n_shared=copied)
    before, _, after = summary.partition("The generated images look")
    assert words in before
    assert bool(words) == bool(before)
    assert "perfect" not in after


@pytest.mark.parametrize("code", ["same-input", "missing-modes"])
def test_certain_warnings_change_the_summary(code):
    assert found(1.0, 1.0, codes=[code]) != found(1.0, 1.0)


def test_without_intervals_sampling_error_is_estimated():
    assert not any(word in found(0.96, 0.96, arm=None, n=300)[0] for word in DEFECTS)
    summary, caveats = found(0.5, 1.0, coverage=1.0, arm=None, n=1000)
    assert "not look like any real image" in summary
    assert any("standard errors" in text for text in caveats)
    result = a_result({"precision": 0.5, "recall": 0.5}, arm=None)
    few = replace(result, fake=replace(result.fake, n=50))
    of_fakes, of_reals = (share_of(few, each) for each in (ball_metrics.precision, ball_metrics.recall))
    assert of_fakes.high - of_fakes.low > 3 * (of_reals.high - of_reals.low), "the error of the averaged set"


def test_grades_follow_the_interval_of_the_calibrated_metric():
    assert interpret(calibrated(0.5, 1.0))[0].startswith("About 50 % of the generated images do not")
    result = calibrated(0.93, 1.0)
    wider = replace(result.metrics["calibrated_precision"], interval=(0.86, 1.0))
    made, _ = interpret(replace(result, metrics={**result.metrics, "calibrated_precision": wider}))
    assert "do not look like" in interpret(result)[0]
    assert "do not look like" not in made


def test_without_intervals_raw_metrics_decide_if_available():
    result = calibrated(0.5, 0.5, arm=None)
    assert "(by recall)" in interpret(result)[0]
    alone = {name: result.metrics[name] for name in CALIBRATED}
    share = share_of(replace(result, metrics=alone), ball_metrics.calibrated_precision)
    assert share.high - share.low == pytest.approx(2 * 3 * np.sqrt(0.25 / 1000) + 2 / 1000)
    assert share.grade is Grade.PART
