"""No regular expression in genpr takes more than linear time.

Parts of texts that an expression matches, and pairs of characters, are repeated behind a prefix of such a text. What takes
long is measured at other lengths. They grow in small steps, so that an exponential expression is noticed before it hangs.
"""

import ast
import fnmatch
import itertools
import re
import time
from pathlib import Path

import genpr
from genpr.images.containers import CONTAINERS
from genpr.images.formats import _READ, UNREAD_FORMATS

FLAGS_AT = dict.fromkeys(("match", "fullmatch", "search", "findall", "finditer"), 2)
FLAGS_AT |= {"compile": 1, "split": 3, "sub": 4}
SIGNATURES = b"|".join(signature for _, _, signature in UNREAD_FORMATS if signature)
# What expressions that are no literals are made of
GIVEN = {
    "re": re,
    "fnmatch": fnmatch,
    "names": "a|b",
    "part": "a*b?[cd]*",
    "signature": SIGNATURES,
    "container": CONTAINERS[0]._replace(
        pattern=f"(?:{'|'.join(each.pattern for each in CONTAINERS)})",
        start=b"|".join(each.start for each in CONTAINERS),
    ),
    "_READ": _READ,
    "of_user": "a",  # labels by pattern:REGEX, which take as long as the user's expression does
}
LENGTH = 2_000
QUICK = 0.0004  # seconds for the longest: linear expressions take less, and quadratic ones more


def expressions():
    """Each expression in genpr with its location and the methods that it is used with."""
    for path in sorted(Path(genpr.__file__).parent.rglob("*.py")):
        code = path.read_text(encoding="utf-8")
        nodes = list(ast.walk(ast.parse(code))) if "import re\n" in code else []
        assigned = [node for node in nodes if isinstance(node, ast.Assign)]
        names = {id(part): ast.unparse(node.targets[0]) for node in assigned for part in ast.walk(node.value)}
        # Those of variables, for expressions that are used by another name.
        loose = re.findall(r"\b(?!re\b)[a-z]\w*\.(match|fullmatch|search|findall|finditer)\(", code)
        for node in nodes:
            function = getattr(node, "func", None)
            name = getattr(function, "attr", None)
            if name not in FLAGS_AT or ast.unparse(function.value) != "re":
                continue
            used = rf"\b{re.escape(names.get(id(node), '-'))}(?:\[\w+\])?\.({'|'.join(FLAGS_AT)})\("
            methods = {name} if name != "compile" else set(re.findall(used, code) or loose or ["search"])
            by_name = [each.value for each in node.keywords if each.arg == "flags"]
            given = (node.args[0], *node.args[FLAGS_AT[name] :], *by_name)
            pattern = re.compile(*(eval(ast.unparse(each), GIVEN) for each in given))
            yield f"{path.name}:{node.lineno}", pattern, methods


def example(parsed, times):
    """A text that an expression matches, ignoring assertions, with one of its alternatives and `times` repetitions."""
    text = ""
    for kind, value in parsed:
        kind, value = value[0] if str(kind) == "IN" else (kind, value)
        match str(kind):
            case "LITERAL":
                text += chr(value)
            case "RANGE":
                text += chr(value[0])
            case "CATEGORY":
                text += {"CATEGORY_SPACE": " ", "CATEGORY_DIGIT": "0"}.get(str(value), "a")
            case "ANY" | "NOT_LITERAL" | "NEGATE":
                text += "a"
            case "BRANCH":
                text += example(value[1][times % len(value[1])], times)
            case "SUBPATTERN" | "ATOMIC_GROUP":
                text += example(value[3] if str(kind) == "SUBPATTERN" else value, times)
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                text += example(value[2], times) * max(value[0], min(value[1], times))
    return text


def attacks(pattern):
    """Prefix, what is repeated behind it, and an end that makes the match fail."""
    texts = [example(re._parser.parse(pattern.pattern, pattern.flags), times)[:20] for times in (1, 2, 3)]
    letters = dict.fromkeys("a0_Z é\t\n-.,<" + "".join(texts))
    pieces = {("", a + b) for a, b in itertools.product(letters, letters)}
    for text in texts:
        for start, end in itertools.combinations(range(len(text) + 1), 2):
            pieces |= {("", text[start:end]), (text[:start], text[start:end])}
    return [(*piece, end) for piece in sorted(pieces) for end in ("\n!", "0")]


def slow_text(pattern, methods):
    """A text on which an expression takes more than linear time; None if none was found."""
    is_bytes = isinstance(pattern.pattern, bytes)

    def seconds(length):
        text = prefix + piece * (length // len(piece)) + end
        text = text.encode("latin-1") if is_bytes else text
        started = time.thread_time()
        found = getattr(pattern, method)(*[text[:0]] * (method == "sub"), text)
        _ = [*found] if method == "finditer" else None
        return time.thread_time() - started

    def grows():
        base = min(seconds(length) for _ in range(3))
        ratios = ((1.25, 2), (2, 3.2))  # exponential time is noticed at the first; quadratic is 1.6 and 4
        return any(min(seconds(int(factor * length)) for _ in "ab") > most * base for factor, most in ratios)

    tried = attacks(pattern) if re.search(r"[*+}]", str(pattern.pattern)) else ()
    for method, (prefix, piece, end) in itertools.product(sorted(methods), tried):
        length = 16
        while (took := seconds(length)) < QUICK and length < LENGTH:
            length = min(LENGTH, length * 2 if took < QUICK / 8 else length * 5 // 4)
        if took > QUICK and all(grows() for _ in range(3)):
            return f"{method}({prefix!r} + {piece!r} * n + {end!r})"
    return None


def test_expressions_in_genpr_take_linear_time():
    found = list(expressions())
    assert len(found) > 50
    assert {place: text for place, *use in found if (text := slow_text(*use)) is not None} == {}
