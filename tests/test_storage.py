"""Files are written completely or not at all, and damage is detected."""

import json
import os
from functools import partial

import pytest
import torch
from raising import raising
from safetensors.torch import load_file

from genpr.errors import DataError, UsageError
from genpr.storage import atomic_path, check_output, load_tensors, marked_by, replace_file, save_tensors

TENSORS = {
    "a": torch.arange(12, dtype=torch.float32).reshape(3, 4),
    "b": torch.tensor([1, 2], dtype=torch.uint8),
}


def test_every_flipped_data_bit_is_an_error(tmp_path):
    path = tmp_path / "x.safetensors"
    save_tensors(path, TENSORS, {"extractor": "vgg16"})
    whole = path.read_bytes()
    for position in (whole.index(b"vgg16"), *range(len(whole) - 50, len(whole))):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :])
        with raising(DataError, "file-damaged"):
            load_tensors(path)


def test_failed_write_keeps_the_old_file(tmp_path):
    path = tmp_path / "x.bin"
    path.write_text("old")
    with pytest.raises(KeyError), atomic_path(path) as temporary:  # noqa: PT012
        temporary.write_text("half")
        raise KeyError
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_pipes_and_links_to_pipes_are_not_replaced(tmp_path):
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    for path in (pipe, link):
        with pytest.raises(OSError, match="not replaced"), atomic_path(path) as temporary:
            temporary.write_text("x")
    assert pipe.is_fifo()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "pipe"]


def test_files_are_reproducible_and_readable_by_other_programs(tmp_path):
    tensors = {
        "wide": torch.arange(3, dtype=torch.float64),
        "half": torch.arange(5, dtype=torch.float16),
        "brain": torch.arange(4, dtype=torch.bfloat16),
        "none": torch.empty(0, 7),
        "flags": torch.tensor([True, False]),
        **{f"i{number}": torch.arange(3, dtype=getattr(torch, f"int{number}")) for number in (8, 16, 32, 64)},
        **TENSORS,
    }
    metadata = {letter: letter for letter in "zyxcba"}
    save_tensors(tmp_path / "a", tensors, metadata)
    save_tensors(tmp_path / "b", dict(reversed(tensors.items())), dict(reversed(metadata.items())))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    header = json.loads((tmp_path / "a").read_bytes()[8:].split(b"}}", 1)[0] + b"}}")
    for name, tensor in tensors.items():
        assert header[name]["data_offsets"][0] % tensor.element_size() == 0, "where its type may begin"
    loaded, found = load_tensors(tmp_path / "a")
    assert found == metadata
    for read in (load_file(tmp_path / "a"), loaded):
        assert set(read) == set(tensors)
        for name, tensor in tensors.items():
            assert read[name].dtype == tensor.dtype
            assert torch.equal(read[name], tensor)


def test_loaded_tensors_do_not_depend_on_their_file(tmp_path):
    """Reading a truncated mapped file would end the process."""
    path = tmp_path / "x.safetensors"
    tensors = TENSORS | {"large": torch.randn(4096, 64), "none": torch.zeros(0, 3)}
    save_tensors(path, tensors, {})
    loaded = load_tensors(path)[0]
    os.truncate(path, 8)
    assert set(loaded) == set(tensors)
    assert all(torch.equal(loaded[name], tensors[name]) for name in tensors)


@pytest.fixture
def check():
    """Checks an output .html that is genpr's if it begins with "mine"."""
    return partial(
        check_output, suffixes=(".html", ".htm"), is_own=marked_by(lambda head: head.startswith(b"mine"))
    )


def test_only_files_of_genpr_that_are_not_write_protected_are_replaced(tmp_path, check):
    path = tmp_path / "page.HTM"
    check(path)
    path.write_text("mine")
    check(path)
    for text, mode in (("yours", 0o644), ("", 0o644), ("mine", 0o444)):
        path.write_text(text)
        path.chmod(mode)
        with raising(UsageError, "output-exists"):
            check(path)
        check(path, overwrite=True)


def test_replaced_file_keeps_its_mode_and_a_new_one_has_that_of_the_umask(tmp_path):
    new, kept = tmp_path / "new", tmp_path / "kept"
    kept.touch()
    kept.chmod(0o604)
    umask = os.umask(0o027)
    try:
        for path in (new, kept):
            replace_file(path, "text")
    finally:
        os.umask(umask)
    assert [path.stat().st_mode & 0o777 for path in (new, kept)] == [0o640, 0o604]


def test_outputs_are_no_links_devices_or_folders_and_have_their_suffix(tmp_path, check):
    (tmp_path / "mine.html").write_text("mine")
    (tmp_path / "link.html").symlink_to("mine.html")
    (tmp_path / "broken.html").symlink_to("nothing.html")
    (tmp_path / "folder.html").mkdir()
    os.mkfifo(tmp_path / "pipe.html")
    codes = {"link.html": "output-is-link", "broken.html": "output-is-link", "folder.html": "is-a-folder"}
    codes |= {"pipe.html": "not-a-file", "page.png": "output-suffix", "missing/page.html": "path-not-found"}
    for name, code in codes.items():
        with raising(UsageError, code):
            check(tmp_path / name, overwrite=True)


def test_outputs_are_neither_inputs_nor_in_inputs_under_any_name(tmp_path, check):
    (tmp_path / "real" / "deep").mkdir(parents=True)
    (tmp_path / "linked").symlink_to("real")
    inputs = [tmp_path / "real" / "file.html", tmp_path / "linked" / "deep", tmp_path / "missing", "a\0b"]
    inputs[0].write_text("mine")
    os.link(inputs[0], tmp_path / "hard.html")
    names = ["real/file.html", "linked/file.html", "hard.html", "real/deep/x.html", "linked/deep/x.html"]
    for name in [*names, "real/deep/../file.html", "real/deep/../../linked/deep/x.html"]:
        with raising(UsageError, "output-is-input"):
            check(tmp_path / name, inputs=inputs, overwrite=True)
    for name in ("real/x.html", "deep.html"):
        check(tmp_path / name, inputs=inputs)
