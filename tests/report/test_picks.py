"""Which images a page shows: by hand, in order, with ties, captions and counts."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from page_results import a_result

import genpr
from genpr.evaluation.per_image import FakeSamples, PerImageScores, RealSamples
from genpr.features.feature_set import FeatureSet
from genpr.report.pages import mode_picks as mode_picks_module
from genpr.report.pages import near_copies
from genpr.report.pages.mode_picks import mode_picks
from genpr.report.pages.near_copies import copy_candidates
from genpr.report.pages.picks import (
    Pick,
    hub_picks,
    realism_picks,
    repeat_picks,
    repeats,
)

KS = {"precision": 3, "density": 5, "coverage": 5, "realism": 3, "rarity": 3, "authenticity": 1}
OPTIONS = {"control": False, "intervals": False, "device": "cpu"}


def made(n, m, *, k=5, sides=None, fake=None, real=None):
    """Evidence of n reals r0, r1, ... and m fakes f0, f1, ...: nothing stands out but what is given."""
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
    given = (
        sides
        if sides is not None
        else (np.arange(2.0 * n).reshape(n, 2), 1000 + np.arange(2.0 * m).reshape(m, 2))
    )
    return PerImageScores(
        a_result(),
        replace(fakes, **{name: np.array(column) for name, column in (fake or {}).items()}),
        replace(reals, **{name: np.array(column) for name, column in (real or {}).items()}),
        k={**KS, "coverage": k},
        ties="closed",
        sides=tuple(FeatureSet(torch.tensor(side, dtype=torch.float32), "x") for side in given),
    )


def images(selection):
    return [pick.image for pick in selection.picks]


def captions(selection):
    return [pick.caption for pick in selection.picks]


def test_fakes_by_realism_beside_their_nearest_reals():
    evidence = made(
        4, 6, fake={"realism": [1.5, np.inf, 0.5, 0.5, 2.004, np.inf], "nearest_real": [3, 0, 2, 1, 3, 0]}
    )
    least, most = realism_picks(evidence)
    assert least.picks == (
        Pick(("fake", 2), "f2: realism 0.50", ("real", 2), "r2"),
        Pick(("fake", 3), "f3: realism 0.50", ("real", 1), "r1"),
    )
    assert most.picks == (
        Pick(("fake", 4), "f4: realism 2.00", ("real", 3), "r3"),
        Pick(("fake", 0), "f0: realism 1.50", ("real", 3), "r3"),
    )
    odd = realism_picks(made(4, 3, fake={"realism": [3.0, 1.0, 2.0]}))
    assert [images(each) for each in odd] == [[("fake", 1), ("fake", 2)], [("fake", 0)]]
    assert (least.title, most.title) == ("Least realistic fakes", "Most realistic fakes")
    assert most.sentence.endswith("among them. 2 that equal a real image are left out.")
    assert "left out" not in least.sentence
    plain = realism_picks(made(4, 6))[1]
    assert plain.sentence.endswith("among them.")


def test_two_dozen_at_either_end():
    least, most = realism_picks(made(4, 70, fake={"realism": np.arange(70)[::-1] + 1.0}))
    assert images(least) == [("fake", row) for row in range(69, 45, -1)]
    assert images(most) == [("fake", row) for row in range(24)]


def test_reals_that_vouch_for_many_fakes():
    n_fakes = np.zeros(100, int)
    n_fakes[[3, 7, 9, 11]] = [41, 50, 50, 40]  # fair are 2 x 200 / 100: more than 40 are many
    nearest = np.arange(100)
    found = hub_picks(made(100, 200, k=2, real={"n_fakes": n_fakes, "nearest_fake": nearest}))
    assert found.picks == (
        Pick(("real", 7), "r7: 50 fakes, 25.0%", ("fake", 7), "f7"),
        Pick(("real", 9), "r9: 50 fakes, 25.0%", ("fake", 9), "f9"),
        Pick(("real", 3), "r3: 41 fakes, 20.5%", ("fake", 3), "f3"),
    )
    assert found.more == 0
    assert "for 4 of them on average" in found.sentence
    assert "3 of 100 reals vouch for more than 10 times as many" in found.sentence


def test_a_dozen_reals_that_vouch_and_how_many_more():
    n_fakes = np.zeros(100, int)
    n_fakes[:15] = np.arange(60, 75)
    found = hub_picks(made(100, 200, k=2, real={"n_fakes": n_fakes}))
    assert images(found) == [("real", row) for row in range(14, 2, -1)]
    assert found.more == 3
    assert "15 of 100 reals" in found.sentence


def test_where_hardly_any_fake_is_fair_a_few_are_not_many():
    n_fakes = np.zeros(100, int)
    n_fakes[5] = 10
    few = made(100, 10, k=5, real={"n_fakes": n_fakes})
    found = hub_picks(few)
    assert found.picks == ()
    assert "for 0.5 of them" in found.sentence
    assert found.sentence.endswith("None of the 100 vouches for more than 10.")
    n_fakes[5] = 11
    assert images(hub_picks(made(100, 10, k=5, real={"n_fakes": n_fakes}))) == [("real", 5)]


ROWS = [[1, 2], [0, 0], [3, 3], [1, 2], [-0.0, 0], [3, 3], [0, -0.0], [9, 9], [2, 1]]


def test_equal_rows_are_found_whatever_the_sign_of_zero():
    tensor = torch.tensor(ROWS, dtype=torch.float32)
    assert repeats(tensor) == [[1, 4, 6], [0, 3], [2, 5]]
    assert repeats(tensor.double()) == repeats(tensor)
    assert repeats(tensor[-3:]) == []
    many = torch.arange(20_000).remainder(19_997).float()[:, None].expand(-1, 300)
    assert repeats(many) == [[0, 19_997], [1, 19_998], [2, 19_999]]  # over several blocks


def test_repeats_of_both_sides_stand_below_their_headings():
    real = [[1, 2], [5, 5], [5, 5], [8, 8]]
    found = repeat_picks(made(4, 9, sides=(real, ROWS)))
    assert found.picks == (
        Pick(("fake", 1), "f1: 3 times", group="Among the fakes"),
        Pick(("fake", 0), "f0: 2 times", group="Among the fakes"),
        Pick(("fake", 2), "f2: 2 times", group="Among the fakes"),
        Pick(("real", 1), "r1: 2 times", group="Among the reals"),
    )
    assert found.more == 0
    assert found.sentence.startswith(
        "4 of 9 fakes repeat an earlier fake, and 1 of 4 reals repeat an earlier real, told by"
    )
    none = repeat_picks(made(4, 3))
    assert (none.picks, none.more) == ((), 0)
    assert none.sentence.startswith("0 of 3 fakes")


def test_a_dozen_repeats_of_a_side_and_how_many_more():
    twice = [[row, row] for row in range(15) for _ in range(2)]
    found = repeat_picks(made(30, 26, sides=(twice, twice[:26])))
    assert [row for side, row in images(found) if side == "fake"] == list(range(0, 24, 2))
    assert len(found.picks) == 24
    assert found.more == 1 + 3


def test_the_likeliest_copies_come_first(monkeypatch):
    evidence = made(
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
        found = copy_candidates(evidence)
    assert [pick.image for pick in found] == [("fake", row) for row in (5, 6, 0, 1, 2, 3, 7, 4)]
    assert found[0] == Pick(("fake", 5), "f5", ("real", 4), "r4")
    monkeypatch.setattr(near_copies, "_CANDIDATES", 3)
    assert [pick.image[1] for pick in copy_candidates(evidence)] == [5, 6, 0]


@pytest.fixture(scope="module")
def kinds():
    """Reals of three kinds, fakes of the first two; a few fakes are somewhere else."""
    rng = np.random.default_rng(3)
    centres = np.array([[0, 0, 0, 0], [30, 0, 0, 0], [0, 30, 0, 0], [0, 0, 300, 0]])
    theirs, ours = np.arange(120) % 3, np.where(np.arange(120) % 10, np.arange(120) % 2, 3)
    real, fake = (centres[each] + rng.normal(size=(120, 4)) for each in (theirs, ours))
    labels = [f"kind {each}" for each in theirs], [f"drawn {each}" for each in ours]
    return labels, genpr.Evaluator(real, **OPTIONS).evidence(fake)


def test_a_kind_without_fakes_is_missed_and_one_without_reals_invented(kinds):
    labels, evidence = kinds
    missed, invented = mode_picks(evidence, labels=labels, device="cpu")
    reals, fakes = ([row for _, row in images(each)] for each in (missed, invented))
    assert {side for side, _ in images(missed)} == {"real"}
    assert {side for side, _ in images(invented)} == {"fake"}
    assert {labels[0][row] for row in reals[:8]} == {"kind 2"}
    assert {labels[1][row] for row in fakes[:8]} == {"drawn 3"}
    assert missed.picks[0].group.startswith("Kind 1: 40 of 40 reals covered by no fake, ")
    assert missed.picks[0].group.endswith(" expected; kind 2 100%")
    assert invented.picks[0].group.startswith("Kind 1: 12 of 12 fakes off the manifold, ")
    assert invented.picks[0].group.endswith("; drawn 3 100%")
    assert missed.picks[0].caption == f"row {reals[0]}"
    assert missed.picks[0].partner is None
    for found in (missed, invented):
        groups = [pick.group for pick in found.picks]
        assert all(groups.count(each) <= 8 for each in groups)
    uncovered, outside = 1 - evidence.real.covered.mean(), 1 - evidence.fake.inside.mean()
    assert missed.sentence.startswith(f"{uncovered:.1%} of the reals are covered by no fake. Missed: 1 kind")
    assert "kind 2" in missed.sentence
    assert invented.sentence.startswith(f"{outside:.1%} of the fakes lie outside. Invented: ")
    assert "drawn 3" in invented.sentence
    assert "farthest" not in missed.sentence
    assert "drawn at random" not in missed.sentence + invented.sentence


def test_kinds_need_no_labels(kinds):
    missed, invented = mode_picks(kinds[1], device="cpu")
    assert missed.picks[0].group.endswith(" expected")
    assert images(missed) == images(mode_picks(kinds[1], labels=kinds[0], device="cpu")[0])
    assert "lasses" not in missed.sentence + invented.sentence


def test_kinds_are_looked_for_as_the_score_counts(kinds, monkeypatch):
    seen = {}
    whole = mode_picks_module.modes_of
    monkeypatch.setattr(
        mode_picks_module, "modes_of", lambda *args, **given: seen.update(given) or whole(*args, **given)
    )
    told = []
    mode_picks(kinds[1], device="cpu", progress=lambda *each: told.append(each))
    assert (seen["uncovered_k"], seen["outside_k"], seen["most"]) == (5, 3, 10_000)
    assert {(stage, total) for stage, _, total in told} == {("kinds", 100)}
    assert max(done for _, done, _ in told) == 100
    four = replace(kinds[1], k={**kinds[1].k, "coverage": 4, "precision": 2}, result=a_result(seed=9))
    mode_picks(four, device="cpu")
    assert (seen["uncovered_k"], seen["outside_k"], seen["seed"]) == (4, 2, 9)


def test_of_many_images_a_part_is_searched_and_said(kinds, monkeypatch):
    monkeypatch.setattr(mode_picks_module, "_MOST", 60)
    missed, invented = mode_picks(kinds[1], device="cpu")
    part = "Kinds were looked for among 60 reals and 60 fakes, drawn at random."
    assert part in missed.sentence
    assert part in invented.sentence
    assert {kinds[0][0][row] for _, row in images(missed)[:4]} == {"kind 2"}


def test_where_no_kind_is_missed_the_farthest_reals_are_shown():
    radius, distance = np.full(60, 2.0), np.arange(60) + 0.0
    radius[[50, 0]], covered = 0.0, np.arange(60) % 2 == 1
    rng = np.random.default_rng(0)
    evidence = made(
        60,
        60,
        sides=rng.normal(size=(2, 60, 3)),
        real={
            "radius": radius,
            "nearest_fake_distance": distance,
            "nearest_fake": np.arange(60)[::-1],
            "covered": covered,
        },
    )
    with np.errstate(all="raise"):
        missed, invented = mode_picks(evidence, device="cpu")
    assert [row for _, row in images(missed)] == [50, *(row for row in range(58, 26, -2) if row != 50)][:16]
    assert missed.picks[0].caption == "r50: its ball is a point"
    assert missed.picks[1] == Pick(("real", 58), "r58: 29.00 radii away", ("fake", 1), "f1")
    assert missed.sentence.endswith(
        "Shown are those that are farthest from any fake, for the size of their ball."
    )
    assert invented.picks == ()
    assert "farthest" not in invented.sentence
    covered = ~np.isin(np.arange(60), [0, 3, 50])
    few = replace(evidence, real=replace(evidence.real, covered=covered))
    assert captions(mode_picks(few, device="cpu")[0]) == [
        "r50: its ball is a point",
        "r3: 1.50 radii away",
        "r0: 0.00 radii away",  # a repeated real that equals a fake, on the border of its ball
    ]


def test_few_images_have_no_kinds(kinds):
    evidence = kinds[1]
    few = replace(evidence, sides=(evidence.sides[0], evidence.sides[1].select(torch.arange(49))))
    missed, invented = mode_picks(few, device="cpu")
    for found in (missed, invented):
        assert found.sentence.endswith("at least 50 images of each side are needed to tell kinds apart.")
    assert all(pick.partner is not None and not pick.group for pick in missed.picks)
    assert {kinds[0][0][row] for _, row in images(missed)} == {"kind 2"}
    assert invented.picks == ()
    enough = replace(evidence, sides=(evidence.sides[0], evidence.sides[1].select(torch.arange(50))))
    assert "are needed" not in mode_picks(enough, device="cpu")[0].sentence


def test_at_most_six_kinds_are_shown():
    cluster = SimpleNamespace(
        is_significant=True,
        flagged=9,
        size=10,
        expected=1.4,
        rows=tuple(range(9)),
        classes=(("a", 5), ("b", 2), ("c", 1), ("d", 1)),
    )
    dull = SimpleNamespace(**{**vars(cluster), "is_significant": False})
    found = mode_picks_module._kinds("fake", [dull, *[cluster] * 7], [str(row) for row in range(9)], "lost")
    assert [pick.image[1] for pick in found] == list(range(8)) * 6
    assert list(dict.fromkeys(pick.group for pick in found)) == [
        f"Kind {number}: 9 of 10 fakes lost, 1 expected; a 56%, b 22%, c 11%" for number in range(1, 7)
    ]
