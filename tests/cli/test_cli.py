"""The command line: what goes to stdout, what to stderr, and which exit code says what."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image

GABOR = ("--extractor", "gabor", "--device", "cpu")


def test_score_prints_a_table_with_values_k_and_purposes(genpr, folders):
    code, out, err = genpr("score", *folders, *GABOR)
    assert code == 0
    rows = {line.split()[0]: line.split()[1:] for line in out.splitlines() if line.strip()}
    assert [rows[name][6] for name in ("precision", "recall", "density", "coverage")] == ["3", "3", "5", "5"]
    assert all(0 <= float(rows[name][0]) <= 1 for name in ("precision", "recall", "coverage"))
    assert "fidelity" in out
    assert "diversity" in out
    assert "not comparable with published numbers" in out
    assert all(len(line) <= 80 for line in out.splitlines() if not line.startswith(("real ", "fake ")))
    assert "\x1b" not in out
    assert "note: only 20 images" in err


def test_json_is_one_object_and_nothing_else(genpr, folders):
    code, out, _ = genpr("score", *folders, *GABOR, "--json", "--k", 4)
    assert code == 0
    record = json.loads(out)
    assert out.count("\n") == 1
    assert {metric["k"] for metric in record["metrics"].values()} == {4}
    assert record["comparable"] is False


def test_quiet_is_quiet(genpr, folders):
    assert genpr("score", *folders, *GABOR, "-q")[2] == ""


def test_the_second_run_says_that_nothing_was_embedded(genpr, folders):
    _, first, _ = genpr("score", *folders, *GABOR)
    _, second, err = genpr("score", *folders, *GABOR)
    assert first == second
    assert "all 20 real features came from the cache; nothing was embedded" in err
    assert "all 20 fake features came from the cache; nothing was embedded" in err
    assert "nothing was embedded" not in genpr("score", *folders, *GABOR, "--no-cache")[2]


def test_fail_under(genpr, folders):
    assert genpr("score", *folders, *GABOR, "--fail-under", "coverage=0")[0] == 0
    code, out, err = genpr(
        "score", *folders, *GABOR, "--fail-under", "recall=1.01", "--fail-under", "density=0", "--json"
    )
    assert code == 5
    assert json.loads(out)["metrics"]
    assert err.count("missed: recall is") == 1
    assert "missed: density" not in err


def test_a_distance_fails_when_it_is_above(genpr, folders):
    fd = ("score", *folders, *GABOR, "--metrics", "fd", "-q")
    assert genpr(*fd, "--fail-over", "fd=1000")[0] == 0
    code, out, err = genpr(*fd, "--fail-over", "fd=0.001")
    assert (code, "fd" in out) == (5, True)
    assert err.startswith("missed: fd is ")
    assert err.endswith("above 0.001\n")


def test_features_are_embedded_once_and_score_like_the_images(genpr, folders, tmp_path):
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


def test_skipping_bad_images_scores_the_rest(genpr, folders):
    bad = folders[1] / "00003.png"
    bad.write_bytes(bad.read_bytes()[:50])
    code, out, err = genpr("score", *folders, *GABOR)
    assert (code, out) == (3, "")
    assert "00003.png" in err
    assert genpr("score", *folders, *GABOR, "--on-bad", "skip")[0] == 3, "1 of 20 is more than 1%"
    code, out, err = genpr("score", *folders, *GABOR, "--on-bad", "skip", "--max-bad", "5%", "--json")
    assert code == 0
    assert json.loads(out)["fake"]["skipped"] == [["00003.png", "image-truncated"]]
    assert "1 of 20 fake images could not be used and were left out" in err


def test_a_custom_extractor_that_prints_or_fails(genpr, folders, tmp_path):
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
    code, out, err = genpr("score", *folders, "--extractor", f"{file}:broken", "--device", "cpu")
    assert (code, out) == (2, "")
    assert "failed: ZeroDivisionError: division by zero" in err
    assert "bug" not in err


def test_a_pixel_limit_holds_for_cached_images_too(genpr, folders):
    assert genpr("score", *folders, *GABOR)[0] == 0
    assert genpr("score", *folders, *GABOR, "--max-pixels", 10)[0] == 3


def test_missing_weights_do_not_hide_the_likelier_mistake(genpr, folders, tmp_path, rng):
    one = features(tmp_path / "f.npy", rng.normal(size=(20, 4)))
    assert genpr("score", folders[0], one, "--offline")[0] == 3
    assert genpr("score", folders[0], tmp_path / "missing.npy", "--offline")[0] == 2


def test_an_unknown_extractor_is_refused_for_features_too(genpr, tmp_path, rng):
    one = features(tmp_path / "f.npy", rng.normal(size=(20, 736)))
    assert genpr("score", one, one, "--extractor", "inseption")[0] == 2
    assert genpr("score", one, one, "--extractor", "gabor")[0] == 0
    assert (
        "has 736 features per image, but pixels has 3072"
        in genpr("score", one, one, "--extractor", "pixels")[2]
    )


def test_folders_with_names_that_are_not_utf_8(genpr, folders, tmp_path):
    import os

    odd = os.fsdecode(bytes(tmp_path) + b"/f\xe9.d")
    folders[0].rename(odd)
    assert genpr("features", odd, tmp_path / "q.safetensors", *GABOR)[0] == 0
    assert genpr("score", odd, tmp_path / "fake", *GABOR, "--json")[0] == 0


# Wrong inputs: one clear line, the right exit code, never a traceback -----------------------------------------


def make_half_jpeg(path):
    Image.effect_noise((64, 64), 90).save(path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def make_bomb(path):
    import struct
    import zlib

    header = struct.pack(">IIBBBBB", 20_000, 20_000, 8, 2, 0, 0, 0)
    chunk = b"IHDR" + header
    idat = b"IDAT" + zlib.compress(b"")
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n"
        + b"".join(
            struct.pack(">I", len(part) - 4) + part + struct.pack(">I", zlib.crc32(part))
            for part in (chunk, idat, b"IEND")
        )
    )


BAD_FILES = {
    "half.jpg": (make_half_jpeg, "image-truncated"),
    "page.png": (lambda path: path.write_text("<!doctype html><title>404</title>"), "image-unreadable"),
    "bomb.png": (make_bomb, "image-too-large"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_bad_images(genpr, folders, name):
    make, code = BAD_FILES[name]
    make(folders[1] / name)
    exit_code, out, err = genpr("score", *folders, *GABOR, "--json")
    assert exit_code == 3
    error = json.loads(out)["error"]
    assert error["code"] == "bad-images"
    assert [(bad["path"], bad["code"]) for bad in error["bad"]] == [(name, code)]
    assert name in err
    assert "Traceback" not in err


def features(path, array):
    np.save(path, array)
    return path


def one_bad_value(value):
    array = np.ones((20, 4))
    array[7, 2] = value
    return array


@pytest.mark.parametrize(
    ("make", "code", "says"),
    [
        (lambda d: d / "missing", 2, "missing"),
        (lambda d: (d / "empty").mkdir() or d / "empty", 3, "no images"),
        (lambda d: features(d / "few.npy", np.ones((5, 4))), 3, "at least 6 are needed (k + 1"),
        (lambda d: features(d / "nan.npy", one_bad_value(np.nan)), 3, "row 7"),
        (lambda d: features(d / "inf.npy", one_bad_value(np.inf)), 3, "row 7"),
        (lambda d: features(d / "overflow.npy", one_bad_value(1e300)), 3, "row 7"),
        (lambda d: features(d / "wide.npy", np.ones((20, 5))), 3, "5"),
        (lambda d: features(d / "flat.npy", np.ones(20)), 3, "(20,)"),
        (lambda d: np.savez(d / "o.npz", arr_0=np.array([object()])) or d / "o.npz", 3, "object"),
    ],
    ids=["missing", "empty", "few", "nan", "inf", "overflow", "width", "1-d", "object"],
)
def test_wrong_inputs_give_one_clear_line(genpr, tmp_path, rng, make, code, says):
    good = features(tmp_path / "good.npy", rng.normal(size=(20, 4)))
    path = make(tmp_path)
    exit_code, out, err = genpr("score", path, good)
    assert exit_code == code
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert says in err
    assert genpr("score", good, path)[0] == code or path.name == "few.npy"


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("score", "a", "b", "--extractor", "inseption"), "did you mean inception?"),
        (("score", "a", "b", "--extracter", "gabor"), "--extracter"),
        (("score", "a"), "FAKE"),
        (("scor", "a", "b"), "scor"),
        (("score", "a", "b", "--fail-under", "precision"), "metric=x"),
        (("score", "a", "b", "--fail-under", "presicion=0.5"), "presicion"),
        (("score", "a", "b", "--fail-under", "recall=nan"), "a number"),
        (("score", "a", "b", "--extractor", "gabor", "--fail-over", "recall=1"), "use --fail-under"),
        (
            ("score", "a", "b", "--extractor", "gabor", "--metrics", "fd", "--fail-under", "fd=1"),
            "use --fail-over",
        ),
        (("score", "", "b"), ""),
        (("score", "a", "b", "--extractor", ""), "unknown extractor"),
        (("score", "a", "b", "--max-bad", "lots"), "1% or 0.01"),
        (("score", "a", "b", "--metrics", "fud"), "precision, recall, density, coverage"),
        (("score", "a", "b", "--k", "0"), "k must be an integer of at least 1"),
        (("score", "a", "b", "--extractor", "gabor", "--max-memory", "much"), "8GiB or 500MB"),
        (("features", "a", "b.safetensors", "--extractor", "gabor", "--max-memory", "1kB"), "256 MiB"),
        (("features", "a", "b.npy"), ".safetensors"),
    ],
)
def test_wrong_usage_exits_2_with_one_line(genpr, folders, args, says):
    args = [str(folders[0]) if arg == "a" else str(folders[1]) if arg == "b" else arg for arg in args]
    code, out, err = genpr(*args)
    assert code == 2
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert says in err


@pytest.mark.parametrize("kind", ["folders", "npz"])
def test_missing_weights_offline_exit_4_and_say_everything_before_torch_loads(folders, tmp_path, kind):
    if kind == "npz":
        np.savez(tmp_path / "images.npz", arr_0=np.zeros((20, 8, 8, 3), np.uint8))
        folders = [tmp_path / "images.npz"] * 2
    code = (
        "import sys; from genpr.cli.main import run; code = run(sys.argv[1:]); "
        "assert 'torch' not in sys.modules; sys.exit(code)"
    )
    command = [sys.executable, "-c", code, "score", *map(str, folders), "--offline"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 4
    assert done.stdout == ""
    for part in (
        "pt_inception-2015-12-05-6726825d.pth",
        "https://github.com/mseitzer/pytorch-fid/releases/",
        "6726825d0af5f729cebd5821db510b11b1cfad8faad88a03f1befd49fb9129b2",
        "weights",
        "--weights PATH",
        "genpr demo",
    ):
        assert part in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_bug_is_called_a_bug(genpr, folders, monkeypatch):
    def broken(*_args, **_kwargs):
        raise ZeroDivisionError("planted")

    monkeypatch.setattr("genpr.evaluation.evaluator.score_with", broken)
    code, out, err = genpr("score", *folders, *GABOR)
    assert (code, out) == (1, "")
    assert "this is a bug in genpr: ZeroDivisionError: planted" in err
    assert "Traceback" not in err
    monkeypatch.setenv("GENPR_DEBUG", "1")
    assert "Traceback" in genpr("score", *folders, *GABOR)[2]


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 80000000000 bytes"),
    ],
    ids=["python", "gpu", "cpu"],
)
def test_a_machine_without_memory_is_no_bug(genpr, folders, monkeypatch, error):
    def exhausted(*_args, **_kwargs):
        raise error

    monkeypatch.setattr("genpr.evaluation.evaluator.score_with", exhausted)
    code, out, err = genpr("score", *folders, *GABOR, "--json")
    assert code == 4
    assert json.loads(out)["error"]["code"] == "oom"
    assert "out of memory" in err
    assert "bug" not in err


def test_control_characters_in_names_never_reach_the_terminal(genpr, tmp_path):
    _, _, err = genpr("score", tmp_path / "\x1b[31mred\nline", tmp_path)
    assert "\x1b" not in err
    assert err.count("\n") == 1


def test_list_and_version(genpr):
    assert "gabor" in genpr("list")[1]
    assert "inception" in genpr("list", "extractors")[1]
    assert "genpr" in genpr("list", "protocols")[1]
    assert "coverage" in genpr("list", "metrics")[1]
    assert genpr("--version")[1].startswith("genpr, version 0.")


def test_interruption_exits_130(genpr, folders, monkeypatch):
    def interrupted(*_args, **_kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("genpr.evaluation.evaluator.score_with", interrupted)
    code, out, err = genpr("score", *folders, *GABOR)
    assert (code, out, err.strip()) == (130, "", "error: interrupted")


@pytest.mark.parametrize(
    ("command", "code"),
    [("list metrics", 4), ("list metrics --json", 4), ("score no-such-folder . --json", 2)],
)
def test_a_full_stdout_is_one_line_on_stderr(command, code):
    done = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m genpr {command} > /dev/full"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert done.stderr.startswith("error: ")
    assert len(done.stderr.splitlines()) == 1


def test_output_into_a_closed_pipe_is_quiet(folders):
    command = f"{sys.executable} -m genpr list metrics | true"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
