"""Selection of images for a page: order, ties, captions and counts, with constructed scores."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from page_results import a_result

import genpr
from genpr.evaluation.per_image import FakeSamples, PerImageScores, RealSamples
from genpr.features.feature_set import FeatureSet
from genpr.report.page import Picture
from genpr.report.selections import select_by_realism, select_likely_copies, select_modes

KS = {"precision": 3, "density": 5, "coverage": 5, "realism": 3, "rarity": 3, "authenticity": 1}
OPTIONS = {"control": False, "intervals": False, "device": "cpu"}


def made(n, m, *, k=5, sides=None, fake=None, real=None):
    """Scores of n reals r0, r1, ... and m fakes f0, f1, ...: equal except for given values."""
    fakes = FakeSamples(
        tuple(f"f{row}" for row in range(m)),
        inside=np.ones(m, bool),
        n_balls=np.ones(m, np.int64),
        realism=np.ones(m),
        rarity=np.ones(m),
        rarity_percentile=np.full(m, 50.0),
        nearest_real=np.zeros(m, np.int64),
        nearest_real_distance=np.ones(m),
        authentic=np.ones(m, bool),
    )
    reals = RealSamples(
        tuple(f"r{row}" for row in range(n)),
        covered=np.ones(n, bool),
        n_fakes=np.ones(n, np.int64),
        radius=np.ones(n),
        other_distance=np.ones(n),
        nearest_fake=np.zeros(n, np.int64),
        nearest_fake_distance=np.ones(n),
    )
    if sides is None:
        sides = np.arange(2.0 * n).reshape(n, 2), 1000 + np.arange(2.0 * m).reshape(m, 2)
    return PerImageScores(
        a_result(),
        replace(fakes, **{name: np.array(column) for name, column in (fake or {}).items()}),
        replace(reals, **{name: np.array(column) for name, column in (real or {}).items()}),
        k={**KS, "coverage": k},
        ties="closed",
        sides=tuple(FeatureSet(torch.tensor(side, dtype=torch.float32), "x") for side in sides),
    )


def rows(gallery):
    return [picture.data[1] for picture in gallery.pictures]


def captions(gallery):
    return [picture.caption for picture in gallery.pictures]


def test_fakes_by_realism_with_their_nearest_reals():
    realism = [1.5, np.inf, 0.5, 0.5, 2.004, np.inf]
    least, most = select_by_realism(made(4, 6, fake={"realism": realism, "nearest_real": [3, 0, 2, 1, 3, 0]}))
    assert least.pictures == (
        Picture(("fake", 2), "f2: realism 0.50", ("real", 2), "r2"),
        Picture(("fake", 3), "f3: realism 0.50", ("real", 1), "r1"),
    )
    assert most.pictures == (
        Picture(("fake", 4), "f4: realism 2.00", ("real", 3), "r3"),
        Picture(("fake", 0), "f0: realism 1.50", ("real", 3), "r3"),
    )
    assert " 2 with the features of a real image" in most.sentence
    assert "equal" not in select_by_realism(made(4, 6))[1].sentence


@pytest.mark.parametrize(("count", "least", "most"), [(3, 2, 1), (12, 6, 6), (13, 7, 6), (70, 24, 24)])
def test_no_fake_is_in_both_selections_by_realism(count, least, most):
    values = np.random.default_rng(0).permutation(count) + 1.0
    found = [rows(each) for each in select_by_realism(made(4, count, fake={"realism": values}))]
    order = np.argsort(values).tolist()
    assert found == [order[:least], order[::-1][:most]]


def test_most_likely_copies_are_first():
    scores = made(
        5,
        8,
        real={"other_distance": [1.0, 2.0, 4.0, 100.0, 0.0]},  # usually 2
        fake={
            "nearest_real": [0, 1, 2, 3, 4, 4, 0, 0],
            # a half of 1, of 2 and (not of 4) of 2, three quarters of 2 (not of 100), infinite, none, none, 1.2
            "nearest_real_distance": [0.5, 1.0, 1.0, 1.5, 0.1, 0.0, 0.0, 1.2],
        },
    )
    with np.errstate(all="raise"):
        found = select_likely_copies(scores).pictures
    assert [picture.data for picture in found] == [("fake", row) for row in (5, 6, 0, 1, 2, 3, 7, 4)]
    assert found[0] == Picture(("fake", 5), "f5: 0.00", ("real", 4), "r4")


@pytest.fixture(scope="module")
def modes():
    """Labels and scores of reals of three modes and fakes of the first two; a few fakes are elsewhere."""
    rng = np.random.default_rng(3)
    centers = np.array([[0, 0, 0, 0], [30, 0, 0, 0], [0, 30, 0, 0], [0, 0, 300, 0]])
    theirs, ours = np.arange(120) % 3, np.where(np.arange(120) % 10, np.arange(120) % 2, 3)
    real, fake = (centers[each] + rng.normal(size=(120, 4)) for each in (theirs, ours))
    labels = [f"mode {each}" for each in theirs], [f"made {each}" for each in ours]
    return labels, genpr.Evaluator(real, **OPTIONS).evidence(fake)


def test_mode_without_fakes_is_missed_and_one_without_reals_invented(modes):
    labels, scores = modes
    updates = []
    missed, invented = select_modes(
        scores, labels=labels, device="cpu", progress=lambda *each: updates.append(each)
    )
    for found, role, name in ((missed, "real", "mode 2"), (invented, "fake", "made 3")):
        assert {picture.data[0] for picture in found.pictures} == {role}
        assert {labels[role == "fake"][row] for row in rows(found)[:8]} == {name}
        assert found.pictures[0].group.endswith(f"; {name} 100%")
        assert all(len(pictures) <= 8 for _, pictures in found.groups)
    assert "40 of 40 reals" in missed.pictures[0].group
    assert captions(missed)[0] == f"row {rows(missed)[0]}"
    assert missed.sentence.startswith(f"{1 - scores.real.covered.mean():.1%} of the reals")
    assert invented.sentence.startswith(f"{1 - scores.fake.inside.mean():.1%} of the fakes")
    assert {(stage, total) for stage, _, total in updates} == {("kinds", 100)}
    assert max(done for _, done, _ in updates) == 100
    without = select_modes(scores, device="cpu")
    assert without[0].pictures[0].group.endswith(" expected)")
    assert [rows(each) for each in without] == [rows(missed), rows(invented)]
