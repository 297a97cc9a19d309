"""The command line: stdout, stderr and exit codes."""

import errno
import json
import os

import numpy as np
import pytest
import torch
from PIL import Image

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


def test_several_sets_of_fakes_are_referred_to_rank_and_compare(genpr, folders):
    code, out, err = genpr("score", *folders, folders[1], *GABOR)
    assert (code, out) == (2, "")
    assert all(text in err for text in ("genpr rank", "genpr compare"))


def test_feature_files_score_as_their_images(genpr, folders, tmp_path):
    files = [tmp_path / f"{folder.name}.safetensors" for folder in folders]
    for folder, file in zip(folders, files, strict=True):
        code, out, _ = genpr("features", folder, file, *GABOR)
        assert code == 0
        assert out == f"wrote 20 x 736 features to {file} (0 from the cache)\n"
    from_files, from_images = (
        json.loads(genpr("score", *pair, *GABOR, "--json")[1]) for pair in (files, folders)
    )
    assert from_files["metrics"] == from_images["metrics"]
    assert from_files["extractor"] == from_images["extractor"]
    assert genpr("score", folders[0], files[1], *GABOR)[0] == 3
    assert genpr("features", files[0], tmp_path / "x.safetensors", *GABOR)[0] == 2


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("scroe a b", "score"),
        ("score a b --metric fid", "--metrics"),
        ("score a b --protocol amd", "adm"),
        ("score a b --metrics precison", "precision"),
        ("score a b --extractor inceptoin", "inception"),
        ("score a b --fail-under presicion=0.5", "precision"),
        ("rank a b --by presicion", "precision"),
        ("reconstruct a b --metrics psrn", "psnr"),
        ("weights fetch inseption", "inception"),
    ],
)
def test_a_misspelled_name_is_refused_with_similar_names(genpr, line, meant):
    code, _, err = genpr(*line.split())
    assert code == 2
    assert f"(similar: {meant}" in err


def test_an_empty_shard_is_reported(genpr, folders, tmp_path):
    lines = {
        i: genpr("features", folders[0], tmp_path / f"{i}.safetensors", *GABOR, "--shard", f"{i}/2")
        for i in (1, 2)
    }
    assert [(lines[i][0], "empty" in lines[i][2]) for i in (1, 2)] == [(0, True), (0, False)]


def test_bad_images_are_skipped_if_requested(genpr, folders):
    bad = folders[1] / "00003.png"
    bad.write_bytes(bad.read_bytes()[:50])
    code, out, err = genpr("score", *folders, *GABOR)
    assert (code, out) == (3, "")
    assert "00003.png" in err
    assert genpr("score", *folders, *GABOR, "--on-bad", "skip")[0] == 3, "1 of 20 is more than 1%"
    code, out, err = genpr("score", *folders, *GABOR, "--on-bad", "skip", "--max-bad", "5%", "--json")
    assert code == 0
    assert json.loads(out)["fake"]["skipped"] == [["00003.png", "image-corrupt"]]
    assert "1 of 20 fake images could not be used and were left out" in err


def test_output_of_a_custom_extractor_is_on_stderr_and_its_failure_is_a_usage_error(
    genpr, folders, tmp_path, monkeypatch
):
    file = tmp_path / "mine.py"
    file.write_text(
        "import torch\n"
        "class Net(torch.nn.Module):\n"
        "    dim = 3\n"
        "    def forward(self, images):\n"
        "        print('hello')\n"
        "        return images.float().mean((2, 3))\n"
        "def broken():\n"
        "    net = Net()\n"
        "    net.dim = 4\n"
        "    net.forward = lambda images: 1 / 0\n"
        "    return net\n"
    )
    code, out, err = genpr("score", *folders, "--extractor", f"{file}:Net", "--json", "--device", "cpu")
    assert code == 0
    assert json.loads(out)["extractor"]["dim"] == 3
    assert "hello" in err
    text = genpr("score", *folders, "--extractor", f"{file}:Net", "--device", "cpu")[1]
    assert "resize not recorded" in " ".join(text.split())
    code, out, err = genpr("score", *folders, "--extractor", f"{file}:broken", "--device", "cpu")
    assert (code, out) == (2, "")
    assert "on a batch uint8 (" in err
    assert "ZeroDivisionError: division by zero" in err
    assert "bug" not in err
    monkeypatch.setenv("GENPR_DEBUG", "1")
    assert "1 / 0" in genpr("score", *folders, "--extractor", f"{file}:broken", "--device", "cpu")[2]


@pytest.mark.parametrize("call", ["sys.exit(0)", "sys.exit(3)", "next(iter(()))"])
def test_extractor_that_exits_is_a_usage_error(genpr, folders, tmp_path, call):
    file = tmp_path / "mine.py"
    file.write_text(f"import sys\nclass Net:\n    dim = 3\n    def __call__(self, images): {call}\n")
    code, out, err = genpr("score", *folders, "--extractor", f"{file}:Net", "--device", "cpu", "--json")
    assert (code, json.loads(out)["error"]["code"]) == (2, "extractor-failed")
    assert "mine.py:Net" in err
    assert "Traceback" not in err


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
    assert ("Traceback" in genpr("score", *folders, *GABOR)[2]) == (code != "oom")


def test_features_of_another_range_are_reported(genpr, write_images, tmp_path):
    dark = write_images("dark", np.ones((4, 8, 8, 3), np.uint8))
    code, _, err = genpr("features", dark, tmp_path / "d.safetensors", *GABOR)
    assert (code, err.count("warning [unscaled]: 4 of 4 source images")) == (0, 1)


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


def test_number_of_files_passed_over_is_kept_in_feature_files_and_joined_shards(genpr, folders, tmp_path):
    (folders[1] / "index.json").touch()
    for shard in ("1/2", "2/2"):
        genpr("features", folders[1], tmp_path / f"{shard[0]}.safetensors", "--shard", shard, *GABOR)
    assert genpr("features", folders[0], tmp_path / "real.safetensors", *GABOR)[0] == 0
    files = tmp_path / "real.safetensors", tmp_path / "[12].safetensors"
    record = json.loads(genpr("score", *files, *GABOR, "--json")[1])
    assert [record[role]["passed_over"] for role in ("real", "fake")] == [{}, {".json": 1}]


def test_images_of_several_sizes_are_prepared(genpr, write_images, tmp_path, rng):
    pixels = [rng.integers(0, 256, (20 + row, 20 + row // 2, 3), dtype=np.uint8) for row in range(24)]
    sides = [write_images("a", pixels[::2]), write_images("b", pixels[1::2])]
    prepared, how = [tmp_path / "a.npz", tmp_path / "b.npz"], ("--prepare", "resize:16")
    for out, images in zip(prepared, (pixels[::2], pixels[1::2]), strict=True):
        resized = [Image.fromarray(image).resize((16, 16), Image.Resampling.BICUBIC) for image in images]
        np.savez(out, arr_0=np.stack(resized))
    found = json.loads(genpr("score", *sides, *how, *GABOR, "--json")[1])
    assert found["metrics"] == json.loads(genpr("score", *prepared, *GABOR, "--json")[1])["metrics"]
    assert found["real"]["decoder"]["prepare"] == how[1]
