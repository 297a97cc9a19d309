"""Unicode normalization takes linear time, and equals unicodedata for ordinary text."""

import sys
import time
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from genpr.unicode_forms import normalize


# Marks, characters that are replaced by marks, marks of several, and half-width ones.
@pytest.mark.parametrize("form", ["NFC", "NFKC"])
@pytest.mark.parametrize(
    "marks", ["\u0301\u0316", "\u0f73\u0334", "\u0344\u0334", "\uff9e\u0301\u0334"], ids=ascii
)
def test_many_marks_in_a_row_take_linear_time(marks, form):
    started = time.thread_time()
    normalize(form, "a" + marks * (100_000 // len(marks)))
    assert time.thread_time() - started < 0.5  # it took over 5 s


def test_no_character_decomposes_to_a_long_run_of_marks():
    runs = {}
    for c in map(chr, range(0x80, sys.maxunicode + 1)):
        if all(map(unicodedata.combining, unicodedata.normalize("NFKD", c))):
            found = unicodedata.normalize("NFKD", normalize("NFKC", c * 1_100))
            runs[c] = max(len(run) for run in found.split("\u034f"))
    assert len(runs) > 900
    assert max(runs.values()) < 200


@given(st.text(max_size=50))
@settings(max_examples=50, deadline=None)
def test_ordinary_text_is_normalized_as_by_unicodedata(text):
    for form in ("NFC", "NFKC"):
        assert normalize(form, text * 25) == unicodedata.normalize(form, text * 25)
