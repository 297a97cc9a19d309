"""Label metrics: worked examples, agreement with scikit-learn, undefined values and errors."""

import time
import warnings
from array import array
from functools import partial

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

from genpr.errors import DataError, UsageError
from genpr.metrics.labels import RATIOS, label_metrics

single_sides = st.integers(1, 30).flatmap(
    lambda n: st.tuples(*[st.lists(st.integers(0, 4), min_size=n, max_size=n)] * 2)
)
set_sides = st.integers(1, 20).flatmap(
    lambda n: st.tuples(*[st.lists(st.sets(st.integers(0, 4)), min_size=n, max_size=n)] * 2)
)


def equal(ours, theirs):
    return np.isnan(theirs) if ours is None else ours == pytest.approx(theirs, abs=1e-12)


def indicator(sets):
    return np.array([[label in labels for label in range(5)] for labels in sets], dtype=int)


def assert_agrees(found, expected, predicted, averages):
    options = {"labels": range(5), "zero_division": np.nan}
    for average in [None, *averages]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            theirs = precision_recall_fscore_support(expected, predicted, average=average, **options)
        for name, value in zip(RATIOS, theirs, strict=False):
            if average is None:
                assert all(map(equal, [getattr(row, name) for row in found.per_class], value)), name
                continue
            # Where all weights are 0, scikit-learn's weighted mean falls back to the plain one.
            weight = sum(row.support for row in found.per_class if getattr(row, name) is not None)
            reference = np.nan if average == "weighted" and not weight else value
            assert equal(getattr(getattr(found, average), name), reference), (name, average)


@given(single_sides)
@settings(max_examples=25, deadline=None)
def test_single_labels_agree_with_scikit_learn(sides):
    expected, predicted = sides
    found = label_metrics(expected, predicted, classes=range(5))
    assert_agrees(found, expected, predicted, ["macro", "micro", "weighted"])
    assert found.accuracy == found.exact_match == found.samples.f == accuracy_score(expected, predicted)
    assert (found.confusion_matrix() == confusion_matrix(expected, predicted, labels=range(5))).all()
    assert found.accuracy_of_nothing == 0


@given(set_sides)
@settings(max_examples=25, deadline=None)
def test_sets_of_labels_agree_with_scikit_learn(sides):
    found = label_metrics(*sides, classes=range(5))
    rows = indicator(sides[0]), indicator(sides[1])
    assert_agrees(found, *rows, ["macro", "micro", "weighted", "samples"])
    assert found.exact_match == accuracy_score(*rows)
    assert found.accuracy == pytest.approx(1 - hamming_loss(*rows), abs=1e-12)
    assert found.accuracy_of_nothing == pytest.approx(1 - hamming_loss(rows[0], 0 * rows[0]), abs=1e-12)
    counts = [
        [[row.true_negatives, row.false_positives], [row.false_negatives, row.true_positives]]
        for row in found.per_class
    ]
    assert (np.array(counts) == multilabel_confusion_matrix(*rows, labels=range(5))).all()


def test_accuracy_that_hides_a_low_recall_has_a_warning():
    found = label_metrics([{3, 70}], [set()], classes=range(100))
    assert found.accuracy == found.accuracy_of_nothing == pytest.approx(0.98)
    assert (found.micro.recall, found.micro.precision, found.samples.precision) == (0, None, None)
    assert found.macro.left_out == (100, 98, 98)
    (item,) = found.notices
    assert (item.code, item.level) == ("true-negatives-dominate", "warning")
    expected = [{row % 100} for row in range(1000)]
    for every, is_said in ((20, False), (5, True)):  # a recall of .95, and of .8
        seen = [labels if row % every else set() for row, labels in enumerate(expected)]
        assert bool(label_metrics(expected, seen, classes=range(100)).notices) is is_said
    assert label_metrics([{1}, {2}, {1, 2}], [{1}, set(), {1}]).notices == ()  # few true negatives
    assert label_metrics(list(range(100)), [0] * 100).notices == ()  # single labels: none


def test_averages_leave_out_undefined_values_and_count_them():
    found = label_metrics(["a", "a", "b"], ["a", "c", "a"], classes=["a", "b", "c", "d"])
    assert [row.precision for row in found.per_class] == [0.5, None, 0.0, None]
    assert [row.recall for row in found.per_class] == [0.5, 0.0, None, None]
    assert (found.macro.precision, found.macro.recall) == (0.25, 0.25)
    assert found.macro.f == pytest.approx(0.5 / 3)
    assert found.macro.left_out == (2, 2, 1)
    assert found.undefined == {"precision": ("b", "d"), "recall": ("c", "d"), "f": ("d",)}
    assert found["b"].support == 1
    with pytest.raises(KeyError):
        found["e"]
    confusions = label_metrics(list("aaaabbc"), list("bbbaabc")).confusions
    assert confusions[0] == ("a", "b", 3)
    assert sum(count for *_, count in confusions) == 7


@pytest.mark.parametrize(
    "convert", [np.array, torch.tensor, tuple, partial(array, "i"), partial(np.array, dtype=object)]
)
def test_labels_may_be_any_list_of_integers(convert):
    found = label_metrics(convert([3, 1, 1, 200]), convert([3, 3, 1, 1]))
    assert found.classes == (1, 3, 200)
    assert all(type(label) is int for label in found.classes)
    assert found.accuracy == 0.5


def test_one_argument_may_be_sets_and_repeats_count_once():
    found = label_metrics(["cat", "dog"], [["cat", "cat", "dog"], []])
    assert not found.single
    assert found.samples.recall == 0.5
    assert (found["cat"].true_positives, found["dog"].false_positives) == (1, 1)
    with pytest.raises(UsageError, match="one expected and one predicted label"):
        found.confusion_matrix()


META = torch.zeros(2, dtype=torch.int64, device="meta")


@pytest.mark.parametrize(
    ("expected", "predicted", "options", "code"),
    [
        (["a"], ["a", "b"], {}, "label-count"),
        ([], [], {}, "no-labels"),
        ([set()], [set()], {}, "no-labels"),
        *((wrong, wrong, {}, "label-kind") for wrong in ("cat", {"a"}, 7, np.eye(2, dtype=int), META)),
        *(([wrong], [wrong], {}, "label-kind") for wrong in (float("nan"), 1.0, None, "", True)),
        ([{"a"}, "price"], [{"a"}, {"b"}], {}, "label-kind"),
        ([1, 2], ["1", "2"], {}, "label-kind"),
        ([1, 2], [1, 2], {"classes": ["1", "2"]}, "label-kind"),
        (["a", "b"], ["a", "z"], {"classes": ["a", "b"]}, "unknown-label"),
        *((["a"], ["a"], {"classes": wrong}, "bad-option") for wrong in ("abc", [], ["a", "a"])),
        (["a" * 10**5, 1], ["a", "b"], {}, "label-kind"),
        (["a"], ["a"], {"classes": [["a"]]}, "label-kind"),
    ],
)
def test_invalid_labels_are_errors(expected, predicted, options, code):
    with pytest.raises((DataError, UsageError)) as caught:
        label_metrics(expected, predicted, **options)
    assert caught.value.code == code
    assert len(str(caught.value)) < 400


def test_many_images_of_a_thousand_classes_are_fast():
    random = np.random.default_rng(0)
    expected, predicted = random.integers(0, 1000, (2, 200_000))
    started = time.process_time()  # a busy machine makes nothing slower
    found = label_metrics(expected, predicted)
    assert time.process_time() - started < 1
    assert found.accuracy == (expected == predicted).mean()
