"""Intervals of metrics of distributions: influence against derivatives, and standard errors against many draws."""

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from scipy import stats

import genpr
from genpr.evaluation.compare import compare, resampled
from genpr.metrics.fakes_only import inception_score_influence
from genpr.metrics.frechet import Gaussian, frechet_influence
from genpr.metrics.influence import Influence, SquaredDistance, with_interval
from genpr.metrics.kernel import cmmd_influence, kernel_influence
from genpr.metrics.metric import DistributionOptions, MetricValue
from genpr.metrics.mind import mind_influence
from genpr.metrics.registry import INCEPTION_SCORE
from genpr.metrics.uncertainty import difference, standard_error
from genpr.neighbors.halves import Halves

on_each_device = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])


def inception(_real, fake, **options):
    score, influence = inception_score_influence((9 * fake).softmax(dim=1), **options)
    return score.mean, influence


def kernel(real, fake, **options):
    found, influence = kernel_influence(real, fake, subsets=5, subset_size=25, **options)
    return found.mean, influence


FUNCTIONS = {
    "fd": frechet_influence,
    "kd": kernel,
    "cmmd": cmmd_influence,
    "mind": partial(mind_influence, directions=40),
    "is": inception,
}


def measured(name, *sides):
    """The value of a metric with its interval."""
    value, influence = FUNCTIONS[name](*sides, device="cpu")
    return with_interval(MetricValue(value, None), influence, seed=0)


def drawn(number, *, n=200, m=150, d=6, moved=0.0):
    """Reals, and fakes shifted by `moved`: (n, d) and (m, d) float64, off center."""
    rng = np.random.default_rng([number, n, m])
    real, fake = rng.normal(size=(n, d)), rng.normal(size=(m, d)) * (1 + moved * np.arange(d))
    fake[:, 0] += 2 * moved
    return torch.from_numpy(5 + 0.05 * real), torch.from_numpy(5 + 0.05 * fake)


@pytest.mark.parametrize("moved", [0.0, 0.15])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_standard_error_is_the_spread_over_draws(name, moved):
    found = [FUNCTIONS[name](*drawn(number, moved=moved), device="cpu") for number in range(60)]
    error = np.mean([influence.standard_error for _, influence in found])
    assert error == pytest.approx(np.std([value for value, _ in found], ddof=1), rel=0.3)


def weighted_frechet(weights, real, fake):
    mean = weights @ real
    scale = len(real) / (len(real) - 1)
    covariance = scale * (real - mean).T @ ((real - mean) * weights[:, None])
    return genpr.frechet_distance(Gaussian(mean, covariance), Gaussian.from_features(fake))


def gaussian_kernels(real, fake):
    """Of CMMD among reals, from reals to fakes, and among fakes."""
    real, fake = (side / side.norm(dim=1, keepdim=True) for side in (real, fake))
    pairs = (real, real), (real, fake), (fake, fake)
    return [torch.exp(-torch.cdist(*each).square() / 200) for each in pairs]


def weighted_cmmd(weights, real, fake):
    among, across, of_fakes = gaussian_kernels(real, fake)
    return float(1000 * (weights @ among @ weights + of_fakes.mean() - 2 * weights @ across.mean(dim=1)))


def weighted_kernel(weights, real, fake):
    def cubic(a, b):
        return (a @ b.T / a.shape[1] + 1) ** 3

    n, among = len(real), cubic(real, real)
    among = among - torch.diag(among.diagonal())
    across = cubic(real, fake).mean(dim=1)
    return float(weights @ among @ weights * n / (n - 1) - 2 * weights @ across)


def weighted_inception(weights, shares, _):
    mean = weights @ shares
    return float((weights @ (shares * (shares / mean).log()).sum(dim=1)).exp())


def derivatives(function, real, fake, rows, step=1e-5):
    """Derivatives by the weight of single rows, for weights that sum to 1."""
    n = len(real)
    start = torch.full((n,), 1 / n, dtype=torch.float64)
    found = []
    for row in rows:
        ends = []
        for sign in (1, -1):
            weights = start * (1 - sign * step)
            weights[row] += sign * step
            ends.append(function(weights, real, fake))
        found.append((ends[0] - ends[1]) / (2 * step))
    return np.array(found)


@pytest.mark.parametrize("is_swapped", [False, True])
@pytest.mark.parametrize(
    ("function", "influence", "tolerance"),
    [
        (weighted_frechet, frechet_influence, 0.05),  # less half of what a row does to itself, of order d / n
        (weighted_cmmd, cmmd_influence, 1e-5),
        (weighted_kernel, partial(kernel_influence, subsets=3), 0.02),  # 1 / n is left out
    ],
)
def test_influence_is_the_derivative_by_the_weight_of_a_row(function, influence, tolerance, is_swapped):
    real, fake = drawn(0, n=400, m=400, d=3, moved=0.4)
    real, fake = 20 * (real - 5), 20 * (fake - 5)
    rows = range(0, 400, 80)
    _, found = influence(real, fake, device="cpu")
    phi = found.fake if is_swapped else found.real
    sides = (fake, real) if is_swapped else (real, fake)
    expected = derivatives(function, *sides, rows)
    assert phi.sum() == pytest.approx(0, abs=1e-6 * float(phi.std()))
    assert phi[rows].numpy() == pytest.approx(expected, abs=tolerance * float(phi.std()))


def test_influence_on_the_inception_score_is_its_derivative():
    shares = (9 * drawn(0, m=900)[1]).softmax(dim=1)
    _, found = inception_score_influence(shares, split_size=900, seed=None, device="cpu")
    expected = derivatives(weighted_inception, shares, None, range(90))
    assert found.fake[:90].numpy() == pytest.approx(expected, abs=0.03 * float(found.fake.std()))
    assert found.real is None


def test_influence_on_the_sliced_distance_of_a_shift_is_linear(monkeypatch):
    """Moved by v along one dimension, reals have the potential -2 v x, and fakes 2 v y, three times; in parts of 1 and 2."""
    monkeypatch.setattr("genpr.metrics.mind._PROJECTIONS", 2 * 4000)
    rng = np.random.default_rng(0)
    real, fake = rng.normal(size=(4000, 1)), rng.normal(size=(5000, 1)) + 2
    _, found = mind_influence(real, fake, directions=3, device="cpu")
    drawn_fakes = found.fake != 0
    assert int(drawn_fakes.sum()) == pytest.approx(4000, abs=3)
    scaled = found.fake[drawn_fakes].numpy() * 4000 / 5000
    for phi, x, sign in ((found.real.numpy(), real, -1), (scaled, fake[drawn_fakes.numpy()], 1)):
        assert phi == pytest.approx(sign * 12 * (x[:, 0] - x.mean()), abs=2)
        assert phi.std() == pytest.approx(12 * x.std(), rel=0.05)


@on_each_device
@pytest.mark.parametrize("name", FUNCTIONS)
def test_replicates_have_the_standard_error_of_the_interval(name, device):
    value, influence = FUNCTIONS[name](*drawn(1, moved=0.2), device=device)
    of_splits = [standard_error(influence.replicates(value, seed=seed)) for seed in range(20)]
    assert np.mean(of_splits) == pytest.approx(influence.standard_error, rel=0.05)
    halves, moves = influence.replicates(value, seed=3), 0
    for stream, phi in enumerate((influence.real, influence.fake)):
        if phi is not None:
            drawn_halves = Halves.drawn(len(phi), seed=3, stream=stream, count=100, device=phi.device)
            moves = moves + 2 * (drawn_halves.members().double() @ phi).cpu() / len(phi)
    scale = influence.standard_error / math.sqrt(influence.jackknife_variance)
    assert halves.numpy() == pytest.approx((value + scale * moves).numpy(), rel=1e-9)


@pytest.mark.gpu
@pytest.mark.parametrize("name", FUNCTIONS)
def test_gpu_influence_equals_cpu_influence(name):
    sides = drawn(2, n=300, m=310, d=24, moved=0.1)
    (value, ours), (expected, theirs) = (FUNCTIONS[name](*sides, device=each) for each in ("cuda", "cpu"))
    assert value == pytest.approx(expected, rel=1e-6)
    assert ours.standard_error == pytest.approx(theirs.standard_error, rel=1e-6)
    assert ours.second_order == pytest.approx(theirs.second_order, rel=1e-6)
    assert ours.fake.cpu().numpy() == pytest.approx(theirs.fake.numpy(), abs=1e-6 * float(theirs.fake.std()))


METRICS = ["fd", "kd", "mind"]


def scored(real, fake, **options):
    return genpr.score(real.numpy(), fake.numpy(), metrics=METRICS, control=False, **options)


def test_values_do_not_depend_on_intervals():
    for number, d in ((0, 3), (2, 200), (3, 140)):
        real, fake = drawn(number, n=150, m=140, d=d, moved=0.01)
        plain = scored(real, fake, intervals=False)
        for name, metric in scored(real, fake).metrics.items():
            assert metric.value == plain[name]
            assert (metric.interval is None) == (name == "fd" and d >= 140)  # as many features as images
            assert plain.metrics[name].interval is plain.metrics[name].replicates is None
        assert genpr.Evaluator(real.numpy(), metrics=METRICS).score(fake.numpy())["fd"] == plain["fd"]


def test_intervals_of_scores_are_of_other_draws_of_both_sets():
    real, fake = (side.float() for side in drawn(0, moved=0.2))
    value, influence = frechet_influence(real, fake, device="cpu")
    found = scored(real, fake).metrics["fd"]
    assert (found.value, *found.interval) == pytest.approx((value, *influence.interval(value)), rel=1e-6)


def test_variation_of_the_reals_cancels_in_differences():
    """One set of fakes is slightly wider than the other."""
    real, fake = drawn(0, moved=0.2)
    results = {"a": scored(real, fake), "b": scored(real, 5 + 1.03 * (fake - 5))}
    for name in METRICS:
        contrast = compare(results).contrast("b", name)
        assert contrast is not None
        assert contrast.pairing == "paired"
        sides = [replace(resampled(each, name), real_identity=None) for each in results.values()]
        unpaired = difference(*sides)
        assert unpaired.pairing == "unpaired"
        paired_width, width = (each.interval.high - each.interval.low for each in (contrast, unpaired))
        assert paired_width < 0.5 * width


def test_reals_given_as_moments_have_no_variance():
    real, fake = drawn(0, n=100, m=1000, moved=0.1)
    value, both = frechet_influence(real, fake, device="cpu")
    found, alone = frechet_influence(Gaussian.from_features(real), fake, device="cpu")
    assert found == value
    assert alone.real is None
    assert alone.standard_error < 0.7 * both.standard_error
    assert frechet_influence(real, Gaussian.from_features(fake))[1] is None  # fakes without images


@pytest.mark.parametrize(
    ("n", "m", "d", "tolerance"),
    [
        (300, 200, 20, 0.05),
        (100, 80, 40, 0.17),  # .86 of it, and .78 without the factor of c
        (9000, 6000, 6, 0.15),  # the second order is computed from a part of the rows
    ],
)
def test_bias_is_the_mean_distance_of_equal_distributions(n, m, d, tolerance):
    values, biases = [], []
    for number in range(30):
        value, influence = frechet_influence(*drawn(number, n=n, m=m, d=d), device="cpu")
        values.append(value)
        biases.append(influence.bias)
    # The distance of equal distributions is 0.
    assert np.mean(biases) == pytest.approx(np.mean(values), rel=tolerance)


def test_second_order_of_the_frechet_distance_in_one_dimension():
    """It is e^2 of the means and of the standard deviations, and both errors are normal."""
    rng, n, m, found = np.random.default_rng(0), 2000, 500, []
    for _ in range(20):
        _, influence = frechet_influence(rng.normal(size=(n, 1)), rng.normal(1, 2, (m, 1)), device="cpu")
        found.append((influence.bias, influence.second_order))
    of_means, of_deviations = 1 / n + 4 / m, 1 / n + 1 / m  # times the product of the deviations over 2
    expected = of_means + of_deviations, 2 * of_means**2 + 2 * of_deviations**2
    assert np.mean(found, axis=0) == pytest.approx(expected, rel=0.05)


def test_few_rows_in_each_subset_have_the_influence_of_all_on_average():
    real, fake = (20 * (side - 5) for side in drawn(0, n=300, m=300, moved=0.4))
    _, whole = kernel_influence(real, fake, subsets=1, device="cpu")
    _, found = kernel_influence(real, fake, subsets=100, subset_size=60, device="cpu")
    for ours, theirs in ((found.real, whole.real), (found.fake, whole.fake)):
        assert float(ours @ theirs / theirs.square().sum()) == pytest.approx(1, abs=0.1)


def test_second_order_of_the_inception_score_of_certain_images():
    """Equally frequent classes have no first order."""
    found = []
    for number in range(30):
        classes = np.random.default_rng(number).integers(0, 10, 2000)
        shares = torch.from_numpy(0.001 + 0.99 * np.eye(10)[classes])
        found.append(inception_score_influence(shares, device="cpu")[1])
    share = np.mean([each.second_order for each in found]) / np.mean(
        [each.jackknife_variance for each in found]
    )
    assert share == pytest.approx(0.5, abs=0.1)


def second_order_of(among, across, of_fakes):
    """From the mean squares of centered kernels; those within a set without its diagonal (Szekely and Rizzo 2014)."""
    n, m = across.shape
    kernels = across - across.mean(axis=0) - across.mean(axis=1, keepdims=True) + across.mean()
    total = 4 * np.square(kernels).sum() / ((n - 1) * (m - 1) * n * m)
    for kernels in (among, of_fakes):
        n = len(kernels)
        np.fill_diagonal(kernels, 0)
        rows = kernels.sum(axis=0) / (n - 2)
        kernels = kernels - rows - rows[:, None] + rows.sum() / (n - 1)
        np.fill_diagonal(kernels, 0)
        total += 2 * np.square(kernels).sum() / (n * (n - 3) * n * (n - 1))
    return float(total)


def test_bias_of_cmmd_is_without_equal_pairs_and_second_order_the_mean_square_of_centered_kernels():
    sides = [side.float().double() for side in drawn(0, n=300, m=200, moved=0.3)]
    value, influence = cmmd_influence(*sides, device="cpu")
    among, across, of_fakes = gaussian_kernels(*sides)
    within = [float(each[~torch.eye(len(each), dtype=torch.bool)].mean()) for each in (among, of_fakes)]
    unbiased = 1000 * (sum(within) - 2 * float(across.mean()))
    assert influence.bias == pytest.approx(value - unbiased, rel=1e-6)
    expected = second_order_of(among.numpy(), across.numpy(), of_fakes.numpy())
    assert influence.second_order == pytest.approx(1e6 * expected, rel=0.05)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_identical_sets_have_an_interval_of_positive_width(name):
    real = drawn(0)[0].float()
    found = measured(name, real, real)
    low, high = found.interval
    assert low < found.value < high < math.inf
    assert np.isfinite(found.replicates).all()
    assert np.std(found.replicates) > 0


def test_identical_images_have_no_interval():
    shares = torch.full((100, 4), 0.25, dtype=torch.float64)
    score, influence = inception_score_influence(shares, device="cpu")
    assert with_interval(MetricValue(score.mean, None), influence, seed=0).interval is None
    same, others = (
        torch.tensor(row, dtype=torch.float64).expand(n, 4)
        for row, n in (([1.3, 1.0, 1.0, 1.0], 100), ([2.0, 3.4, 2.0, 2.0], 80))
    )
    for name in ("fd", "cmmd", "kd", "mind"):
        for other in (same, others):
            assert measured(name, same, other).interval is None


@pytest.mark.parametrize(("offset", "tolerance"), [(0.0, 1e-6), (1e3, 1e-4), (1e5, 0.05)])
@pytest.mark.parametrize("subsets", [1, 200])  # by subset, and from all pairs at once
def test_second_order_of_the_kernel_distance_is_the_mean_square_of_centered_kernels(
    subsets, offset, tolerance
):
    """Each subset has all rows. Far from the origin, kernels have nearly the same value."""
    n = 100
    sides = [20 * side + offset for side in drawn(0, n=n, m=n, moved=0.3)]
    _, influence = kernel_influence(*sides, subsets=subsets, subset_size=n, device="cpu")
    x, y = (side.numpy().astype(np.longdouble) for side in sides)
    expected = second_order_of(*((a @ b.T / 6 + 1) ** 3 for a, b in ((x, x), (x, y), (y, y))))
    assert influence.second_order == pytest.approx(expected, rel=tolerance)


def test_intervals_and_replicates_do_not_depend_on_the_number_of_threads():
    phi = torch.randn(5000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    sides, found = drawn(0, n=900, m=800, moved=0.1), []
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            _, influence = cmmd_influence(*sides, device="cpu")
            replicates = Influence(None, phi).replicates(0.0, seed=0).tolist()
            found.append((influence.second_order, influence.standard_error, replicates))
    finally:
        torch.set_num_threads(before)
    assert found[0] == found[1] == found[2]


def test_constant_features_change_nothing():
    real, fake = drawn(0, moved=0.1)
    value, influence = frechet_influence(real, fake, device="cpu")
    padded = [torch.nn.functional.pad(side, (1, 2), value=3.0) for side in (real, fake)]
    found, ours = frechet_influence(*padded, device="cpu")
    assert found == pytest.approx(value, rel=1e-6)
    assert ours.standard_error == pytest.approx(influence.standard_error, rel=1e-6)


def test_error_without_a_first_order_term_is_that_of_the_second_order():
    none = torch.zeros(40, dtype=torch.float64)
    influence = Influence(none, none, second_order=0.25)
    assert influence.standard_error == 0.5
    assert standard_error(influence.replicates(1.0, seed=0)) == pytest.approx(0.5)


def of_squares(draw, eigenvalues, means, *, knows_bias):
    """A value sum l (z + m)^2 of normal z, and an influence with its exact variances of both orders."""
    z = np.random.default_rng(draw).normal(size=len(eigenvalues)) + means
    value = float(eigenvalues @ z**2)
    phi = math.sqrt(4 * float(eigenvalues**2 @ z**2) * 50)
    signs = torch.tensor([1.0, -1.0], dtype=torch.float64).repeat(25)
    unbiased = value - float(eigenvalues.sum()) if knows_bias else None
    return value, Influence(
        None,
        phi * signs,
        second_order=2 * float(eigenvalues @ eigenvalues),
        squared=SquaredDistance(value, unbiased),
    )


@pytest.mark.parametrize("knows_bias", [True, False])
@pytest.mark.parametrize("distance", [0.0, 8.0, 200.0])
@pytest.mark.parametrize("count", [1, 40])
def test_intervals_of_squared_distances_hold_the_expectation(count, distance, knows_bias):
    """Also near equality, where value +- error would contain it in over 99 % for one eigenvalue."""
    eigenvalues, means = np.ones(count), np.sqrt(np.full(count, distance / count))
    expectation, missed_below, missed_above, draws = count + distance, 0, 0, 1000
    for draw in range(draws):
        value, influence = of_squares(draw, eigenvalues, means, knows_bias=knows_bias)
        low, high = influence.interval(value)
        assert low < value < high
        missed_below += high < expectation
        missed_above += low > expectation
    assert 0.01 < (missed_below + missed_above) / draws < 0.07
    assert missed_below / draws < 0.05
    assert missed_above / draws < 0.05


def test_ends_of_an_interval_are_the_values_whose_own_variance_explains_the_estimate():
    """Far from equality, where the variance is proportional to the distance, and where the second order is the floor."""
    quantile = stats.t.ppf(0.975, 1 / (2 / 100 + 1 / 50))
    value, influence = of_squares(0, np.ones(1), np.array([40.0]), knows_bias=True)
    for end in influence.interval(value):
        assert (end - value) ** 2 == pytest.approx(quantile**2 * (4 * (end - 1) + 2), rel=1e-9)
    phi = torch.tensor([1e-6, -1e-6], dtype=torch.float64).repeat(25)
    influence = Influence(None, phi, second_order=0.09, squared=SquaredDistance(5.0, 0.0))
    assert influence.interval(5.0) == pytest.approx((5 - quantile * 0.3, 5 + quantile * 0.3), rel=1e-5)
    # Estimates of V1 and of the distance with different signs: the variance does not fall with the distance.
    phi = torch.tensor([1.0, -1.0], dtype=torch.float64).repeat(25)  # of a mean square of 1 / 50
    influence = Influence(None, phi, second_order=0.005, squared=SquaredDistance(1.0, -0.5))
    half = quantile * math.sqrt(0.02 - 0.005)
    assert influence.interval(1.0) == pytest.approx((1 - half, 1 + half), rel=1e-9)
    # A total that is small by chance: the slope is no more than that of a single eigenvalue.
    influence = Influence(None, phi, second_order=0.01, squared=SquaredDistance(1e-9, None))
    high = influence.interval(0.0)[1]
    assert high**2 == pytest.approx(quantile**2 * (0.02 - 0.01 + math.sqrt(0.08) * high), rel=1e-9)


@pytest.mark.parametrize("name", ["fd", "kd", "cmmd", "mind"])
def test_squared_distances_have_longer_intervals_above_the_value(name):
    value, influence = FUNCTIONS[name](*drawn(0, moved=0.15), device="cpu")
    low, high = influence.interval(value)
    assert high - value > 1.01 * (value - low)
    total, unbiased = influence.squared
    assert total > value if name == "kd" else total == value
    expected = {"kd": value, "mind": None}.get(name, value - (influence.bias or 0.0))
    assert unbiased == (None if expected is None else pytest.approx(expected))
    assert unbiased is None or unbiased < total


@pytest.mark.parametrize(("subsets", "size", "tolerance"), [(1, 60, 1e-6), (2000, 20, 0.02)])
def test_pairs_of_a_row_with_itself_add_to_the_kernel_distance_what_those_of_all_rows_do(
    subsets, size, tolerance
):
    """Gretton et al. 2012, eq. 5."""
    sides = drawn(0, n=60, m=60 if subsets == 1 else 30, moved=3.0)  # more for fakes
    found, influence = kernel_influence(*sides, subsets=subsets, subset_size=size, device="cpu")
    assert influence.squared.unbiased == found.mean < influence.squared.total
    expected = 0.0
    for side in sides:
        kernels, n = (side @ side.T / 6 + 1) ** 3, len(side)
        own, among = float(kernels.trace()), float(kernels.sum())
        expected += (own / n - (among - own) / (n * (n - 1))) / n
    assert influence.squared.total - found.mean == pytest.approx(expected, rel=tolerance)


@pytest.mark.parametrize("name", ["fd", "mind"])
def test_heavy_tails_have_no_interval(name):
    """Few rows carry the variance, so that a sample does not show what other draws may contain."""
    rng = np.random.default_rng(0)
    heavy, light = (
        torch.from_numpy(each) for each in (rng.standard_t(2, (2, 400, 8)), rng.normal(size=(2, 400, 8)))
    )
    for sets, has_interval in ((heavy, False), (light, True)):
        value, influence = FUNCTIONS[name](*sets, device="cpu")
        found = with_interval(MetricValue(value, None), influence, seed=0)
        assert (found.interval is not None, found.replicates is not None) == (has_interval, has_interval)
        assert found.bias == influence.bias
        assert (found.bias is not None) == (name == "fd")


def test_effective_number_weights_images_by_their_share_of_the_variance():
    real, fake = (torch.tensor([1.0, -1.0], dtype=torch.float64).repeat(count) for count in (50, 5))
    # Weights of 1 / 100^2 and 1 / 10^2.
    expected = (100 * 1e-4 + 10 * 1e-2) ** 2 / (100 * 1e-8 + 10 * 1e-4)
    assert Influence(real, fake).effective_number == pytest.approx(expected)
    assert Influence(None, fake).effective_number == pytest.approx(10)
    assert Influence(None, 1e100 * fake).effective_number == pytest.approx(10)


def test_interval_is_cut_at_the_smallest_possible_value():
    phi = torch.tensor([1.0, -1.0], dtype=torch.float64).repeat(50)
    influence = Influence(None, phi, bias=0.25)
    assert influence.standard_error == pytest.approx(0.1)
    half = stats.t.ppf(0.975, 1 / (2 / 100 + 1 / 50)) * 0.1
    for lower, low in ((None, 1 - half), (0.5, 1 - half), (0.9, 0.9)):
        found = with_interval(MetricValue(1.0, None), influence, seed=0, lower=lower)
        assert found.interval == pytest.approx((low, 1 + half))
        assert found.bias == 0.25


def test_intervals_of_scores_end_at_the_bounds_of_their_metrics():
    """For sets of one distribution, only unbiased estimates may be negative; Inception Scores are at least 1."""
    real, fake = drawn(0)
    lows = {name: metric.interval[0] for name, metric in scored(real, fake).metrics.items()}
    assert lows["fd"] >= 0
    assert lows["mind"] >= 0
    assert lows["kd"] < 0
    options = DistributionOptions(device=torch.device("cpu"), interval_seed=0)
    found = INCEPTION_SCORE.compute(None, (0.01 * fake).softmax(dim=1), options)
    assert 1 <= found.interval[0] <= found.value


def test_sets_without_a_direction_in_common_have_no_interval_of_the_frechet_distance():
    """The trace of the root is 0 there, and the root has no derivative."""
    rows = torch.from_numpy(np.random.default_rng(0).normal(size=(2, 50, 2)))
    real, fake = (
        torch.nn.functional.pad(side, pad) for side, pad in zip(rows, [(0, 2), (2, 0)], strict=True)
    )
    assert scored(real, fake).metrics["fd"].interval is None
    value, influence = frechet_influence(real, fake, device="cpu")
    assert influence is None
    assert value == genpr.frechet_distance(real, fake)


def test_error_of_the_inception_score_does_not_depend_on_the_order_of_images():
    """Neighbors in a file are often of one class; random pairs of images seldom are."""
    rng = np.random.default_rng(0)
    classes = rng.integers(0, 100, 1000)
    logits = rng.normal(size=(1000, 100)) + 8 * (np.arange(100) == classes[:, None])
    shares = torch.from_numpy(logits).softmax(dim=1)
    found = [
        inception_score_influence(shares[order], split_size=1000, seed=None, device="cpu")[1]
        for order in (np.arange(1000), np.argsort(classes))
    ]
    assert found[1].standard_error == pytest.approx(found[0].standard_error, rel=0.15)
