"""What is said of a score: true, by rule, and without blame where nothing is certain."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from page_results import a_result

import genpr
from genpr.demo import build_demo
from genpr.metrics import ball_metrics
from genpr.report.reading import read
from genpr.report.shares import Grade, about, percent, share_of

BLAME = ("misses", "images look like no real one", "almost none", "Almost none", "leaves out", "contradicts")
PRDC = ("precision", "recall", "density", "coverage")


def said(precision, recall, *, coverage=None, density=1.0, arm=0.03, **changes):
    coverage = recall if coverage is None else coverage
    values = dict(zip(PRDC, (precision, recall, density, coverage), strict=True))
    return read(a_result(values, arm=arm, **changes))


def test_a_perfect_generator_is_not_blamed():
    reading = said(1.0, 1.0)
    assert reading.sentence == (
        "The generator draws convincing images and reaches all of the variety; precision and recall do not tell it from a "
        "perfect one."
    )
    assert reading.cautions == ()


@pytest.mark.parametrize("n", [60, 300, 3000])
def test_chance_seldom_gets_a_perfect_generator_blamed(n):
    rng, blamed, repeats = np.random.default_rng(n), 0, 400
    error = 1.4 * np.sqrt(0.1 / 0.9 / n)  # of neighbours' metrics, relative to a null of .9
    for _ in range(repeats):
        shares = 1 + error * rng.normal(size=4)
        reading = said(*shares[:2], coverage=1.0, arm=2 * error)
        blamed += any(word in " ".join([reading.sentence, *reading.cautions]) for word in BLAME)
    assert blamed <= 0.05 * repeats


def test_lost_variety_and_lost_fidelity_are_told_as_fractions():
    assert (
        said(1.0, 2 / 3).sentence
        == "The generator draws convincing images but misses about a third of the variety."
    )
    assert said(0.5, 1.0, coverage=1.0).sentence == (
        "About half of the generator's images look like no real one, but as a whole it reaches all of the variety."
    )
    assert said(0.5, 0.4, coverage=0.5).sentence == (
        "About half of the generator's images look like no real one, and it misses about three fifths of the variety."
    )
    assert said(0.01, 0.01, arm=0.01).sentence == (
        "Almost none of the generator's images look like real ones, and they reach almost none of the variety."
    )
    assert (
        said(1.0, 0.02).sentence
        == "The generator draws convincing images but reaches almost none of the variety."
    )


def test_every_combination_is_a_sentence_of_its_own_kind():
    found = set()
    for precision, precision_arm in ((1.0, 0.03), (0.97, 0.2), (0.5, 0.03), (0.01, 0.01)):
        for recall, recall_arm in ((1.0, 0.03), (0.97, 0.2), (0.5, 0.03), (0.01, 0.01)):
            values = {"precision": precision, "recall": recall}
            result = a_result(values, arm=None)
            arms = dict(zip(values, (precision_arm, recall_arm), strict=True))
            metrics = {
                name: replace(
                    metric,
                    interval=(max(0.0, values[name] - arms[name]) * 0.9, (values[name] + arms[name]) * 0.9),
                )
                for name, metric in result.metrics.items()
            }
            sentence = read(a_result(metrics=metrics)).sentence
            assert sentence[0].isupper()
            assert sentence.endswith(".")
            assert ".." not in sentence
            assert "  " not in sentence
            found.add(sentence)
    assert len(found) >= 13  # of images that convince nobody, variety is not told apart


def test_a_wide_interval_is_said_and_gives_no_false_precision():
    reading = said(1.0, 0.6, arm=0.2)
    assert "misses somewhere between 20 % and 60 % of the variety" in reading.sentence
    assert any("wide" in text and "recall" in text for text in reading.cautions)
    assert not any("wide" in text for text in said(1.0, 0.6, arm=0.05).cautions)


def test_too_few_images_are_said_where_nothing_is_certain():
    sentence = said(0.95, 0.95, arm=0.25).sentence
    assert "too few to be sure" in sentence
    assert "up to 30 %" in sentence


def test_recall_is_not_believed_where_coverage_contradicts_it():
    """Scattered noise has balls that hold every real."""
    reading = said(0.9, 1.05, coverage=0.3, arm=0.02)
    assert "misses about" in reading.sentence
    assert any("coverage contradicts it" in text for text in reading.cautions)
    noise = said(0.0, 1.0, coverage=0.0, arm=0.01)
    assert noise.sentence.startswith("Almost none of the generator's images look like real ones")
    assert "all of the variety" not in noise.sentence


def test_bad_images_that_cover_nothing_are_not_counted_as_missing_variety():
    """A fifth as many good fakes cover (1 - 1.2^-5) / (1 - 2^-5) of what all would, not all of it."""
    sentence = said(0.2, 1.0, coverage=(1 - 1.2**-5) / (1 - 2**-5), arm=0.01).sentence
    assert "reaches all of the variety" in sentence


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("near-copies", "memorised"),
        ("copied-reals", "copies count as perfect"),
        ("shrinkage", "closer together"),
        ("outlier-dominance", "vouch"),
    ],
)
def test_warnings_that_take_the_sentence_back_are_said(code, words):
    assert any(words in text for text in said(1.0, 1.0, codes=[code]).cautions)


def test_equal_sets_kinds_and_odd_features_change_the_sentence():
    assert said(1.0, 1.0, codes=["same-input"]).sentence.startswith("Both sets hold the same images")
    assert "leaves out certain kinds" in said(1.0, 1.0, codes=["missing-kinds"]).sentence
    assert "certain kinds" in said(0.5, 1.0, codes=["missing-kinds"], coverage=1.0).sentence
    assert "single features give it away" in said(1.0, 1.0, codes=["odd-features"]).sentence


def test_without_intervals_chance_is_still_allowed_for():
    assert not any(word in said(0.96, 0.96, arm=None, n=300).sentence for word in BLAME)
    bad = said(0.5, 1.0, coverage=1.0, arm=None, n=1000)
    assert "look like no real one" in bad.sentence
    assert any("No intervals are known" in text for text in bad.cautions)


def test_what_was_not_scored_is_not_judged():
    assert "what variety it reaches was not scored" in read(a_result({"precision": 1.0})).sentence
    assert "whether its images convince was not scored" in read(a_result({"recall": 0.5})).sentence
    assert read(a_result({"coverage": 0.5})).sentence.startswith("The generator misses about half")
    assert "how far apart the two sets are" in read(a_result({"density": 1.0})).sentence


def test_grounds_hold_the_numbers():
    (ground, *_) = said(0.5, 1.0).grounds
    assert ground == (
        "Precision is 0.450, 50 % of the 0.900 that a perfect generator scores with so many images (95 % interval 47 % to 53 %)."
    )


def test_words_for_shares():
    assert [about(share) for share in (0.03, 0.1, 0.34, 0.5, 0.97)] == [
        "a small part (3 %)",
        "about a tenth",
        "about a third",
        "about half",
        "almost all",
    ]
    assert [percent(share) for share in (0.0, 0.001, 0.5, 0.999, 1.0)] == [
        "0 %",
        "less than 1 %",
        "50 %",
        "more than 99 %",
        "100 %",
    ]
    for share in np.linspace(0.07, 0.95, 89):
        assert about(float(share)).startswith("about ")


def test_a_share_without_a_null_is_none():
    result = a_result({"precision": 1.0}, nulls={"precision": 0.9})
    assert share_of(result, ball_metrics.precision).grade is Grade.WHOLE
    assert share_of(result, ball_metrics.recall) is None


def test_the_four_demo_fakes_get_four_different_true_sentences():
    demo = build_demo(n=400)
    evaluator = genpr.Evaluator(demo.real.images, extractor="gabor", device="cpu", control=False)
    found = {fake.name: read(evaluator.score(fake.images)).sentence for fake in demo.fakes}
    assert len(set(found.values())) == 4
    assert found["faithful"].startswith("The generator draws convincing images")
    assert not any(word in found["faithful"] for word in BLAME)
    assert found["mode-dropped"].startswith("The generator draws convincing images but misses about")
    assert found["half-junk"].startswith("About half of the generator's images look like no real one")
    assert found["blurred"].startswith("Almost none of the generator's images look like real ones")
