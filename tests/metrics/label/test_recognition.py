"""Votes of nearest neighbors and linear probes, against the definition and against scikit-learn."""

import numpy as np
import pytest
import torch
from label_blobs import blobs, elected_by_definition
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from genpr.metrics import classification_accuracy
from genpr.metrics.classification_accuracy import L2, UNKNOWN, KNNClassifier, LinearProbe, plurality
from genpr.neighbors.index import Frame


@pytest.fixture(scope="module")
def sides():
    """Rounded, so that many distances are equal and ties decide."""
    random = np.random.default_rng(0)
    both = blobs(random, [40, 25, 15], 2), blobs(random, [30, 30, 10], 2)
    return tuple((features.mul(2).round(), labels) for features, labels in both)


def voters_of(queries, points, labels, k, **options):
    frame = Frame.around(points)
    return KNNClassifier.of(frame.place(queries), frame.place(points), labels, k, **options)


@pytest.mark.parametrize("k", [1, 2, 3, 5, 8])
def test_votes_are_the_definition_also_where_distances_tie(sides, k):
    (points, labels), (queries, _) = sides
    found = voters_of(queries, points, labels, k).predict(k)
    assert found.tolist() == elected_by_definition(queries, points, labels, k).tolist()


@pytest.mark.parametrize("k", [1, 4])
def test_nobody_votes_on_itself(sides, k):
    (points, labels), _ = sides
    every = torch.arange(len(points))
    for chosen in (every, every[3::2]):  # also where a query is among fewer points, or among none
        places = torch.full((len(points),), UNKNOWN)
        places[chosen] = torch.arange(len(chosen))
        found = voters_of(points, points[chosen], labels[chosen], k, own_index=places).predict(k)
        wanted = elected_by_definition(points, points[chosen], labels[chosen], k, itself=places)
        assert found.tolist() == wanted.tolist()
    # A copy of another class decides, where the image itself would.
    twice = torch.cat([points[:1], points[:1], points[1:] + 100])
    classes = torch.tensor([0, 1] + [0] * (len(points) - 1))
    alone = voters_of(twice, twice, classes, 1, own_index=torch.arange(len(twice)))
    assert alone.predict(1)[:2].tolist() == [1, 0]


def test_halves_vote_as_if_the_others_were_not_there(sides):
    (points, labels), (queries, _) = sides
    voters, rows = voters_of(queries, points, labels, 3), torch.tensor([60, 3, 17])
    for seed in range(5):
        mask = torch.tensor(np.random.default_rng(seed).permutation(len(points)) < len(points) // 2)
        wanted = elected_by_definition(queries[rows], points, labels, 3, may_vote=mask)
        assert voters.predict(3, rows=rows, mask=mask).tolist() == wanted.tolist()
    nobody = torch.zeros(len(points), dtype=torch.bool)
    assert voters.predict(3, rows=rows, mask=nobody).tolist() == [UNKNOWN] * 3
    assert voters.predict(3, rows=rows[:0]).tolist() == []


def test_the_nearest_class_wins_and_then_the_first_one():
    votes = [[2, 1, 1, 2], [0, 1, 2, 1], [3, 2, 1, 0], [UNKNOWN] * 4, [4, UNKNOWN, UNKNOWN, UNKNOWN]]
    assert plurality(torch.tensor(votes)).tolist() == [2, 1, 3, UNKNOWN, 4]
    points, query = torch.tensor([[1.0], [-1.0], [3.0]]), torch.tensor([[0.0]])
    for labels in ([2, 1, 0], [1, 2, 0]):
        assert voters_of(query, points, torch.tensor(labels), 1).predict(1).tolist() == [1]


def test_fewer_points_than_voters_is_no_error():
    points = torch.tensor([[0.0], [1.0]])
    assert voters_of(points, points, torch.tensor([0, 1]), 5).predict(5).tolist() == [0, 1]
    alone = voters_of(points[:1], points[:1], torch.tensor([3]), 5, own_index=torch.tensor([0]))
    assert alone.predict(5).tolist() == [UNKNOWN]


def test_probe_agrees_with_scikit_learn(monkeypatch):
    monkeypatch.setattr(classification_accuracy, "_ROWS", 37)
    random, scale = np.random.default_rng(3), torch.logspace(-2, 3, 12)
    features, labels = blobs(random, [120, 60, 40, 30], d=12, spread=0.6)
    queries, _ = blobs(random, [100, 100, 100, 100], d=12, spread=0.6)
    features, queries = features * scale + 50, queries * scale + 50
    found = LinearProbe.fit(features, labels)
    scaler = StandardScaler().fit(features.double().numpy())
    model = LogisticRegression(C=1 / (L2 * len(features)), tol=1e-6, max_iter=2000)
    model.fit(scaler.transform(features.double().numpy()), labels.numpy())
    # Softmax does not know a shift that all classes share.
    ours = found.weight - found.weight.mean(dim=1, keepdim=True)
    assert np.abs(ours.T.numpy() - model.coef_).max() < 3e-3
    theirs = model.predict(scaler.transform(queries.double().numpy()))
    assert (found.predict(queries).numpy() == theirs).mean() > 0.99
    # From a start that is near, the end is the same.
    again = LinearProbe.fit(features, labels, start=found)
    assert (again.weight - found.weight).abs().max() < 3e-3


def test_probe_does_not_hang_on_chance_and_knows_only_what_it_saw():
    features, labels = blobs(np.random.default_rng(3), [30, 0, 30, 0], d=3)
    features = torch.cat([features, torch.full((60, 1), 7.0)], dim=1)  # a constant feature
    torch.manual_seed(1)
    first = LinearProbe.fit(features, labels)
    torch.manual_seed(2)
    state = torch.get_rng_state()
    assert torch.equal(first.weight, LinearProbe.fit(features, labels).weight)
    assert torch.equal(state, torch.get_rng_state())
    assert set(first.predict(100 * torch.randn(200, 4)).tolist()) <= {0, 2}
    single = LinearProbe.fit(features[30:], labels[30:])
    assert set(single.predict(features).tolist()) == {2}
