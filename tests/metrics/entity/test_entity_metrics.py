"""Recall and precision of sets of entities: worked examples and definitions."""

import numpy as np
import pytest
import torch
from raising import raising

from genpr import DataError, UsageError
from genpr.conditional.recognition import calibrate
from genpr.metrics.entities import ENTITY_METRICS, entity_set_metrics

EXPECTED = [{"cat", "dog"}, {"cat"}, {"cat", "dog", "bus", "car"}, set()]
FOUND = [{"cat"}, {"cat", "bus"}, {"dog", "bus", "car", "tree"}, {"car"}]
VOCABULARY = {"cat", "dog", "bus", "car"}


def test_worked_example_of_all_metrics():
    found = entity_set_metrics(EXPECTED, FOUND, vocabulary=VOCABULARY)
    assert found["recall"] == pytest.approx((1 / 2 + 1 + 3 / 4) / 3)
    assert found["micro_recall"] == pytest.approx(5 / 7)
    assert found["macro_recall"] == pytest.approx((2 / 3 + 1 / 2 + 1 + 1) / 4)
    assert found["all_found"] == pytest.approx(1 / 3)
    assert found["precision"] == pytest.approx((1 + 1 / 2 + 1 + 0) / 4)
    assert found["micro_precision"] == pytest.approx(5 / 7)
    assert found["macro_precision"] == pytest.approx((1 + 1 + 1 / 2 + 1 / 2) / 4)
    assert found["failure_rate"] == 0
    rows = {row.entity: (row.n_expected, row.n_found, row.n_false) for row in found.entities}
    assert rows == {"cat": (3, 2, 0), "dog": (2, 1, 0), "bus": (1, 1, 1), "car": (1, 1, 1)}
    assert [row.entity for row in found.entities][:2] == ["dog", "cat"]


def test_excluded_entities_are_wrong():
    found = entity_set_metrics(
        [{"cat"}, {"cat"}, set()],
        [{"cat", "dog"}, {"cat", "tree"}, {"dog"}],
        excluded=[{"dog"}, {"dog"}, {"dog", "tree"}],
    )
    assert found["recall"] == 1
    assert found["all_found"] == pytest.approx(1 / 3)
    assert found["precision"] == pytest.approx((1 / 2 + 1 + 0) / 3)
    assert found["micro_precision"] == pytest.approx(2 / 4)
    rows = {row.entity: row.n_false for row in found.entities}
    assert rows == {"cat": None, "dog": 2}


@pytest.mark.parametrize(
    ("expected", "found", "vocabulary", "undefined", "reason"),
    [
        ([{"cat"}], [{"cat", "dog"}], None, "precision", "closed vocabulary"),
        ([set(), set()], [{"cat"}, set()], None, "recall", "expected entity"),
        ([{"cat"}], [set()], {"cat"}, "precision", "no found entity"),
        ([{"cat"}, {"dog"}], [None, None], None, "recall", "readable"),
    ],
    ids=range(4),
)
def test_undefined_metrics_have_no_value(expected, found, vocabulary, undefined, reason):
    metrics = entity_set_metrics(expected, found, vocabulary=vocabulary)
    assert reason in metrics.undefined[undefined]
    assert undefined not in metrics.scores
    assert metrics["failure_rate"] == (found == [None, None])


def test_unreadable_answers_are_left_out():
    found = entity_set_metrics(
        [{"cat", "dog"}, {"cat"}, {"dog"}], [{"cat", "dog"}, None, set()], vocabulary={"cat", "dog"}
    )
    assert found["recall"] == 0.5
    assert found["failure_rate"] == pytest.approx(1 / 3)
    assert found.n_unreadable == 1
    rows = {row.entity: row.n_expected for row in found.entities}
    assert rows == {"cat": 1, "dog": 2}


def drawn(rng, n, images=1):
    """Images of 8 entities of different difficulty; `images` share a prompt and its difficulty."""
    names = np.array([f"e{i}" for i in range(8)])
    shares = np.linspace(0.3, 0.95, 8)
    expected, found, groups = [], [], []
    for group in range(n // images):
        chosen = rng.choice(8, rng.integers(1, 4), replace=False)
        luck = rng.uniform(0.6, 1.2)
        for _ in range(images):
            seen = chosen[rng.random(len(chosen)) < np.minimum(shares[chosen] * luck, 1)]
            extra = rng.choice(8, 1) if rng.random() < 0.2 else []
            expected.append(set(names[chosen]))
            found.append(None if rng.random() < 0.1 else {*names[seen], *names[extra]})
            groups.append(group)
    return expected, found, groups


def by_definition(expected, found, closed):
    pairs = [(e, f) for e, f in zip(expected, found, strict=True) if f is not None]
    entities = sorted(set().union(*(e for e, _ in pairs)))
    kept = [(e & f, (f & closed) - e) for e, f in pairs]
    counted = sorted(set().union(*(hit | wrong for hit, wrong in kept)))
    return {
        "recall": np.mean([len(e & f) / len(e) for e, f in pairs if e]),
        "micro_recall": sum(len(e & f) for e, f in pairs) / sum(len(e) for e, _ in pairs),
        "macro_recall": np.mean([np.mean([name in f for e, f in pairs if name in e]) for name in entities]),
        "all_found": np.mean([e <= f for e, f in pairs if e]),
        "precision": np.mean([len(hit) / len(hit | wrong) for hit, wrong in kept if hit | wrong]),
        "micro_precision": sum(len(hit) for hit, _ in kept) / sum(len(hit | wrong) for hit, wrong in kept),
        "macro_precision": np.mean(
            [np.mean([name in hit for hit, wrong in kept if name in hit | wrong]) for name in counted]
        ),
        "failure_rate": np.mean([f is None for f in found]),
    }


@pytest.mark.parametrize("seed", range(4))
def test_values_equal_their_definitions(seed):
    expected, found, groups = drawn(np.random.default_rng(seed), 120, images=1 + seed)
    closed = {f"e{i}" for i in range(7 + seed % 2)} | set().union(*expected)
    metrics = entity_set_metrics(expected, found, vocabulary=closed, groups=groups)
    assert {name: metrics[name] for name in ENTITY_METRICS} == pytest.approx(
        by_definition(expected, found, closed)
    )
    for score in metrics.scores.values():
        low, high = score.interval
        assert 0 <= low < score.value < high <= 1 or score.value in (0, 1)
        assert len(score.replicates) == 100


def test_intervals_resample_prompts_that_images_share():
    expected, found, groups = drawn(np.random.default_rng(0), 400, images=10)
    alone = entity_set_metrics(expected, found).scores["recall"]
    shared = entity_set_metrics(expected, found, groups=groups).scores["recall"]
    assert (alone.n_counted, shared.n_counted) == (sum(each is not None for each in found), 40)
    assert shared.value == alone.value
    width = [score.interval[1] - score.interval[0] for score in (alone, shared)]
    assert width[1] > 1.2 * width[0]


def test_images_of_one_prompt_count_as_one_trial():
    assert entity_set_metrics([{"a"}] * 9, [{"a"}] * 9).scores["recall"].interval is None
    expected = [{"a", "b"}] * 40
    scores = entity_set_metrics(expected, expected, groups=[i // 4 for i in range(40)]).scores
    for name in ("recall", "micro_recall", "macro_recall", "all_found"):
        interval = scores[name].interval
        assert interval.high == 1
        assert interval.low == pytest.approx(0.692, abs=0.001)  # Clopper and Pearson of 10, not of 40 or 80


def test_effective_number_is_at_most_the_number_of_images():
    """Nearly equal groups have little variance."""
    found = [{"a"} if i % 4 < 2 or i == 2 else set() for i in range(40)]
    scores = entity_set_metrics([{"a"}] * 40, found, groups=[i // 4 for i in range(40)]).scores
    interval = scores["recall"].interval
    # Clopper and Pearson of 40.
    assert (interval.low, interval.high) == pytest.approx((0.361, 0.685), abs=0.001)


def test_halves_do_not_depend_on_readable_answers():
    """Two files of answers about the same prompts can thus be compared in pairs."""
    expected = [{"a"}] * 40
    one = entity_set_metrics(expected, [{"a"} if i % 2 else set() for i in range(40)])
    other = entity_set_metrics(expected, [None if i < 5 else {"a"} if i % 2 else set() for i in range(40)])
    a, b = (np.array(each.scores["recall"].replicates) for each in (one, other))
    assert np.corrcoef(a, b)[0, 1] > 0.7


@pytest.mark.parametrize(
    ("expected", "options", "code"),
    [
        ([], {}, "bad-option"),
        ([{"a"}] * 2, {}, "bad-option"),
        ([{"a"}], {"groups": []}, "bad-option"),
        ([{"a"}], {"excluded": [{"a"}]}, "bad-expectation"),
        ([{"a"}], {"vocabulary": {"b"}}, "bad-expectation"),
    ],
    ids=range(5),
)
def test_invalid_input_is_an_error(expected, options, code):
    with raising((DataError, UsageError), code):
        entity_set_metrics(expected, [{"a"}] if expected else [], **options)


def cases(rng, n=400, offsets=(0.0, 3.0, -5.0), gap=3.0):
    """Scores like cosines: each entity has its own offset, plus `gap` where it is present."""
    present = rng.random((n, len(offsets))) < 0.4
    scores = rng.normal(size=present.shape) + np.array(offsets) + gap * present
    return torch.tensor(scores), torch.tensor(present)


def balanced(scores, present, threshold):
    return float(
        (scores[present] >= threshold).double().mean() + (scores[~present] < threshold).double().mean()
    )


@pytest.mark.parametrize("seed", range(5))
def test_thresholds_maximize_balanced_accuracy(seed):
    rng = np.random.default_rng(seed)
    scores = torch.tensor(rng.integers(0, 12, size=(60, 1)).astype(float))  # with ties
    present = torch.tensor(rng.random((60, 1)) < 0.3)
    threshold = calibrate(scores, present, ["it"])[0].thresholds[0]
    best = max(balanced(scores, present, level) for level in np.arange(-0.5, 12.5, 0.5))
    assert balanced(scores, present, threshold) == pytest.approx(best)


def test_entities_with_few_examples_share_a_threshold(rng):
    scores, present = cases(rng, offsets=(0.0, 0.0, 0.0))
    present[:, 2] = False
    present[:3, 2] = True
    found = calibrate(scores, present, "abc")
    assert [each.is_own for each in found] == [True, True, False]
    assert balanced(scores, present, found[2].thresholds[0]) == pytest.approx(
        max(balanced(scores, present, level) for level in scores.unique().tolist())
    )


@pytest.mark.parametrize("rare", [9, 10])
@pytest.mark.parametrize("kind", [True, False])
def test_own_threshold_needs_ten_examples_of_each_kind(rare, kind):
    present = torch.stack([torch.arange(40) % 2 == 0, (torch.arange(40) < rare) == kind], dim=1)
    assert [each.is_own for each in calibrate(present.double(), present, "ab")] == [True, rare == 10]


def test_rates_are_measured_on_held_out_images():
    """For noise, thresholds would seem better than chance on the images that they were chosen on."""
    rng = np.random.default_rng(0)
    accuracies = []
    for _ in range(30):
        (found,) = calibrate(torch.tensor(rng.normal(size=(30, 1))), torch.arange(30)[:, None] % 2 == 0, "a")
        accuracies.append((found.sensitivity + 1 - found.false_positive_rate) / 2)
    assert np.mean(accuracies) == pytest.approx(0.5, abs=0.06)


@pytest.mark.parametrize(("value", "code"), [(torch.nan, "bad-scores"), (0.0, "no-thresholds")])
def test_invalid_answers_are_errors(value, code):
    with raising(DataError, code):
        calibrate(torch.full((3, 2), value), torch.zeros(3, 2, dtype=torch.bool), "ab")
