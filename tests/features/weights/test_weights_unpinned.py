"""Files whose sha256 is not published: held to their prefix, their length and their form."""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from pathlib import Path

import pytest
from weights_server import checkpoint, left_behind, put

from genpr.errors import WeightsError
from genpr.features.weights import cached_path, find_or_fetch, hub_file, load_weights, weights_folder

GOOD, OTHER = checkpoint(1.0), checkpoint(2.0)
DIGEST = hashlib.sha256(GOOD).hexdigest()


@pytest.fixture(autouse=True)
def _good_answer(server):
    server.answer = GOOD


@pytest.fixture(params=[DIGEST[:8], None], ids=["prefix", "nothing"])
def entry(request, server):
    return server.entry(size=None, sha256=request.param)


def refused(entry, code, **how) -> None:
    with pytest.raises(WeightsError) as caught:
        find_or_fetch(entry, **how)
    assert caught.value.code == code


def test_a_download_is_used_with_the_hash_that_it_has(entry, server):
    path = find_or_fetch(entry)
    assert left_behind() == ["tiny.pth"]
    tensors, sha256, _ = load_weights(entry, path)
    assert sha256 == DIGEST
    assert float(tensors["weight"][0, 0]) == 1.0
    assert find_or_fetch(entry) == path
    assert len(server.requests) == 1


@pytest.mark.parametrize("answer", [b"<!doctype html>", GOOD[: len(GOOD) // 2], b""])
def test_what_does_not_look_like_weights_is_not_used(answer, server):
    server.answer = answer
    entry = server.entry(size=None, sha256=None)
    refused(entry, code="weights-format")
    assert left_behind() == []


def test_a_file_that_is_here_is_used_where_it_lies(entry, server, tmp_path):
    path = put(tmp_path / "given.pth", GOOD)
    assert find_or_fetch(entry, weights=path) == path
    copy = put(Path(os.environ["TORCH_HOME"]) / "hub" / "checkpoints" / entry.name, GOOD)
    assert cached_path(entry) is not None
    assert find_or_fetch(entry) == copy
    assert server.requests == []


@pytest.mark.parametrize("folder", [weights_folder, lambda: weights_folder().parent])
def test_a_file_that_others_can_replace_is_refused(entry, folder):
    find_or_fetch(entry)
    folder().chmod(0o777)
    refused(entry, code="weights-foreign", offline=True)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")
def test_a_file_of_another_user_is_refused(entry):
    os.chown(put(weights_folder() / entry.name, GOOD), 12345, 12345)
    refused(entry, code="weights-foreign")


# Hugging Face


@pytest.fixture
def hub(server):
    """A hub that hands over to its file server, as huggingface.co does."""
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


def test_the_file_in_hugging_faces_cache_is_used(hub):
    server, entry = hub
    assert cached_path(entry) is None
    link = in_hugging_face_cache(GOOD)
    assert cached_path(entry) is not None
    assert find_or_fetch(entry, offline=True) == link
    pinned = hub_file("org/model", "weights.pth", "c" * 40, license="MIT", sha256=DIGEST)
    assert find_or_fetch(pinned, offline=True) == link
    assert server.requests == []


def test_a_blob_that_does_not_have_its_own_hash_is_passed_over(hub):
    server, entry = hub
    in_hugging_face_cache(OTHER)
    assert find_or_fetch(entry) == weights_folder() / entry.name
    assert len(server.requests) == 2
