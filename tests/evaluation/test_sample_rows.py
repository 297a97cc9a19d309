"""Per-image values equal their definitions, and their means the metrics."""

import numpy as np
import pytest
from oracle import kth_sq_distances, memberships, sq_distances
from raising import raising

import genpr
from genpr.errors import FeatureError, UsageError
from genpr.neighbors.engine import Engine

ALL = ["precision", "recall", "density", "coverage", "realism", "rarity", "authenticity"]
OPTIONS = {"control": False, "intervals": False, "device": "cpu"}


def lattice(rng, n):
    """Rows with many equal distances and some copies."""
    return rng.integers(0, 5, (n, 3)).astype(np.float32)


@pytest.fixture(scope="module")
def sides():
    """Rows on a lattice and in general position; some fakes are copies of reals, and some lie far outside."""
    rng = np.random.default_rng(5)
    real = np.concatenate([lattice(rng, 70), rng.normal(2, 1.5, (43, 3)).astype(np.float32)])
    fake = np.concatenate([lattice(rng, 50), real[:9], rng.normal(2, 3, (61, 3)).astype(np.float32)])
    return real, np.concatenate([fake, 40 + lattice(rng, 4)])


def expected(real, fake, k, ties):
    """Every column by the definition, in plain numpy."""
    between = sq_distances(real, fake)
    sq_radii = {each: kth_sq_distances(real, [each])[0] for each in {*k.values(), 1}}
    within = {each: memberships(between, sq_radii[each], ties) for each in sq_radii}
    kept = sq_radii[k["realism"]] <= np.sort(sq_radii[k["realism"]])[(len(real) - 1) // 2]
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = sq_radii[k["realism"]][:, None] / between
    realism = np.sqrt(np.where(between > 0, ratio, np.inf)[kept].max(axis=0))
    smallest = np.where(within[k["rarity"]], sq_radii[k["rarity"]][:, None], np.inf).min(axis=0)
    rare = np.sqrt(np.where(np.isfinite(smallest), smallest, np.nan))
    radii = np.sqrt(sq_radii[k["rarity"]])
    percentile = np.array([np.nan if np.isnan(r) else 100 * (radii <= r).mean() for r in rare])
    nearest = between.argmin(axis=0)
    covering = within[k["coverage"]]
    return {
        "inside": within[k["precision"]].any(axis=0),
        "n_balls": within[k["density"]].sum(axis=0),
        "realism": realism,
        "rarity": rare,
        "rarity_percentile": percentile,
        "nearest_real": nearest,
        "nearest_real_distance": np.sqrt(between.min(axis=0)),
        "authentic": between.min(axis=0) > sq_radii[1][nearest],
    }, {
        "covered": covering.any(axis=1),
        "n_fakes": covering.sum(axis=1),
        "radius": np.sqrt(sq_radii[k["coverage"]]),
        "other_distance": np.sqrt(sq_radii[1]),
        "nearest_fake": between.argmin(axis=1),
        "nearest_fake_distance": np.sqrt(between.min(axis=1)),
    }


@pytest.mark.parametrize("ties", ["closed", "strict"])
@pytest.mark.parametrize("metrics", [["precision"], ["recall"], ALL], ids=["precision", "recall", "all"])
def test_every_row_equals_its_definition(sides, ties, metrics, monkeypatch):
    if ties == "closed":
        monkeypatch.setattr(Engine, "tiles", Engine(23, 64).tiles)
    found = genpr.Evaluator(sides[0], metrics=metrics, ties=ties, **OPTIONS).evidence(sides[1])
    k = {"precision": 3, "density": 5, "coverage": 5, "realism": 3, "rarity": 3, "authenticity": 1}
    assert found.k == k
    assert found.ties == ties
    for side, columns in zip((found.fake, found.real), expected(*sides, found.k, ties), strict=True):
        assert {"names", *columns} == set(side.columns())
        for name, column in columns.items():
            got = getattr(side, name)
            assert got.dtype == column.dtype, name
            if name in {"rarity", "rarity_percentile", "realism"}:  # roots and quotients, in another order
                np.testing.assert_allclose(got, column, rtol=1e-14, err_msg=name)
            else:
                np.testing.assert_array_equal(got, column, err_msg=name)


@pytest.mark.parametrize("ties", ["closed", "strict"])
@pytest.mark.parametrize("k", [None, 4])
def test_means_equal_the_metrics_to_the_bit(sides, ties, k):
    evaluator = genpr.Evaluator(sides[0], metrics=ALL, ties=ties, k=k, **OPTIONS)
    found = evaluator.evidence(sides[1])
    fake, real, result = found.fake, found.real, found.result
    assert fake.inside.mean() == result["precision"]
    assert fake.n_balls.sum() / (found.k["density"] * len(fake)) == result["density"]
    assert real.covered.mean() == result["coverage"]
    assert real.n_fakes.sum() == fake.n_balls.sum()  # of one k
    assert (real.n_fakes > 0).tolist() == real.covered.tolist()
    assert fake.authentic.mean() == result["authenticity"]
    assert np.median(fake.realism) == result["realism"]
    assert np.nanmean(fake.rarity_percentile) == pytest.approx(result["rarity"], rel=1e-14)
    assert dict(found.k) == {name: result.metrics[name].k or 1 for name in found.k}
    alone = evaluator.score(sides[1])
    assert {name: alone[name] for name in ALL} == {name: result[name] for name in ALL}
    assert alone.notices == result.notices


def test_metrics_without_per_image_values_are_an_error(sides, rng):
    real, fake = sides
    with raising(UsageError, "no-samples", "fd has no values of single images"):
        genpr.Evaluator(real, metrics=["fd"], **OPTIONS).evidence(fake)
    with pytest.raises(FeatureError, match=r"real has 5 images, .* at least 6"):
        genpr.Evaluator(real[:5], metrics=["precision"], **OPTIONS).evidence(fake)
    genpr.Evaluator(real[:6], metrics=["precision"], **OPTIONS).evidence(fake[:2])
