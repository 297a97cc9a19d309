"""Links to folders: followed only on request, each folder once, under a path that no file system decides."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from image_files import SMALL, encode, names, noise
from PIL import Image

import genpr
from genpr.cli.main import run
from genpr.errors import DataError
from genpr.images.source import open_source

PNG = encode(SMALL)


def link(path, target):
    path.symlink_to(target, target_is_directory=True)


@pytest.fixture
def root(tmp_path):
    """A folder with a loop, with links into itself, and to a folder elsewhere, which links back."""
    root, outside = tmp_path / "root", tmp_path / "outside"
    for folder in (root / "a" / "deep", outside / "inner", outside / "z"):
        folder.mkdir(parents=True)
        (folder / "x.png").write_bytes(PNG)
    link(root / "a" / "loop", root)
    link(root / "0 again", root / "a")
    link(root / "c", outside / "inner")  # comes before the link to what holds it
    link(root / "d", outside)
    link(outside / "z" / "back", root / "a" / "deep")
    link(root / ".hidden", outside)
    (root / "broken.png").symlink_to(root / "nowhere")
    return root


FOUND = ["a/deep/x.png", "broken.png", "c/x.png", "d/z/x.png"]


def test_every_folder_counts_once_by_the_path_without_links_or_the_first(root):
    assert names(open_source(root, follow_symlinks=True)) == FOUND
    assert names(open_source(root)) == ["a/deep/x.png", "broken.png"]


def test_a_link_to_itself_leads_to_nothing(root):
    link(root / "itself", "itself")
    (root / "one.png").symlink_to("two.png")
    (root / "two.png").symlink_to("one.png")
    assert names(open_source(root, follow_symlinks=True)) == sorted([*FOUND, "one.png", "two.png"])
    assert names(open_source(root)) == ["a/deep/x.png", "broken.png", "one.png", "two.png"]


@pytest.mark.parametrize("order", [sorted, lambda entries, key: sorted(entries, key=key, reverse=True)])
def test_the_order_of_entries_decides_nothing(root, monkeypatch, order):
    scan = os.scandir

    class Ordered:
        def __init__(self, path):
            with scan(path) as entries:
                self.entries = order(entries, key=lambda entry: entry.name)

        def __enter__(self):
            return iter(self.entries)

        def __exit__(self, *_):
            pass

    monkeypatch.setattr(os, "scandir", Ordered)
    assert names(open_source(root, follow_symlinks=True)) == FOUND


def test_a_folder_of_nothing_but_links_to_one_is_that_one(tmp_path):
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "x.png").write_bytes(PNG)
    (tmp_path / "links").mkdir()
    for name in "cab":
        link(tmp_path / "links" / name, tmp_path / "images")
    assert names(open_source(tmp_path / "links", follow_symlinks=True)) == ["a/x.png"]
    with pytest.raises(DataError, match="no images"):
        open_source(tmp_path / "links")


def test_a_linked_folder_that_cannot_be_listed_is_told(root, monkeypatch):
    scan = os.scandir

    def denied(path):
        if str(path).endswith("/d"):
            raise PermissionError(13, "Permission denied")
        return scan(path)

    monkeypatch.setattr(os, "scandir", denied)
    with pytest.raises(DataError, match=r"d: .*listed \(Permission denied"):
        open_source(root, follow_symlinks=True)


@pytest.fixture
def linked(tmp_path):
    """Two sides that hold links to folders of images only."""
    sides = []
    for number, side in enumerate(("real", "fake")):
        images, folder = tmp_path / f"{side}-images", tmp_path / side
        images.mkdir()
        folder.mkdir()
        for index in range(6):
            Image.fromarray(noise(8, 8, 10 * number + index)).save(images / f"{index}.png")
        link(folder / "link", images)
        sides.append(str(folder))
    return sides


OPTIONS = ("--extractor", "pixels", "--device", "cpu", "--no-control", "--no-intervals", "--k", "1")


def test_commands_follow_links_if_told_to_and_cache_what_they_find(linked, tmp_path, capsys):
    for n_cached in (0, 6):
        assert run(["score", *linked, *OPTIONS, "--follow-symlinks", "--json"]) == 0
        record = json.loads(capsys.readouterr().out)
        assert (record["real"]["n"], record["real"]["n_cached"]) == (6, n_cached)
        assert [record[side]["source"] for side in ("real", "fake")] == linked
    assert run(["score", *linked, *OPTIONS]) == 3
    assert (
        run(["features", linked[0], str(tmp_path / "f.safetensors"), *OPTIONS[:4], "--follow-symlinks"]) == 0
    )
    assert run(["pack", linked[0], str(tmp_path / "p.npz"), "--follow-symlinks"]) == 0
    assert len(np.load(tmp_path / "p.npz")["arr_0"]) == 6
    held_out = ("--held-out", linked[0])
    assert run(["score", *linked, *OPTIONS, "--follow-symlinks", *held_out, "--json"]) == 0
    capsys.readouterr()
    assert run(["score", *linked, "--offline", "--follow-symlinks", "--json"]) == 4, "weights, and not images"


@pytest.mark.parametrize(
    "arguments",
    [
        ["modes", "real", "fake", *OPTIONS[:4], "--clusters", "2", "--k", "2"],
        ["rank", "real", "fake", "again", *OPTIONS],
        ["sweep", "real", "0.5=fake", "1=again", *OPTIONS],
        ["watch", "real", "samples", "--once", "--settle", "0", *OPTIONS],
        ["score", "real", "fake", *OPTIONS, "--per-class", "--min-per-class", "6"],
        [
            "score",
            "real",
            "fake",
            *OPTIONS,
            "--labels",
        ],
    ],
    ids=["modes", "rank", "sweep", "watch", "per-class", "labels"],
)
def test_every_command_follows_links_if_told_to_and_only_then(tmp_path, monkeypatch, capsys, arguments):
    """All images lie in linked folders, one for each class."""
    monkeypatch.chdir(tmp_path)
    for number, side in enumerate(("real", "fake", "again")):
        Path(side).mkdir()
        for label in ("cat", "dog"):
            images = tmp_path / f"elsewhere-{side}-{label}"
            images.mkdir()
            for index in range(26):
                shade = 100 * (label == "dog")
                Image.fromarray(noise(8, 8, 50 * number + index) // 2 + np.uint8(shade)).save(
                    images / f"{index}.png"
                )
            link(Path(side, label), images)
    Path("samples").mkdir()
    link(Path("samples", "1"), tmp_path / "fake")
    for _ in range(2):  # an option of one command is none of the next
        code = run([*arguments, "-q", "--json", "--follow-symlinks"])
        out, err = capsys.readouterr()
        assert code == 0, err
        if arguments[0] == "watch":
            assert len(json.loads(out)["records"]) == 1
            Path("samples", "genpr.jsonl").unlink()
        code = run([*arguments, "-q", "--json"])
        out, err = capsys.readouterr()
        if arguments[0] == "watch":
            assert code == 3, err
        else:
            assert (code, json.loads(out)["error"]["code"]) == (3, "no-images")


def test_python_takes_what_was_opened(linked):
    sides = [open_source(folder, follow_symlinks=True) for folder in linked]
    result = genpr.score(*sides, extractor="pixels", device="cpu", k=1, control=False, intervals=False)
    assert (result.real.n, result.fake.n) == (6, 6)
