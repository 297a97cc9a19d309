"""Sides of unequal size, scored at equal size: what is drawn, averaged, left as it was, and told."""

from __future__ import annotations

import json
import re
import statistics
from dataclasses import replace

import numpy as np
import pytest
import torch
from feature_files import save

import genpr
from genpr.evaluation.compare import compare
from genpr.evaluation.fitted_neighbors import FittedNeighbors
from genpr.evaluation.plan import ScorePlan
from genpr.evaluation.protocols import find_protocol
from genpr.evaluation.result import result_of
from genpr.features.feature_set import FeatureSet
from genpr.features.source_features import FROM_FILE
from genpr.metrics.blocks import equal_blocks
from genpr.metrics.null import balls_hit
from genpr.metrics.registry import METRICS, SIZE_SENSITIVE
from genpr.report.score_tables import score_table

EQUAL = {
    "coverage",
    "complement_recall",
    "symmetric_recall",
    "recall_cover",
    "symmetric_precision",
    "complement_precision",
    "precision_cover",
    "clipped_coverage",
}
BARE = {"intervals": False, "control": False}


def sides(n, m, d=3, seed=0):
    """A narrower, shifted set of fakes, for which every metric differs from its null and from its mirror image."""
    rng = np.random.default_rng(seed)
    return (
        rng.normal(size=(n, d)).astype(np.float32),
        (0.8 * rng.normal(size=(m, d)) + 0.3).astype(np.float32),
    )


def pairs_of_blocks(real, fake, seed=0):
    """The sides that are scored against each other."""
    size = min(len(real), len(fake))
    if len(fake) > len(real):
        return [(real, fake[rows]) for rows in equal_blocks(len(fake), size, seed)]
    return [(real[rows], fake) for rows in equal_blocks(len(real), size, seed)]


@pytest.mark.parametrize(
    ("larger", "size", "count"), [(10, 3, 3), (9, 3, 3), (7, 4, 1), (4, 4, 1), (5, 1, 5)]
)
def test_blocks_are_random_disjoint_and_of_equal_size(larger, size, count):
    blocks = [block.tolist() for block in equal_blocks(larger, size, 0)]
    assert [len(block) for block in blocks] == [size] * count
    assert all(block == sorted(block) for block in blocks)
    rows = [row for block in blocks for row in block]
    assert len(set(rows)) == len(rows)
    assert set(rows) <= set(range(larger))
    assert blocks == [block.tolist() for block in equal_blocks(larger, size, 0)]


@pytest.mark.parametrize(("n", "m"), [(20, 67), (67, 20), (20, 31), (31, 20)])
@pytest.mark.parametrize(("k", "seed"), [(None, 0), (2, 3)])
def test_a_value_is_the_mean_over_the_blocks(n, m, k, seed):
    real, fake = sides(n, m)
    options = {"metrics": SIZE_SENSITIVE, "k": k, "seed": seed}
    found = genpr.score(real, fake, **options, equal_sizes=True).metrics
    pairs = pairs_of_blocks(real, fake, seed)
    alone = [genpr.score(*pair, **options, **BARE).metrics for pair in pairs]
    assert len(alone) == max(n, m) // 20
    for name in SIZE_SENSITIVE:
        values = [each[name].value for each in alone]
        assert found[name].value == statistics.fmean(values)
        assert found[name].null == statistics.fmean(each[name].null for each in alone)
        assert found[name].null_source == alone[0][name].null_source
        assert (found[name].k, found[name].extractor) == (alone[0][name].k, None)
        assert (found[name].interval, found[name].replicates, found[name].n_counted) == (None, None, 20)
        if len(alone) == 1:
            assert (found[name].spread, found[name].spread_over) == (None, None)
        else:
            assert found[name].spread == statistics.stdev(values)
            assert found[name].spread_over == "blocks of equal size"


@pytest.mark.parametrize(("n", "m"), [(25, 80), (81, 25)])
def test_all_else_stays_as_it_is_bit_for_bit(n, m):
    real, fake = sides(n, m)
    names = [*(name for name in METRICS if METRICS[name].kind == "neighbors"), "fd"]
    options = {"metrics": names, "intervals": n < m}  # halves take long
    plain, found = (genpr.score(real, fake, **options, equal_sizes=flag) for flag in (False, True))
    assert list(found.metrics) == list(plain.metrics)
    for name in plain.metrics:
        assert (found.metrics[name] == plain.metrics[name]) == (name not in EQUAL), name
    assert (found.metrics["recall"].interval is not None) == (n < m)
    for fact in ("control", "hubness", "notices", "undefined", "deviations", "n_shared"):
        assert getattr(found, fact) == getattr(plain, fact)


def test_at_equal_sizes_nothing_changes():
    real, fake = sides(41, 41)
    names = ["precision", "recall", *SIZE_SENSITIVE]
    plain, found = (genpr.score(real, fake, metrics=names, equal_sizes=flag) for flag in (False, True))
    assert found.metrics == plain.metrics
    assert (found.control, found.notices) == (plain.control, plain.notices)
    assert found.fingerprint == plain.fingerprint
    assert not compare({"a": plain, "b": found}).differences


def test_results_that_were_scored_otherwise_are_refused_and_named():
    real, fake = sides(20, 67)
    plain, found = (genpr.score(real, fake, equal_sizes=flag, **BARE) for flag in (False, True))
    assert plain.fingerprint != found.fingerprint
    what = "variant of coverage is 3 random blocks of 20 of the 67 fakes in b and unknown in a"
    with pytest.raises(genpr.DataError, match=what) as error:
        compare({"a": plain, "b": found})
    assert error.value.code == "not-alike"
    assert "precision" not in str(error.value)
    other = genpr.score(real, fake + 1, equal_sizes=True, **BARE)
    assert other.fingerprint == found.fingerprint
    assert not compare({"a": found, "b": other}).differences
    assert compare({"a": found, "b": other}).contrast("b", "coverage") is None


@pytest.mark.parametrize(
    ("n", "m", "what"),
    [
        (20, 67, "standard deviation 0.* over blocks of equal size; 3 random blocks of 20 of the 67 fakes"),
        (31, 20, "coverage: 1 random block of 20 of the 31 reals"),
    ],
)
def test_the_table_and_the_record_tell(n, m, what):
    result = genpr.score(*sides(n, m), equal_sizes=True)
    text = score_table(result)
    assert all(len(line) <= 80 for line in text.splitlines())
    assert re.search(what, " ".join(text.split()))
    row = next(line.split() for line in text.splitlines() if line.startswith("coverage "))
    assert (row[2], row[3]) == ("-", f"{balls_hit(20, 20, 5):.4f}")
    again = result_of(json.loads(result.to_json()))
    assert again == result
    assert again.fingerprint == result.fingerprint


def test_an_evaluator_scores_every_size_alike_and_fits_its_reals_once_for_all_blocks(monkeypatch):
    real, _ = sides(40, 1)
    fakes = [sides(1, m, seed=m)[1] for m in (90, 40, 20, 130)]
    fits = []

    fit = FittedNeighbors.__init__

    def counted(self, real, *args, **options):
        fits.append(len(real))
        fit(self, real, *args, **options)

    monkeypatch.setattr(FittedNeighbors, "__init__", counted)
    evaluator = genpr.Evaluator(real, equal_sizes=True, **BARE)
    found = [evaluator.score(fake) for fake in fakes]
    assert fits == [40, 40, 20, 20]
    for fake, result in zip(fakes, found, strict=True):
        assert result.metrics == genpr.score(real, fake, equal_sizes=True, **BARE).metrics


def test_the_members_of_an_extractor_are_averaged_in_every_block(tmp_path):
    real, fake = sides(20, 45, d=6)
    fake *= np.array([0.5, 0.5, 1, 1, 2, 2], dtype=np.float32)
    rows = [slice(None), *equal_blocks(45, 20, 0)]
    files = [
        save(tmp_path / f"{name}.safetensors", torch.from_numpy(side), name="random-vgg16", members=3)
        for name, side in (("real", real), *((str(at), fake[row]) for at, row in enumerate(rows)))
    ]
    options = {"metrics": ["recall", "coverage", "symmetric_precision"], **BARE}
    found = genpr.score(files[0], files[1], equal_sizes=True, **options).metrics
    alone = [genpr.score(files[0], file, **options).metrics for file in files[2:]]
    for name in ("coverage", "symmetric_precision"):
        assert found[name].value == statistics.fmean(each[name].value for each in alone)
        assert found[name].spread == statistics.stdev(each[name].value for each in alone)
        assert found[name].spread_over == "blocks of equal size"
    assert found["recall"].spread_over == "random networks"


def test_emulated_distances_are_kept_in_blocks():
    real, fake = (FeatureSet(torch.from_numpy(side), "") for side in sides(20, 45))
    plan = ScorePlan(
        protocol=find_protocol("stylegan3"),
        ks={"recall": 3, "coverage": 3, "complement_precision": 3},
        ties="closed",
        own=FROM_FILE,
        spaces={},
        equal_sizes=True,
    )
    where = {"device": torch.device("cpu"), "seed": 4}
    found = FittedNeighbors(real, plan, **where).score(fake)
    plain = FittedNeighbors(real, replace(plan, equal_sizes=False), **where)
    assert found.values == plain.score(fake).values
    alone = [plain.score(fake.select(rows)).values for rows in equal_blocks(45, 20, 4)]
    assert set(found.block_values) == {"coverage", "complement_precision"}
    for name, value in found.block_values.items():
        assert value.value == statistics.fmean(each[name].value for each in alone)
        assert value.exact_value == statistics.fmean(each[name].exact_value for each in alone)
        assert not value.exact


def test_a_pinned_protocol_is_scored_as_it_stands_or_not_at_all():
    real, fake = sides(20, 45)
    with pytest.raises(genpr.UsageError, match="prdc pins sizes") as error:
        genpr.score(real, fake, protocol="prdc", equal_sizes=True)
    assert error.value.code == "protocol-pinned"
    for options in (
        {"protocol": "prdc", "metrics": ["precision", "recall"]},
        {"protocol": "adm", "metrics": ["precision", "recall"]},
        {"protocol": "dgm-eval", "metrics": ["recall", "coverage"]},  # takes equally many of both sides
    ):
        plain, found = (
            genpr.score(real, fake, **options, equal_sizes=flag, **BARE) for flag in (False, True)
        )
        assert found.metrics == plain.metrics
        assert found.fingerprint == plain.fingerprint


@pytest.mark.parametrize(("n", "m"), [(6, 5), (5, 6), (40, 5), (5, 40)])
def test_sides_without_a_ball_of_the_smaller_one_are_refused(n, m):
    real, fake = sides(n, m)
    with pytest.raises(genpr.DataError, match="at least 6 are needed") as error:
        genpr.score(real, fake, metrics=["coverage"], equal_sizes=True)
    assert error.value.code == "too-few-images"
    assert genpr.score(real, fake, metrics=["precision"], equal_sizes=True).metrics["precision"].k == 3
