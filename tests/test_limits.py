"""Limits on input: parsed text takes no more memory than estimated, and large ordinary inputs are within the limits."""

import io
import json
import sys
import tracemalloc

import pytest
from raising import raised

from genpr.errors import DataError
from genpr.limits import check_json, csv_rows, parse_json, read_bytes

ROWS = [
    *("[],", "{},", "[[]],", '{"a":{}},', '{"a":1},', '"ab",', '"éa",', "12345,", "1e1,", "[1],", "null,"),
    *("[" * 10 + "]" * 10 + ",", '{"a":1,"b":2},', '["00000/img00000000.png", 1000],', r'"a\"b\\",', "[{}],"),
    '{"a":1,"b":1,"c":1,"d":1,"e":1,"f":1},',
]
TEXTS = {
    **{row: "[" + row * 20_000 + "0]" for row in ROWS},
    "values": "[" + ",".join(f'{{"key{i}":"value{i}"}}' for i in range(20_000)) + "]",
    "keys": "{" + ",".join(f'"{i:x}":0' for i in range(22_000)) + "}",
    "wide": '["' + "a" * 200_000 + "\N{GRINNING FACE}" + '"]',
}


@pytest.mark.parametrize("text", ["a,b\n" + "\0" * 2**25, "x" * 2**25, 'a,"' + "b" * 2**25 + '"\r\n'])
def test_very_long_lines_of_a_csv_are_errors_before_parsing(text):
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="line"):
            next(csv_rows(text, ","))
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


def least_limit(text: str) -> int:
    """The smallest limit under which a text is accepted, which is its estimate."""
    low, high = 0, 2**32
    while high - low > 100:
        middle = (low + high) // 2
        try:
            check_json(text, middle)
            high = middle
        except ValueError:
            low = middle
    return high


@pytest.mark.parametrize("name", TEXTS)
def test_parsed_json_takes_no_more_memory_than_estimated(name):
    text = TEXTS[name]
    tracemalloc.start()
    value = json.loads(text)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert value
    estimate = least_limit(text)
    assert 0.99 * (peak + sys.getsizeof(text)) <= estimate <= 5 * (peak + sys.getsizeof(text))


@pytest.mark.parametrize("escape", ["", "\\\\", '\\"', '\\\\\\"', '\\"[', "[{,:"])
def test_contents_of_strings_do_not_count(escape):
    """Also for strings that are scanned in pieces, one of which ends within an escape."""
    text = json.dumps(["x" * 999_998 + "[" * 1_000_000]) if not escape else f'["x{escape * 400_000}", []]'
    assert least_limit(text) < 2 * sys.getsizeof(text) + 1000


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
