"""Outputs of commands: no input is replaced, and no file that genpr did not write."""

import json
import os
import shutil

import numpy as np
import pytest
import torch
from raising import raising

import genpr
from genpr.errors import UsageError
from genpr.features.feature_set import FeatureSet, save_features
from genpr.report.files import write_samples

QUICK = ("--no-control", "--no-intervals", "--quiet")


@pytest.fixture
def files(tmp_path, monkeypatch):
    """A folder with features, results and labels."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for name in ("real", "fake", "other"):
        np.save(tmp_path / f"{name}.npy", rng.normal(size=(40, 4)).astype(np.float32))
    for name in ("images", "fakes"):
        (tmp_path / name).mkdir()
        np.save(tmp_path / name / "rows.npy", np.zeros(3))
    result = genpr.score(rng.normal(size=(40, 4)), rng.normal(size=(40, 4)), control=False)
    for name in ("a", "b"):
        (tmp_path / f"{name}.json").write_text(result.to_json())
    (tmp_path / "labels.csv").write_text("name,label\n")
    return tmp_path


def state_of(folder):
    return {
        path.name: (path.lstat().st_mtime_ns, path.lstat().st_ino, path.is_symlink())
        for path in folder.rglob("*")
        if path.is_file()
    }


def refused(genpr, folder, *words):
    """The code of the only error of a command that writes nothing."""
    before = state_of(folder)
    code, out, _ = genpr(*words, "--json") if "--json" not in words else genpr(*words)
    assert code == 2
    assert state_of(folder) == before
    return json.loads(out)["error"]["code"]


FOREIGN = (
    "score real.npy fake.npy --html notes.html",
    "score real.npy fake.npy --csv notes.csv",
    "score real.npy fake.npy --csv labels.csv --labels --fake-labels labels.csv",
    "compare a.json b.json --html notes.html",
    "rank --results a.json b.json --html notes.html",
    "sweep real.npy 1=fake.npy 2=other.npy --out swept",
    "features real.npy kept.safetensors --extractor pixels",
    "stats real.npy kept.npz --extractor pixels",
)


@pytest.mark.parametrize("words", FOREIGN)
def test_file_that_genpr_did_not_write_is_not_replaced(genpr, files, words):
    (files / "swept").mkdir()
    for name in ("notes.html", "notes.csv", "kept.safetensors", "kept.npz", "swept/sweep.csv"):
        (files / name).write_text("of somebody else")
    assert refused(genpr, files, *words.split()) in {"output-exists", "output-is-input", "usage"}


@pytest.mark.parametrize("overwrite", [(), ("--overwrite",)])
@pytest.mark.parametrize("name", ["images/page.html", "images/deep/page.html", "./fakes/../images/page.html"])
def test_page_inside_an_input_is_refused(genpr, files, name, overwrite):
    (files / "images" / "deep").mkdir()
    words = ("score", "images", "fakes", *QUICK, "--extractor", "pixels", "--html", name, *overwrite)
    assert refused(genpr, files, *words) == "output-is-input"


def test_input_is_not_replaced_even_if_requested(genpr, files):
    """A table of labels that is an input, by another name, and by a hard link."""
    os.link(files / "labels.csv", files / "linked.csv")
    for name in ("labels.csv", "./images/../labels.csv", "linked.csv"):
        words = ("score", "real.npy", "fake.npy", *QUICK, "--labels", "--fake-labels", "labels.csv")
        assert refused(genpr, files, *words, "--csv", name, "--overwrite") == "output-is-input"


def test_links_and_read_only_files_are_refused(genpr, files):
    assert genpr("score", "real.npy", "fake.npy", *QUICK, "--html", "page.html")[0] == 0
    (files / "link.html").symlink_to("page.html")
    (files / "dangling.html").symlink_to("none.html")
    (files / "page.html").chmod(0o444)
    words = ("score", "real.npy", "fake.npy", *QUICK, "--html")
    codes = [refused(genpr, files, *words, f"{name}.html") for name in ("link", "dangling", "page")]
    assert codes == ["output-link", "output-link", "output-exists"]


def test_wrong_suffixes_are_refused(genpr, files):
    words = ("score", "real.npy", "fake.npy", *QUICK)
    for output in (("--html", "model.pt"), ("--html", "page"), ("--csv", "rows.txt")):
        assert refused(genpr, files, *words, *output) == "output-suffix"


def test_own_outputs_are_replaced_and_others_if_requested(genpr, files):
    words = ("score", "real.npy", "fake.npy", *QUICK, "--html", "page.html", "--csv", "rows.csv")
    for _ in range(2):
        assert genpr(*words)[0] == 0
    table = (files / "rows.csv").read_text()
    for name in ("page.html", "rows.csv"):
        (files / name).write_text("of somebody else")
    assert genpr(*words)[0] == 2
    assert genpr(*words, "--overwrite")[0] == 0
    assert (files / "rows.csv").read_text() == table
    assert (files / "page.html").read_text().startswith("<!doctype html>")


def test_sweep_is_repeated_in_its_own_folder_only(genpr, files):
    words = ("sweep", "real.npy", "1=fake.npy", "2=other.npy", *QUICK, "--out")
    for _ in range(2):
        assert genpr(*words, "swept")[0] == 0
    shutil.rmtree(files / "swept" / "points")
    assert refused(genpr, files, *words, "swept") == "output-exists"
    assert genpr(*words, "swept", "--overwrite")[0] == 0
    assert (
        refused(genpr, files, "sweep", "images", "1=fakes", *QUICK, "--out", "images/swept")
        == "output-is-input"
    )


def test_features_of_another_source_are_not_replaced(tmp_path, rng):
    rows = torch.from_numpy(rng.normal(size=(9, 2)))
    first, other = (FeatureSet(rows.float(), source=name) for name in ("first", "other"))
    path = tmp_path / "x.safetensors"
    for _ in range(2):
        save_features(path, first)
    with raising(UsageError, "output-exists"):
        save_features(path, other)
    save_features(path, other, overwrite=True)
    manifold = genpr.KNNManifold.fit(rng.normal(size=(20, 3)))
    with raising(UsageError, "output-exists"):
        manifold.save(path)
    for _ in range(2):
        manifold.save(tmp_path / "manifold.safetensors")


def test_table_written_in_python_replaces_tables_only(tmp_path, rng):
    found = genpr.Evaluator(rng.normal(size=(40, 4)), control=False).evidence(rng.normal(size=(40, 4)))
    path = tmp_path / "rows.csv"
    path.write_text("row,label\n")
    with raising(UsageError, "output-exists"):
        write_samples(path, found)
    for overwrite in (True, False):
        write_samples(path, found, overwrite=overwrite)
