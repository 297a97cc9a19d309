"""How ranks divide the images of a source, with and without random access."""

import zipfile
from dataclasses import asdict

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import genpr
from genpr.distributed import Communicator, use_communicator
from genpr.features.embed import RankShare
from genpr.features.options import EmbedOptions
from genpr.features.source_features import Embedder, with_cpu_fallback
from genpr.images.source import open_source
from genpr.notices import emit_notice, notice

FILES = [b"image %02d" % number for number in range(11)]


@pytest.fixture
def sources(tmp_path):
    """The same images in a ZIP archive and in a Parquet file with several row groups."""
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        for number, data in enumerate(FILES):
            archive.writestr(f"{number:02d}.png", data)
    pq.write_table(pa.table({"image": FILES}), tmp_path / "x.parquet", row_group_size=3)
    return [open_source(tmp_path / name) for name in ("x.zip", "x.parquet")]


class EqualRanks(Communicator):
    """One of several ranks that all send the same."""

    def __init__(self, rank: int, size: int):
        self.rank, self.size, self.is_single_process = rank, size, False

    def all_gather_object(self, value, what):
        return [value] * self.size


@pytest.mark.parametrize("size", [2, 3, 7])
def test_ranks_divide_a_source_by_blocks(sources, size, monkeypatch):
    monkeypatch.setattr("genpr.features.embed.BLOCK", 2)
    for source in sources:
        taken = {}
        for rank in range(size):
            share = RankShare(source, EqualRanks(rank, size))
            for position, item in share:
                taken[position] = item.read()
            assert share.names == [item.name for item in source]
            share.check_visited()
        assert [taken[position] for position in range(11)] == FILES


def test_searches_use_the_current_communicator(rng):
    class CountingCommunicator(Communicator):
        shared = 0

        def share(self, items):
            self.shared += 1
            return super().share(items)

    real, fake = rng.normal(size=(2, 600, 4))  # too many pairs for one process to compute all directly
    manifold = genpr.KNNManifold.fit(real, k=3)  # in one process
    counting = CountingCommunicator()
    with use_communicator(counting):
        manifold.count(fake)
    assert counting.shared == 1
    manifold.count(fake)
    assert counting.shared == 1


class TwoRanks(Communicator):
    """A communicator whose other rank always sends the same value."""

    size = 2
    is_single_process = False

    def __init__(self, other):
        self._other = other

    def all_gather_object(self, value, what):
        return [value, self._other]


def test_memory_notices_of_all_ranks_are_returned():
    def work(_embedder):
        emit_notice("oom-smaller-tiles", device="cuda:0")

    there = notice("oom-smaller-batches", device="cuda:1", requested=64, size=32)
    here = notice("oom-smaller-tiles", device="cuda:0")
    with use_communicator(TwoRanks([asdict(each) for each in (there, here)])):
        _, notices = with_cpu_fallback(Embedder(EmbedOptions(device="cpu")), work, "for a test")
    assert notices == (here, there)
