"""The command line: stdout, stderr and exit codes."""

import errno
import json
import os

import numpy as np
import pytest
import torch

GABOR = ("--extractor", "gabor", "--device", "cpu")


def test_score_prints_a_table_with_values_k_and_descriptions(genpr, folders):
    code, out, err = genpr("score", *folders, *GABOR)
    assert code == 0
    rows = {line.split()[0]: line.split()[1:] for line in out.splitlines() if line.strip()}
    assert [rows[name][6] for name in ("precision", "recall", "density", "coverage")] == ["3", "3", "5", "5"]
    assert all(0 <= float(rows[name][0]) <= 1 for name in ("precision", "recall", "coverage"))
    for part in ("fidelity", "diversity", "not comparable with published numbers"):
        assert part in out
    assert "\x1b" not in out
    assert "note [small-sample]: only 20 reals and 20 fakes" in err


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("score a b --protocol amd", "adm"),
        ("score a b --metrics precison", "precision"),
        ("score a b --extractor inceptoin", "inception"),
        ("score a b --fail-under presicion=0.5", "precision"),
        ("rank a b --by presicion", "precision"),
        ("reconstruct a b --metrics psrn", "psnr"),
        ("weights fetch inseption", "inception"),
    ],
)
def test_a_misspelled_name_is_refused_with_similar_names(genpr, tmp_path, monkeypatch, line, meant):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    code, _, err = genpr(*line.split())
    assert code == 2
    assert f"(similar: {meant}" in err


def test_folder_names_may_be_invalid_utf_8(genpr, folders, tmp_path):
    odd = os.fsdecode(bytes(tmp_path) + b"/f\xe9.d")
    folders[0].rename(odd)
    assert genpr("features", odd, tmp_path / "q.safetensors", *GABOR)[0] == 0
    assert genpr("score", odd, tmp_path / "fake", *GABOR, "--json")[0] == 0


@pytest.mark.parametrize(
    ("error", "exit_code", "code"),
    [
        (ZeroDivisionError("planted"), 1, "bug"),
        (MemoryError(), 4, "oom"),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"), 4, "oom"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"), 4, "oom"),
        (OSError(errno.EMFILE, "Too many open files"), 4, "system"),
    ],
    ids=["bug", "python", "gpu", "cpu", "files"],
)
def test_lack_of_memory_or_files_is_not_reported_as_a_bug(
    genpr, folders, monkeypatch, error, exit_code, code
):
    def exhausted(*_args, **_kwargs):
        raise error

    monkeypatch.setattr("genpr.evaluation.evaluator.score_with", exhausted)
    got, out, err = genpr("score", *folders, *GABOR, "--json")
    assert (got, json.loads(out)["error"]["code"], "Traceback" in err) == (exit_code, code, False)
    assert ("this is a bug in genpr: ZeroDivisionError: planted" in err) == (code == "bug")
    monkeypatch.setenv("GENPR_DEBUG", "1")
    assert "Traceback" in genpr("score", *folders, *GABOR)[2]


@pytest.mark.parametrize("command", ["score", "reconstruct", "modes", "features", "stats", "rank"])
def test_number_of_files_passed_over_is_in_text_and_json(genpr, write_images, rng, tmp_path, command):
    sides = [write_images(name, rng.integers(0, 256, (50, 8, 8, 3), np.uint8)) for name in ("a", "b", "c")]
    for name in ("index.json", ".hidden", "notes.json"):
        (sides[0] / name).touch()
    suffix = {"features": ".safetensors", "stats": ".npz"}.get(command)
    count = {"rank": 3, "features": 1, "stats": 1}.get(command, 2)
    how = {"reconstruct": ("--metrics", "psnr")}.get(command, GABOR)
    texts = []
    for as_json in ((), ("--json",)):
        out = [tmp_path / f"out{len(as_json)}{suffix}"] if suffix else []
        code, text, _ = genpr(command, *sides[:count], *out, *how, *as_json)
        assert code == 0
        texts.append(" ".join(text.split()))
    assert ", 3 other files passed over (.json 2, hidden 1)" in texts[0] or command == "rank"
    assert json.dumps({"passed_over": {".json": 2, "hidden": 1}})[1:-1] in texts[1]
