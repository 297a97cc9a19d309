import sys
from pathlib import Path

import pytest
import torch
from raising import raising

from genpr import memory, runtime
from genpr.errors import UsageError
from genpr.memory import cgroup_memory_left, empty_rows, free_memory, memory_limit, parse_size


@pytest.fixture
def scratch(tmp_path, monkeypatch):
    """Simulate a machine without free memory, so that arrays are mapped; yields the folder of the files."""
    monkeypatch.setenv("GENPR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(memory, "free_memory", lambda _device=None: 0)
    monkeypatch.setattr(memory, "ALWAYS_HELD", 0)
    return tmp_path / "cache" / "scratch"


@pytest.mark.parametrize(
    ("text", "expected"),
    [("8GiB", 2**33), ("8 gib", 2**33), ("1.5g", 1_500_000_000), ("500 MB", 5 * 10**8), (10**9, 10**9)],
)
def test_sizes_are_parsed(text, expected):
    assert parse_size(text) == expected


@pytest.mark.parametrize("text", ["", "8 apples", "-8G", "1e9", True, 0, "255MiB", 2.5, "9" * 400, "１GiB"])
def test_invalid_sizes_are_errors(text):
    with raising(UsageError, "bad-option", "MiB|8GiB"):
        parse_size(text)


def test_limits_are_temporary_and_the_smallest_applies():
    before = free_memory()
    with memory_limit("100TiB"):
        assert free_memory() > 0.5 * before
        with memory_limit("1GiB"):
            assert free_memory() < 2**30
            with memory_limit("2GiB"):
                assert free_memory() < 2**30
            with memory_limit(None):
                assert free_memory() < 2**30
    with pytest.raises(ValueError, match="planned"), memory_limit("1GiB"):
        raise ValueError("planned")
    assert free_memory() > 0.5 * before


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux states them")
def test_libraries_count_toward_the_limit():
    lines = Path("/proc/self/status").read_text().splitlines()
    own, files = (1024 * int(line.split()[1]) for line in lines if line.startswith(("RssAnon", "RssFile")))
    assert files > 2**26, "this process has libraries"
    with memory_limit(own + min(files, 2**29) + 2**30):
        assert free_memory() < 2**30 + 2**26


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits address space")
def test_free_memory_is_within_the_limit_of_address_space():
    import resource

    limits = resource.getrlimit(resource.RLIMIT_AS)
    try:
        left = 2**28
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + left, limits[1]))
        assert free_memory() <= left
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)


def test_size_of_gpu_arrays_is_compared_with_gpu_memory(monkeypatch):
    gpu = torch.device("cuda", 1)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (1000 if device == gpu else 0, 5000))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 700 if device == gpu else 0)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 500 if device == gpu else 0)
    assert memory.free_memory(gpu) == 1200, "with what torch holds and does not use"
    monkeypatch.setattr(
        memory, "free_memory", lambda device=None: free_memory(device) if device == gpu else 10**6
    )
    assert memory.fits(601, gpu), "so few bytes are always held"
    monkeypatch.setattr(memory, "ALWAYS_HELD", 100)
    assert [memory.fits(count, gpu) for count in (600, 601)] == [True, False]
    assert [memory.fits(count) for count in (5 * 10**5, 5 * 10**5 + 1)] == [True, False]
    assert memory.fits(601, torch.device("cpu"))


def test_rows_are_in_memory_if_possible_and_otherwise_mapped(scratch, monkeypatch):
    mapped = empty_rows(100, 7, torch.float32)
    mapped[:] = torch.arange(700).view(100, 7)
    assert mapped.sum() == 700 * 699 / 2
    assert scratch.is_dir()
    assert not list(scratch.iterdir())  # it goes with the tensor
    assert scratch.stat().st_mode & 0o077 == 0
    assert empty_rows(3, 2, torch.float16).dtype == torch.float16
    monkeypatch.setattr(memory, "free_memory", lambda _device=None: 2 * 700 * 4)
    monkeypatch.setattr(memory, "private_folder", lambda *_: pytest.fail("mapped without need"))
    empty_rows(100, 7, torch.float32)


# Limits of containers and jobs, in folders laid out as Linux lays them out.

GB = 10**9


def group(folder, *, limit, usage, inactive=0):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory.max").write_text(f"{limit}\n")
    (folder / "memory.current").write_text(f"{usage}\n")
    (folder / "memory.stat").write_text(f"anon 5\ninactive_file {inactive}\nactive_file 7\n")


def test_memory_is_limited_by_the_cgroup_and_its_parents(tmp_path):
    own = tmp_path / "own"
    assert cgroup_memory_left(tmp_path, own) is None
    own.write_text("0::/job/step\n")
    assert cgroup_memory_left(tmp_path, own) is None
    group(tmp_path / "job" / "step", limit=8 * GB, usage=2 * GB, inactive=GB)
    group(tmp_path, limit="max", usage=90 * GB)
    assert cgroup_memory_left(tmp_path, own) == 7 * GB
    group(tmp_path / "job", limit=6 * GB, usage=5 * GB)
    assert cgroup_memory_left(tmp_path, own) == GB
    group(tmp_path / "job", limit=6 * GB, usage=7 * GB)
    assert cgroup_memory_left(tmp_path, own) == 0
    group(tmp_path / "job", limit=6 * GB, usage="soon")
    assert cgroup_memory_left(tmp_path, own) == 7 * GB


def test_free_memory_is_limited_by_cgroups(monkeypatch):
    monkeypatch.setattr(memory, "cgroup_memory_left", lambda: 2**30)
    assert free_memory() == 2**30
    monkeypatch.setitem(runtime.machine_shares, "memory", 4)
    assert free_memory() == 2**28, "ranks share what the job may take"
