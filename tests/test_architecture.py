"""The layout: imports point downwards, the facade is complete, and light imports stay light."""

import ast
import functools
import subprocess
import sys
from collections import defaultdict
from graphlib import TopologicalSorter
from pathlib import Path

import numpy as np
import pytest

import genpr

PACKAGE = Path(genpr.__file__).parent

BASE = {
    "content_order",
    "errors",
    "limits",
    "memory",
    "notices",
    "runtime",
    "storage",
    "unicode_forms",
    "validation",
}
# What each part may import; a base module may import any other, as long as there is no circle.
ALLOWED: dict[str, set[str]] = {
    "base": set(),
    "distributed": set(),
    "images": set(),
    "neighbors": {"distributed"},
    "features": {"distributed", "images"},
    "metrics": {"distributed", "neighbors"},
    "evaluation": {"distributed", "features", "images", "metrics"},
    "conditional": {"distributed", "evaluation", "features", "images", "metrics"},
    "checkpoints": {"distributed", "evaluation", "features", "images", "metrics"},
    "demo": set(),
    "doctor": {"evaluation", "images", "metrics"},
    "report": {"checkpoints", "conditional", "distributed", "evaluation", "features", "images", "metrics"},
    "integrations": {"checkpoints", "distributed", "evaluation", "features", "images", "metrics"},
    "cli": {"*"},
}


FILES = sorted(PACKAGE.rglob("*.py"))
PLACES = {path: path.relative_to(PACKAGE) for path in FILES}


@functools.cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")


MODULES = {module_of(path) for path in FILES}


def imported_modules(path: Path) -> set[str]:
    """The modules of genpr that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            assert node.module != "genpr" or names <= MODULES | {"genpr.__version__"}, f"{path}: facade"
            found.update(name if name in MODULES else node.module for name in names)
    return found & MODULES - {"genpr"}


def test_imports_point_downwards():
    for path in FILES:
        part = PLACES[path].parts[0].removesuffix(".py")
        row = "base" if part in BASE else part
        # The facade names everything; __main__ runs the command line.
        if part not in {"__init__", "__main__"} and ALLOWED[row] != {"*"}:
            parts = {name.split(".")[1] for name in imported_modules(path)}
            assert parts <= ALLOWED[row] | BASE | {part}, path


# Files that read only files that genpr wrote itself, or properties of the machine.
UNLIMITED = {
    "limits.py",
    "memory.py",  # control groups
    "distributed.py",
    "evaluation/tables.py",  # text that was read within a limit
    "storage.py",  # headers that safetensors accepted
    "features/user_code.py",  # the user's own code
    "features/weights.py",  # references of the cache of Hugging Face
    "report/page.py",  # its own templates
}
READERS = {"json.load", "json.loads", "csv.reader", "csv.DictReader", "np.loadtxt", "np.genfromtxt"}
WHOLE_READERS = {"read_bytes", "read_text"}


def test_untrusted_files_are_read_with_limits():
    for path in FILES:
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                is_unlimited = ast.unparse(node.func) in READERS or node.func.attr in WHOLE_READERS
                assert not is_unlimited or PLACES[path].as_posix() in UNLIMITED, (path, node.lineno)


@pytest.mark.parametrize("depth", [2, 3, None])
def test_imports_have_no_cycles(depth):
    """Modules, or packages up to some depth."""
    graph = defaultdict(set)
    for path in FILES:
        if module_of(path) != "genpr":  # the facade imports names on access
            above = ".".join(module_of(path).split(".")[:depth])
            graph[above] |= {".".join(name.split(".")[:depth]) for name in imported_modules(path)} - {above}
    TopologicalSorter(graph).prepare()


def test_functions_are_short_and_have_few_parameters():
    for path in FILES:
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.FunctionDef):
                body = node.body[1:] if ast.get_docstring(node) and len(node.body) > 1 else node.body
                where = f"{PLACES[path]}: {node.name}"
                assert body[-1].end_lineno - body[0].lineno < 80, where
                each = node.args
                count = len([*each.posonlyargs, *each.args, *each.kwonlyargs])
                assert count + (each.vararg is not None) + (each.kwarg is not None) <= 12, where


def test_facade_is_sorted_and_complete():
    assert genpr.__all__ == sorted(genpr.__all__)
    assert dir(genpr) == genpr.__all__
    for name in genpr.__all__:
        assert getattr(genpr, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        genpr.nonsense  # noqa: B018


def test_facade_types_match_runtime():
    tree = ast.parse((PACKAGE / "__init__.py").read_text())
    typed = {
        alias.asname or alias.name: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module.startswith("genpr.")
        for alias in node.names
    }
    assert typed == genpr._HOME
    assert {*typed, "__version__"} == set(genpr.__all__)


HEAVY = [
    *("torch", "torchvision", "faiss", "scipy", "matplotlib"),
    *("PIL", "torchmetrics", "lightning", "tensorboard", "jinja2", "timm", "open_clip", "transformers"),
]


IMPORTS = """
import genpr, genpr.checkpoints.rank, genpr.checkpoints.score_log
assert loaded() <= set(), loaded()
genpr.score; genpr.KNNManifold; import genpr.features.custom
from genpr.features.networks import clip, timm_models, weight_free
assert loaded() <= {"torch", "PIL"}, loaded()
from genpr.features.networks import inception  # which uses blocks of torchvision
assert loaded() <= {"torch", "PIL", "torchvision"}, loaded()
import random; before = random.getstate(); genpr.html_report
assert random.getstate() == before
"""


def test_imports_are_light_and_draw_no_random_number():
    """In one new interpreter, from the lightest to the heaviest."""
    code = f"import sys\ndef loaded(): return {{*{HEAVY!r}}} & {{*sys.modules}}\n{IMPORTS}"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_typed_marker_and_license_exist():
    assert (PACKAGE / "py.typed").exists()
    assert "Apache License" in (PACKAGE.parent / "LICENSE").read_text()


LIGHT = """
    --help | --version | nonsense | score --help | doctor --help
    list extractors | list protocols | list metrics | list metrics --json | list nonsense
    weights list | weights verify | weights fetch nonsense | cache list | cache prune --max-size 1GB | cache prune --max-size x
    compare a.json b.json | compare a.json a.json | compare whole.json whole.json | compare none.json a.json | compare damaged.json a.json
    rank --results a.json b.json | rank --results none.json a.json
    score none fake | score real none --extractor pixels | score real | score real fake --nonsense | score real fake --k 0 | score real fake --k x
    score real fake --extractor nonsense | score real fake --metrics nonsense | score real fake --protocol nonsense
    score real fake --device nonsense --extractor pixels | score real fake --max-memory x --extractor pixels
    score real fake --prepare x | score real fake --fail-under x=1 | score real fake --html none/x.html
    reconstruct none fake | reconstruct real none | reconstruct real fake --metrics mse | features none x.safetensors | features real x | align none --prompts none | entities none none
    modes none fake | rank real fake --by nonsense | rank real none
    sweep none 1=fake | watch none none | demo --device nonsense
"""


def test_commands_without_tensors_import_no_torch(tmp_path, write_images):
    """All commands run in one process, since imported modules stay."""
    for name in ("real", "fake"):
        write_images(name, np.zeros((12, 8, 8, 3), dtype=np.uint8))
    options = {"extractor": "pixels", "intervals": False, "control": False, "k": 1, "cache": False}
    for name in ("a", "b"):
        result = genpr.score(tmp_path / "real", tmp_path / "fake", **options)
        (tmp_path / f"{name}.json").write_text(result.to_json())
    result = genpr.score(tmp_path / "real", tmp_path / "fake", **options | {"intervals": True})
    (tmp_path / "whole.json").write_text(result.to_json())
    (tmp_path / "damaged.json").write_text("{}")
    lines = [line.split() for line in LIGHT.replace("\n", "|").split("|") if line.strip()]
    code = f"""
import os, sys
from genpr.cli.main import run
os.chdir({str(tmp_path)!r})
for line in {lines!r}:
    code = run(line)
    heavy = [name for name in ("torch", "torchvision", "faiss", "scipy.stats", "matplotlib", "sklearn") if name in sys.modules]
    assert not heavy, (line, heavy)
    assert code in (0, 2, 3), (line, code)
assert {{*{HEAVY!r}}} & {{*sys.modules}} <= {{"PIL", "scipy"}}  # scipy.special, for quantiles
"""
    subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
