"""Files arrive whole or not at all, and damage is noticed."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import save_file

from genpr.errors import DataError
from genpr.storage import atomic_path, load_tensors, save_tensors

TENSORS = {
    "a": torch.arange(12, dtype=torch.float32).reshape(3, 4),
    "b": torch.tensor([1, 2], dtype=torch.uint8),
}


def test_round_trip_keeps_tensors_and_metadata(tmp_path):
    path = tmp_path / "x.safetensors"
    save_tensors(path, TENSORS, {"who": "me"})
    tensors, metadata = load_tensors(path)
    assert metadata == {"who": "me"}
    assert set(tensors) == set(TENSORS)
    assert all(torch.equal(tensors[name], TENSORS[name]) for name in TENSORS)


def test_every_flipped_data_bit_is_noticed(tmp_path):
    path = tmp_path / "x.safetensors"
    save_tensors(path, TENSORS, {})
    whole = path.read_bytes()
    for position in range(len(whole) - 50, len(whole)):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :])
        with pytest.raises(DataError) as caught:
            load_tensors(path)
        assert caught.value.code == "file-damaged"


@pytest.mark.parametrize("keep", [0, 7, 60, -1])
def test_a_cut_file_is_refused(tmp_path, keep):
    path = tmp_path / "x.safetensors"
    save_tensors(path, TENSORS, {})
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(DataError, match="not a readable safetensors file"):
        load_tensors(path)


def test_edited_metadata_is_noticed(tmp_path):
    path = tmp_path / "x.safetensors"
    save_tensors(path, TENSORS, {"extractor": "gabor"})
    path.write_bytes(path.read_bytes().replace(b"gabor", b"clipx"))
    with pytest.raises(DataError, match="does not match its own checksum"):
        load_tensors(path)


def test_files_of_other_programs_load_only_when_allowed(tmp_path):
    path = tmp_path / "x.safetensors"
    save_file(TENSORS, path)
    with pytest.raises(DataError):
        load_tensors(path)
    assert torch.equal(load_tensors(path, require_checksum=False)[0]["a"], TENSORS["a"])


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "x.bin"
    path.write_text("old")
    with pytest.raises(KeyError), atomic_path(path) as temporary:  # noqa: PT012
        temporary.write_text("half")
        raise KeyError
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
