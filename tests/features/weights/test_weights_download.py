"""Misbehaving servers and connections, and killed and concurrent processes."""

import hashlib
import signal
import subprocess
import sys
import time
from email.message import Message
from io import BytesIO
from urllib.error import URLError
from urllib.request import HTTPRedirectHandler, Request

import pytest
from raising import raised
from weights_server import CONTENT, checkpoint, left_behind

from genpr.errors import WeightsError
from genpr.features.weights import find_or_fetch, opener, weights_folder

GOOD = checkpoint()


def unpinned(server):
    server.answer = GOOD
    return server.entry(size=None, sha256=None)


def refused(entry, code="weights-missing") -> None:
    assert (raised(WeightsError, find_or_fetch, entry).code, left_behind()) == (code, [])


def test_redirects_are_limited_in_number_and_to_http(server):
    server.redirects["/tiny.pth"] = ("/elsewhere", {})
    assert find_or_fetch(server.entry()).read_bytes() == CONTENT
    (weights_folder() / "tiny.pth").unlink()
    for target in ("/tiny.pth", "file:///etc/hostname", "ftp://127.0.0.1/weights"):
        server.redirects["/elsewhere"] = (target, {})
        refused(server.entry())
    assert len(server.requests) < 50


def test_redirect_from_https_to_http_is_an_error():
    (redirects,) = (each for each in opener().handlers if isinstance(each, HTTPRedirectHandler))
    original = Request("https://example.org/a")
    with pytest.raises(URLError, match="redirect"):
        redirects.redirect_request(original, BytesIO(), 302, "Found", Message(), "http://example.org/b")
    assert redirects.redirect_request(original, BytesIO(), 302, "Found", Message(), "https://example.org/b")


@pytest.mark.parametrize("status", [403, 404, 503])
def test_not_found_is_not_retried(status, server):
    server.status = status
    refused(server.entry())
    assert len(server.requests) == 1


@pytest.mark.parametrize(("is_pinned", "code"), [(True, "weights-hash"), (False, "weights-format")])
def test_interrupted_download_is_not_kept(is_pinned, code, server):
    entry = server.entry() if is_pinned else unpinned(server)
    server.announced = 3_000_000
    server.answer = server.answer[: len(server.answer) // 2]
    refused(entry, code)


def test_missing_last_chunk_is_an_error(server):
    half = len(GOOD) // 2
    chunks = b"%x\r\n%s\r\n%x\r\n%s\r\n" % (half, GOOD[:half], len(GOOD) - half, GOOD[half:])
    server.headers = {"Transfer-Encoding": "chunked"}
    entry = unpinned(server)
    server.answer = chunks[:-5]
    refused(entry)
    server.answer = chunks + b"0\r\n\r\n"
    assert find_or_fetch(entry).read_bytes() == GOOD


def start(entry) -> subprocess.Popen:
    script = f"from genpr.features.weights import *; print(find_or_fetch({entry!r}))"
    return subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)


def test_concurrent_processes_download_once(server):
    entry, server.delay = server.entry(), 0.5
    processes = [start(entry) for _ in range(2)]
    answers = [process.communicate(timeout=60)[0].strip() for process in processes]
    assert answers == [str(weights_folder() / "tiny.pth")] * 2
    assert len(server.requests) == 1


def test_files_of_a_killed_process_are_not_used_and_removed(server):
    entry, server.pause = server.entry(), 30.0
    process = start(entry)
    deadline = time.monotonic() + 30
    while not any(path.stat().st_size for path in weights_folder().glob(".*.tmp")):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    (partial,) = left_behind()
    assert partial.startswith(".tiny.pth.")
    neighbor = weights_folder() / ".tiny.pth.other.abc.tmp"  # of a download of "tiny.pth.other"
    neighbor.touch()

    server.pause = 0.0
    assert hashlib.sha256(find_or_fetch(entry).read_bytes()).hexdigest() == entry.sha256
    assert left_behind() == [neighbor.name, "tiny.pth"]
