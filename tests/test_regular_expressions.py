"""No regular expression in genpr takes more than linear time.

The expressions are found in the syntax trees of the modules. Parts of texts that an expression matches are repeated
behind a prefix of such a text. Each text is given to the methods that the module calls, at growing lengths; the steps are
small where time grows fast, so that an exponential expression is noticed before it hangs.
"""

import ast
import functools
import re
import time
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable

import genpr

ROOT = Path(genpr.__file__).parent
FLAGS_AT = {
    "compile": 1,
    "match": 2,
    "fullmatch": 2,
    "search": 2,
    "findall": 2,
    "finditer": 2,
    "split": 3,
    "sub": 4,
    "subn": 4,
}
METHODS = frozenset(FLAGS_AT) - {"compile"}
LENGTH = 4_096
QUICK = 0.0006  # CPU seconds for LENGTH characters: what takes longer is measured at several lengths
NEGLIGIBLE = (
    0.00005  # CPU seconds: where a text takes less, an exponential expression survives doubling its length
)
ALPHABET = "a0_Z é中\t\n-.,:;\"'([<!\x00"

# Expressions that are not literals, by their source: values for the names in them.
BUILT = {
    r'rf"\.(?:{names})\.[^.]+\.tmp"': {"names": "a|b"},
}


def base_name(node):
    """The name that an expression such as `name[key]` begins with."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def expressions_in(tree):
    """Each regular expression in a module: its node, its flags' node, and the methods that it is used with."""
    used, bound = {}, {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in METHODS:
            used.setdefault(base_name(node.value), set()).add(node.attr)
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            names = {base_name(part) for target in node.targets for part in ast.walk(target)}
            methods = set().union(*(used.get(name, ()) for name in names - {None}))
            bound |= dict.fromkeys(map(id, ast.walk(node.value)), methods)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert node.module != "re", "import re as a whole, so that its calls are found"
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        name, keywords = node.func.attr, {keyword.arg: keyword.value for keyword in node.keywords}
        if name in FLAGS_AT and base_name(node.func.value) == "re":
            flags = keywords.get("flags", (node.args[FLAGS_AT[name] :] or [None])[0])
            methods = bound.get(id(node)) or {"match", "search"} if name == "compile" else {name}
            yield node.args[0], flags, methods
        elif name == "filterwarnings":
            yield from ((keywords[key], None, {"match"}) for key in ("message", "module") if key in keywords)


def evaluated(node, names):
    return eval(compile(ast.Expression(node), "<expression>", "eval"), {"re": re, **names})


@functools.cache
def collected():
    """Place -> expression and methods, for all of the package; and the sources of those that are not literals."""
    found, built = {}, set()
    for path in sorted(ROOT.rglob("*.py")):
        code = path.read_text(encoding="utf-8")
        if "re." not in code and "filterwarnings" not in code:
            continue
        for node, flags, methods in expressions_in(ast.parse(code)):
            place = f"{path.relative_to(ROOT)}:{node.lineno}:{node.col_offset}"
            source = ast.get_source_segment(code, node)
            if not isinstance(node, ast.Constant):
                built.add(source)
                if source not in BUILT:
                    continue
            text = evaluated(node, BUILT.get(source, {}))
            found[place] = re.compile(text, evaluated(flags, {}) if flags else 0), frozenset(methods)
    return found, built


# Texts


def samples(pattern, most=40):
    """Texts that an expression matches as a whole, always the same."""
    found = []

    @settings(
        max_examples=most,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.from_regex(pattern, fullmatch=True))
    def draw(text):
        found.append(text if isinstance(text, str) else text.decode("latin-1"))

    with suppress(Unsatisfiable):  # of assertions that look ahead or behind
        draw()
    return sorted({text[:30] for text in found}, key=len)


def attacks(pattern):
    """Prefix, what is repeated behind it, and an end that makes the match fail."""
    texts = samples(pattern)
    literal = re.sub(r"\W", "", str(pattern.pattern))
    letters = list(dict.fromkeys((*ALPHABET, *"".join(texts)[:40], *literal[:20])))
    if isinstance(pattern.pattern, bytes):
        letters = [letter for letter in letters if letter.isascii()]
    pieces = [("", a + b) for a in letters for b in letters if a <= b or a + b == "- "]
    for text in texts[:25]:
        for start in range(min(len(text), 8)):
            pieces += [(text[:start], text[start : start + size]) for size in (1, 2, 3, 5)]
            pieces.append(("", text[: start + 1]))
    for prefix, piece in dict.fromkeys(pieces):
        yield from ((prefix, piece, end) for end in ("", "\n!", "\x00", "0") if piece)


# Measuring


def seconds(run, text):
    started = time.thread_time()
    run(text)
    return time.thread_time() - started


def takes_too_long(run, made):
    """Whether the time for a text grows faster than its length; `made(n)` is a text of about n characters."""
    length = 16
    while (took := seconds(run, made(length))) < QUICK or (took := seconds(run, made(length))) < QUICK:
        if length >= LENGTH:
            return False
        length = min(LENGTH, length * 2 if took < NEGLIGIBLE else max(length + 4, length * 5 // 4))
    return all(grows_faster_than_linear(run, made, length) for _ in range(3))  # again, as machines are noisy


def grows_faster_than_linear(run, made, length):
    base = min(seconds(run, made(length)) for _ in range(3))
    for factor, most in ((1.25, 2), (2, 3.2), (4, 8)):  # linear is 1.25, 2 and 4; quadratic is 1.6, 4 and 16
        if min(seconds(run, made(int(length * factor))) for _ in range(2)) > most * base:
            return True
    return False


def called(pattern, method, text):
    if isinstance(pattern.pattern, bytes):
        text = text.encode("latin-1")
    if method in ("sub", "subn"):
        getattr(pattern, method)(text[:0], text)
    elif method == "finditer":
        list(pattern.finditer(text))
    else:
        getattr(pattern, method)(text)


def slow_text(pattern, methods):
    """A generated text on which an expression takes more than linear time; None if none was found."""
    texts = list(attacks(pattern)) if re.search(r"[*+}]", str(pattern.pattern)) else []
    for method in sorted(methods):
        run = functools.partial(called, pattern, method)
        for prefix, piece, end in texts:
            if takes_too_long(run, lambda n: prefix + piece * (n // len(piece)) + end):  # noqa: B023
                return f"{method}({prefix!r} + {piece!r} * n + {end!r})"
    return None


def test_every_expression_is_examined():
    found, built = collected()
    assert built == set(BUILT)  # give values for the names in a new one, and remove those that are gone
    assert len(found) > 40


def test_expressions_in_genpr_take_linear_time():
    slow = {place: text for place, use in collected()[0].items() if (text := slow_text(*use)) is not None}
    assert slow == {}


SUPERLINEAR = {
    "nested": (r"(a+)+$", "match"),
    "nested-search": (r"(a+)+$", "search"),
    "alternatives": (r"(?:a|b|ab)*c", "match"),
    "words": (r"^(\w+\s?)*$", "match"),
    "optional": (r"(?:x?y?)*z", "fullmatch"),
    "bounded": (r"(?:a{1,30}){1,30}b", "match"),
    "spaces-at-end": (r"\s+$", "search"),
    "possessive-search": (r"\s++x", "search"),
    "adjacent": (r"\d+\d+x", "match"),
    "comment": (r"<!--.*?-->", "finditer"),
    "end-of-name": (r"([A-Za-z]+)[^A-Za-z0-9]*$", "search"),
    "backreference": (r"<(b|i)>.*</\1>", "search"),
    "html": (rb"\s*(?:<!--.*?-->\s*)*<(?:!doctype\s+html|html|head|body)", "match"),
    "brackets": (r"\s*[(（]([^()（）]{1,60})[)）]$", "search"),
}
LINEAR = {
    "delimited": (r"[^()]+[(][^()]+[)]", "fullmatch"),
    "bounded": (r"[(（]([^()（）]{1,60})[)）]$", "search"),
    "atomic": (r"(?>a+)b", "match"),
    "words": (r"\w+(?: \w+)*", "fullmatch"),
    "lazy": (r"(.+?)-\d+\.png", "fullmatch"),
}


@pytest.mark.parametrize("case", SUPERLINEAR)
def test_superlinear_expressions_are_found(case):
    text, method = SUPERLINEAR[case]
    flags = re.IGNORECASE | re.DOTALL if case in ("html", "comment") else 0
    assert slow_text(re.compile(text, flags), {method}) is not None


@pytest.mark.parametrize("case", LINEAR)
def test_linear_expressions_are_accepted(case):
    text, method = LINEAR[case]
    assert slow_text(re.compile(text), {method}) is None
