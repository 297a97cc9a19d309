"""The check of a GPU reports the outcome of every step, and finds differences to the CPU."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import genpr

SCRIPTS = str(Path(__file__).parents[2] / "scripts")


def test_steps_without_time_are_reported(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(SCRIPTS)
    import gpu_check

    done = CliRunner().invoke(gpu_check.main, [str(tmp_path), "--minutes", "0"], catch_exceptions=False)
    steps = json.loads((tmp_path / "facts.json").read_text())["steps"]
    assert (done.exit_code, {step["result"] for step in steps.values()}) == (1, {"out of time"})
    assert list(steps) == list(gpu_check.SECONDS)
    assert all(f"| {name} | out of time |" in (tmp_path / "summary.md").read_text() for name in steps)


@pytest.mark.gpu
def test_differences_on_a_gpu_are_named(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(SCRIPTS)
    import gpu_steps

    right, answer = genpr.manifold_metrics, tmp_path / "rows.json"
    patched = {"cuda": lambda x, y, **rest: right(x, y[1:], **rest), "cpu": right}
    monkeypatch.setattr(genpr, "manifold_metrics", lambda x, y, **rest: patched[rest["device"]](x, y, **rest))
    assert gpu_steps.main("equality", str(answer), "24", "20") == 1
    assert {row["what differs from the CPU"] for row in json.loads(answer.read_text())} == {
        "closed",
        "closed, strict",
    }


@pytest.mark.gpu
def test_little_memory_is_not_a_failure(gpu, tmp_path, monkeypatch):
    if gpu is None:
        pytest.skip("on a real GPU it would take the memory of tests that run in parallel")
    monkeypatch.syspath_prepend(SCRIPTS)
    import gpu_steps

    answer = tmp_path / "rows.json"
    assert gpu_steps.main("memory", str(answer), "24", "40") == 0
    assert [row["outcome"] for row in json.loads(answer.read_text())][-2:] == ["equal", "oom"]
