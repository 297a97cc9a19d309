"""Run the checks that need a GPU, each under a time limit, and write a report; docs/gpu.md describes them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Any

import click

ROOT = Path(__file__).resolve().parent.parent
SECONDS = {
    "probe": 60,
    "tests": 200,
    "demo": 60,
    "equality": 60,
    "memory": 60,
    "engine": 240,
    "embedding": 150,
}
"""Maximum seconds of each step; the most informative steps for a first run on a GPU are first."""

PRACTICE = """import atexit, sys
if "pytest" not in sys.orig_argv:  # tests create a practice GPU themselves
    from practice_cuda import practice_device
    practice = practice_device()
    practice.__enter__()
    atexit.register(practice.__exit__, None, None, None)
"""
EXTRACTORS = ("pixels", "inception", "inception@bfloat16", "dinov2-vitb14", "dinov2-vitb14@bfloat16")


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("out", type=click.Path(file_okay=False, path_type=Path))
@click.option("--n", "sizes", multiple=True, default=(10_000, 50_000, 100_000), show_default=True, type=int)
@click.option("--d", default=2048, show_default=True, help="Features per image.")
@click.option(
    "--rows", default=8_000, show_default=True, help="Of the probe's products; of hard sets an eighth."
)
@click.option("--images", default=500, show_default=True, help="That each extractor embeds.")
@click.option("--extractor", "extractors", multiple=True, default=EXTRACTORS, show_default=True)
@click.option("--workers", default=8, show_default=True, help="Processes that run tests.")
@click.option("--step", "only", multiple=True, type=click.Choice(list(SECONDS)), help="Default: all.")
@click.option("--minutes", default=8.75, show_default=True, help="Time limit of all steps together.")
@click.option("--wheels", type=click.Path(path_type=Path), default=ROOT / ".whl", help="Default: .whl")
@click.option("--practice", is_flag=True, help="Try this script on the practice device of the tests.")
def main(
    out: Path, only: tuple[str, ...], minutes: float, wheels: Path, practice: bool, **plan: object
) -> None:
    """Check on a GPU: premises, tests, demo, equality with the CPU, little memory, and the speed of engine and embedding.

    OUT receives facts.json, summary.md, log.txt and the record of the engine. Nothing is downloaded; wheels in the folder
    `--wheels` are installed for the check alone. Exits 1 if a step fails or takes too long; the others are still run.
    """
    out = out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    end = perf_counter() + 60 * minutes
    steps: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(prefix="gpu-check-") as folder:
        environment = _environment(Path(folder), wheels, practice=practice)
        for name, command in _commands(out, Path(folder), **plan).items():
            if not only or name in only:
                limit = min(SECONDS[name], end - perf_counter())
                steps[name] = _run(name, command, limit, environment, out / "log.txt")
                steps[name]["rows"] = _rows(Path(folder) / f"{name}.json")
                click.echo(
                    f"{name}: {steps[name]['result']} in {steps[name]['seconds']} s: {steps[name]['last_line']}"
                )
    facts = {"date": f"{datetime.now(UTC):%Y-%m-%d}", "practice": practice, "steps": steps}
    (out / "facts.json").write_text(json.dumps(facts, indent=1) + "\n")
    (out / "summary.md").write_text(_summary(facts, out / "engine.md"))
    sys.exit(any(step["result"] != "ok" for step in steps.values()))


def _commands(out: Path, folder: Path, **plan: Any) -> dict[str, list[str]]:  # noqa: ANN401 - options of `main`
    """The arguments of `python` for each step."""
    d, rows = plan["d"], plan["rows"]

    def measured(name: str, rows: int) -> list[str]:
        return ["scripts/gpu_steps.py", name, str(folder / f"{name}.json"), str(d), str(rows)]

    pytest = ["-m", "pytest", "-m", "gpu", "-q", "-W", "default", "-p", "no:cacheprovider"]
    tools = [f"--tool={tool}" for tool in ("genpr", "torch-tiles", "torch-cdist")]
    engine = ["benchmarks/bench_manifold.py", "--device=cuda", "--family=gaussian", f"--d={d}", *tools]
    places = ["--temp-dir", str(folder), "--out", str(out / "engine.jsonl")]
    return {
        "probe": measured("probe", rows),
        "tests": [*pytest, f"-n{plan['workers']}"],
        "demo": ["-m", "genpr", "demo", "--device=cuda", "--quiet", f"--n={min(800, rows)}"],
        "equality": measured("equality", rows // 8),
        "memory": measured("memory", rows // 8),
        "engine": [*engine, *(f"--n={n}" for n in plan["sizes"]), *places],
        "embedding": [*measured("embedding", plan["images"]), *plan["extractors"]],
    }


def _environment(folder: Path, wheels: Path, *, practice: bool) -> dict[str, str]:
    """The environment of all steps: no network, a private cache, and the modules of `wheels`."""
    paths = [ROOT]
    if found := sorted(wheels.glob("*.whl")):
        paths.append(folder / "wheels")
        pip = ["-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--target"]
        subprocess.run([sys.executable, *pip, str(paths[-1]), *map(str, found)], check=True)
    if practice:  # in every process, as it starts
        (folder / "sitecustomize.py").write_text(PRACTICE)
        paths += [folder, ROOT / "scripts"]
    own = {"GENPR_CACHE": str(folder / "cache"), "GENPR_OFFLINE": "1", "PYTHONUNBUFFERED": "1"}
    path = os.pathsep.join([*map(str, paths), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, **own, "PYTHONPATH": path}


def _run(
    name: str, command: list[str], limit: float, environment: dict[str, str], log: Path
) -> dict[str, Any]:
    """Run a step with all that it starts, and give how it ended, its seconds and the last line that it wrote."""
    start = perf_counter()
    with log.open("a+", encoding="utf-8") as file:
        file.write(f"== {name}\n")
        file.flush()
        process = subprocess.Popen(
            [sys.executable, *command],
            cwd=ROOT,
            env=environment,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = process.wait(max(limit, 0))
            result = "ok" if code == 0 else f"exit code {code}"
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            result = "out of time"
    last_line = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1]
    return {
        "result": result,
        "seconds": round(perf_counter() - start),
        "last_line": last_line.replace(f"{log.parent}/", ""),
    }


def _rows(path: Path) -> list[dict[str, Any]]:
    """The table that a step of gpu_steps.py wrote."""
    rows: list[dict[str, Any]] = json.loads(path.read_text()) if path.exists() else []
    return rows


def _summary(facts: dict[str, Any], engine: Path) -> str:
    """The whole check in Markdown."""
    steps = facts["steps"]
    gpu = next(
        (row["value"] for row in steps.get("probe", {}).get("rows", []) if row["fact"] == "GPU"), "GPU"
    )
    lines = [f"# {facts['date']}, {gpu}, scripts/gpu_check", ""]
    if facts["practice"]:
        lines += [
            "On the practice device of the tests: no GPU computed anything here, and no time means anything.",
            "",
        ]
    lines += _table([{"step": name, **step, "rows": len(step["rows"])} for name, step in steps.items()])
    for name, step in steps.items():
        if step["rows"]:
            lines += ["", f"## {name.capitalize()}", "", *_table(step["rows"])]
    if "engine" in steps and engine.exists():
        lines += [
            "",
            "## Engine",
            "",
            *engine.read_text(encoding="utf-8").replace("\n#", "\n##").splitlines()[2:],
        ]
    return "\n".join(lines) + "\n"


def _table(rows: list[dict[str, Any]]) -> list[str]:
    lines = [list(rows[0]), ["---"] * len(rows[0]), *(list(row.values()) for row in rows)]
    return [f"| {' | '.join(str(cell).replace('|', '/') for cell in line)} |" for line in lines]


if __name__ == "__main__":
    main()
