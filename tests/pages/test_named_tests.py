"""Rows of docs/reliability.md, docs/limits.md and SECURITY.md have tests that exist."""

import ast
import re
import tomllib
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEST = re.compile(r"(tests/[\w/]+\.py)::(test_\w+)")
PAGES = {name: (ROOT / "docs" / f"{name}.md").read_text() for name in ("reliability", "limits")}
SECURITY = (ROOT / "SECURITY.md").read_text()
ROWS = tomllib.loads((Path(__file__).parent / "rows.toml").read_text())
PROMISES = re.findall(r"^\| (S\d+) \| (.*) \| (.*) \|$", SECURITY, re.MULTILINE)
NAMED = [(row, test) for page in ROWS.values() for row, tests in page.items() for test in tests]
NAMED += [(number, test) for number, _, tests in PROMISES for test in re.findall(r"`([^`]+)`", tests)]


def rows_of(page):
    """The cells of all rows of a page's tables below their headings, except the table of faults."""
    lines = page.partition("\n## Faults")[0].splitlines()
    rows = [re.split(r" (?<!\\)\| ", line.strip("| ")) for line in lines if line.startswith("| ")]
    return [row for row in rows if row[0] not in {"input", "situation", "class"}]


@cache
def functions_of(path):
    """The names of all functions in a file."""
    tree = ast.parse((ROOT / path).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("page", PAGES)
def test_every_row_is_filled_and_has_tests(page):
    rows = rows_of(PAGES[page])
    assert [row[0] for row in rows] == list(ROWS[page])
    assert all(len(row) == len(rows[0]) and all(row) for row in rows)
    assert all(ROWS[page].values())


def test_promises_are_numbered_and_have_tests():
    assert [row[0] for row in PROMISES] == [f"S{number}" for number in range(1, len(PROMISES) + 1)]
    assert all(re.search(TEST, tests) for _, _, tests in PROMISES)


@pytest.mark.parametrize("test", sorted({test for _, test in NAMED}))
def test_named_tests_exist(test):
    path, name = re.fullmatch(TEST, test).groups()
    assert name in functions_of(path), f"{path} has no {name}"


def test_limits_cover_every_resource():
    classes = ", ".join(ROWS["limits"]).lower()
    needed = {"pixels", "ratio", "header size", "text length", "message length", "parse time"}
    assert all(each in classes for each in needed)
