"""Files that are no images: counted by suffix, none kept."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterable

import pytest

from genpr.errors import DataError
from genpr.images.item import OtherFiles


def others_of(names: Iterable[str]) -> OtherFiles:
    others = OtherFiles()
    for name in names:
        others.add(name)
    return others


def test_very_many_names_and_suffixes_take_little_memory():
    tracemalloc.start()
    others = others_of(f"{number}.s{number % 30_000}" for number in range(60_000))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**20
    assert others.suffixes.total() == 60_000
    assert len(others.suffixes) == 1001
    assert others.suffixes["others"] == 58_000


def test_a_message_stays_short_whatever_suffixes_there_are():
    with pytest.raises(DataError) as caught:
        others_of([f"a.{'s' * 10**6}", "b.\x1b[31m", "c"]).report("x.tar", n_images=0)
    assert len(str(caught.value)) < 400
    assert str(caught.value).isprintable()
    assert "none (1)" in str(caught.value)
