"""Label metrics as a part of every score: sources of labels, values in a Result, and errors."""

import json

import numpy as np
import pytest
import torch
from label_blobs import blobs
from protocol_cases import score_protocols
from raising import raising
from sklearn.metrics import accuracy_score, f1_score, precision_recall_fscore_support

import genpr
from genpr.errors import DataError, UsageError
from genpr.evaluation import label_metrics
from genpr.evaluation.compare import compare
from genpr.evaluation.result import Confusion, LabelRow, result_of
from genpr.metrics.classification_accuracy import ConditionalReals
from genpr.metrics.uncertainty import interval_of

FIVE = genpr.LabelOptions().names
QUICK = {"metrics": ["precision", "recall"], "control": False}


def named(labels):
    return [f"class {label}" for label in labels.tolist()]


@pytest.fixture(scope="module")
def sides():
    random = np.random.default_rng(0)
    real, fake = blobs(random, [60] * 4, d=6, spread=3), blobs(random, [50] * 4, d=6, spread=3)
    exchanged = torch.tensor([1, 0, 2, 3])[fake[1]]
    return real[0].numpy(), named(real[1]), fake[0].numpy(), named(fake[1]), named(exchanged)


def options(real_labels, fake_labels, **more):
    return genpr.LabelOptions(real_labels=real_labels, fake_labels=fake_labels, **more)


@pytest.fixture(scope="module")
def good(sides):
    real, real_labels, fake, fake_labels, _ = sides
    return genpr.score(real, fake, labels=options(real_labels, fake_labels), **QUICK)


@pytest.fixture(scope="module")
def exchanged(sides):
    real, real_labels, fake, _, fake_labels = sides
    return genpr.score(real, fake, labels=options(real_labels, fake_labels), **QUICK)


def test_exchanged_classes_are_found_although_pooled_metrics_do_not_change(good, exchanged):
    for name in QUICK["metrics"]:
        assert exchanged[name] == good[name]
    assert good["label.gan_test"] > 0.9 > 0.6 > exchanged["label.gan_test"]
    assert exchanged["label.gan_train"] < 0.6
    assert exchanged.metrics["label.gan_test"].null == good.metrics["label.gan_test"].null > 0.9
    assert exchanged.metrics["label.gan_test"].interval[1] < 0.7
    assert {row.label for row in exchanged.labels.rows[:2]} == {"class 0", "class 1"}
    assert exchanged.labels.rows[0].recall < 0.1
    assert exchanged.labels.rows[0].null_recall > 0.9
    confused = {(each.requested, each.recognized) for each in exchanged.labels.confusions[:2]}
    assert confused == {("class 0", "class 1"), ("class 1", "class 0")}


def test_values_equal_those_of_the_pure_functions(sides, good):
    real, real_labels, fake, fake_labels, _ = sides
    codes = [torch.tensor([int(label[-1]) for label in labels]) for labels in (real_labels, fake_labels)]
    reals = ConditionalReals(torch.from_numpy(real), codes[0], k=5)
    found = reals.score(torch.from_numpy(fake), codes[1], classes_of_reals=torch.arange(4), n_classes=4)
    assert tuple(name for name in good.metrics if name.startswith("label.")) == FIVE
    for name in FIVE:
        direction = found.train if name == "label.gan_train" else found.test
        rate = name.removeprefix("label.").replace("gan_test", "accuracy").replace("gan_train", "accuracy")
        metric, halves = good.metrics[name], direction.halves.rates()[rate]
        values = direction.totals.rates()[rate], direction.null.rates()[rate], direction.chance[rate]
        assert (metric.value, metric.null, metric.chance) == values
        assert metric.replicates == tuple(halves.tolist())
        end = interval_of(metric.value, torch.from_numpy(halves), n=direction.n)
        assert metric.interval == (end.low, end.high)
        assert (metric.k, metric.n_counted) == (5, direction.n)
    names = sorted(set(fake_labels))
    seen = [names[label] for label in found.test.predicted.tolist()]
    table = dict(
        zip(names, zip(*precision_recall_fscore_support(fake_labels, seen), strict=True), strict=True)
    )
    assert good["label.macro_f1"] == pytest.approx(f1_score(fake_labels, seen, average="macro"))
    for row in good.labels.rows:
        assert (row.precision, row.recall, row.f1, row.tp + row.fn) == pytest.approx(table[row.label])
        assert (row.tp + row.fp, row.n) == (seen.count(row.label), fake_labels.count(row.label))
        assert row.tp + row.fp + row.fn + row.tn == len(fake_labels)
        assert row.recall_interval[0] <= row.recall <= row.recall_interval[1]


def test_result_is_recorded_and_compared(good, exchanged):
    assert result_of(json.loads(good.to_json())) == good
    assert "label.gan_test" in str(compare({"good": good, "exchanged": exchanged}))
    assert good.labels.origins == {"real": "real_labels", "fake": "fake_labels"}


def test_all_scoring_functions_accept_labels(sides, good):
    real, real_labels, fake, fake_labels, other = sides
    evaluator = genpr.Evaluator(real, labels=options(real_labels, fake_labels), **QUICK)
    assert evaluator.metrics == ("precision", "recall", *FIVE)
    assert evaluator.score(fake).metrics == good.metrics
    assert evaluator.evidence(fake).result.labels == good.labels
    again = evaluator.score_classes(fake, real_labels=real_labels, fake_labels=fake_labels)
    assert again.overall.metrics == good.metrics
    how = {"protocols": ["genpr", "prdc"], "labels": options(real_labels, fake_labels), **QUICK}
    both = score_protocols(real, fake, **how)
    assert both["prdc"]["label.gan_test"] == good["label.gan_test"]
    sets = {"as it is": fake, "turned": fake[::-1].copy()}
    ranking = genpr.rank_checkpoints(evaluator, sets, by="label.gan_test")
    assert ranking.winner == "as it is"
    elsewhere = genpr.Evaluator(real, labels=options(real_labels, other), **QUICK)
    assert elsewhere.recipe != evaluator.recipe
    assert genpr.Evaluator(real, **QUICK).recipe.keys() == evaluator.recipe.keys() - {"labels"}


def test_predictions_may_be_read_from_a_file(sides, tmp_path):
    real, _, fake, fake_labels, other = sides
    path = tmp_path / "seen.csv"
    path.write_text("".join(f"row {i},{label}\n" for i, label in enumerate(other)))
    seen = genpr.LabelOptions(fake_labels=fake_labels, classifier=path)
    found = genpr.score(real, fake, labels=seen, **QUICK)
    assert found["label.accuracy"] == accuracy_score(fake_labels, other) == 0.5
    assert found["label.macro_f1"] == pytest.approx(f1_score(fake_labels, other, average="macro"))
    assert found.metrics["label.accuracy"].null is None
    assert found.metrics["label.accuracy"].chance == 0.25
    low, high = found.metrics["label.accuracy"].interval
    assert 0.4 < low < 0.45 < 0.55 < high < 0.6
    assert {row.label for row in found.labels.rows[:2]} == {"class 0", "class 1"}
    pair = ("class 0", "class 1")
    assert found.labels.confusions == (Confusion(*pair, 50), Confusion(*pair[::-1], 50))
    assert found.labels.classifier.endswith(".csv")
    assert result_of(json.loads(found.to_json())) == found
    # Lines in another order are the same labels.
    (tmp_path / "turned.csv").write_text("\n".join(path.read_text().splitlines()[::-1]))
    turned = genpr.LabelOptions(fake_labels=fake_labels, classifier=tmp_path / "turned.csv")
    recipes = [genpr.Evaluator(real, labels=labels, **QUICK).recipe for labels in (seen, turned)]
    assert recipes[0] == recipes[1]
    path.write_text("row 0,a\n")
    none = genpr.LabelOptions(fake_labels=[None, *fake_labels[1:]], classifier=path)
    with raising(DataError, "no-labels"):
        genpr.score(real, fake, labels=none, on_bad="skip", max_bad=0.999, **QUICK)


def test_classes_without_reals_are_reported(sides):
    real, real_labels, fake, fake_labels, _ = sides
    strange = [label.replace("class 3", "class 9") for label in fake_labels]
    found = genpr.score(real, fake, labels=options(real_labels, strange), **QUICK)
    item = next(item for item in found.notices if item.code == "classes-differ")
    assert "50 fakes" in item.message
    assert "class 9" in item.message
    assert found.metrics["label.gan_test"].null < 0.75


WRONG = [*({"classifier": each} for each in ("forest", 5, "missing.csv")), {"k": 0}, {"k": True}]


@pytest.mark.parametrize("given", WRONG, ids=str)
def test_invalid_options_are_errors(sides, given):
    real, real_labels, fake, fake_labels, _ = sides
    with pytest.raises(UsageError):
        genpr.score(real, fake, labels="knn", **QUICK)
    with pytest.raises(UsageError):
        genpr.score(real, fake, labels=options(real_labels, fake_labels, **given), **QUICK)


def test_mismatched_labels_are_errors(sides):
    real, known_real, fake, known_fake, _ = sides
    for real_labels, fake_labels, code in (
        (None, known_fake, "no-labels"),
        (["class 1"] * len(real), known_fake, "one-class"),
        (["a", "b"], known_fake, "label-count"),
        (known_real, ["a", "b"], "label-count"),
        (known_real, [{"a"}] * len(fake), "label-kind"),
    ):
        with raising(DataError, code):
            genpr.score(real, fake, labels=options(real_labels, fake_labels), **QUICK)


def row(label, **facts):
    plain = {"n": 10, "tp": 5, "fp": 5, "fn": 5, "tn": 80, "precision": 0.5, "recall": 0.5, "f1": 0.5}
    return LabelRow(label, **{**plain, **facts})


def test_worst_labels_are_relative_to_their_null():
    hard = row("hard", null_precision=0.5, null_recall=0.5)
    easy = row("easy", precision=0.9, recall=0.9, null_precision=1.0, null_recall=1.0)
    none = row("none", precision=None, recall=None, f1=None)
    rows = label_metrics.worst_labels_first([hard, none, easy])
    undefined = label_metrics.undefined_values([hard, none])
    assert [each.label for each in rows] == ["easy", "hard", "none"]
    assert [each.split()[0] for each in undefined] == ["precision", "recall", "f1"]
    assert label_metrics.effective_size(np.array([100.0, 100.0, 0.0])) == 200
    assert label_metrics.effective_size(np.array([1000.0, 1.0])) == 3


def test_each_fake_has_its_requested_and_its_recognized_label(sides):
    """Fakes without a label keep their index."""
    real, real_labels, fake, fake_labels, _ = sides
    some = [None if row % 50 == 7 else label for row, label in enumerate(fake_labels)]
    evaluator = genpr.Evaluator(real, labels=options(real_labels, some), on_bad="skip", max_bad=0.1, **QUICK)
    seen = evaluator.evidence(fake).labels
    assert list(seen.requested) == some
    assert [row for row, label in enumerate(seen.recognized) if label is None] == [7, 57, 107, 157]
    assert sum(a == b for a, b in zip(seen.requested, seen.recognized, strict=True)) > 180
    wrong = sum(len(rows) for rows in seen.mistakes().values())
    result = evaluator.score(fake)
    assert result["label.gan_test"] == pytest.approx(1 - wrong / 196)
    assert evaluator.evidence(fake).result.metrics == result.metrics


def test_mistakes_are_grouped_by_requested_and_recognized_label():
    seen = label_metrics.RecognizedLabels(("a", "a", "b", None, "b"), ("b", "a", "a", "a", "a"))
    assert list(seen.mistakes().items()) == [(("b", "a"), [2, 4]), (("a", "b"), [0])]


def test_null_of_far_fewer_reals_than_fakes_is_reported():
    random = np.random.default_rng(2)
    (x, x_labels), (y, y_labels) = blobs(random, [20, 20]), blobs(random, [60, 60])
    for real, fake, is_reported in (
        ((x, x_labels), (y, y_labels), True),
        ((y, y_labels), (x, x_labels), False),
    ):
        labels = options(named(real[1]), named(fake[1]))
        found = genpr.score(real[0], fake[0], labels=labels, **QUICK)
        assert any(item.code == "few-reals-per-class" for item in found.notices) is is_reported
