"""Missed and invented modes: counts, validity of the test, and detection of missing modes."""

from collections import Counter

import numpy as np
import pytest
import torch
from raising import raising
from scipy.stats import nbinom

from genpr.errors import FeatureError, UsageError
from genpr.metrics.manifold import KNNManifold
from genpr.metrics.modes import (
    JointNeighbors,
    RealKinds,
    excess_by_relabeling,
    fitted_centers,
    list_length,
    modes_of,
    nearest_centers,
    surprise,
)

CPU = torch.device("cpu")
KINDS = 10


@pytest.fixture(scope="module")
def draw():
    """Features of images of ten kinds."""
    centers = 3 * np.random.default_rng(5).normal(size=(KINDS, 12))

    def of(kinds, seed):
        noise = np.random.default_rng(seed).normal(size=(len(kinds), 12))
        return (centers[kinds] + noise).astype(np.float32)

    return of


@pytest.fixture(scope="module")
def missed(draw):
    """Fakes without kind 3, a tenth of the reals, and with 5 % noise."""
    kinds = np.arange(400) % KINDS
    theirs = np.delete(np.arange(KINDS), 3)[np.arange(380) % 9]
    noise = 40 + np.random.default_rng(7).normal(size=(20, 12))
    fake = np.concatenate([draw(theirs, 2), noise.astype(np.float32)])
    labels = [f"kind {kind}" for kind in kinds]
    return kinds, draw(kinds, 1), fake, modes_of(draw(kinds, 1), fake, real_labels=labels, device="cpu")


def joint_of(features, length=None):
    tensor = torch.from_numpy(features)
    return JointNeighbors.from_features(tensor, length or len(tensor) - 1, device=CPU)


@pytest.mark.parametrize("kind", ["spread", "lattice", "repeats"])
def test_flags_equal_exact_counts_for_any_labeling(rng, kind):
    features = {
        "spread": rng.normal(size=(90, 5)),
        "lattice": rng.integers(0, 3, (90, 3)),
        "repeats": np.repeat(rng.normal(size=(30, 4)), 3, axis=0),
    }[kind].astype(np.float32)
    near = joint_of(features)
    for k in (1, 3, 5):
        is_real = rng.permutation(np.arange(90) < 50)
        manifold = KNNManifold.fit(features[is_real], k=k, device="cpu")
        assert (~near.outside(is_real, k)[~is_real]).tolist() == manifold.contains(
            features[~is_real]
        ).tolist()
        assert not near.outside(is_real, k)[is_real].any()
        sq = ((features[is_real][:, None] - features[~is_real]) ** 2).sum(axis=2)
        covered = (sq <= manifold.sq_radii.numpy()[:, None] * (1 + 1e-6)).any(axis=1)
        assert (~near.uncovered(is_real, k)[is_real]).tolist() == covered.tolist()
        assert not near.uncovered(is_real, k)[~is_real].any()


def test_short_lists_change_little(rng):
    features = rng.normal(size=(400, 6)).astype(np.float32)
    is_real = rng.permutation(np.arange(400) < 200)
    short, full = joint_of(features, list_length(200, 200, 5)), joint_of(features)
    assert short.index.shape[1] < 50
    assert (short.outside(is_real, 3) == full.outside(is_real, 3)).all()
    assert (short.uncovered(is_real, 5) == full.uncovered(is_real, 5)).all()


def test_surprise_is_the_tail_of_a_negative_binomial():
    flagged, mean, spread = np.array([0, 3, 12]), np.array([2.0, 2.0, 5.0]), np.array([1.5, 1.5, 2.0])
    size, chance = mean / (spread - 1), 1 / spread
    expected = -np.log(nbinom.sf(flagged - 1, size, chance))
    assert surprise(flagged, mean, spread) == pytest.approx(expected, abs=1e-9)


def test_p_value_is_the_rank_among_random_labelings():
    """Independent flags: reals of each group among 40 images."""
    is_real, group = np.arange(80) < 40, (np.arange(80) % 4 == 0).astype(int)

    def count(real):
        return np.bincount(group[real], minlength=2), np.array([40, 40])

    expected, p = excess_by_relabeling(is_real, count, seed=0)
    assert expected == pytest.approx([30, 10], abs=0.6)
    assert (p > 0.3).all()
    assert excess_by_relabeling(is_real, count, seed=1)[0].tolist() != expected.tolist()
    assert excess_by_relabeling(group == 1, count, seed=0)[1].tolist() == [1, 1 / 500]


def test_missing_kind_is_first_and_named(missed):
    kinds, real, _, found = missed
    worst = found.uncovered[0]
    assert worst.is_significant
    assert Counter(kinds[list(worst.rows)].tolist()).most_common(1)[0][0] == 3
    assert worst.flagged > 0.9 * 40
    assert worst.flagged / worst.size > 0.8
    assert worst.expected < 0.2 * worst.size
    assert not [each for each in found.uncovered[1:] if each.is_significant]
    rows = real[list(worst.rows)].astype(np.float64)
    sums = ((rows[:, None] - rows) ** 2).sum(axis=(1, 2))
    assert sums.argmin() == 0  # the medoid
    assert sums.tolist() == sorted(sums.tolist())
    assert worst.classes[0][0] == "kind 3"
    assert sum(count for _, count in worst.classes) == worst.flagged


def test_noise_is_an_invented_mode(missed):
    first = missed[3].outside[0]
    assert first.is_significant
    assert set(first.rows) == set(range(380, 400))
    assert (first.others, first.classes) == (0, ())


@pytest.mark.parametrize("case", ["kinds", "hubs", "lattice", "unequal"])
def test_one_distribution_has_no_missed_or_invented_modes(draw, case):
    rng = np.random.default_rng(4)
    sets = {
        "kinds": lambda: (draw(np.arange(200) % KINDS, 11), draw(np.arange(200) % KINDS, 12)),
        "hubs": lambda: rng.normal(size=(2, 150, 200)),
        "lattice": lambda: rng.integers(0, 3, (2, 150, 4)),
        "unequal": lambda: (draw(np.arange(300) % KINDS, 13), draw(np.arange(100) % KINDS, 14)),
    }
    real, fake = sets[case]()
    found = modes_of(real, fake, device="cpu")
    assert not [each for each in (*found.uncovered, *found.outside) if each.is_significant]


@pytest.mark.slow
def test_false_alarms_are_at_most_one_in_twenty(draw):
    """150 pairs of equal distribution: with a rate of .05, more than 14 alarms come in 1.2 % of such tests."""
    alarms = 0
    for run in range(150):
        rng = np.random.default_rng(run)
        kinds, others = rng.integers(0, KINDS, (2, 100))
        found = modes_of(draw(kinds, 2 * run), draw(others, 2 * run + 1), seed=run)
        alarms += any(each.is_significant for each in (*found.uncovered, *found.outside))
    assert alarms <= 14


def test_threads_change_nothing_and_are_restored(rng, monkeypatch):
    import faiss

    train, during = faiss.Kmeans.train, []
    monkeypatch.setattr(
        faiss.Kmeans, "train", lambda *given: during.append(faiss.omp_get_max_threads()) or train(*given)
    )
    part = torch.from_numpy(rng.normal(size=(3000, 20)))
    before, found = faiss.omp_get_max_threads(), []
    try:
        for threads in (1, 2):
            faiss.omp_set_num_threads(threads)
            found.append(fitted_centers(part, 12, seed=3))
            assert faiss.omp_get_max_threads() == threads
    finally:
        faiss.omp_set_num_threads(before)
    assert during == [1, 1]
    assert torch.equal(*found)
    assert not torch.equal(found[0], fitted_centers(part, 12, seed=4))


@pytest.mark.parametrize("scale", [1e-25, 1e25])
def test_centres_are_means_at_any_scale(rng, scale):
    part = torch.from_numpy(scale * (rng.integers(0, 2, (200, 1)) * 9 + rng.normal(size=(200, 3))))
    part = part - part.mean(dim=0)
    centers = fitted_centers(part, 2, seed=0)
    label, sq = nearest_centers(part, part.new_zeros(3), centers)
    for cell in range(2):
        assert centers[cell].numpy() == pytest.approx(part[label == cell].mean(dim=0).numpy(), rel=1e-4)
    assert sq.numpy() == pytest.approx(
        (part - centers[label]).square().sum(dim=1).numpy(), rel=1e-6, abs=1e-9 * scale**2
    )


def test_limited_subsets_report_rows_of_the_whole_set(draw):
    kinds, theirs = np.arange(600) % KINDS, np.delete(np.arange(KINDS), 3)[np.arange(300) % 9]
    real, fake = draw(kinds, 1), draw(theirs, 2)
    labels = [f"kind {kind}" for kind in kinds]
    found = modes_of(real, fake, most=200, real_labels=labels, seed=2**31 + 2)
    assert (found.n_real, found.n_fake) == (200, 200)
    assert found.uncovered[0].is_significant
    assert {labels[row] for row in found.uncovered[0].rows} == {"kind 3"}
    assert max(row for each in found.uncovered for row in each.rows) >= 200
    for each in found.uncovered:
        assert dict(each.classes) == Counter(labels[row] for row in each.rows)
    assert modes_of(real, fake, most=600) == modes_of(real, fake)


@pytest.mark.parametrize(
    ("n", "options", "code"),
    [
        (60, {"uncovered_k": 0}, "bad-k"),
        (60, {"clusters": 31}, "bad-option"),
        (60, {"seed": -1}, "bad-option"),
        (49, {}, "too-few"),
    ],
)
def test_sets_that_cannot_be_searched_are_errors(n, options, code):
    with raising((UsageError, FeatureError), code):
        modes_of(np.ones((n, 3)), np.ones((60, 3)), **options)


def missing_kinds(real, fake, **options):
    return RealKinds.fit(real).missing(fake, **options)


@pytest.fixture
def modes(rng):
    centers = 8 * rng.normal(size=(5, 12))

    def draw(counts):
        rows = [centers[mode] + rng.normal(size=(count, 12)) for mode, count in enumerate(counts)]
        return torch.from_numpy(np.concatenate(rows).astype(np.float32))

    return draw


def test_missing_mode_is_found_with_one_of_its_images(modes):
    real, fake = modes([200] * 5), modes([250, 250, 0, 250, 250])
    kinds = missing_kinds(real, fake)
    assert sum(kind.real_share for kind in kinds) == pytest.approx(0.2, abs=0.04)
    assert sum(kind.fake_share for kind in kinds) == 0
    assert all(400 <= kind.row < 600 for kind in kinds)
    assert [kind.real_share for kind in kinds] == sorted((kind.real_share for kind in kinds), reverse=True)


def test_almost_empty_mode_is_missing_and_a_rarer_one_is_not(modes):
    real = modes([200] * 5)
    assert missing_kinds(real, modes([240, 240, 25, 240, 240]))
    assert missing_kinds(real, modes([220, 220, 110, 220, 220])) == ()


def test_equal_sets_of_any_size_have_no_missing_modes(modes):
    for reals, fakes in ((200, 200), (400, 60), (60, 400)):
        assert missing_kinds(modes([reals] * 5), modes([fakes] * 5)) == ()
