"""Tests that a page names: `tests/x.py::test_y`."""

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEST = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")


@cache
def functions_of(path: str) -> set[str]:
    """The names of all functions in a file."""
    tree = ast.parse((ROOT / path).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def check_named(cell: str) -> None:
    """The cell of a table holds names of tests, each of which exists, and nothing else."""
    named = TEST.findall(cell)
    assert named
    assert cell == "<br>".join(f"`{path}::{name}`" for path, name in named)
    for path, name in named:
        assert name in functions_of(path), f"{path} has no {name}"
