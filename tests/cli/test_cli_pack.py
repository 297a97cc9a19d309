"""`genpr pack`: what it prints, and files that genpr itself scores."""

import json

import numpy as np

GABOR = ("--extractor", "gabor", "--device", "cpu", "--json")


def test_a_packed_file_scores_like_its_source(genpr, folders, tmp_path):
    packed = tmp_path / "x.npz"
    assert genpr("pack", folders[1], packed) == (0, f"packed 20 images of 8 x 8 into {packed}\n", "")
    scores = [json.loads(genpr("score", folders[0], each, *GABOR)[1]) for each in (packed, folders[1])]
    assert scores[0]["metrics"] == scores[1]["metrics"]
    assert genpr("pack", folders[1], tmp_path / "y.npz", "--max-images", 1)[1].startswith("packed 1 image of")


def test_json_is_one_object(genpr, folders, tmp_path):
    out = tmp_path / "x.npz"
    (folders[0] / "00003.png").write_bytes(b"404")
    arguments = ("pack", folders[0], out, "--on-bad", "skip", "--max-bad", "5%")
    code, text, err = genpr(*arguments, "--json")
    assert code == 0
    expected = {"out": str(out), "n": 19, "height": 8, "width": 8, "flags": {}}
    expected |= {"bytes": out.stat().st_size, "skipped": [["00003.png", "image-unreadable"]]}
    assert json.loads(text) == expected
    with np.load(out) as file:
        assert file["arr_0"].shape == (19, 8, 8, 3)
    assert "1 of 20 source images could not be used and were left out" in err
    out.unlink()
    assert genpr(*arguments, "-q")[2] == ""
