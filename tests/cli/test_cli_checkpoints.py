"""`genpr rank` and `genpr watch` on checkpoint files, through a generator."""

import json

import numpy as np
import pytest
from blob_checkpoints import real_blobs, write_checkpoint, write_generator

from genpr.checkpoints.generator import Sampler, load_generator

LOAD = ("--generator", "gan.py:load", "--image-range=-1,1")
QUICK = ("--extractor", "pixels", "--no-control", "--no-intervals", "--device", "cpu")
NOW = ("--once", "--settle", "0")
SPREADS = {"step-2.pt": 0.3, "step-10.pt": 0.9}


@pytest.fixture
def files(tmp_path, write_images, monkeypatch):
    """Reals, a generator and a folder of checkpoints; the folder is the working one."""
    monkeypatch.chdir(tmp_path)
    write_images("real", real_blobs(60))
    write_generator(tmp_path)
    (tmp_path / "run").mkdir()
    for name, spread in SPREADS.items():
        write_checkpoint(tmp_path / "run" / name, spread)
    return tmp_path


def lines(folder):
    return [json.loads(line) for line in (folder / "run" / "genpr.jsonl").read_text().splitlines()]


def scored_by_hand(genpr, files, name, psi, n, seed):
    """The metrics of `genpr score` on the same images, as an .npz."""
    generator = load_generator("gan.py:load", f"run/{name}", device="cpu")
    sampler = Sampler.of(generator, n=n, seed=seed, image_range=(-1, 1), batch_size=16)
    drawn = np.concatenate([batch.permute(0, 2, 3, 1).numpy() for batch in sampler.images(psi)])
    np.savez(files / "drawn.npz", drawn)
    out = genpr("score", "real", "drawn.npz", *QUICK, "--seed", seed, "--json")[1]
    return {name: metric["value"] for name, metric in json.loads(out)["metrics"].items()}


def test_checkpoints_are_ranked_by_their_images(genpr, files):
    arguments = ("rank", "real", *(f"run/{name}" for name in SPREADS), *LOAD, *QUICK)
    code, out, err = genpr(*arguments, "--n", 50, "--seed", 9, "--psi", 0.8, "--batch-size", 16, "--json")
    assert code == 0, err
    record = json.loads(out)
    assert record["winner"] == "step-10.pt"
    assert {name: each["fake"]["n"] for name, each in record["results"].items()} == dict.fromkeys(SPREADS, 50)
    known = record["drawn_by"]["step-2.pt"]
    assert (known["name"], known["n"], known["seed"], known["setting"]) == ("gan.py:load", 50, 9, 0.8)
    values = {name: metric["value"] for name, metric in record["results"]["step-2.pt"]["metrics"].items()}
    assert values == scored_by_hand(genpr, files, "step-2.pt", 0.8, 50, 9)


def test_watch_scores_only_checkpoints(genpr, files):
    for name in ("log.txt", "step-3.pt.tmp", ".step-4.pt"):
        (files / "run" / name).write_text("no checkpoint")
    (files / "run" / "samples").mkdir()
    arguments = ("watch", "real", "run", *LOAD, *QUICK, *NOW, "--n", 50, "--seed", 9, "--psi", 0.8)
    code, _, err = genpr(*arguments, "--batch-size", 16)
    assert code == 0, err
    found = lines(files)
    assert [line["name"] for line in found] == ["step-2.pt", "step-10.pt"]
    assert json.loads((files / "run" / "best.json").read_text())["name"] == "step-10.pt"
    values = {name: value for name, value in found[0]["metrics"].items() if name != "f1"}
    assert values == scored_by_hand(genpr, files, "step-2.pt", 0.8, 50, 9)
    assert found[0]["generator"] == found[1]["generator"]
    assert found[0]["generator"]["name"] == "gan.py:load"
    assert found[0]["checkpoint"]["sha256"] != found[1]["checkpoint"]["sha256"]
    before = (files / "run" / "genpr.jsonl").read_bytes()
    assert genpr(*arguments, "--batch-size", 16)[0] == 0
    assert (files / "run" / "genpr.jsonl").read_bytes() == before


def test_watch_with_other_generator_options_is_an_error(genpr, files):
    late = (files / "run" / "step-10.pt").rename(files / "late")
    assert genpr("watch", "real", "run", *LOAD, *QUICK, *NOW, "--n", 30, "--psi", 1)[0] == 0
    late.rename(files / "run" / "step-10.pt")
    write_generator(files, "# edited\n" + (files / "gan.py").read_text(), "other.py")
    before = (files / "run" / "genpr.jsonl").read_bytes()
    for arguments, words in (
        ("--n 31 --psi 1", "(generator.n)"),
        ("--n 30 --psi 0.5", "(generator.setting)"),
        ("--n 30 --psi 1 --seed 1", "(seed"),
        ("--n 30 --psi 1 --generator gan.py:again", "(generator.name)"),
        ("--n 30 --psi 1 --generator other.py:load", "(generator.code)"),
    ):
        code, _, err = genpr("watch", "real", "run", *LOAD, *QUICK, *NOW, *arguments.split())
        assert (code, words in err) == (2, True), err
        assert (files / "run" / "genpr.jsonl").read_bytes() == before
