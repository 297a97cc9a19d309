"""SECURITY.md: every promise has tests, and they exist."""

import re

import pytest
from named_tests import ROOT, TEST, check_named

PAGE = (ROOT / "SECURITY.md").read_text()
ROWS = re.findall(r"^\| (S\d+) \| (.*) \| (.*) \|$", PAGE, re.MULTILINE)


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_every_promise_names_tests_that_exist(row):
    _, promise, tests = row
    assert promise
    check_named(tests)


def test_promises_come_in_order_and_all_tests_are_of_one():
    assert [number for number, _, _ in ROWS] == [f"S{number}" for number in range(1, 15)]
    assert len(TEST.findall(PAGE)) == sum(len(TEST.findall(tests)) for _, _, tests in ROWS)
