"""docs/limits.md: every class of limit names tests that exist."""

import re

import pytest
from named_tests import ROOT, check_named

PAGE = (ROOT / "docs" / "limits.md").read_text()
ROWS = [line.strip("| ").split(" | ") for line in PAGE.splitlines() if line.startswith("| ")][1:]


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_every_class_of_limit_names_its_entry_points_and_tests(row):
    _, limit, entry_points, tests = row
    assert limit
    assert entry_points
    check_named(tests)


def test_all_classes_are_there():
    needed = {"pixels", "ratio", "header size", "text length", "message length", "parse time"}
    classes = ", ".join(row[0] for row in ROWS).lower()
    assert all(re.search(each, classes) for each in needed)
