"""Limits of containers and jobs, in folders laid out as Linux lays them out."""

from __future__ import annotations

import pytest

from genpr import cgroups, memory
from genpr.cgroups import limited_groups
from genpr.memory import free_memory

GB = 10**9


def group(folder, version, *, limit, usage, inactive=0):
    folder.mkdir(parents=True, exist_ok=True)
    names = (
        ("memory.max", "memory.current")
        if version == 2
        else ("memory.limit_in_bytes", "memory.usage_in_bytes")
    )
    (folder / names[0]).write_text(f"{limit}\n")
    (folder / names[1]).write_text(f"{usage}\n")
    key = "inactive_file" if version == 2 else "total_inactive_file"
    (folder / "memory.stat").write_text(f"anon 5\n{key} {inactive}\nactive_file 7\n")


def left(root, own_text):
    own = root / "own"
    own.write_text(own_text)
    return [each.left() for each in limited_groups(root, own)]


@pytest.mark.parametrize("version", [1, 2])
def test_the_group_and_those_around_it_limit_memory(tmp_path, version):
    mount = tmp_path if version == 2 else tmp_path / "memory"
    own = "0::/job/step\n" if version == 2 else "9:cpu,memory:/job/step\n3:cpuset:/\n"
    group(mount / "job" / "step", version, limit=8 * GB, usage=2 * GB, inactive=GB)
    group(mount / "job", version, limit=6 * GB, usage=5 * GB)
    group(mount, version, limit="max" if version == 2 else 9223372036854771712, usage=90 * GB)
    assert left(tmp_path, own) == [7 * GB, GB]
    group(mount / "job", version, limit=6 * GB, usage=7 * GB)
    assert left(tmp_path, own) == [7 * GB, 0]


def test_in_a_container_the_outermost_group_is_what_is_seen(tmp_path):
    group(tmp_path / "memory", 1, limit=4 * GB, usage=GB)
    assert left(tmp_path, "9:memory:/docker/0123456789abcdef\n") == [3 * GB]


def test_without_groups_or_limits_there_is_none(tmp_path):
    assert limited_groups(tmp_path, tmp_path / "none") == ()
    assert left(tmp_path, "0::/\n") == []
    group(tmp_path, 2, limit=GB, usage="soon\n")
    assert left(tmp_path, "0::/\n") == [None]


def test_free_memory_is_what_the_groups_leave(tmp_path, monkeypatch):
    group(tmp_path, 2, limit=2**31, usage=2**30)
    own = tmp_path / "own"
    own.write_text("0::/\n")
    unlimited = free_memory()
    monkeypatch.setattr(cgroups, "_groups_of_this_process", lambda: limited_groups(tmp_path, own))
    assert free_memory() == min(unlimited, 2**30) == 2**30
    monkeypatch.setattr(memory, "memory_sharers", lambda: 4)
    assert free_memory() == 2**28, "ranks share what the job may take"
