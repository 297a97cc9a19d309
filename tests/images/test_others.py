"""Files that are no images: counted, a few named, none kept."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterable

from genpr.images.item import OtherFiles, no_images


def others_of(names: Iterable[str]) -> OtherFiles:
    others = OtherFiles()
    for name in names:
        others.add(name)
    return others


def test_the_first_names_in_order_are_kept_and_all_are_counted():
    others = others_of(f"{number % 100:02d}.txt" for number in range(1000, 0, -1))
    assert others.first == ["00.txt"] * 10 + ["01.txt"] * 10
    assert others.count == 1000
    assert others.suffixes == {".txt": 1000}


def test_very_many_names_and_suffixes_take_little_memory():
    tracemalloc.start()
    others = others_of(f"{number}.s{number % 30_000}" for number in range(60_000))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**20
    assert others.count == 60_000
    assert len(others.suffixes) == 1001
    assert others.suffixes["others"] == 58_000


def test_a_message_stays_short_whatever_suffixes_there_are():
    error = no_images("x.tar", others_of([f"a.{'s' * 10**6}", "b.\x1b[31m", "c"]))
    assert len(str(error)) < 400
    assert str(error).isprintable()
    assert "none (1)" in str(error)
