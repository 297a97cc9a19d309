"""`open_source`: accepted and rejected inputs, and random subsets that depend only on the seed."""

import itertools
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from image_files import PNG, decoded, raised, read_in_threads, refused_source
from raising import raising

from genpr.errors import ImageError, ResourceError, UsageError
from genpr.images.source import choose_rows, open_source, subset

IMAGES = np.random.default_rng(0).integers(0, 256, (40, 4, 5, 3), dtype=np.uint8)


@pytest.fixture
def every_source(make_source):
    """The same 40 images as each kind of file."""
    return [make_source(kind, IMAGES) for kind in ("folder", "zip", "tar", "npz", "npy")]


MISSING = [
    "",
    "missing",
    "missing/x.zip",
    "missing.pt",
    *("x" * 5000 + end for end in ("", ".npz")),
    "nul\0byte",
]


@pytest.mark.parametrize("path", MISSING, ids=range(len(MISSING)))
def test_missing_path_is_a_usage_error(path):
    error = raised(UsageError, open_source, path)
    assert (error.code, error.exit_code) == ("path-not-found", 2)


@pytest.mark.parametrize(
    ("name", "data", "what"),
    [
        ("x.png", b"", "a single image"),
        ("x.TIFF", b"", "a single image"),
        ("x.heic", b"", "a single image"),
        ("x.dat", PNG, "a single image"),
        ("x.dat", b"text", "unknown kind (.dat)"),
        ("x", b"text", "no suffix"),
        ("x.tar.gz", b"", "unknown kind (.gz)"),
    ],
)
def test_error_of_an_unsupported_file_lists_accepted_kinds(tmp_path, name, data, what):
    (tmp_path / name).write_bytes(data)
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
def test_objects_without_images_are_usage_errors(value):
    assert raised(UsageError, open_source, value).code == "source-kind"


def test_tables_are_usage_errors_that_name_the_conversion():
    table = type("Table", (list,), {"columns": ("a", "b"), "to_numpy": None})  # as of pandas or polars
    with raising(UsageError, "source-kind", "to_numpy"):
        open_source(table(IMAGES))


def test_opening_files_needs_no_torch(every_source):
    code = "import sys; from genpr.images.source import open_source\n"
    code += "\n".join(f"list(open_source({str(path)!r}))[0].read()" for path in every_source)
    code += "\nassert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, cwd=Path(__file__).parent)


@pytest.mark.parametrize("kind", ["folder", "zip", "tar"])
def test_many_threads_can_read_images(make_source, kind):
    images = np.random.default_rng(1).integers(0, 256, (1000, 4, 5, 3), dtype=np.uint8)
    found = read_in_threads(open_source(make_source(kind, images)))
    np.testing.assert_array_equal([decoded(data).pixels for data in found.values()], images)


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ([], "it is empty"),
        (["a.txt", "b.TXT", "c.md"], "3 other files, suffixes: .txt (2), .md (1)"),
        (["a.tar", "b.tar"], "add '*.tar' to the folder"),
    ],
)
def test_error_of_an_archive_without_images_lists_its_suffixes(make_zip, make_tar, members, words):
    for path in (make_zip(dict.fromkeys(members, b"")), make_tar(dict.fromkeys(members, b""))):
        error = refused_source(path)
        assert error.code == "no-images"
        assert words in str(error)


# Samples ----------------------------------------------------------------------------------------------------


def rows(source) -> list[int]:
    return [int("".join(filter(str.isdigit, item.name))) for item in source]


def test_all_kinds_of_sources_give_the_same_subset_in_all_versions(every_source):
    assert choose_rows(20, 5, 1).tolist() == [2, 9, 16, 18, 19]
    expected = choose_rows(40, 9, 5).tolist()
    for path in every_source:
        part = subset(open_source(path), 9, seed=5)
        assert len(part) == 9
        assert rows(part) == expected
        assert rows(part) == expected
        assert part.name == str(path)


def test_larger_subset_contains_the_smaller_one():
    chosen = [set(choose_rows(100, size, seed=4).tolist()) for size in range(1, 101)]
    assert all(small < large for small, large in itertools.pairwise(chosen))


def test_images_that_were_not_selected_are_not_read(every_source, monkeypatch):
    folder = open_source(every_source[0])
    for index in set(range(40)) - set(choose_rows(40, 6, 2).tolist()):
        (every_source[0] / f"{index:05d}.png").unlink()
    assert len([item.read() for item in subset(folder, 6, seed=2)]) == 6


def test_subset_of_a_source_without_length_is_its_first_images():
    part = subset(open_source(iter([IMAGES[:7], IMAGES[7:]])), 9, seed=3)
    with pytest.raises(TypeError):
        len(part)
    assert rows(part) == list(range(9))


# Files that are left out -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["folder", "zip", "tar", "parquet"])
def test_files_too_large_for_an_image_are_not_read(pack, monkeypatch, kind):
    monkeypatch.setattr("genpr.images.item.MAX_ENCODED_BYTES", 10)
    large, allowed = open_source(pack(kind, {"a.png": bytes(11), "b.png": bytes(10)}))
    assert allowed.read() == bytes(10)
    assert raised(ImageError, large.read).code == "image-too-large"


@pytest.mark.gpu
def test_images_on_a_device_are_copied_in_blocks(gpu, monkeypatch):
    monkeypatch.setattr("genpr.images.arrays._BLOCK_BYTES", 500)
    copies = 0 if gpu is None else gpu.copies["to host"]
    source = open_source(torch.from_numpy(IMAGES).permute(0, 3, 1, 2).cuda())
    np.testing.assert_array_equal([item.read() for item in source], IMAGES)
    assert gpu is None or gpu.copies["to host"] - copies == 5, "8 images each"
    names, pixels = zip(*((item.name, item.read()) for item in source.select([1, 21])), strict=True)
    np.testing.assert_array_equal(pixels, IMAGES[[1, 21]])
    assert names == ("[1]", "[21]")
