"""Paragraphs and names for a terminal: wide characters and escapes."""

import pytest
from rich.cells import cell_len

from genpr.report.text import cut, table, wrapped


@pytest.mark.parametrize(
    "name", ["文" * 200, "a" + "文" * 200, "文 " * 100, "a文" * 100, "e\u0301" * 200], ids=range(5)
)
def test_columns_count_and_not_characters(name):
    lines = wrapped(name).splitlines()
    assert max(map(cell_len, lines)) <= 80
    assert max(map(cell_len, lines)) >= 39
    assert "".join(line.strip() for line in lines).replace(" ", "") == name.replace(" ", "")


@pytest.mark.parametrize("name", ["文" * 30, "n" * 31, "文n" * 20, "a\nb" * 20, "e\u0301" * 31], ids=range(5))
@pytest.mark.parametrize("width", [6, 7, 30], ids=str)
def test_a_cut_name_fits_and_keeps_both_ends(name, width):
    found = cut(name, width)
    assert cell_len(found) <= width
    assert found[0] == name[0]
    assert "…" in found
    assert found.isprintable()


def test_numbers_of_a_table_stay_whole_and_names_are_folded():
    rows = [["n" * 200, "0.1234 ±0.0123"], ["\x1b[31m", "1"]]
    lines = table(["name", "value"], rows).splitlines()
    assert max(map(cell_len, lines)) <= 80
    assert sum("0.1234 ±0.0123" in line for line in lines) == 1
    assert sum(line.count("n") for line in lines[2:]) == 200
    assert "\\x1b[31m" in lines[-1]
