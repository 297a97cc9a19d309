"""`genpr doctor` as users see it: on this machine, and with libraries that are broken in every way."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from rich.cells import cell_len

import genpr

ROOT = Path(genpr.__file__).parent.parent
SELF_TEST = ("directions", "exactness", "decoding", "same features")


def run_doctor(cache, *options, broken=None, folder=None):
    """Exit code, stdout and stderr of `genpr doctor` in a process in which libraries are replaced by `broken` code."""
    places = [str(ROOT)]
    for name, code in (broken or {}).items():
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text(code)
        places.insert(0, str(folder))
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(places),
        "GENPR_CACHE": str(cache),
        "OMP_NUM_THREADS": "1",
    }
    environment.pop("GENPR_OFFLINE", None)
    command = [sys.executable, "-m", "genpr", "doctor", *options]
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, check=False, cwd=cache.parent
    )
    assert "Traceback" not in done.stdout + done.stderr
    assert "is a bug" not in done.stderr
    return done


def by_name(done):
    record = json.loads(done.stdout)
    return {finding["name"]: finding for finding in record["findings"]}


@pytest.fixture(scope="module")
def healthy(tmp_path_factory):
    cache = tmp_path_factory.mktemp("doctor") / "cache"
    return run_doctor(cache, "--json"), cache


def test_a_machine_that_runs_these_tests_is_healthy(healthy):
    done, cache = healthy
    assert done.returncode == 0, done.stdout
    record = json.loads(done.stdout)
    assert record["healthy"] is True
    assert record["genpr"] == genpr.__version__
    found = by_name(done)
    assert {
        "genpr",
        "torch",
        "libraries",
        "machine",
        "environment",
        "cache",
        "cached",
        "weights",
        *SELF_TEST,
    } <= set(found)
    assert all(found[name]["state"] == "ok" for name in ("torch", "libraries", "machine", *SELF_TEST))
    assert found["weights"]["state"] == "warn", "those of inception are not here"
    assert found["weights"]["remedy"] == "genpr weights fetch inception"
    assert not cache.exists(), "it leaves no trace"


def test_versions_are_those_of_the_libraries(healthy):
    import faiss
    import numpy as np
    import torch
    import torchvision

    found = by_name(healthy[0])
    assert found["torch"]["facts"]["torch"] == torch.__version__
    assert found["torch"]["facts"]["torchvision"] == torchvision.__version__
    assert found["libraries"]["facts"]["numpy"] == np.__version__
    assert found["libraries"]["facts"]["faiss"] == faiss.__version__


def test_broken_libraries_are_named_with_the_command_that_mends_them(tmp_path):
    """One that is of another torch, one that ends the process, and one that is fine."""
    broken = {
        "torchvision": "raise RuntimeError('operator torchvision::nms does not exist')",
        "faiss": "import os, sys; print('cannot execute', file=sys.stderr, flush=True); os._exit(132)",
    }
    done = run_doctor(tmp_path / "cache", "--json", broken=broken, folder=tmp_path / "broken")
    assert done.returncode == 4
    assert json.loads(done.stdout)["healthy"] is False
    found = by_name(done)
    pair = found["torch"]
    assert pair["state"] == "broken"
    assert "torchvision::nms" in pair["text"]
    assert pair["remedy"].startswith("pip install --force-reinstall torch torchvision")
    assert found["faiss"]["state"] == "broken"
    assert "ends the process (exit code 132): cannot execute" in found["faiss"]["text"]
    assert found["faiss"]["remedy"] == "pip install --force-reinstall faiss-cpu"
    assert "because of torchvision" in found["timm"]["text"]
    assert found["timm"]["remedy"] == ""
    assert "not looked at, since faiss" in found["directions"]["text"]
    assert found["decoding"]["state"] == "ok", "what needs neither is looked at"


def test_without_torch_and_without_what_lays_tables_out_it_still_answers(tmp_path):
    broken = {
        "torch": "raise OSError('libcudart.so.12: cannot open shared object file')",
        "rich": "raise ImportError('no rich')",
    }
    done = run_doctor(tmp_path / "cache", broken=broken, folder=tmp_path / "broken")
    assert done.returncode == 4
    lines = done.stdout.splitlines()
    assert any(line.startswith("broken  torch: does not work (OSError: libcudart") for line in lines)
    assert any(line.startswith("broken  rich: does not work") for line in lines)
    assert any(line.startswith("ok  decoding") for line in lines)


def test_it_fits_a_screen(healthy):
    from genpr.doctor import Finding
    from genpr.doctor.examine import Examination
    from genpr.report.text.doctor_table import doctor_table

    record = json.loads(healthy[0].stdout)
    findings = tuple(Finding(**finding) for finding in record["findings"])
    text = doctor_table(Examination(record["genpr"], findings, record["seconds"]))
    lines = text.splitlines()
    assert max(map(cell_len, lines)) <= 80
    assert len(lines) <= 28  # 22 where there is room, and names of files may be long
    assert all(any(line[7:].startswith(f"{finding.name} ") for line in lines) for finding in findings)
    assert "fix: genpr weights fetch inception" in text
    assert lines[-1].startswith("healthy, with ")
    broken = Finding("torch", "broken", "\x1b[31m of another build", "pip install torch")
    text = doctor_table(Examination("0", (broken,), 1.0))
    assert text.splitlines()[0] == "broken torch         \\x1b[31m of another build"
    assert text.splitlines()[-1] == "broken: mend this before you trust a score; looked at 1 things in 1 s"
