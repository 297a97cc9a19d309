"""What the documentation states about many draws: coverage of intervals, wrong exclusions, and nulls."""

import numpy as np
import pytest
import torch
from label_blobs import blobs
from trained_features import features_of_crops

from genpr.metrics.classification_accuracy import ConditionalReals
from genpr.metrics.entities import ENTITY_METRICS, entity_set_metrics
from genpr.metrics.frechet import frechet_influence
from genpr.metrics.modes import RealKinds
from genpr.metrics.neighbor_metrics import NeighborMetrics
from genpr.metrics.uncertainty import Resampled, against_best, difference

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

KS = {"precision": 3, "recall": 3, "density": 5, "coverage": 5}
OPTIONS = {"ks": KS, "ties": "closed", "device": torch.device("cpu")}


def normal(number, d, shift):
    real, fake = torch.from_numpy(np.random.default_rng([d, number]).normal(size=(2, 400, d))).float()
    fake[:, 0] += shift
    return real, fake


def trained(number):
    return features_of_crops(2400)[np.random.default_rng(number).permutation(2400)[:800]].split(400)


def intervals_of_neighbors(draw, *arguments):
    """The least share of intervals that contain the mean over draws (docs/nulls-and-intervals.md)."""

    def values(number, *, intervals):
        real, fake = draw(number, *arguments)
        return NeighborMetrics(real, **OPTIONS, intervals=intervals, seed=number).score(fake).values

    usual = [values(number, intervals=False) for number in range(1000, 1400)]
    truth = {name: np.mean([each[name].value for each in usual]) for name in KS}
    held = [
        [each[name].interval[0] <= truth[name] <= each[name].interval[1] for name in KS]
        for each in (values(number, intervals=True) for number in range(200))
    ]
    return np.mean(held, axis=0).min()


def intervals_of_entities():
    """As above; of each prompt's entities, 70 % are found, and one answer in ten is unreadable (docs/entities.md)."""
    rng, names = np.random.default_rng(1), np.array([f"e{i}" for i in range(8)])

    def metrics(n, **options):
        expected = [{*names[rng.choice(8, rng.integers(1, 4), replace=False)]} for _ in range(n)]
        found = [{name for name in each if rng.random() < 0.7} for each in expected]
        found = [each | {*rng.choice(names, rng.integers(0, 2))} for each in found]
        found = [None if rng.random() < 0.1 else each for each in found]
        return entity_set_metrics(expected, found, vocabulary={*names}, **options)

    truth = metrics(20_000)
    held = [
        [low <= truth[name] <= high for name in ENTITY_METRICS for low, high in [one.scores[name].interval]]
        for one in (metrics(100, seed=seed) for seed in range(200))
    ]
    return np.mean(held, axis=0).min()


def error_of_frechet(d, moved, freedom):
    """The standard error over the spread of draws, with heavy tails for few degrees of freedom."""
    values, errors = [], []
    for number in range(200):
        rng = np.random.default_rng([number, d])
        real, fake = rng.normal(size=(2, 160, d)) / np.sqrt(rng.chisquare(freedom, (2, 160, 1)) / freedom)
        fake = fake * (1 + moved * rng.permuted(np.arange(d)) / d) + moved
        value, influence = frechet_influence(real, fake, device="cpu")
        values.append(value)
        errors.append(influence.standard_error)
    return np.mean(errors) / np.std(values)


def modes_of_a_wide_cloud(d):
    """Number of missing modes of equal distributions without modes."""
    draws = np.random.default_rng(d).normal(size=(5, 2, 1000, d)).astype(np.float32)
    return sum(len(RealKinds.fit(real).missing(fake)) for real, fake in torch.from_numpy(draws))


def rankings_of_equal_generators(one_at_a_time):
    """Share of rankings of 12 equal generators that exclude none (docs/checkpoints.md): shares of 400 fakes."""
    rng, kept, n = np.random.default_rng(12), [], 400
    for _ in range(40):
        good, real = rng.random((n, 12)) < 0.8, 0.4 * rng.normal(size=n)
        sides = [np.where(rng.random((50, n)).argsort(axis=1) < n // 2, 1.0, 0.0) for _ in range(2)]
        first = (sides[0] @ good + (sides[1] @ real)[:, None]) / (n // 2)
        whole = good.mean(axis=0) + real.mean()
        halves = torch.from_numpy(np.stack([first, 2 * whole - first], axis=1).reshape(100, -1))
        known = {"n": n, "seed": 0, "n_real": n, "real_identity": "abc"}
        scores = [Resampled(float(value), each, **known) for value, each in zip(whole, halves.T, strict=True)]
        best = max(scores, key=lambda each: each.value)
        verdicts = [difference(best, each).verdict == "not distinguishable" for each in scores]
        kept.append(all(verdicts if one_at_a_time else against_best(scores).contenders))
    return np.mean(kept)


def gap_to_the_null_of_labels():
    """The largest gap of a perfect generator to its null, in standard errors beyond 0.02 (docs/labels.md)."""
    random, gaps, rates = np.random.default_rng(4), [], ("accuracy", "macro_recall")
    for _ in range(24):  # other sizes and other shares of classes on both sides
        real, fake = blobs(random, [90, 60, 30], spread=0.7), blobs(random, [20, 30, 60], spread=0.7)
        reals = ConditionalReals(*real, k=3, intervals=False)
        one = reals.score(*fake, classes_of_reals=torch.arange(3), n_classes=3)
        pairs = [(each.totals.rates(), each.null.rates()) for each in (one.test, one.train)]
        gaps.append([found[rate] - null[rate] for found, null in pairs for rate in rates])
    return ((np.abs(np.mean(gaps, axis=0)) - 0.02) / (np.std(gaps, axis=0) / np.sqrt(len(gaps)))).max()


CLAIMS = {  # lowest and highest figure; .95 less three standard errors of 200 draws is .9
    **{
        f"intervals {d} {shift}": (intervals_of_neighbors, (normal, d, shift), (0.9, 1))
        for d, shift in ((2, 1.5), (16, 0.0), (64, 3.0))
    },
    "intervals of trained features": (intervals_of_neighbors, (trained,), (0.9, 1)),
    "intervals of entities": (intervals_of_entities, (), (0.9, 1)),
    **{
        f"error of FD {case}": (error_of_frechet, case, (0.88, 1.2))
        for case in ((60, 0.0, 15), (60, 0.3, 1000), (16, 0.3, 15))
    },
    **{f"wide cloud {d}": (modes_of_a_wide_cloud, (d,), (0, 0)) for d in (64, 1024)},
    "null of GAN-test": (gap_to_the_null_of_labels, (), (-np.inf, 3)),
    "equal generators": (rankings_of_equal_generators, (False,), (0.9, 1)),
    "equal generators one at a time": (rankings_of_equal_generators, (True,), (0, 0.8)),
}


@pytest.mark.parametrize("claim", CLAIMS)
def test_figure_of_many_draws_is_in_the_stated_range(claim):
    measure, given, (low, high) = CLAIMS[claim]
    figure = measure(*given)
    print(f"{claim}: {figure:.3g}")  # shown by `pytest -rP`
    assert low <= figure <= high
