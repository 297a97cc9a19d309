"""Messages of the package are statements: what was expected, what was found, what to do."""

import ast
import re
from pathlib import Path

import genpr

PACKAGE = Path(genpr.__file__).parent
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
QUESTION = re.compile(r"[\w)}\]'\"`]\?(?=\s|$)")


def questions(source):
    """Lines and texts of the string constants, except docstrings and regular expressions, that ask a question."""
    tree = ast.parse(source)
    skipped = set()
    for node in ast.walk(tree):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            skipped.add(node.body[0].value)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).startswith("re."):
            skipped.update(ast.walk(node))
    for node in ast.walk(tree):
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in skipped
        if is_text and " " in node.value and QUESTION.search(node.value):
            yield node.lineno, node.value


def test_no_message_is_a_question():
    files = {str(path): path.read_text() for path in PACKAGE.rglob("*.py")}
    suspects = {name: text for name, text in files.items() if QUESTION.search(text)}  # parsing takes seconds
    assert [(name, *each) for name, text in suspects.items() for each in questions(text)] == []
