"""Label metrics: worked examples, agreement with scikit-learn, undefined values, and what is refused."""

from __future__ import annotations

import time
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import (
    accuracy_score,
    confusion_matrix,
    hamming_loss,
    multilabel_confusion_matrix,
    precision_recall_fscore_support,
)

from genpr.errors import DataError, GenprError, UsageError
from genpr.metrics.labels import label_metrics

NAN = float("nan")
SCORES = ("precision", "recall", "f")
single_sides = st.integers(1, 30).flatmap(
    lambda n: st.tuples(*[st.lists(st.integers(0, 5), min_size=n, max_size=n)] * 2)
)
set_sides = st.integers(1, 20).flatmap(
    lambda n: st.tuples(*[st.lists(st.sets(st.integers(0, 4)), min_size=n, max_size=n)] * 2)
)
betas = st.sampled_from([0.5, 1.0, 2.0])


def sklearn_scores(expected, predicted, *, beta, average, labels):
    """Precision, recall and F."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return precision_recall_fscore_support(
            expected, predicted, beta=beta, labels=labels, average=average, zero_division=np.nan
        )[:3]


def equal(ours, theirs):
    return np.isnan(theirs) if ours is None else ours == pytest.approx(theirs, abs=1e-12)


def indicator(sets, count):
    matrix = np.zeros((len(sets), count), dtype=int)
    for row, labels in enumerate(sets):
        matrix[row, list(labels)] = 1
    return matrix


def assert_agrees(found, expected, predicted, beta, averages):
    options = {"beta": beta, "labels": list(range(len(found.classes)))}
    for name, each in zip(SCORES, sklearn_scores(expected, predicted, average=None, **options), strict=True):
        assert all(map(equal, [getattr(row, name) for row in found.per_class], each)), name
    for average in averages:
        theirs = sklearn_scores(expected, predicted, average=average, **options)
        for name, value in zip(SCORES, theirs, strict=True):
            # Where all weights are 0, scikit-learn's weighted mean falls back to the plain one.
            weight = sum(row.support for row in found.per_class if getattr(row, name) is not None)
            if average == "weighted" and not weight:
                assert getattr(found.weighted, name) is None
            else:
                assert equal(getattr(getattr(found, average), name), value), (name, average)


@given(single_sides, betas)
@settings(max_examples=40, deadline=None)
def test_single_labels_agree_with_scikit_learn(sides, beta):
    expected, predicted = sides
    found = label_metrics(expected, predicted, classes=range(6), beta=beta)
    assert_agrees(found, expected, predicted, beta, ["macro", "micro", "weighted"])
    assert found.accuracy == found.exact_match == found.samples.f == accuracy_score(expected, predicted)
    assert (found.confusion_matrix() == confusion_matrix(expected, predicted, labels=range(6))).all()
    assert found.accuracy_of_nothing == 0


@given(set_sides, betas)
@settings(max_examples=40, deadline=None)
def test_sets_of_labels_agree_with_scikit_learn(sides, beta):
    expected, predicted = sides
    found = label_metrics(expected, predicted, classes=range(5), beta=beta)
    rows = indicator(expected, 5), indicator(predicted, 5)
    assert_agrees(found, *rows, beta, ["macro", "micro", "weighted", "samples"])
    assert found.exact_match == accuracy_score(*rows)
    assert found.accuracy == pytest.approx(1 - hamming_loss(*rows), abs=1e-12)
    assert found.accuracy_of_nothing == pytest.approx(1 - hamming_loss(rows[0], 0 * rows[0]), abs=1e-12)
    counts = [
        [[row.true_negatives, row.false_positives], [row.false_negatives, row.true_positives]]
        for row in found.per_class
    ]
    assert (np.array(counts) == multilabel_confusion_matrix(*rows, labels=range(5))).all()


def test_the_worked_example_of_three_labels():
    found = label_metrics([{"price", "bargaining", "purchase"}], [{"price", "purchase"}])
    assert found.exact_match == 0
    assert found.samples.precision == 1
    assert found.samples.recall == pytest.approx(2 / 3)
    assert found.samples.f == pytest.approx(0.8)
    assert found.undefined == {"precision": ("bargaining",), "recall": (), "f": ()}
    assert found["bargaining"].f == 0


def test_predicting_nothing_has_a_high_accuracy_and_a_warning():
    found = label_metrics([{3, 70}], [set()], classes=range(100))
    assert found.accuracy == pytest.approx(0.98)
    assert found.accuracy_of_nothing == found.accuracy
    assert found.micro.recall == 0
    assert found.micro.precision is None
    assert found.samples.precision is None
    assert found.macro.precision is None
    assert found.macro.left_out == (100, 98, 98)
    (said,) = found.notices
    assert (said.code, said.level) == ("true-negatives-dominate", "warning")
    assert "0.98" in said.message
    assert "recall of 0:" in said.message


def test_no_warning_where_accuracy_is_not_blind():
    expected = [{row % 100} for row in range(1000)]
    good = [labels if row % 20 else set() for row, labels in enumerate(expected)]
    poor = [labels if row % 5 else set() for row, labels in enumerate(expected)]
    assert label_metrics(expected, good, classes=range(100)).notices == ()  # recall .95
    assert label_metrics(expected, poor, classes=range(100)).notices != ()  # recall .8
    assert label_metrics([{1}, {2}, {1, 2}], [{1}, set(), {1}]).notices == ()  # few true negatives
    # Of single labels, accuracy counts no true negatives.
    assert label_metrics(list(range(100)), [0] * 100).notices == ()


def test_averages_leave_out_what_is_undefined_and_say_how_much():
    found = label_metrics(["a", "a", "b"], ["a", "c", "a"], classes=["a", "b", "c", "d"])
    assert [row.precision for row in found.per_class] == [0.5, None, 0.0, None]
    assert [row.recall for row in found.per_class] == [0.5, 0.0, None, None]
    assert found.macro.precision == 0.25
    assert found.macro.recall == 0.25
    assert found.macro.f == pytest.approx(0.5 / 3)
    assert found.macro.left_out == (2, 2, 1)
    assert found.undefined == {"precision": ("b", "d"), "recall": ("c", "d"), "f": ("d",)}
    assert found["b"].support == 1
    assert found.micro.precision == found.micro.recall == found.accuracy == pytest.approx(1 / 3)
    with pytest.raises(KeyError):
        found["e"]


def test_largest_confusions_come_first():
    found = label_metrics(list("aaaabbc"), list("bbbaabc"))
    assert found.confusions[0] == ("a", "b", 3)
    assert sum(count for *_, count in found.confusions) == 7


@pytest.mark.parametrize(
    "convert",
    [
        np.array,
        torch.tensor,
        tuple,
        lambda side: np.array(side, dtype=np.uint8),
        lambda side: np.array(side, dtype=object),
    ],
    ids=["array", "tensor", "tuple", "uint8", "object"],
)
def test_sides_may_be_any_list_of_integers(convert):
    expected, predicted = [3, 1, 1, 200], [3, 3, 1, 1]
    found = label_metrics(convert(expected), convert(predicted))
    assert found.classes == (1, 3, 200)
    assert all(type(label) is int for label in found.classes)
    assert found.accuracy == 0.5


def test_one_side_may_be_sets_and_repeats_count_once():
    found = label_metrics(["cat", "dog"], [["cat", "cat", "dog"], []])
    assert not found.single
    assert found.samples.recall == 0.5
    assert found["cat"].true_positives == 1
    assert found["dog"].false_positives == 1
    with pytest.raises(UsageError, match="one expected and one predicted label"):
        found.confusion_matrix()


@pytest.mark.parametrize(
    ("expected", "predicted", "options", "code"),
    [
        (["a"], ["a", "b"], {}, "label-count"),
        ([], [], {}, "no-labels"),
        ([set()], [set()], {}, "no-labels"),
        ("cat", "dog", {}, "label-kind"),
        ({"a", "b"}, {"a", "b"}, {}, "label-kind"),
        ([{"a"}, "price"], [{"a"}, {"b"}], {}, "label-kind"),
        ([float("nan"), "a"], ["a", "a"], {}, "label-kind"),
        ([1.0], [1], {}, "label-kind"),
        ([None], ["a"], {}, "label-kind"),
        ([""], ["a"], {}, "label-kind"),
        ([True], [1], {}, "label-kind"),
        ([1, 2], ["1", "2"], {}, "label-kind"),
        ([1, 2], [1, 2], {"classes": ["1", "2"]}, "label-kind"),
        (["a", "b"], ["a", "z"], {"classes": ["a", "b"]}, "unknown-label"),
        (["a"], ["a"], {"classes": "abc"}, "bad-option"),
        (["a"], ["a"], {"classes": []}, "bad-option"),
        (["a"], ["a"], {"classes": ["a", "a"]}, "bad-option"),
        (["a"], ["a"], {"beta": 0}, "bad-beta"),
        (["a"], ["a"], {"beta": NAN}, "bad-beta"),
        (np.eye(2, dtype=int), [0, 1], {}, "label-kind"),
        (7, [0], {}, "label-kind"),
        (["a" * 10**5, 1], ["a", "b"], {}, "label-kind"),
    ],
)
def test_bad_input_is_one_clear_error(expected, predicted, options, code):
    with pytest.raises(GenprError) as caught:
        label_metrics(expected, predicted, **options)
    assert isinstance(caught.value, UsageError | DataError)
    assert caught.value.code == code
    assert len(str(caught.value)) < 400


def test_a_million_images_of_a_thousand_classes_are_quick():
    random = np.random.default_rng(0)
    expected, predicted = random.integers(0, 1000, (2, 1_000_000))
    started = time.process_time()  # a busy machine makes nothing slower
    found = label_metrics(expected, predicted)
    assert time.process_time() - started < 3
    assert found.accuracy == (expected == predicted).mean()
    assert found.confusion_matrix().sum() == 1_000_000
