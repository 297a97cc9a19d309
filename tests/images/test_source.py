"""The one door: what is accepted, what is refused and how, and samples that depend on their seed only."""

from __future__ import annotations

import itertools
import logging
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
from image_files import MANY, SMALL, encode, raised, read_in_threads, refused_source

from genpr.errors import ResourceError, UsageError
from genpr.images.source import choose_rows, open_source, subset

IMAGES = np.random.default_rng(0).integers(0, 256, (40, 4, 5, 3), dtype=np.uint8)


@pytest.fixture
def every_source(tmp_path):
    """The same 40 images as each kind of file."""
    folder = tmp_path / "folder"
    folder.mkdir()
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        for index, image in enumerate(IMAGES):
            name = f"{index:02d}.png"
            (folder / name).write_bytes(encode(image))
            archive.write(folder / name, name)
    with tarfile.open(tmp_path / "x.tar", "w") as archive:
        for path in sorted(folder.iterdir()):
            archive.add(path, path.name)
    np.savez(tmp_path / "x.npz", IMAGES)
    np.save(tmp_path / "x.npy", IMAGES)
    return [folder, *(tmp_path / f"x{suffix}" for suffix in (".zip", ".tar", ".npz", ".npy"))]


@pytest.mark.parametrize("path", ["", "missing", "missing/x.zip", "missing.pt", "x" * 5000, "nul\0byte"])
def test_a_missing_path_is_an_error_of_usage(path):
    error = raised(UsageError, open_source, path)
    assert error.code == "path-not-found"
    assert error.exit_code == 2


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("x.png", "a single image"),
        ("x.TIFF", "a single image"),
        ("x.dat", "unknown kind (.dat)"),
        ("x", "no suffix"),
        ("x.tar.gz", "gzip -d"),
    ],
)
def test_other_files_are_refused_and_told_what_is_accepted(tmp_path, name, what):
    (tmp_path / name).write_bytes(encode(SMALL))
    error = raised(UsageError, open_source, tmp_path / name)
    assert error.code == "source-kind"
    assert what in str(error)
    for accepted in ("folder", ".zip", ".tar", ".npz"):
        assert accepted in str(error)


@pytest.mark.parametrize("suffix", [".pt", ".pth", ".pkl", ".PICKLE"])
def test_files_that_could_run_code_are_never_read(tmp_path, suffix):
    (tmp_path / f"x{suffix}").write_bytes(b"")
    error = raised(ResourceError, open_source, tmp_path / f"x{suffix}")
    assert error.code == "unsafe-format"
    assert error.exit_code == 4


@pytest.mark.parametrize("value", [None, 3, b"raw", {"a": IMAGES}, {1, 2}, object()])
def test_objects_that_hold_no_images_are_an_error_of_usage(value):
    assert raised(UsageError, open_source, value).code == "source-kind"


def test_opening_files_needs_no_torch(every_source):
    code = "import sys; from genpr.images.source import open_source\n"
    code += "\n".join(f"list(open_source({str(path)!r}))[0].read()" for path in every_source)
    code += "\nassert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, cwd=Path(__file__).parent)


@pytest.mark.parametrize("kind", ["folder", "stored", "deflated", "tar"])
def test_many_threads_read_each_its_own_image(tmp_path, make_zip, make_tar, kind):
    if kind == "folder":
        path = tmp_path / "images"
        for name, data in MANY.items():
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).write_bytes(data)
    elif kind.startswith("tar"):
        path = make_tar(MANY)
    else:
        path = make_zip(MANY, compression=zipfile.ZIP_STORED if kind == "stored" else zipfile.ZIP_DEFLATED)
    assert read_in_threads(open_source(path)) == MANY


@pytest.mark.parametrize("members", [{}, {"a.txt": b"", "b.TXT": b"", "c.md": b""}], ids=["empty", "others"])
def test_an_archive_without_images_says_what_it_has(make_zip, make_tar, members):
    for path in (make_zip(members), make_tar(members)):
        error = refused_source(path)
        assert error.code == "no-images"
        assert ("3 other files, suffixes: .txt (2), .md (1)" if members else "it is empty") in str(error)


# Samples ----------------------------------------------------------------------------------------------------


def rows(source) -> list[int]:
    return [int("".join(filter(str.isdigit, item.name))) for item in source]


def test_every_kind_of_source_gives_the_same_sample(every_source):
    expected = choose_rows(40, 9, 5).tolist()
    for path in every_source:
        part = subset(open_source(path), 9, seed=5)
        assert len(part) == 9
        assert rows(part) == expected
        assert rows(part) == expected
        assert part.name == str(path)


def test_the_choice_never_changes_between_versions():
    assert choose_rows(20, 5, 0).tolist() == [2, 3, 11, 13, 15]
    assert choose_rows(20, 5, 1).tolist() == [2, 9, 16, 18, 19]


def test_a_larger_choice_contains_the_smaller_one():
    chosen = [set(choose_rows(100, wanted, seed=4).tolist()) for wanted in range(1, 101)]
    assert all(small < large for small, large in itertools.pairwise(chosen))


def test_images_that_were_not_chosen_are_not_read(every_source, monkeypatch):
    folder = open_source(every_source[0])
    for index in set(range(40)) - set(choose_rows(40, 6, 2).tolist()):
        (every_source[0] / f"{index:02d}.png").unlink()
    assert len([item.read() for item in subset(folder, 6, seed=2)]) == 6


def test_a_source_without_length_gives_its_first_images():
    part = subset(open_source(iter([IMAGES[:7], IMAGES[7:]])), 9, seed=3)
    with pytest.raises(TypeError):
        len(part)
    assert rows(part) == list(range(9))


# Other files ------------------------------------------------------------------------------------------------


@pytest.fixture
def folder_with_others(tmp_path):
    folder = tmp_path / "images"
    folder.mkdir()
    (folder / "a.png").write_bytes(encode(SMALL))
    for index in range(21):
        (folder / f"{index:02d}.txt").touch()
    (folder / "\x1b[31mevil\nname").touch()
    (folder / ".hidden").touch()
    return folder


@pytest.mark.parametrize("kind", ["folder", "zip", "tar"])
def test_files_that_are_no_images_are_logged_and_nothing_more(folder_with_others, tmp_path, caplog, kind):
    path = folder_with_others
    if kind != "folder":
        path = Path(shutil.make_archive(str(tmp_path / "set"), kind, folder_with_others))
    with caplog.at_level(logging.INFO, "genpr"):
        assert len(open_source(path)) == 1
    (record,) = caplog.records
    hidden = kind in {"tar", "zip"}
    shown = f"{path}: {22 + hidden} other files are left out: .txt (21), none ({1 + hidden})"
    assert record.getMessage() == shown
