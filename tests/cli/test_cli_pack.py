"""`genpr pack`: what it prints, and files that genpr itself scores."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

GABOR = ("--extractor", "gabor", "--device", "cpu", "--json")


@pytest.fixture
def pixels(rng):
    return rng.integers(0, 256, (20, 8, 9, 3), dtype=np.uint8)


@pytest.fixture
def folder(write_images, pixels):
    return write_images("fake", pixels)


def test_pack_says_what_it_wrote(genpr, folder, pixels, tmp_path):
    out = tmp_path / "x.npz"
    assert genpr("pack", folder, out) == (0, f"packed 20 images of 9 x 8 into {out}\n", "")
    with np.load(out) as file:
        np.testing.assert_array_equal(file["arr_0"], pixels)
    assert genpr("pack", folder, tmp_path / "y.npz", "--max-images", 1)[1].startswith("packed 1 image of")


def test_json_is_one_object(genpr, folder, tmp_path):
    (folder / "00003.png").write_bytes(b"404")
    out = tmp_path / "x.npz"
    code, text, err = genpr(
        *("pack", folder, out, "--json", "--compressed", "--on-bad", "skip", "--max-bad", "5%")
    )
    assert code == 0
    assert json.loads(text) == {
        "out": str(out),
        "n": 19,
        "height": 8,
        "width": 9,
        "compressed": True,
        "bytes": out.stat().st_size,
        "flags": {},
        "skipped": [["00003.png", "image-unreadable"]],
    }
    assert "1 of 20 source images could not be used and were left out" in err
    assert genpr("pack", folder, out, "--on-bad", "skip", "--max-bad", "5%", "--force", "-q")[2] == ""


@pytest.mark.parametrize("option", ["--compressed", "--no-compressed"])
def test_a_packed_file_scores_like_its_source(genpr, folder, write_images, rng, tmp_path, option):
    real = write_images("real", rng.integers(0, 256, (20, 8, 9, 3), dtype=np.uint8))
    assert genpr("pack", folder, tmp_path / "fake.npz", option)[0] == 0
    code, packed, _ = genpr("score", real, tmp_path / "fake.npz", *GABOR)
    assert code == 0
    assert json.loads(packed)["metrics"] == json.loads(genpr("score", real, folder, *GABOR)[1])["metrics"]


def test_packing_needs_no_torch(folder, tmp_path):
    code = (
        "import sys; from genpr.cli.main import run; code = run(sys.argv[1:]); "
        "assert 'torch' not in sys.modules; sys.exit(code)"
    )
    command = [sys.executable, "-c", code, "pack", str(folder), str(tmp_path / "x.npz")]
    assert subprocess.run(command, check=False).returncode == 0
