"""`genpr weights`: output, files and exit codes."""

import hashlib

import pytest
from weights_server import checkpoint, put, serving, use_own_folders

from genpr.features import known_weights
from genpr.features.weights import weights_folder

GOOD = checkpoint()
DIGEST = hashlib.sha256(GOOD).hexdigest()


@pytest.fixture
def server(tmp_path, monkeypatch):
    """Serves two known files: "tiny", and one of "small" and "smaller" whose size is not published."""
    use_own_folders(tmp_path, monkeypatch)
    with serving() as facts:
        facts.answer = GOOD
        entries = (
            facts.entry(GOOD, used_by=("tiny",)),
            facts.entry(name="small.pth", size=None, sha256=DIGEST, used_by=("small", "smaller")),
        )
        monkeypatch.setattr(known_weights, "KNOWN_WEIGHTS", entries)
        yield facts


def test_fetch_takes_extractor_and_file_names_and_fetches_each_file_once(genpr, server):
    code, out, err = genpr("weights", "fetch", "tiny", "smaller", "small.pth", "small")
    assert code == 0
    assert out.splitlines() == [f"{name}  {weights_folder() / name}" for name in ("tiny.pth", "small.pth")]
    assert err == ""
    assert len(server.requests) == 2
    assert genpr("weights", "fetch", "tiny", "small") == (0, out, "")
    assert len(server.requests) == 2


def test_unknown_names_are_a_usage_error_that_lists_known_ones(genpr, server):
    code, out, err = genpr("weights", "fetch", "tiny", "huge")
    assert (code, out, server.requests) == (2, "", [])
    assert "'huge'" in err
    assert "tiny, small, smaller" in err
    assert genpr("weights", "verify", "huge")[0] == genpr("weights", "fetch")[0] == 2


def test_verify_hashes_every_file_and_reports_each(genpr, server):
    code, out, err = genpr("weights", "verify")
    assert (code, out) == (0, "")
    assert str(weights_folder()) in err
    genpr("weights", "fetch", "tiny", "small")
    lines = [f"ok       {DIGEST[:8]}  tiny.pth", f"ok       {DIGEST[:8]}  small.pth"]
    assert genpr("weights", "verify") == (0, "\n".join(lines) + "\n", "")

    put(weights_folder() / "small.pth", GOOD[:-1] + b"\1")
    code, out, err = genpr("weights", "verify")
    assert (code, out.splitlines()[0], err) == (4, lines[0], "")
    bad = out.splitlines()[1]
    assert bad.startswith(f"bad      {weights_folder() / 'small.pth'} is not small.pth: expected")
    assert f"sha256 {DIGEST}" in bad
    assert len(out.splitlines()) == 2
    assert genpr("weights", "verify", "tiny")[0] == 0
    assert genpr("weights", "verify", "small", "tiny")[0] == 4
    assert genpr("weights", "verify", "smaller")[0] == 4
