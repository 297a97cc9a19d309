"""Limits on input: streams are read up to their limit, and JSON is parsed as by the standard library."""

import io
import json

import pytest
from raising import raised

from genpr.errors import DataError
from genpr.limits import parse_json, read_bytes


def test_parse_json_equals_json_loads():
    value = {"a": [1, 2.5, None, True, "é\n"], "b": {}}
    for text in (json.dumps(value), json.dumps(value).encode(), json.dumps(value).encode("utf-16")):
        assert parse_json(text) == value
    assert parse_json('{"a": 1, "a": 2}', pairs=list) == [("a", 1), ("a", 2)]
    for text in ("", "[", b"\xff", "[" * 100_000):
        with pytest.raises(ValueError, match=r"\S"):
            parse_json(text)


def test_stream_is_read_up_to_the_limit(tmp_path):
    class Stream(io.BytesIO):
        def fileno(self):
            raise OSError

    about = {"name": "x", "what": "a test", "code": "too-long"}
    assert read_bytes(Stream(b"12345"), 5, **about) == b"12345"
    assert read_bytes(Stream(b""), 5, **about) == b""
    stream = Stream(b"x" * 2**22)
    assert raised(DataError, read_bytes, stream, 2**21, **about).code == "too-long"
    assert stream.tell() == 2**21 + 1
    (tmp_path / "x").write_bytes(b"123456")
    with (tmp_path / "x").open("rb") as file:
        assert read_bytes(file, 6, **about) == b"123456"
    with (tmp_path / "x").open("rb") as file, pytest.raises(DataError):
        read_bytes(file, 5, **about)
