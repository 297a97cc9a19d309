"""docs/reliability.md, docs/limits.md and SECURITY.md: every row says what is done, and names tests that exist."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEST = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
RELIABILITY, LIMITS, SECURITY = (
    (ROOT / name).read_text() for name in ("docs/reliability.md", "docs/limits.md", "SECURITY.md")
)
ROWS = {
    "reliability": re.findall(
        r"^\| ([IFNR]\d+) \| (.*?[^\\]) \| (.*) \| (.*) \|$", RELIABILITY, re.MULTILINE
    ),
    "limits": [tuple(line.strip("| ").split(" | ")) for line in LIMITS.splitlines() if line.startswith("| ")][
        1:
    ],
    "security": re.findall(r"^\| (S\d+) \| (.*) \| (.*) \|$", SECURITY, re.MULTILINE),
}
COUNTS = {"I": 17, "F": 20, "N": 12, "R": 18}


@cache
def functions_of(path: str) -> set[str]:
    """The names of all functions in a file."""
    tree = ast.parse((ROOT / path).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("row", [row for rows in ROWS.values() for row in rows], ids=lambda row: row[0])
def test_every_row_is_filled_and_names_tests_that_exist(row):
    assert all(row)
    named = TEST.findall(row[-1])
    assert named
    assert row[-1] == "<br>".join(f"`{path}::{name}`" for path, name in named)
    for path, name in named:
        assert name in functions_of(path), f"{path} has no {name}"


def test_rows_come_in_order_and_once():
    expected = [f"{table}{number}" for table, count in COUNTS.items() for number in range(1, count + 1)]
    assert [row[0] for row in ROWS["reliability"]] == expected
    assert [row[0] for row in ROWS["security"]] == [f"S{number}" for number in range(1, 15)]
    classes = ", ".join(row[0] for row in ROWS["limits"]).lower()
    needed = {"pixels", "ratio", "header size", "text length", "message length", "parse time"}
    assert all(re.search(each, classes) for each in needed)


@pytest.mark.parametrize(
    ("page", "name", "beside"), [(RELIABILITY, "reliability", 1), (SECURITY, "security", 0)]
)
def test_every_test_that_a_page_names_is_in_a_row(page, name, beside):
    in_rows = sum(len(TEST.findall(row[-1])) for row in ROWS[name])
    assert len(re.findall(r"tests/[\w/]+\.py::test_\w+", page)) == in_rows + beside  # the example on top
