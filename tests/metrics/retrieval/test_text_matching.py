"""Which retrieved text is which expected one."""

from __future__ import annotations

import itertools
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from genpr import DataError, UsageError, retrieval_metrics
from genpr.metrics.text_matching import _matched, match_texts, plain_text


class TestPlainText:
    @pytest.mark.parametrize(
        ("text", "plain"),
        [
            ("  A\tRed \n FOX ", "a red fox"),
            ("Straße", "strasse"),
            ("ﬁne Ｆｕｌｌ", "fine full"),
            ("e\u200b\u0301", "é"),
            ("soft\u00adhyphen", "softhyphen"),
            ("\ufeffmark", "mark"),
            ("ΣΊΣΥΦΟΣ", "σίσυφοσ"),
            ("红 色\u3000狐狸", "红 色 狐狸"),
            ("\u200b \u00a0", ""),
        ],
        ids=itertools.count(),
    )
    def test_cases(self, text, plain):
        assert plain_text(text) == plain

    @given(st.text("aAéÉßſİıΣςﬁ①Ａ狐\u0301\u0327\u200b\u00ad\u3000 \n", max_size=12))
    @settings(max_examples=100, deadline=None)
    def test_twice_is_once_and_forms_are_one(self, text):
        plain = plain_text(text)
        assert plain_text(plain) == plain
        assert plain_text(unicodedata.normalize("NFD", text)) == plain


class TestRules:
    def test_equal(self):
        found = match_texts(["A fox", "Two owls"], ["two  OWLS", "a wolf", "a fox"])
        assert found.expected == (0, 1)
        assert found.retrieved == (1, -2, 0)
        assert retrieval_metrics(found.expected, found.retrieved)["map"].value == pytest.approx(
            (1 + 2 / 3) / 2
        )

    def test_an_expected_text_is_matched_once(self):
        found = match_texts(["a fox"], ["a fox", "A FOX", "a fox"])
        assert found.retrieved == (0, -2, -3)

    @pytest.mark.parametrize(
        ("part", "whole", "is_part"),
        [
            ("cat", "the cat sat", True),
            ("cat", "concatenate", False),
            ("cat", "concatenate a cat", True),
            ("cat", "cats", False),
            ("cat", "(cat)", True),
            ("3", "1.35", False),
            ("c++", "in c++.", True),
            ("狐狸", "一只红色狐狸在雪里", True),
            ("ねこ", "くろねこだ", True),
            ("고양이", "검은 고양이", True),
            ("고양이", "들고양이", False),
            ("the cat sat", "cat", False),
            ("gpt4模型", "新gpt4模型好", True),
        ],
        ids=itertools.count(),
    )
    def test_contains(self, part, whole, is_part):
        assert (match_texts([part], [whole], rule="contains").retrieved == (0,)) == is_part

    def test_ratio(self):
        # "abcd" and "bcde" have the block "bcd" in common: 2 * 3 / 8.
        assert match_texts(["abcd"], ["bcde"], rule="similar", threshold=0.75).retrieved == (0,)
        assert match_texts(["abcd"], ["bcde"], rule="similar", threshold=0.76).retrieved == (-1,)

    def test_ratio_of_long_texts_ignores_no_character(self):
        """difflib takes frequent characters of long texts for junk unless told not to."""
        long = "ab" * 300
        assert match_texts([long], ["c" + long], rule="similar", threshold=0.99).retrieved == (0,)

    def test_token_f1(self):
        options = {"rule": "similar", "measure": "token_f1"}
        # Two of three words in common, both ways.
        assert match_texts(["a red fox"], ["a red, wolf!"], threshold=0.66, **options).retrieved == (0,)
        assert match_texts(["a red fox"], ["a red, wolf!"], threshold=0.67, **options).retrieved == (-1,)
        assert match_texts(["fox fox"], ["fox"], threshold=0.67, **options).retrieved == (-1,)
        assert match_texts(["红色狐狸"], ["红色的狐狸"], threshold=8 / 9, **options).retrieved == (0,)
        assert match_texts(["..."], ["!!!"], threshold=0.1, **options).retrieved == (-1,)

    def test_as_many_as_possible_earlier_ones_first(self):
        """The first could be either, the second only what the first would take: both are matched."""
        found = match_texts(["red fox", "fox"], ["a red fox", "red fox cub", "one fox"], rule="contains")
        assert found.retrieved == (1, 0, -3) or found.retrieved == (0, 1, -3)
        only = match_texts(["fox", "red"], ["red fox", "fox"], rule="contains")
        assert only.retrieved == (1, 0)

    @given(st.data())
    @settings(max_examples=60, deadline=None)
    def test_matching_is_the_best_there_is(self, data):
        """Against all ways to match: the largest set of retrieved texts, the earliest of these."""
        words = ["a", "b", "c", "d"]
        expected = data.draw(st.lists(st.sampled_from(words), min_size=1, max_size=4, unique=True))
        retrieved = data.draw(
            st.lists(st.lists(st.sampled_from(words), max_size=3).map(" ".join), max_size=4)
        )
        found = match_texts(expected, retrieved, rule="contains").retrieved
        ours = [place for place, one in enumerate(found) if one >= 0]
        assert len({one for one in found if one >= 0}) == len(ours)
        assert all(expected[one] in retrieved[place].split() for place, one in enumerate(found) if one >= 0)
        best = []
        for order in itertools.permutations([*range(len(expected)), *[-1] * len(retrieved)], len(retrieved)):
            places = [p for p, one in enumerate(order) if one >= 0 and expected[one] in retrieved[p].split()]
            best = min(best, places, key=lambda option: (-len(option), option))
        assert ours == best

    def test_long_chains_do_not_recurse(self):
        """The last text takes the place of the first, that of the second, and so on."""
        options = [[at, at + 1] for at in range(1500)] + [[0]]
        assert _matched(options) == {1500: 0} | {at: at + 1 for at in range(1500)}


class TestRefusals:
    @pytest.mark.parametrize(
        ("expected", "retrieved", "options", "error"),
        [
            ("a fox", ["a"], {}, UsageError),
            (["a"], "a", {}, UsageError),
            (["a", 3], ["a"], {}, DataError),
            (["a", " \u200b"], ["a"], {}, DataError),
            (["a", "A "], ["a"], {}, DataError),
            (["a"], ["a"], {"rule": "like"}, UsageError),
            (["a"], ["a"], {"measure": "bleu"}, UsageError),
            (["a"], ["a"], {"threshold": 0}, UsageError),
            (["a"], ["a"], {"threshold": "high"}, UsageError),
        ],
        ids=itertools.count(),
    )
    def test_refusals(self, expected, retrieved, options, error):
        with pytest.raises(error):
            match_texts(expected, retrieved, **options)

    def test_empty_retrieved_texts_match_nothing(self):
        assert match_texts(["a"], ["", " "], rule="contains").retrieved == (-1, -2)
        assert match_texts(["a"], []).retrieved == ()
