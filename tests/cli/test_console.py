import io
import sys

import pytest

from genpr.cli import console


@pytest.fixture
def clock(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(console.time, "monotonic", lambda: now[0])
    return now


@pytest.fixture
def update(clock):
    with console.progress_bars(quiet=False) as progress:

        def at(second, *told):
            clock[0] = second
            progress(*told)

        yield at


def test_a_stage_that_takes_minutes_is_told_once_when_its_pace_is_known(update, capsys):
    update(0, "neighbors", 0, 100)
    update(4, "neighbors", 1, 100)
    assert not capsys.readouterr().err
    update(10, "neighbors", 2, 100)
    assert capsys.readouterr().err == "neighbors: 2 of 100, about 8 min left\n"
    update(20, "neighbors", 4, 100)
    update(30, "real", 0, 5000)
    update(40, "real", 50, 5000)
    assert capsys.readouterr().err == "real: 50 of 5,000, about 16 min left\n"


@pytest.mark.parametrize(
    ("encoding", "shown"), [("ascii", r"+- \u2581"), ("latin-1", r"+- \u2581"), ("utf-8", "± ▁")]
)
def test_streams_get_the_characters_that_they_have(monkeypatch, encoding, shown):
    streams = [io.TextIOWrapper(io.BytesIO(), encoding=encoding) for _ in range(2)]
    monkeypatch.setattr(sys, "stdout", streams[0])
    monkeypatch.setattr(sys, "stderr", streams[1])
    console.emit("± ▁")
    console.complain("± ▁")
    for stream in streams:
        stream.flush()
        assert stream.buffer.getvalue().decode(encoding) == f"{shown}\n"
