"""No regular expression in genpr takes more than linear time.

The expressions are found in the syntax trees of the modules. For each of them, texts are generated from its own parse
tree: a prefix that leads to a repeat, a piece that is repeated, and an end that makes the match fail. Each text is given
to the methods that the module calls, at growing lengths; the steps are small where time grows fast, so that an
exponential expression is noticed before it hangs.
"""

import ast
import fnmatch
import functools
import re
import time
from pathlib import Path
from re import _constants as op  # the parse tree that re itself compiles
from re import _parser
from types import SimpleNamespace

import pytest

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
    r'rf"\.{re.escape(entry.name)}\.[^.]+\.tmp"': {"entry": SimpleNamespace(name="a.safetensors")},
    r'rf"\.(?:{names})\.[^.]+\.tmp"': {"names": "a|b"},
    "translate(part)": {"translate": fnmatch.translate, "part": "*a*[!b]?*c*"},
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


# Texts, from the parse tree


def accepts(item, letter):
    """Whether one node of the parse tree matches a character."""
    kind, value = item
    if kind is op.LITERAL:
        return letter.lower() == chr(value).lower()
    if kind is op.NOT_LITERAL:
        return letter != chr(value)
    if kind is op.RANGE:
        return value[0] <= ord(letter) <= value[1]
    if kind is op.CATEGORY:
        name = str(value).lower()
        is_in = (
            letter.isdigit() if "digit" in name else letter.isspace() if "space" in name else letter.isalnum()
        )
        return (is_in or ("word" in name and letter == "_")) != ("not" in name)
    if kind is op.IN:
        negated = value[0][0] is op.NEGATE
        return any(accepts(each, letter) for each in value[negated:]) != negated
    return kind is op.ANY


REPEATS = (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT)
LETTERS = (op.LITERAL, op.NOT_LITERAL, op.IN, op.ANY)


def nodes(tree):
    """All nodes of a parse tree."""
    for kind, value in tree:
        yield kind, value
        for inner in bodies(kind, value):
            yield from nodes(inner)


def is_long(kind, value):
    """Whether a node repeats something without a bound, or so often that it may as well."""
    return kind in REPEATS and value[1] > 8 and value[0] < value[1]


def bodies(kind, value):
    """The parts of a node that are trees themselves."""
    if kind is op.BRANCH:
        return value[1]
    if kind is op.GROUPREF_EXISTS:
        return [part for part in value[1:] if part]
    if kind is op.ATOMIC_GROUP:
        return [value]
    return [value[-1]] if kind in (*REPEATS, op.SUBPATTERN, op.ASSERT, op.ASSERT_NOT) else []


class Texts:
    """Texts that a regular expression may take long for."""

    def __init__(self, pattern):
        is_text = isinstance(pattern.pattern, str)
        self.tree = _parser.parse(pattern.pattern, pattern.flags)
        self.groups = {}
        found = list(nodes(self.tree))
        self.has_repeat = any(is_long(*node) for node in found)
        atoms = [node for node in found if node[0] in LETTERS]
        parts = [part for kind, value in atoms for part in (value if kind is op.IN else [(kind, value)])]
        literal = [value for kind, value in parts if kind is op.LITERAL]
        literal += [end for kind, value in parts if kind is op.RANGE for end in value]
        by_kind = {}  # letters that no part of the expression tells apart are one
        for letter in (*map(chr, literal), *ALPHABET):
            if is_text or letter.isascii():
                by_kind.setdefault(tuple(accepts(atom, letter) for atom in atoms), letter)
        self.letters = list(by_kind.values())

    def samples(self, tree, most=12):
        """Some texts that a tree matches: the first with each optional part once, the others differ in one part."""
        parts = [self.samples_of(kind, value) or [""] for kind, value in tree]
        first = [part[0] for part in parts]
        found = ["".join(first)] + [
            "".join((*first[:i], other, *first[i + 1 :]))
            for i, part in enumerate(parts)
            for other in part[1:]
        ]
        return list(dict.fromkeys(found))[:most]

    def samples_of(self, kind, value):
        if kind in LETTERS:
            return [letter for letter in self.letters if accepts((kind, value), letter)]
        if kind in REPEATS:
            least, _, body = value
            once = self.samples(body)
            return [each * max(least, 1) for each in once] + [""] * (least == 0)
        if kind is op.GROUPREF:
            return self.groups.get(value, [""])[:1]
        if (kind is op.ASSERT and value[0] > 0) or kind in (op.ASSERT_NOT, op.AT):
            return [""]
        found = [each for body in bodies(kind, value) for each in self.samples(body)]
        if kind is op.SUBPATTERN:
            self.groups[value[0]] = found
        return found

    def pieces(self, tree=None, prefix=""):
        """What to repeat, with what stands in front of it."""
        tree = self.tree if tree is None else tree
        for i, (kind, value) in enumerate(tree):
            before = [prefix + each for each in self.samples(tree[:i])]
            if is_long(kind, value):
                for begun in dict.fromkeys((before[0], before[-1])):
                    body = self.samples(value[2], 20)
                    yield from ((begun, each) for each in body)
                    yield from (("", begun + each) for each in ("", *body[:3]))
            for body in bodies(kind, value):
                yield from self.pieces(body, before[0])

    def attacks(self):
        """Prefix, what is repeated behind it, and the end."""
        ends = ("", "\n!", *self.letters)
        for prefix, piece in dict.fromkeys((*self.pieces(), *(("", letter) for letter in self.letters))):
            yield from ((prefix, piece, end) for end in ends if piece)
        yield from (
            ("", a + b, end) for a in self.letters for b in self.letters if a != b for end in ("", "\x00")
        )


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
    texts = Texts(pattern)
    if not texts.has_repeat:
        return None
    for method in sorted(methods):
        run = functools.partial(called, pattern, method)
        for prefix, piece, end in texts.attacks():
            if takes_too_long(run, lambda n: prefix + piece * (n // len(piece)) + end):  # noqa: B023
                return f"{method}({prefix!r} + {piece!r} * n + {end!r})"
    return None


def test_every_expression_is_examined():
    found, built = collected()
    assert built == set(BUILT)  # give values for the names in a new one, and remove those that are gone
    assert len(found) > 50


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
    "spaces-at-end-sub": (r"[ \t]+$", "sub"),
    "possessive-search": (r"\s++x", "search"),
    "adjacent": (r"\d+\d+x", "match"),
    "adjacent-later": (r"key *= *\w+\d*;", "match"),
    "any-behind-choice": (r"(x|y)*.*z", "match"),
    "comment": (r"<!--.*?-->", "finditer"),
    "end-of-name": (r"([A-Za-z]+)[^A-Za-z0-9]*$", "search"),
    "backreference": (r"<(b|i)>.*</\1>", "search"),
    "html": (rb"\s*(?:<!--.*?-->\s*)*<(?:!doctype\s+html|html|head|body)", "match"),
    "behind": (r"\s*[:：]\s*|\s+[-–—]+\s+|\s*(?:——|->|→|=>)\s*|\s+=\s+", "split"),
    "between": (r"\s+(?:and|&)\s+", "search"),
    "joints": (r"\s+(?:and|&)\s+|以及|[和与與及]", "split"),
    "advance": (r"\s*([✓✔✅☑✗✘❌☒])$", "search"),
    "brackets": (r"\s*[(（]([^()（）]{1,60})[)）]$", "search"),
}
LINEAR = {
    "delimited": (r"[^()]+[(][^()]+[)]", "fullmatch"),
    "string": (r'"[^"\\]*(?:\\.[^"\\]*)*"', "match"),
    "bounded": (r"[(（]([^()（）]{1,60})[)）]$", "search"),
    "run-once": (r"(?<!\s)\s+and\s", "search"),
    "atomic": (r"(?>a+)b", "match"),
    "words": (r"\w+(?: \w+)*", "fullmatch"),
    "numbers": (r"\d+(?:\.\d+)?", "findall"),
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
