"""Files whose sha256 is not published: held to their prefix, or to nothing, at first use; to themselves after it."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from weights_server import checkpoint, left_behind, put, serving, use_own_folders

from genpr.errors import ResourceError, WeightsError
from genpr.features.weights.files import find_or_fetch, is_cached, load_state_dict, loaded_sha256, verify_file
from genpr.features.weights.known import hub_file, weights_folder
from genpr.features.weights.verify import record_of, record_path, records

GOOD, OTHER = checkpoint(1.0), checkpoint(2.0)
DIGEST = hashlib.sha256(GOOD).hexdigest()
PAGE = b"<!doctype html><title>Please log in</title>"


@pytest.fixture(autouse=True)
def own_folders(tmp_path, monkeypatch):
    use_own_folders(tmp_path, monkeypatch)


@pytest.fixture
def server():
    with serving() as facts:
        facts.answer = GOOD
        yield facts


@pytest.fixture(params=["prefix", "first use"])
def entry(request, server):
    prefix = DIGEST[:8] if request.param == "prefix" else None
    return server.entry(size=None, sha256=None, sha256_prefix=prefix)


def torch_hub(entry) -> Path:
    return Path(os.environ["TORCH_HOME"]) / "hub" / "checkpoints" / entry.name


def refused(entry, code="weights-hash", **how) -> str:
    with pytest.raises(WeightsError) as caught:
        find_or_fetch(entry, **how)
    assert caught.value.code == code
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_download_is_recorded_with_all_that_is_known(entry, server):
    path = find_or_fetch(entry)
    assert left_behind() == ["tiny.pth", "tiny.pth.sha256.json"]
    record = json.loads(record_path(entry).read_text())
    assert (record["name"], record["url"], record["license"]) == (entry.name, entry.url, "Apache-2.0")
    assert (record["size"], record["sha256"], record["announced"]) == (len(GOOD), DIGEST, False)
    assert record["pinned"] == ("prefix" if entry.sha256_prefix else "first use")
    assert len(record["date"]) == len("2026-01-31")
    assert loaded_sha256(entry, path) == DIGEST
    assert find_or_fetch(entry) == path
    assert float(load_state_dict(entry, path)["weight"][0, 0]) == 1.0
    assert len(server.requests) == 1


def test_the_recorded_hash_is_held_at_every_later_use(entry, tmp_path):
    path = find_or_fetch(entry)
    replaced = replace(entry, sha256_prefix=None)  # nothing but the record can tell
    put(path, OTHER)
    message = refused(replaced)
    for fact in (
        DIGEST,
        hashlib.sha256(OTHER).hexdigest(),
        "first used here on",
        f"delete {record_path(entry)}",
    ):
        assert fact in message
    with pytest.raises(WeightsError, match="changed while"):
        load_state_dict(replaced, path)
    assert DIGEST in refused(replaced, weights=put(tmp_path / "given.pth", OTHER))


def almost(digest: str) -> str:
    return digest[:-1] + ("0" if digest[-1] != "0" else "1")


def test_all_digits_of_a_published_hash_count(server):
    wrong = server.entry(GOOD, sha256=almost(DIGEST))
    assert almost(DIGEST) in refused(wrong)
    assert left_behind() == []


def test_all_digits_of_a_recorded_hash_count(entry):
    path = find_or_fetch(entry)
    put(record_path(entry), record_path(entry).read_bytes().replace(DIGEST.encode(), almost(DIGEST).encode()))
    assert almost(DIGEST) in refused(entry)
    with pytest.raises(WeightsError, match=almost(DIGEST)):
        load_state_dict(entry, path)


def test_a_prefix_published_after_the_first_use_counts(server):
    find_or_fetch(server.entry(size=None, sha256=None))
    refused(server.entry(size=None, sha256=None, sha256_prefix="0000aaaa"))


def test_what_was_recorded_is_used_without_writing(entry):
    path = find_or_fetch(entry)
    lock = weights_folder() / ".tiny.pth.record.lock"
    lock.unlink(missing_ok=True)
    lock.mkdir()  # as in a folder that cannot be written
    assert find_or_fetch(entry) == path
    load_state_dict(entry, path)


def test_a_new_download_must_be_the_file_that_was_first_used(entry, server):
    find_or_fetch(entry).unlink()
    server.answer = OTHER
    assert DIGEST in refused(replace(entry, sha256_prefix=None))
    assert left_behind() == ["tiny.pth.sha256.json"]
    server.answer = GOOD
    assert find_or_fetch(entry).read_bytes() == GOOD


def test_deleting_the_record_accepts_another_file(entry, server):
    anything = replace(entry, sha256_prefix=None)
    find_or_fetch(anything).unlink()
    record_path(anything).unlink()
    server.answer = OTHER
    path = find_or_fetch(anything)
    assert loaded_sha256(anything, path) == hashlib.sha256(OTHER).hexdigest()


def test_a_prefix_that_does_not_fit_is_refused(server):
    wrong = server.entry(size=None, sha256=None, sha256_prefix="0000aaaa")
    message = refused(wrong)
    assert "sha256 0000aaaa..." in message
    assert DIGEST in message
    assert left_behind() == []


def test_a_published_length_is_held_without_a_hash(server, tmp_path):
    wrong = server.entry(size=len(GOOD) - 1, sha256=None)
    message = refused(wrong, weights=put(tmp_path / "given.pth", GOOD))
    assert f"expected {len(GOOD) - 1:,} bytes, no published sha256" in message
    assert f"({len(GOOD):,} bytes)" in message
    assert f"more than {len(GOOD) - 1:,} bytes came" in refused(wrong)
    assert left_behind() == []


@pytest.mark.parametrize("answer", [PAGE, GOOD[: len(GOOD) // 2], b"", b"\x80\x02}q\x00."])
def test_what_does_not_look_like_weights_is_not_trusted(answer, server):
    server.answer = answer
    entry = server.entry(size=None, sha256=None)
    assert "is no PyTorch checkpoint, or is cut short" in refused(entry, code="weights-format")
    assert left_behind() == []


def test_a_given_file_is_recorded_too(entry, tmp_path):
    path = put(tmp_path / "given.pth", GOOD)
    assert find_or_fetch(entry, weights=path) == path
    assert record_of(entry).sha256 == DIGEST
    assert record_path(entry).parent == weights_folder()
    assert DIGEST in refused(replace(entry, sha256_prefix=None), weights=put(tmp_path / "b.pth", OTHER))


def test_a_file_of_torch_hub_is_recorded_too(entry, server):
    path = put(torch_hub(entry), GOOD)
    assert is_cached(entry)
    assert find_or_fetch(entry) == path
    assert record_of(entry).sha256 == DIGEST
    put(path, OTHER)
    assert find_or_fetch(entry) == weights_folder() / entry.name  # passed over
    assert len(server.requests) == 1


def test_a_file_put_into_the_folder_by_hand_is_recorded_when_it_is_loaded(entry):
    path = put(weights_folder() / entry.name, GOOD)
    load_state_dict(entry, path)
    assert record_of(entry).sha256 == DIGEST


def test_files_with_a_published_hash_need_no_record(server):
    entry = server.entry(GOOD)
    assert loaded_sha256(entry, find_or_fetch(entry)) == DIGEST
    assert left_behind() == ["tiny.pth"]


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"sha256": "0"}', "null"], ids=["empty", "cut", "list", "fields", "null"]
)
def test_a_damaged_record_is_never_ignored(text, entry):
    path = find_or_fetch(entry)
    put(record_path(entry), text.encode())
    assert "delete the record" in refused(entry, code="weights-record")
    with pytest.raises(WeightsError, match="cannot be read"):
        verify_file(entry, path)
    assert records() == []


@pytest.mark.parametrize("folder", [weights_folder, lambda: weights_folder().parent])
def test_records_that_others_can_write_are_refused(entry, folder):
    find_or_fetch(entry).unlink()
    folder().chmod(0o777)
    refused(entry, code="weights-record", offline=True)
    assert records() == []


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")
def test_records_of_another_user_are_refused(entry):
    find_or_fetch(entry)
    os.chown(record_path(entry), 12345, 12345)
    refused(entry, code="weights-record", offline=True)
    assert records() == []


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")
def test_a_first_use_of_a_file_of_another_user_is_refused(entry):
    os.chown(put(weights_folder() / entry.name, GOOD), 12345, 12345)
    refused(entry, code="weights-foreign")
    assert records() == []


def test_a_record_of_another_file_is_refused(entry):
    find_or_fetch(entry)
    text = record_path(entry).read_text().replace("tiny.pth", "huge.pth")
    put(record_path(entry), text.encode())
    refused(entry, code="weights-record")


def test_offline_says_what_was_recorded(entry):
    find_or_fetch(entry).unlink()
    assert DIGEST in refused(entry, code="weights-missing", offline=True)


def test_offline_says_what_is_published(entry):
    message = refused(entry, code="weights-missing", offline=True)
    expected = f"sha256 {DIGEST[:8]}..." if entry.sha256_prefix else "no published sha256"
    assert expected in message
    assert str(weights_folder() / entry.name) in message


def test_a_folder_that_cannot_hold_the_record_is_an_error(entry, tmp_path):
    (weights_folder() / ".tiny.pth.record.lock").mkdir(parents=True)  # for root, too
    with pytest.raises(ResourceError, match="set GENPR_CACHE") as caught:
        find_or_fetch(entry, weights=put(tmp_path / "given.pth", GOOD))
    assert caught.value.code == "cache-unusable"


def test_a_folder_that_cannot_hold_the_file_is_an_error(server):
    (weights_folder() / ".tiny.pth.lock").mkdir(parents=True)
    with pytest.raises(ResourceError, match="set GENPR_CACHE") as caught:
        find_or_fetch(server.entry(GOOD))
    assert caught.value.code == "cache-unusable"


def test_of_two_processes_with_different_files_one_is_first(server, tmp_path):
    entry = server.entry(size=None, sha256=None)
    script = """
import sys
from genpr.errors import WeightsError
from genpr.features.weights.files import *
try:
    find_or_fetch({entry!r}, weights=sys.argv[1])
except WeightsError as error:
    sys.exit(error.code)
"""
    files = [put(tmp_path / f"{index}.pth", checkpoint(float(index))) for index in range(4)]
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", script.format(entry=entry), file], stderr=subprocess.PIPE, text=True
        )
        for file in files
    ]
    codes = [process.communicate(timeout=60)[1].strip() for process in processes]
    assert sorted(codes) == ["", "weights-hash", "weights-hash", "weights-hash"]
    winner = files[codes.index("")]
    assert record_of(entry).sha256 == hashlib.sha256(winner.read_bytes()).hexdigest()


# Hugging Face


@pytest.fixture
def hub(server):
    """A hub that hands over to its file server, as huggingface.co does."""
    address = "/org/model/resolve/main/weights.pth"
    server.redirects[address] = ("/files/123", {"X-Linked-ETag": f'"{DIGEST}"'})
    entry = replace(hub_file("org/model", "weights.pth", license="MIT"), url=server.url + address)
    return server, entry


def test_the_hash_that_the_hub_announces_is_checked(hub):
    server, entry = hub
    server.answer = OTHER
    message = refused(entry)
    assert f"sha256 {DIGEST}, as its server says" in message
    assert hashlib.sha256(OTHER).hexdigest() in message
    assert left_behind() == []


def test_a_hub_file_is_trusted_on_first_use_and_says_so(hub):
    server, entry = hub
    path = find_or_fetch(entry)
    assert path.name == "org--model--weights.pth"
    assert server.requests == ["/org/model/resolve/main/weights.pth", "/files/123"]
    record = record_of(entry)
    assert (record.pinned, record.announced, record.sha256) == ("first use", True, DIGEST)
    assert records() == [record]


def test_a_hub_file_without_redirect_is_announced_by_its_tag(server):
    server.headers["ETag"] = f'"{hashlib.sha256(OTHER).hexdigest()}"'
    hosted = server.entry(size=None, sha256=None, url=f"{server.url}/org/model/resolve/main/tiny.pth")
    assert "as its server says" in refused(hosted)
    assert find_or_fetch(server.entry(size=None, sha256=None))  # tags of other servers mean something else


def test_tags_of_git_are_no_hashes(hub):
    server, entry = hub
    server.redirects[entry.url.removeprefix(server.url)] = (
        "/files/123",
        {"X-Linked-ETag": '"' + "a" * 40 + '"'},
    )
    find_or_fetch(entry)
    assert record_of(entry).announced is False


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
    assert not is_cached(entry)
    link = in_hugging_face_cache(GOOD)
    assert is_cached(entry)
    assert find_or_fetch(entry, offline=True) == link
    assert record_of(entry).announced is True
    pinned = hub_file("org/model", "weights.pth", "c" * 40, license="MIT", sha256=DIGEST)
    assert find_or_fetch(pinned, offline=True) == link
    assert server.requests == []


def test_a_blob_that_does_not_have_its_own_hash_is_passed_over(hub):
    server, entry = hub
    in_hugging_face_cache(OTHER)
    assert find_or_fetch(entry) == weights_folder() / entry.name
    assert len(server.requests) == 2


def test_the_cache_may_lie_elsewhere(hub, monkeypatch, tmp_path):
    link = in_hugging_face_cache(GOOD)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "nowhere"))
    refused(hub[1], code="weights-missing", offline=True)
    monkeypatch.setenv("HF_HUB_CACHE", str(link.parents[3]))
    assert find_or_fetch(hub[1], offline=True) == link
