"""Supported formats of weights, and that code in files is never executed."""

import hashlib
import io
import pickle
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from raising import raised, raising
from safetensors.torch import save
from weights_server import checkpoint, left_behind, put

from genpr.errors import WeightsError
from genpr.features.weights import WeightsFile, find_or_fetch, load_weights
from genpr.runtime import cache_root, private_folder


class CreatesFile:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (Path.touch, (self.path,))


def saved(value: object, **how) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer, **how)
    return buffer.getvalue()


def unpinned(name: str) -> WeightsFile:
    return WeightsFile(name, f"http://127.0.0.1:9/{name}", None, None, "Apache-2.0")


def published(name: str, content: bytes) -> WeightsFile:
    return replace(unpinned(name), size=len(content), sha256=hashlib.sha256(content).hexdigest())


def refused(entry: WeightsFile, path: Path, code: str) -> str:
    error = raised(WeightsError, load_weights, entry, path)
    assert error.code == code
    assert "\n" not in str(error)
    return str(error)


@pytest.mark.parametrize("make", [published, lambda name, _content: unpinned(name)])
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("tiny.pth", checkpoint(3.0)),
        ("tiny.BIN", checkpoint(3.0, old=True)),
        ("tiny.safetensors", save({"weight": torch.full((64, 64), 3.0)}, metadata={"format": "pt"})),
    ],
)
def test_checkpoints_of_both_formats_and_safetensors_are_read(name, content, make, tmp_path):
    tensors = load_weights(make(name, content), put(tmp_path / "file", content)).tensors
    assert torch.equal(tensors["weight"], torch.full((64, 64), 3.0))


@pytest.mark.parametrize("name", ["tiny.pkl", "tiny", "tiny.pth.tar"])
def test_other_formats_are_errors_before_any_download(name, server, tmp_path):
    entry = server.entry(name=name, url=f"{server.url}/{name}")
    for weights in (None, put(tmp_path / name)):
        with raising(WeightsError, "unsafe-format", r"\.pth.*\.safetensors"):
            find_or_fetch(entry, weights=weights)
    assert (server.requests, left_behind()) == ([], [])


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("how", ["downloaded", "cached", "given"])
def test_pickle_with_code_is_never_executed(how, old, server, tmp_path):
    marker = tmp_path / "marker"
    content = saved({"weight": CreatesFile(marker)}, _use_new_zipfile_serialization=not old)
    server.answer = content
    for entry in (server.entry(content), server.entry(size=None, sha256=None, name="unpinned.pth")):
        given = put(tmp_path / "given.pth", content) if how == "given" else None
        if how == "cached":
            put(private_folder(cache_root(), "weights") / entry.name, content)
        with raising(WeightsError, "unsafe-format", "not executed"):
            load_weights(entry, find_or_fetch(entry, weights=given))
    assert not marker.exists()
    pickle.loads(pickle.dumps(CreatesFile(marker)))  # it would have
    assert marker.exists()


@pytest.mark.filterwarnings("ignore")  # torch.jit is deprecated
def test_torchscript_is_an_error(server, tmp_path):
    buffer = io.BytesIO()
    torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), buffer)
    server.answer = content = buffer.getvalue()
    path = put(tmp_path / "given.pt", content)
    assert "TorchScript" in refused(published("tiny.pt", content), path, "unsafe-format")
    with pytest.raises(WeightsError, match="TorchScript") as caught:
        find_or_fetch(server.entry(name="tiny.pt", size=None, sha256=None))
    assert (caught.value.code, left_behind()) == ("unsafe-format", [])


GOOD = save({"a": torch.zeros(4)})
CHANGED = [GOOD[:-1], GOOD + b"\0", GOOD[:20]]
OTHERS = [b"", b"<html>please log in</html>", b"\xff" * 100, checkpoint(), (2).to_bytes(8, "little") + b"[]"]


@pytest.mark.parametrize("content", [*CHANGED, *OTHERS])
def test_malformed_safetensors_file_is_an_error(content, tmp_path):
    path = put(tmp_path / "given.safetensors", content)
    refused(unpinned("tiny.safetensors"), path, "weights-format")


@pytest.mark.parametrize(
    "value", [[torch.zeros(1)], {"a": 1}, {"state_dict": {"a": torch.zeros(1)}}, torch.zeros(1)]
)
def test_files_without_named_tensors_are_errors(value, tmp_path):
    content = saved(value)
    path = put(tmp_path / "given.pth", content)
    assert "named tensors" in refused(published("tiny.pth", content), path, "weights-format")


def test_hashed_bytes_are_the_bytes_that_are_read(tmp_path, monkeypatch):
    content, path = checkpoint(1.0), tmp_path / "given.pth"
    put(path, content)
    read = torch.load

    def exchange_then_read(*args, **kwargs):
        put(path, checkpoint(2.0))
        return read(*args, **kwargs)

    monkeypatch.setattr(torch, "load", exchange_then_read)
    tensors = load_weights(published("tiny.pth", content), path).tensors
    assert float(tensors["weight"][0, 0]) == 1.0
