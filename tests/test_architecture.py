"""The layout: imports point downwards, the facade is complete, and light imports stay light."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import genpr

PACKAGE = Path(genpr.__file__).parent

BASE = {"cgroups", "errors", "notices", "storage", "runtime", "memory", "ranks", "shortage"}
ALLOWED = {
    "errors": set(),
    "ranks": {"errors", "runtime"},
    "notices": set(),
    "storage": {"errors"},
    "runtime": {"errors"},
    "cgroups": set(),
    "memory": {"cgroups", "errors", "runtime"},
    "shortage": {"notices"},
    "images": BASE,
    "features": BASE | {"images", "rebuild"},
    "neighbours": BASE,
    "metrics": BASE | {"neighbours", "rebuild"},
    "protocols": BASE | {"metrics"},
    "sides": BASE | {"images", "features", "metrics"},
    "side_features": BASE | {"images", "features", "metrics", "sides", "spare_device"},
    "shards": BASE | {"images", "features", "side_features", "sides"},
    "source_names": BASE | {"images", "features", "sides"},
    "identities": {"features"},
    "findings": BASE | {"images", "features", "identities"},
    "values": set(),
    "summaries": set(),
    "rebuild": set(),
    "result": BASE | {"images", "features", "identities", "metrics", "summaries", "values"},
    "records": BASE | {"features", "metrics", "rebuild", "result", "summaries", "values"},
    "comparison": BASE | {"metrics", "records", "result", "values"},
    "plan": BASE | {"features", "metrics", "protocols", "sides", "side_features"},
    "scoring": BASE | {"images", "features", "metrics", "protocols", "result", "values", "side_features"},
    "equalised": {"features", "metrics", "result", "values", "scoring"},
    "scorer": BASE
    | {"equalised", "metrics", "plan", "rebuild", "result", "values", "scoring", "side_features"},
    "suspicions": BASE | {"features", "metrics", "result", "values"},
    "evidence": BASE
    | {"class_scores", "labels", "features", "metrics", "plan", "protocols", "result", "values", "scoring"},
    "pictures": BASE | {"images", "features", "sides"},
    "label_options": {"errors"},
    "label_recipe": BASE
    | {"class_labels", "features", "images", "label_options", "labels", "side_features", "sides"},
    "label_values": BASE | {"labels", "metrics", "result", "summaries", "values"},
    "label_scorer": BASE
    | {
        "features",
        "label_options",
        "label_recipe",
        "label_values",
        "labels",
        "metrics",
        "plan",
        "side_features",
        "summaries",
        "values",
    },
    "judge": BASE
    | {
        "label_recipe",
        "label_scorer",
        "evidence",
        "label_values",
        "images",
        "features",
        "metrics",
        "sides",
        "side_features",
        "findings",
        "identities",
        "result",
        "values",
        "plan",
        "scorer",
        "suspicions",
    },
    "labels": BASE | {"images"},
    "prompts": BASE | {"images"},
    "entities": BASE,
    "entities_in_images": BASE | {"entities", "features", "images", "metrics"},
    "entity_recall": BASE | {"entities", "metrics"},
    "entity_scoring": BASE | {"entities", "entity_recall", "metrics", "result", "summaries", "values"},
    "class_scores": BASE | {"metrics", "result", "values"},
    "class_labels": BASE | {"images", "features", "labels", "sides", "source_names"},
    "class_scoring": BASE
    | {
        "images",
        "features",
        "labels",
        "metrics",
        "class_labels",
        "class_scores",
        "plan",
        "protocols",
        "result",
        "values",
        "scoring",
        "side_features",
        "sides",
        "spare_device",
    },
    "text_side": BASE | {"images", "features", "side_features"},
    "recognition": BASE
    | {
        "entities",
        "entities_in_images",
        "entity_recall",
        "entity_scoring",
        "features",
        "findings",
        "identities",
        "images",
        "metrics",
        "result",
        "side_features",
        "sides",
        "source_names",
        "summaries",
        "text_side",
    },
    "alignment": BASE
    | {
        "images",
        "features",
        "findings",
        "identities",
        "metrics",
        "prompts",
        "result",
        "side_features",
        "sides",
        "source_names",
        "summaries",
        "text_side",
        "values",
        "spare_device",
    },
    "spare_device": BASE | {"features", "side_features", "sides"},
    "patient_judge": BASE
    | {"evidence", "features", "judge", "label_recipe", "plan", "result", "side_features", "spare_device"},
    "fitted": {"held_out", "judge", "label_recipe", "patient_judge", "plan", "side_features", "sides"},
    "held_out": {"plan", "side_features", "sides"},
    "evaluator": BASE
    | {
        "evidence",
        "images",
        "features",
        "metrics",
        "protocols",
        "sides",
        "side_features",
        "fitted",
        "label_options",
        "label_recipe",
        "result",
        "values",
        "plan",
        "class_scores",
        "class_scoring",
    },
    "evaluate": BASE
    | {
        "images",
        "features",
        "metrics",
        "protocols",
        "sides",
        "side_features",
        "held_out",
        "result",
        "values",
        "plan",
        "judge",
        "patient_judge",
        "label_options",
        "label_recipe",
    },
    "mode_labels": BASE | {"images", "features", "labels", "class_labels", "sides"},
    "modes": BASE
    | {
        "images",
        "features",
        "labels",
        "metrics",
        "mode_labels",
        "plan",
        "side_features",
        "sides",
        "spare_device",
    },
    "generation": BASE | {"images", "features"},
    "criterion": BASE | {"comparison", "metrics", "result", "values"},
    "standings": BASE | {"criterion", "metrics", "result", "values"},
    "ranking_words": {"criterion", "metrics", "result", "standings"},
    "ranking": BASE
    | {"images", "comparison", "criterion", "evaluator", "ranking_words", "result", "values", "standings"},
    "tradeoff": {"errors"},
    "goal": BASE | {"criterion", "result", "values", "standings"},
    "sweep_folder": BASE | {"evaluator", "images", "records", "result", "values"},
    "sweep": BASE
    | {"comparison", "evaluator", "goal", "metrics", "result", "values", "sweep_folder", "tradeoff"},
    "generator_sweep": BASE | {"evaluator", "generation", "sweep", "sweep_folder"},
    "arrivals": {"images"},
    "score_lines": BASE | {"metrics", "result", "values"},
    "score_log": BASE | {"criterion", "score_lines"},
    "watching": BASE | {"arrivals", "images", "score_lines", "score_log", "result", "values"},
    "demo": BASE | {"images", "features", "metrics", "protocols", "result", "values", "evaluator"},
    "audit": BASE | {"neighbours", "metrics", "features"},
    "doctor": BASE | {"demo", "evaluate", "features", "images", "metrics"},
    "report": BASE
    | {
        "alignment",
        "doctor",
        "features",
        "summaries",
        "evidence",
        "metrics",
        "protocols",
        "result",
        "values",
        "comparison",
        "criterion",
        "modes",
        "ranking",
        "sweep",
        "sweep_folder",
        "goal",
        "score_lines",
        "class_scores",
        "identities",
        "images",
        "labels",
        "mode_labels",
        "pictures",
        "side_features",
        "ranking_words",
        "sides",
        "tradeoff",
    },
    "integrations": BASE
    | {
        "images",
        "features",
        "metrics",
        "sides",
        "side_features",
        "result",
        "values",
        "plan",
        "evaluator",
    },
    "cli": {"*"},
    "__init__": {"*"},
    "__main__": {"cli", "ranks"},
}


def imported_parts(path: Path) -> set[str]:
    """The top-level parts of genpr that a file imports, anywhere in it."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return {name.split(".")[1] for name in names if name.startswith("genpr.") and name != "genpr.__version__"}


FILES = sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_downwards(path):
    part = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    allowed = ALLOWED[part] | {part}
    assert "*" in allowed or imported_parts(path) <= allowed


def test_upward_import_would_be_seen(tmp_path):
    planted = tmp_path / "planted.py"
    planted.write_text("def late():\n    from genpr.evaluate import score\n")
    assert imported_parts(planted) == {"evaluate"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_files_stay_readable(path):
    assert len(path.read_text().splitlines()) <= 300
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef):
            body = node.body[1:] if ast.get_docstring(node) and len(node.body) > 1 else node.body
            code = body[-1].end_lineno - body[0].lineno + 1
            assert code <= 50, f"{node.name} has {code} lines"


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


HEAVY = (
    "torch",
    "torchvision",
    "faiss",
    "scipy",
    "matplotlib",
    "PIL",
    "torchmetrics",
    "lightning",
    "tensorboard",
    "jinja2",
)


def loaded_after(statement: str) -> set[str]:
    """Which heavy packages are loaded after `statement` ran in a new interpreter."""
    code = f"import sys\n{statement}\nprint(*[name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


def test_import_is_light():
    assert loaded_after("import genpr, genpr.criterion, genpr.score_log") == set()
    assert not loaded_after("import genpr; genpr.score; genpr.KNNManifold") & {
        "torchvision",
        "scipy",
        "faiss",
        "matplotlib",
    }


def test_images_are_listed_without_torch():
    assert "torch" not in loaded_after("import genpr.images.source, genpr.cli.pack")


def test_light_import_test_can_fail():
    assert "scipy" in loaded_after("import genpr, scipy")


def test_help_needs_no_torch():
    help_without_exit = "from genpr.cli.main import run; run(['--help'])"
    assert loaded_after(help_without_exit) == set()


def test_typed_marker_and_licence_are_there():
    assert (PACKAGE / "py.typed").exists()
    assert "Apache License" in (PACKAGE.parent / "LICENSE").read_text()
