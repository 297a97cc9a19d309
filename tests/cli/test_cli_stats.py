"""`genpr stats`, and scores of what it writes."""

import json

import numpy as np


def test_written_statistics_are_a_reference_with_and_without_images(genpr, folders, tmp_path):
    real, fake = folders
    out = tmp_path / "s.npz"
    code, text, _ = genpr("stats", real, out, "--extractor", "gabor", "--prepare", "resize:8")
    assert (code, text) == (0, f"wrote mean and covariance of gabor (736) of 20 images to {out}\n")
    with np.load(out) as held:
        record = json.loads(str(held["genpr"]))
    assert record["extractors"]["mu"]["resize"] == "bicubic-antialias-64"
    assert (record["count"], record["decoder"]["prepare"]) == (20, "resize:8")
    before = out.read_bytes()
    assert genpr("stats", fake, out, "--extractor", "gabor")[0] == 2
    assert out.read_bytes() == before

    def values(*arguments):
        code, text, _ = genpr("score", *arguments, "--extractor", "gabor", "--prepare", "resize:8", "--json")
        assert code == 0
        return {name: each["value"] for name, each in json.loads(text)["metrics"].items()}

    statistics, images = values(out, fake), values(real, fake)
    both = values(real, fake, "--reference-statistics", out, "--metrics", ",".join([*images, "fd"]))
    assert both == images | statistics
    assert genpr("score", out, fake)[0] == 0  # it names the extractor


def test_damaged_statistics_are_an_error(genpr, folders, tmp_path):
    path = tmp_path / "s.npz"
    np.savez(path, mu=np.zeros(3), sigma=np.eye(3))
    path.write_bytes(path.read_bytes()[:-40])
    for arguments in ((*folders, "--reference-statistics", path), (path, folders[1])):
        code, out, err = genpr("score", *arguments, "--metrics", "fd", "--extractor", "gabor")
        assert (code, out, err.count("error:")) == (3, "", 1)
