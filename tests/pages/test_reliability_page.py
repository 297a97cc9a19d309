"""The page of promises: every row of the catalog is on it, and every test that it names exists."""

import re

import pytest
from named_tests import ROOT, TEST, check_named

PAGE = (ROOT / "docs" / "reliability.md").read_text()
ROWS = {"I": 17, "F": 20, "N": 12, "R": 18}
IDS = [f"{table}{number}" for table, count in ROWS.items() for number in range(1, count + 1)]


def row_of(row_id: str) -> list[str]:
    """The cells of a row: its input, what is done, its tests."""
    (line,) = re.findall(rf"^\| {row_id} \| (.*) \|$", PAGE, re.MULTILINE)
    return re.split(r"(?<!\\) \| ", line)


@pytest.mark.parametrize("row_id", IDS)
def test_every_row_says_what_is_done_and_names_its_tests(row_id):
    given, done, tests = row_of(row_id)
    assert given
    assert done
    check_named(tests)


def test_rows_come_in_order_and_once():
    assert re.findall(r"^\| ([IFNR]\d+) \|", PAGE, re.MULTILINE) == IDS


def test_every_test_that_the_page_names_is_in_a_row():
    in_rows = [pair for row_id in IDS for pair in TEST.findall(row_of(row_id)[2])]
    assert len(re.findall(r"tests/[\w/]+\.py::test_\w+", PAGE)) == len(in_rows) + 1  # the example on top
