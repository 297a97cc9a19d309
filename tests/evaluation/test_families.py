"""Metrics of several families in one result: its record, its table, comparisons and rankings of it."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

import genpr
from genpr.errors import UsageError
from genpr.evaluation import result
from genpr.metrics.ranking_values import halved
from genpr.metrics.uncertainty import interval_of
from genpr.metrics.value import MetricValue
from genpr.report.score_tables import score_table

LABELS = result.LabelSummary(
    "knn",
    5,
    (result.LabelRow("cat", 10, 3, 0, 7, 90, 1.0, 0.3, None),),
    (result.Confusion("cat", "dog", 7),),
    ("f1 of cat",),
)
ALIGNMENT = result.AlignmentSummary(100, 12, 1, (result.Misranked("a.png", "a cat", 3.5, 0.2, "a dog", 0.3),))
ENTITIES = result.EntitySummary(
    4, (result.EntityRow("cat", 3, 2, None),), (result.Unreadable("a.png", "prose", "I see"),)
)


def ranked(hits, seed=0):
    """A metric as `genpr align` gives it."""
    values = torch.as_tensor(hits, dtype=torch.float64)
    replicates = halved(lambda weights: weights @ values / weights.sum(dim=1), len(values), seed=seed)
    interval = interval_of(float(values.mean()), replicates, n=len(values))
    return MetricValue(
        float(values.mean()),
        None,
        interval=(interval.low, interval.high),
        replicates=tuple(replicates.tolist()),
        n_counted=len(values),
        chance=0.01,
        pool=100,
    )


@pytest.fixture(scope="module")
def plain():
    real, fake = np.random.default_rng(0).normal(size=(2, 120, 4))
    return genpr.score(real, fake, control=False)


@pytest.fixture(scope="module")
def mixed(plain):
    metrics = {**plain.metrics, "retrieval.r_precision": ranked([1, 0] * 50)}
    return replace(plain, metrics=metrics, labels=LABELS, alignment=ALIGNMENT, entities=ENTITIES)


def test_everything_comes_back_from_json(mixed):
    record = json.loads(mixed.to_json())
    assert result.result_of(record) == mixed
    assert record["families"]["retrieval"] == ["retrieval.r_precision"]
    assert list(record["families"]) == ["manifold", "retrieval"]


def test_table_sets_families_apart(mixed):
    text = score_table(mixed)
    row = next(line for line in text.splitlines() if line.startswith("retrieval.r_precision"))
    assert row.split() == ["retrieval.r_precision", "0.5000", *row.split()[2:5], "0.0100", "100"]
    assert "chance: what guessing scores; pool: how many candidates" in text
    assert all(len(line) <= 80 for line in text.splitlines())


def test_other_families_are_compared_and_ranked(mixed):
    better = replace(mixed, metrics={**mixed.metrics, "retrieval.r_precision": ranked([1, 1, 1, 0] * 25)})
    found = genpr.compare({"one": mixed, "other": better}).contrast("other", "retrieval.r_precision")
    assert (found.value, found.verdict, found.pairing) == (0.25, "distinguishable", "paired")
    ranking = genpr.rank_results({"one": mixed, "other": better}, by="retrieval.r_precision")
    assert ranking.winner == "other"
    assert genpr.rank_results({"one": mixed, "other": better}, by="manifold.recall").by == "manifold.recall"


def test_manifold_is_the_family_of_plain_names(mixed, rng):
    assert mixed["manifold.recall"] == mixed["recall"]
    sides = rng.normal(size=(2, 60, 4))
    assert list(genpr.score(*sides, metrics=["manifold.recall"], control=False).metrics) == ["recall"]


@pytest.mark.parametrize("name", ["label.gan_test", "retrieval.mrr", "entity.recall"])
def test_features_alone_do_not_give_other_families(name):
    features = np.ones((20, 4))
    with pytest.raises(UsageError, match=r"cannot be found from features alone"):
        genpr.score(features, features, metrics=[name])
