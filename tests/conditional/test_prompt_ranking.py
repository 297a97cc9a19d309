"""Which texts are the same, which images and texts belong together, and what is drawn against them."""

from __future__ import annotations

import numpy as np
import pytest

from genpr.conditional.prompt_ranking import PromptAssignment, normalize_prompt
from genpr.conditional.prompts import Prompt
from genpr.errors import UsageError
from genpr.metrics.ranking import most_distractors, unit_pools


def asked(*captions) -> PromptAssignment:
    return PromptAssignment.of([tuple(map(Prompt, each)) for each in captions])


def test_spaces_and_unicode_forms_make_no_other_text():
    assert normalize_prompt(" a\n cat\t") == "a cat"
    found = asked(["a  cat"], ["a cat "], ["cafe\u0301"], ["caf\u00e9"], ["A cat"])
    assert found.texts == ("A cat", "a cat", "caf\u00e9")
    assert found.of_image == ((1,), (1,), (2,), (2,), (0,))


def test_images_of_one_prompt_are_a_unit_and_so_are_prompts_of_one_image():
    found = asked(["d"], ["a", "b"], ["b", "c"], ["d"], ["e"])
    assert found.texts == tuple("abcde")
    assert found.unit_of_text.tolist() == [0, 0, 0, 1, 2]
    assert found.unit_of_image.tolist() == [1, 0, 0, 1, 2]
    image, text = found.pairs
    assert list(zip(image.tolist(), text.tolist(), strict=True)) == [
        (0, 3),
        (1, 0),
        (1, 1),
        (2, 1),
        (2, 2),
        (3, 3),
        (4, 4),
    ]


def test_prompts_of_one_group_are_a_unit():
    rows = [
        (Prompt("z", group="g"),),
        (Prompt("b"),),
        (Prompt("a", group="g"), Prompt("c")),
        (Prompt("b", group="h"),),
    ]
    assert PromptAssignment.of(rows).unit_of_text.tolist() == [0, 1, 0, 0]


def test_units_do_not_depend_on_the_order_of_the_images():
    rows = [["d"], ["a", "b"], ["b", "c"], ["d"], ["e"]]
    there, back = asked(*rows), asked(*rows[::-1])
    assert there.unit_of_image.tolist() == back.unit_of_image.tolist()[::-1]
    assert (there.content, there.texts) == (back.content, back.texts)
    assert there.content != asked(*rows, ["e"]).content


def test_grades_are_kept_in_the_order_of_the_texts():
    rows = [(Prompt("b", 2.0), Prompt("a", 0.5), Prompt("b ", 3.0)), (Prompt("c"),)]
    found = PromptAssignment.of(rows)
    assert (found.of_image, found.grades, found.is_graded) == (((1, 0), (2,)), ((3.0, 0.5), (1.0,)), True)
    assert not asked(["a"], ["b"]).is_graded


UNITS = np.array([3, 0, 0, 1, 3, 3, 2, 0])


@pytest.mark.parametrize("distractors", [1, 3, 5])
def test_a_pool_holds_its_own_and_different_others_of_other_units(distractors):
    query_unit = np.repeat([0, 1, 2, 3], 500)
    relevant = [[int(np.flatnonzero(unit == UNITS)[0])] for unit in query_unit]
    pools = unit_pools(relevant, query_unit, UNITS, distractors=distractors, seed=4)
    assert pools.shape == (2000, 1 + distractors)
    assert (pools[:, 0] == [row[0] for row in relevant]).all()
    assert (UNITS[pools[:, 1:]] != query_unit[:, None]).all()
    assert all(len(set(pool)) == 1 + distractors for pool in pools.tolist())
    for unit in range(4):
        drawn = np.bincount(pools[query_unit == unit, 1:].ravel(), minlength=8)[unit != UNITS]
        expected = 500 * distractors / len(drawn)
        error = np.sqrt(expected * (1 - distractors / len(drawn)))
        assert (np.abs(drawn - expected) <= 4.5 * error + 1e-9).all(), "each as likely as any other"


def test_queries_with_less_of_their_own_have_gaps():
    pools = unit_pools([[1, 2, 7], [3]], np.array([0, 1]), UNITS, distractors=2, seed=0)
    assert pools[0, :3].tolist() == [1, 2, 7]
    assert pools[1, :3].tolist() == [3, -1, -1]
    assert (pools[:, 3:] >= 0).all()


def test_a_seed_decides_and_another_one_draws_others():
    units = np.arange(50)
    draws = [
        unit_pools([[row] for row in units], units, units, distractors=9, seed=seed) for seed in (0, 0, 1)
    ]
    assert (draws[0] == draws[1]).all()
    assert (draws[0] != draws[2]).any()


def test_as_many_as_there_are_and_no_more():
    units = np.array([0, 1, 2])
    assert most_distractors(UNITS[:1], UNITS) == 5
    pools = unit_pools([[0], [1], [2]], units, units, distractors=2, seed=0)
    assert sorted(pools[1].tolist()) == [0, 1, 2]
    with pytest.raises(UsageError, match="some have but 2 candidates"):
        unit_pools([[0], [1], [2]], units, units, distractors=3, seed=0)
