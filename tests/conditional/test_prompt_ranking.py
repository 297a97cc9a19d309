"""Which texts are the same, which images and texts belong together, and what is drawn against them."""

import numpy as np
import pytest

from genpr.conditional.prompt_ranking import PromptAssignment
from genpr.metrics.ranking import unit_pools


def asked(*captions) -> PromptAssignment:
    return PromptAssignment.of([tuple(each) for each in captions])


def test_spaces_and_unicode_forms_make_no_other_text():
    found = asked(["a  cat"], [" a\n cat\t"], ["cafe\u0301"], ["caf\u00e9"], ["A cat"])
    assert found.texts == ("A cat", "a cat", "caf\u00e9")
    assert found.of_image == ((1,), (1,), (2,), (2,), (0,))


def test_images_of_one_prompt_and_prompts_of_one_image_are_a_unit():
    rows = [["d"], ["a", "b"], ["b", "c"], ["d"], ["e"]]
    found, back = asked(*rows), asked(*rows[::-1])
    assert found.texts == back.texts == tuple("abcde")
    assert found.unit_of_text.tolist() == [0, 0, 0, 1, 2]
    assert found.unit_of_image.tolist() == back.unit_of_image.tolist()[::-1] == [1, 0, 0, 1, 2]
    pairs = [(0, 3), (1, 0), (1, 1), (2, 1), (2, 2), (3, 3), (4, 4)]
    assert list(zip(*(each.tolist() for each in found.pairs), strict=True)) == pairs
    assert found.content == back.content != asked(*rows, ["e"]).content


UNITS = np.array([3, 0, 0, 1, 3, 3, 2, 0])


@pytest.mark.parametrize("distractors", [1, 3, 5])
def test_a_pool_holds_its_own_and_different_others_of_other_units(distractors):
    query_unit = np.repeat([0, 1, 2, 3], 500)
    relevant = [[int(np.flatnonzero(unit == UNITS)[0])] for unit in query_unit]
    pools, count = unit_pools(relevant, query_unit, UNITS, distractors=distractors, seed=4)
    assert count == distractors
    assert (pools[:, 0] == [row[0] for row in relevant]).all()
    assert (UNITS[pools[:, 1:]] != query_unit[:, None]).all()
    assert all(len(set(pool)) == 1 + distractors for pool in pools.tolist())
    for unit in range(4):
        drawn = np.bincount(pools[query_unit == unit, 1:].ravel(), minlength=8)[unit != UNITS]
        expected = 500 * distractors / len(drawn)
        error = np.sqrt(expected * (1 - distractors / len(drawn)))
        assert (np.abs(drawn - expected) <= 4.5 * error + 1e-9).all(), "each as likely as any other"


def test_pools_of_a_seed_with_gaps_and_fewer():
    relevant, own = [[1, 2, 7], [3]], np.array([0, 1])
    pools = [unit_pools(relevant, own, UNITS, distractors=2, seed=seed)[0] for seed in (0, 0, 1)]
    assert pools[0][:, :3].tolist() == [[1, 2, 7], [3, -1, -1]]
    assert (pools[0][:, 3:] >= 0).all()
    assert (pools[0] == pools[1]).all()
    assert (pools[0] != pools[2]).any()
    fewer, count = unit_pools([[1], [4]], np.array([0, 3]), UNITS, distractors=99, seed=0)
    assert (fewer.shape, count) == ((2, 6), 5)
    # A pool is part of a score's recipe: the same on every machine and with every version.
    pinned = [[5, 48, 95, 7, 24], [2, 31, 14, 16, 79]]
    drawn, _ = unit_pools([[5], [2]], np.array([5, 2]), np.arange(100), distractors=4, seed=7)
    assert drawn.tolist() == pinned
