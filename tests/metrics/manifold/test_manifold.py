"""Counts and the four metrics: against an oracle, of saved manifolds, with progress, and without side effects."""

import math

import feature_cases
import numpy as np
import oracle
import pytest
import torch
from raising import raising

import genpr
from genpr.errors import DataError, FeatureError, UsageError
from genpr.metrics.manifold import (
    KNNManifold,
    PrecisionRecall,
    manifold_metrics,
    precision_recall,
)
from genpr.metrics.neighbor_metrics import NeighborMetrics
from genpr.neighbors import index
from genpr.neighbors.counts import Neighborhood
from genpr.neighbors.engine import Engine
from genpr.runtime import torch_threads
from genpr.storage import save_tensors


def _column(*values):
    return np.array(values, dtype=np.float64)[:, None]


@pytest.mark.parametrize("case", feature_cases.names())
@pytest.mark.parametrize(("k", "ties"), [(3, "closed"), (5, "strict")])
def test_every_count_equals_the_oracle(case, k, ties):
    real, fake = feature_cases.make(case)
    expected = oracle.manifold_metrics(real, fake, k, ties)
    assert manifold_metrics(real, fake, k=k, ties=ties) == expected
    assert precision_recall(real, fake, k=k, ties=ties) == expected[:2]
    counts = KNNManifold.fit(real, k=k, ties=ties).count(fake)
    assert (int((counts > 0).sum()) / len(fake), int(counts.sum()) / (k * len(fake))) == expected[::2]


@pytest.mark.parametrize("case", ["binary_grid_full_of_ties", "near_duplicates", "outlier_in_both"])
def test_counts_are_equivariant_to_permutations_of_rows(case, rng):
    real, fake = feature_cases.make(case)
    counts, order = KNNManifold.fit(real).count(fake), rng.permutation(len(fake))
    assert KNNManifold.fit(rng.permutation(real)).count(fake[order]).tolist() == counts[order].tolist()


def test_f_score_is_the_weighted_harmonic_mean():
    assert PrecisionRecall(0.5, 1.0).f_score() == pytest.approx(2 / 3)
    assert PrecisionRecall(0.5, 1.0).f_score(beta=2) == pytest.approx(5 / 6)
    for beta in (0, -1, math.nan):
        with pytest.raises(UsageError, match="beta must be positive"):
            PrecisionRecall(0.5, 0.5).f_score(beta)


class TestKNNManifold:
    def test_contains_and_count_equal_hand_computed_values(self):
        real, queries = _column(0, 1, 3, 7), _column(-1, -1.5, 0.5, 2, 5, 11, 12)
        manifold = KNNManifold.fit(real, k=1)
        assert manifold.radii.tolist() == [1, 1, 2, 4]
        assert manifold.sq_radii.tolist() == [1, 1, 4, 16]
        assert manifold.count(queries).tolist() == [1, 0, 2, 2, 2, 1, 0]
        assert manifold.contains(queries).tolist() == [True, False, True, True, True, True, False]
        strict = KNNManifold.fit(real, k=1, ties="strict")
        assert strict.count(queries).tolist() == [0, 0, 2, 1, 1, 0, 0]

    def test_roots_are_correctly_rounded(self, rng):
        real, fake = rng.normal(5, 0.05, size=(2, 2000, 8)).astype(np.float32)
        manifold = KNNManifold.fit(real, k=3)
        roots = np.sqrt(manifold.sq_radii.numpy())
        assert np.array_equal(manifold.radii.numpy(), roots)
        score, percentile = (each.numpy() for each in manifold.rarity(fake))
        assert np.isin(score[np.isfinite(score)], roots).all()
        at_most = np.searchsorted(np.sort(roots), score, side="right")
        assert np.array_equal(
            percentile, np.where(np.isfinite(score), 100 * (at_most / 2000), np.nan), equal_nan=True
        )

    @pytest.mark.parametrize("convert", [np.asarray, torch.from_numpy])
    def test_manifold_does_not_change_with_the_fitted_array(self, rng, convert):
        points = rng.normal(size=(50, 3)).astype(np.float32)
        queries = points.copy()  # ties: their answers rest on the features themselves
        manifold = KNNManifold.fit(convert(points))
        before = manifold.count(queries)
        points[:] = 99
        assert torch.equal(manifold.count(queries), before)
        assert manifold.features.tolist() == queries.tolist()
        with pytest.raises(AttributeError):
            manifold.balls = None


GOOD = np.random.default_rng(0).normal(size=(20, 3))


@pytest.mark.parametrize("score", [manifold_metrics, precision_recall])
@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        *(({"k": k}, "bad-k", "k must be an integer of at least 1") for k in (0, 2.5, True)),
        *(({"ties": ties}, "bad-ties", "ties must be 'closed'") for ties in ("open", None, 1)),
    ],
)
def test_invalid_options_are_errors(score, options, code, message):
    with raising(UsageError, code, message):
        score(GOOD, GOOD, **options)


@pytest.mark.parametrize(
    ("real", "fake", "code", "message"),
    [
        (GOOD[:3], GOOD, "too-few", "real needs at least k \\+ 1 = 4 rows, found 3"),
        (GOOD, GOOD[:3], "too-few", "fake needs at least k \\+ 1 = 4 rows, found 3"),
        (GOOD, GOOD[:, :2], "width-mismatch", "real has 3 features per image but fake has 2"),
        (GOOD, np.where(np.eye(20, 3) == 1, np.nan, GOOD), "non-finite", "fake features must be finite"),
    ],
    ids=["few reals", "few fakes", "widths", "not finite"],
)
def test_invalid_sets_are_errors_before_anything_is_computed(real, fake, code, message, monkeypatch):
    monkeypatch.setattr(Neighborhood, "from_points", lambda *_, **__: pytest.fail("computed"))
    for score in (manifold_metrics, precision_recall):
        with raising(FeatureError, code, message):
            score(real, fake, k=3)


def test_k_plus_one_rows_are_sufficient():
    assert precision_recall(GOOD[:4], GOOD[:4]) == (1, 1)


def _state():
    return (
        torch.get_float32_matmul_precision(),
        torch.backends.cudnn.allow_tf32,
        torch.backends.cudnn.benchmark,
        torch.backends.cudnn.deterministic,
        torch.are_deterministic_algorithms_enabled(),
        torch.get_default_dtype(),
        torch.is_grad_enabled(),
        torch.is_autocast_enabled("cpu"),
        torch.get_num_threads(),
        torch.get_rng_state().tolist(),
        np.random.get_state()[1].tolist(),  # noqa: NPY002 - the global state is what must not change
        np.geterr(),
    )


def test_global_state_is_unchanged(rng):
    real, fake = rng.normal(5, 0.05, (2, 80, 32))
    plain = manifold_metrics(real, fake)
    torch.set_float32_matmul_precision("medium")
    torch.set_default_dtype(torch.float64)
    torch.use_deterministic_algorithms(True)
    try:
        before = _state()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert manifold_metrics(real, fake) == plain
            KNNManifold.fit(real).contains(fake)
        assert _state() == before
    finally:
        torch.set_float32_matmul_precision("highest")
        torch.set_default_dtype(torch.float32)
        torch.use_deterministic_algorithms(False)


def test_inference_mode_gives_the_same_values(rng):
    real, fake = torch.from_numpy(rng.normal(size=(2, 60, 8)))
    with torch.inference_mode():
        inside = manifold_metrics(real, fake)
    assert inside == manifold_metrics(real, fake)


def _learned(rng, n):
    """Features for which the search uses directions and clusters."""
    spread = rng.normal(size=(12, 160)) * np.linspace(3, 1, 12)[:, None]
    return (rng.normal(size=(n, 12)) @ spread + 0.05 * rng.normal(size=(n, 160))).astype(np.float32)


@pytest.mark.parametrize("with_directions", [False, True])
def test_loaded_manifold_equals_the_saved_one(with_directions, tmp_path, rng, monkeypatch):
    monkeypatch.setattr(index, "_MIN_ROWS", 500)
    real, fake = (_learned(rng, n) if with_directions else rng.normal(size=(n, 40)) for n in (900, 700))
    saved = KNNManifold.fit(real, k=3, ties="strict")
    saved.save(tmp_path / "real.safetensors")
    loaded = KNNManifold.load(tmp_path / "real.safetensors")
    assert (saved.balls.points.projection.basis is not None) == with_directions
    assert (loaded.balls.points.clusters is not None) == with_directions
    assert (loaded.k, loaded.ties, len(loaded)) == (3, "strict", 900)
    assert torch.equal(loaded.features, saved.features)
    assert torch.equal(loaded.sq_radii, saved.sq_radii)
    assert torch.equal(loaded.count(fake), saved.count(fake))
    expected = genpr.manifold_metrics(real, fake, k=3, ties="strict")
    assert genpr.manifold_metrics(loaded, fake, k=3, ties="strict") == expected
    assert genpr.precision_recall(loaded, fake, k=3, ties="strict") == expected[:2]


@pytest.mark.parametrize(("k", "ties"), [(4, "closed"), (5, "strict")])
def test_options_that_differ_from_the_fitted_ones_are_errors(k, ties, rng):
    manifold = KNNManifold.fit(rng.normal(size=(30, 5)), k=5)
    with raising(UsageError, "k-not-fitted", r"fitted with k = 5 and ties = 'closed'"):
        genpr.manifold_metrics(manifold, rng.normal(size=(30, 5)), k=k, ties=ties)


def test_flipped_bit_in_a_file_is_an_error(tmp_path, rng):
    path = tmp_path / "m"
    KNNManifold.fit(rng.normal(size=(30, 5))).save(path)
    data = bytearray(path.read_bytes())
    data[-7] ^= 1
    path.write_bytes(data)
    with raising(DataError, "file-damaged", "does not match its own checksum"):
        KNNManifold.load(path)


def test_only_manifolds_are_replaced(tmp_path, rng):
    manifold, path = KNNManifold.fit(rng.normal(size=(30, 5))), tmp_path / "m"
    for _ in range(2):
        manifold.save(path)
    save_tensors(path, {"features": torch.ones(3, 2)}, {"format": "other"})
    with raising(UsageError, "output-exists"):
        manifold.save(path)
    path.write_text("a text about genpr.manifold.3")
    with raising(UsageError, "output-exists"):
        manifold.save(path)
    manifold.save(path, overwrite=True)
    assert len(KNNManifold.load(path)) == 30


def test_other_files_are_errors(tmp_path):
    save_tensors(tmp_path / "features.safetensors", {"features": torch.ones(3, 2)}, {"format": "other"})
    (tmp_path / "text").write_text("no tensors here")
    with raising(DataError, "not-a-manifold"):
        KNNManifold.load(tmp_path / "features.safetensors")
    with pytest.raises(DataError, match="not a readable safetensors file"):
        KNNManifold.load(tmp_path / "text")
    with pytest.raises(DataError, match="not a readable safetensors file"):
        KNNManifold.load(tmp_path / "missing")


@pytest.mark.parametrize("threads", [1, 2])
def test_progress_is_monotone_and_ends_at_the_total(threads, rng, monkeypatch):
    real, fake = rng.normal(size=(100, 5)), rng.normal(size=(70, 5))
    seen = []
    monkeypatch.setattr(Engine, "tiles", Engine(16, 16).tiles)
    with torch_threads(threads):
        genpr.manifold_metrics(real, fake, progress=lambda done, total: seen.append((done, total)))
    totals = list(dict.fromkeys(total for _, total in seen))
    assert totals == [100 * 99 // 2, 70 * 69 // 2 + 70 * 100]
    for total in totals:
        done = [done for done, of in seen if of == total]
        assert len(done) > 3
        assert (np.diff(done) > 0).all()
        assert done[-1] == total


CROSS = 90 * 60
PASSES = [
    ({"precision": 3, "recall": 3}, True, 0),  # replicates are counted on the way
    ({"realism": 3, "authenticity": 1}, False, 2 * CROSS),
    ({"rarity": 3}, False, 0),
    ({"precision": 60}, True, 0),  # halves are too small for replicates
]


@pytest.mark.parametrize(("ks", "intervals", "more"), PASSES, ids=lambda each: str(each))
def test_progress_includes_every_search_of_a_score(ks, intervals, more, rng):
    real, fake = (torch.from_numpy(rng.normal(size=(n, 3))).float() for n in (90, 60))
    options = {"ties": "closed", "intervals": intervals, "seed": 0, "device": torch.device("cpu")}
    updates = []
    NeighborMetrics(real, ks=ks, **options).score(fake, lambda *update: updates.append(update))
    done, totals = zip(*updates, strict=True)
    counting = CROSS + (60 * 59 // 2 if "recall" in ks else 0)
    assert {*totals} == {done[-1]} == {counting + more}, "one bar for all searches"
    assert (np.diff(done) > 0).all()
    assert any(each == counting for each in done)
