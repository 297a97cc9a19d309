"""What each of several ranks takes from a source, whether or not the source can tell its names without reading."""

from __future__ import annotations

import io
import tarfile
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from genpr.features.collected import RankShare
from genpr.images.source import open_source

FILES = [b"image %02d" % number for number in range(11)]


@pytest.fixture
def sources(tmp_path):
    """The same images where all of them have to be passed by, and where any can be picked."""
    with tarfile.open(tmp_path / "x.tar.gz", "w:gz") as archive:
        for number, data in enumerate(FILES):
            info = tarfile.TarInfo(f"{number:02d}.png")
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    pq.write_table(pa.table({"image": FILES}), tmp_path / "x.parquet", row_group_size=3)
    return [open_source(tmp_path / name) for name in ("x.tar.gz", "x.parquet")]


def team_of(rank: int, size: int) -> SimpleNamespace:
    return SimpleNamespace(rank=rank, size=size, is_alone=size == 1, told=lambda own: [own] * size)


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_ranks_share_a_source_block_by_block(sources, size, monkeypatch):
    monkeypatch.setattr("genpr.features.collected.BLOCK", 2)
    for source in sources:
        taken = {}
        for rank in range(size):
            share = RankShare(source, team_of(rank, size))
            for number, item in enumerate(share):
                taken[share.place(number)] = item.read()
            assert share.names == [item.name for item in source]
            share.check_names()
        assert [taken[place] for place in range(11)] == FILES


def test_images_of_other_ranks_are_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr("genpr.features.collected.BLOCK", 2)
    path = tmp_path / "x.parquet"
    images = [np.random.default_rng(number).bytes(500) for number in range(6)]
    pq.write_table(
        pa.table({"image": images}), path, row_group_size=2, compression="none", use_dictionary=False
    )
    source = open_source(path)
    data = bytearray(path.read_bytes())
    at = data.find(images[2])
    data[at - 20 : at] = bytes(20)
    path.write_bytes(data)
    share = RankShare(source, team_of(0, 2))
    assert [item.read() for item in share] == images[:2] + images[4:]
