"""How much memory the control groups of this process leave it: in a container or a job, less than the machine has free."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath

_NO_LIMIT = 2**60  # version 1 writes a number of pages beyond any machine
_ROOT = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")


@dataclass(frozen=True, slots=True)
class LimitedGroup:
    """A control group with a limit of memory.

    Attributes:
        limit: Bytes that its processes may take together.
        usage: The file that says what they take.
        stat: The file that says how much of that is pages of files, which go when memory is needed.
        reclaimable: What these are called there.
    """

    limit: int
    usage: Path
    stat: Path
    reclaimable: str

    def left(self) -> int | None:
        """Bytes that may still be taken; None where that cannot be read."""
        with contextlib.suppress(OSError, ValueError):
            taken = int(self.usage.read_text())
            lines = dict(line.split(maxsplit=1) for line in self.stat.read_text().splitlines())
            return max(0, self.limit - taken + int(lines.get(self.reclaimable, 0)))
        return None


def memory_left() -> int | None:
    """Bytes that this process may still take by the limits of its control groups; None if there is none."""
    left = [count for group in _groups_of_this_process() if (count := group.left()) is not None]
    return min(left, default=None)


@cache
def _groups_of_this_process() -> tuple[LimitedGroup, ...]:
    return limited_groups(_ROOT, _OWN)


def limited_groups(root: Path, own: Path) -> tuple[LimitedGroup, ...]:
    """The groups with a limit that a process is in, its own one and those around it, of either version of control groups.

    Args:
        root: Where they are mounted, such as /sys/fs/cgroup.
        own: What says which ones they are, such as /proc/self/cgroup.
    """
    found = []
    with contextlib.suppress(OSError):
        for line in own.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers == "":
                names = "memory.max", "memory.current", "inactive_file"
                found += _limited(root, path, names)
            elif "memory" in controllers.split(","):
                names = "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
                found += _limited(root / "memory", path, names)
    return tuple(found)


def _limited(mount: Path, path: str, names: tuple[str, str, str]) -> list[LimitedGroup]:
    """From the group to the outermost; inside of a container the outermost is often all that is to be seen."""
    limit_name, usage_name, reclaimable = names
    own = PurePosixPath(path.lstrip("/"))
    found = []
    for part in (own, *own.parents):
        folder = mount / part
        with contextlib.suppress(OSError, ValueError):  # not there, or "max"
            limit = int((folder / limit_name).read_text())
            if limit < _NO_LIMIT:
                found.append(LimitedGroup(limit, folder / usage_name, folder / "memory.stat", reclaimable))
    return found
