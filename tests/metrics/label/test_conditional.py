"""GAN-test and GAN-train by k-NN classifiers: definitions, nulls of perfect generators, intervals."""

import numpy as np
import pytest
import torch
from label_blobs import blobs, predicted_by_definition

from genpr.metrics import classification_accuracy
from genpr.metrics.classification_accuracy import (
    UNKNOWN,
    ClassTotals,
    ConditionalReals,
    KNNClassifier,
    by_class,
    class_sizes_like,
    plurality,
    sample_like,
)
from genpr.neighbors.halves import Halves
from genpr.neighbors.index import Projection

K = 3
THREE = torch.arange(3)


def accuracy(totals):
    return totals.rates()["accuracy"]


def score(real, fake, *, classes_of_reals=THREE, n_classes=3, k=K, **options):
    reals = ConditionalReals(*real, k=k, **options)
    return reals.score(*fake, classes_of_reals=classes_of_reals, n_classes=n_classes)


@pytest.fixture(scope="module")
def sides():
    random = np.random.default_rng(0)
    real, (features, labels) = blobs(random, [50, 30, 20], spread=1), blobs(random, [15, 30, 15], spread=1)
    some_wrong = torch.where(torch.arange(60) % 7 == 0, (labels + 1) % 3, labels)
    return real, (features, some_wrong)


@pytest.fixture(scope="module")
def found(sides):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(classification_accuracy, "_VOTE_ROWS", 32)
        return score(*sides)


def test_both_directions_equal_the_definition(sides, found):
    (x, x_labels), (y, y_labels) = sides
    of_fakes, of_reals = (
        predicted_by_definition(y, x, x_labels, K),
        predicted_by_definition(x, y, y_labels, K),
    )
    assert found.test.predicted.tolist() == of_fakes.tolist()
    assert found.train.predicted.tolist() == of_reals.tolist()
    assert accuracy(found.test.totals) == pytest.approx((of_fakes == y_labels).double().mean().item())
    assert accuracy(found.train.totals) == pytest.approx((of_reals == x_labels).double().mean().item())
    assert (found.test.n, found.train.n) == (60, 100)
    for label in range(3):
        assert found.test.totals.right[label] == int(((of_fakes == label) & (y_labels == label)).sum())
        assert found.test.totals.requested[label] == int((y_labels == label).sum())
        assert found.test.totals.predicted[label] == int((of_fakes == label).sum())


def test_macro_averages_leave_out_classes_without_a_value():
    rates = ClassTotals.from_labels(torch.tensor([0, 0, 1]), torch.tensor([0, 2, 0]), 4).rates()
    assert (rates["accuracy"], rates["macro_precision"], rates["macro_recall"]) == (1 / 3, 0.25, 0.25)
    assert rates["macro_f1"] == pytest.approx(0.5 / 3)
    none = ClassTotals.from_labels(torch.tensor([0]), torch.tensor([UNKNOWN]), 1).rates()
    assert np.isnan(none["macro_precision"])
    assert none["macro_recall"] == 0


def masks_of_rows(labels, places):
    """(m, n) bool: leaves out the image itself, and the same share of every other class."""
    at = {}
    for label in set(labels.tolist()):
        of_class = [row for row in by_class(labels, 0, 23).tolist() if labels[row] == label]
        at |= {row: ((rank + 0.5) / len(of_class), len(of_class)) for rank, row in enumerate(of_class)}
    masks = torch.ones(len(places), len(labels), dtype=torch.bool)
    for query, place in enumerate(places.tolist()):
        if place >= 0:
            where, size = at[place]
            masks[query] = torch.tensor([abs(at[row][0] - where) >= 0.5 / size for row in range(len(labels))])
            assert not masks[query, place]
    return masks


def test_null_of_gan_test_is_leave_one_out_by_class_shares_of_the_fakes(sides, found):
    (x, x_labels), (_, y_labels) = sides
    every = torch.arange(100)
    alone = predicted_by_definition(x, x, x_labels, K, mask_of_row=masks_of_rows(x_labels, every))
    shares = torch.bincount(y_labels) / 60
    recalls = torch.stack([(alone[x_labels == label] == label).double().mean() for label in range(3)])
    assert accuracy(found.test.null) == pytest.approx(float((shares * recalls).sum()))
    assert found.test.null.rates()["macro_recall"] == pytest.approx(float(recalls.mean()))
    assert found.test.null.requested == pytest.approx(torch.bincount(y_labels).numpy())


def test_null_of_gan_train_uses_as_many_reals_as_fakes(sides, found):
    (x, x_labels), (_, y_labels) = sides
    voters = sample_like(x_labels, torch.bincount(y_labels), 0)
    assert torch.bincount(x_labels[voters]).tolist() == torch.bincount(y_labels).tolist()
    place = torch.full((100,), -1)
    place[voters] = torch.arange(len(voters))
    masks = masks_of_rows(x_labels[voters], place)
    others = predicted_by_definition(x, x[voters], x_labels[voters], K, mask_of_row=masks)
    assert accuracy(found.train.null) == pytest.approx((others == x_labels).double().mean().item())


@pytest.mark.parametrize(
    ("requested", "available", "taken"),
    [
        ([15, 30, 15], [50, 30, 20], [15, 30, 15]),  # enough of all
        ([40, 60, 80], [100, 100, 40], [20, 30, 40]),  # half of each, since there is half of the last
        ([500] * 4, [50] * 4, [50] * 4),
        ([45, 45, 10], [45, 45, 5], [45, 45, 5]),  # up to a tenth may be missing
        ([50, 50, 5], [50, 50, 1], [50, 50, 1]),  # a rare class does not reduce the others
        ([30, 0, 30], [30, 30, 0], [30, 0, 0]),
        ([0, 0], [3, 3], [0, 0]),
    ],
    ids=str,
)
def test_classes_are_sampled_in_proportion(requested, available, taken):
    assert class_sizes_like(torch.tensor(requested), torch.tensor(available)).tolist() == taken


def test_null_of_small_classes_is_unbiased():
    # Of 5 images of a class 4 stood against 5 of every other: perfect generators scored .04 above it.
    random, gaps = np.random.default_rng(8), []
    for _ in range(6):
        real, fake = (blobs(random, [5] * 80, d=12, spread=0.7) for _ in range(2))
        places = torch.arange(80)
        one = score(real, fake, classes_of_reals=places, n_classes=80, intervals=False)
        gaps.append(accuracy(one.test.totals) - accuracy(one.test.null))
    assert abs(np.mean(gaps)) < 0.03


def test_single_images_of_a_class_are_misclassified():
    features, labels = blobs(np.random.default_rng(9), [20, 1, 20])
    assert ConditionalReals(features, labels, k=K).by_others(None)[20] in (0, 2)


def test_halves_are_scored_separately(sides, found):
    (x, x_labels), (y, y_labels) = sides
    in_reals, in_fakes = (
        Halves.drawn(n, seed=0, stream=stream, count=100, device=x.device).members()
        for stream, n in enumerate((100, 60))
    )
    for half in (0, 1, 98):
        fakes = in_fakes[half].nonzero()[:, 0]
        expected = predicted_by_definition(y[fakes], x, x_labels, K, mask=in_reals[half])
        totals = ClassTotals.from_labels(y_labels[fakes], expected, 3)
        for name in ("right", "requested", "predicted"):
            assert getattr(found.test.halves, name)[half].tolist() == getattr(totals, name).tolist()
        reals = in_reals[half].nonzero()[:, 0]
        expected = predicted_by_definition(x[reals], y, y_labels, K, mask=in_fakes[half])
        assert found.train.halves.right[half].sum() == int((expected == x_labels[reals]).sum())


def test_chance_is_that_of_the_largest_class_or_of_uniform_guesses(found):
    assert found.test.chance["accuracy"] == 0.5 or found.test.chance["accuracy"] == pytest.approx(
        max(found.test.totals.requested) / 60
    )
    assert found.train.chance["accuracy"] == 0.5
    assert found.test.chance["macro_recall"] == pytest.approx(1 / 3)
    shares = found.train.totals.requested / 100
    assert found.train.chance["macro_precision"] == pytest.approx(shares.mean())
    assert found.train.chance["macro_f1"] == pytest.approx((2 * shares / (3 * shares + 1)).mean())


def test_classes_may_be_in_one_set_only():
    random = np.random.default_rng(5)
    # Of classes 0 to 3, reals have 0, 1 and 3, and fakes 0, 2 and 3.
    (x, x_labels), (y, y_labels) = blobs(random, [30] * 3, spread=4), blobs(random, [20] * 3, spread=4)
    fakes = y, torch.tensor([0, 2, 3])[y_labels]
    how = {"classes_of_reals": torch.tensor([0, 1, 3]), "n_classes": 4}
    one = score((x, x_labels), fakes, **how)
    assert one.test.totals.requested.tolist() == [20, 0, 20, 20]
    assert one.test.totals.right[2] == 0
    assert one.test.totals.predicted[2] == 0
    assert accuracy(one.test.null) < 0.67  # a third of the fakes cannot be right
    assert one.test.chance["accuracy"] == pytest.approx(1 / 3)
    few = score((x, x_labels), (y[10:41], fakes[1][10:41]), **how)
    # 20 fakes are of class 2, which no classifier can guess.
    assert few.test.chance["accuracy"] == pytest.approx(10 / 31)
    assert one.train.totals.requested.tolist() == [30, 30, 0, 30]
    assert one.train.totals.right[1] == 0
    assert one.train.null.right[1] == 0  # there are no fakes of it, so its reals do not count for the null
    assert one.test.totals.right[[0, 3]].sum() > 35


def test_few_images_have_no_intervals():
    random, two = np.random.default_rng(8), torch.arange(2)
    real = blobs(random, [20, 20])
    for sizes, intervals, there in (([10, 9], True, False), ([10, 10], True, True), ([10, 10], False, False)):
        one = score(real, blobs(random, sizes), classes_of_reals=two, n_classes=2, intervals=intervals)
        assert (one.test.halves is not None) is there


@pytest.fixture(scope="module")
def tied():
    """Rounded features, so that many distances are equal."""
    random = np.random.default_rng(0)
    both = blobs(random, [40, 25, 15], 2), blobs(random, [30, 30, 10], 2)
    return tuple((features.mul(2).round(), labels) for features, labels in both)


def classifier_of(queries, points, labels, k, **options):
    projection = Projection.around(points)
    return KNNClassifier.from_points(
        projection.place(queries), projection.place(points), labels, k, **options
    )


@pytest.mark.parametrize("k", [1, 2, 3, 5, 8])
def test_predictions_equal_the_definition_with_tied_distances(tied, k):
    (points, labels), (queries, _) = tied
    found = classifier_of(queries, points, labels, k).predict(k)
    assert found.tolist() == predicted_by_definition(queries, points, labels, k).tolist()


@pytest.mark.parametrize("k", [1, 4])
def test_point_is_not_its_own_neighbor(tied, k):
    (points, labels), _ = tied
    every = torch.arange(len(points))
    for chosen in (every, every[3::2]):  # also where a query is among fewer points, or among none
        places = torch.full((len(points),), UNKNOWN)
        places[chosen] = torch.arange(len(chosen))
        found = classifier_of(points, points[chosen], labels[chosen], k, own_index=places).predict(k)
        expected = predicted_by_definition(points, points[chosen], labels[chosen], k, own_index=places)
        assert found.tolist() == expected.tolist()
    # A copy of another class decides, where the image itself would.
    twice = torch.cat([points[:1], points[:1], points[1:] + 100])
    classes = torch.tensor([0, 1] + [0] * (len(points) - 1))
    alone = classifier_of(twice, twice, classes, 1, own_index=torch.arange(len(twice)))
    assert alone.predict(1)[:2].tolist() == [1, 0]


def test_masked_points_are_ignored(tied):
    (points, labels), (queries, _) = tied
    voters, rows = classifier_of(queries, points, labels, 3), torch.tensor([60, 3, 17])
    for seed in range(5):
        mask = torch.tensor(np.random.default_rng(seed).permutation(len(points)) < len(points) // 2)
        expected = predicted_by_definition(queries[rows], points, labels, 3, mask=mask)
        assert voters.predict(3, rows=rows, mask=mask).tolist() == expected.tolist()
    none = torch.zeros(len(points), dtype=torch.bool)
    assert voters.predict(3, rows=rows, mask=none).tolist() == [UNKNOWN] * 3
    assert voters.predict(3, rows=rows[:0]).tolist() == []


def test_ties_go_to_the_nearest_and_then_the_first_class():
    votes = [[2, 1, 1, 2], [0, 1, 2, 1], [3, 2, 1, 0], [UNKNOWN] * 4, [4, UNKNOWN, UNKNOWN, UNKNOWN]]
    assert plurality(torch.tensor(votes)).tolist() == [2, 1, 3, UNKNOWN, 4]
    points, query = torch.tensor([[1.0], [-1.0], [3.0]]), torch.tensor([[0.0]])
    for labels in ([2, 1, 0], [1, 2, 0]):
        assert classifier_of(query, points, torch.tensor(labels), 1).predict(1).tolist() == [1]


def test_fewer_points_than_k_is_not_an_error():
    points = torch.tensor([[0.0], [1.0]])
    assert classifier_of(points, points, torch.tensor([0, 1]), 5).predict(5).tolist() == [0, 1]
    alone = classifier_of(points[:1], points[:1], torch.tensor([3]), 5, own_index=torch.tensor([0]))
    assert alone.predict(5).tolist() == [UNKNOWN]
