"""The whole examination: which checks there are, and in which order."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from genpr.doctor import cache_health, devices, libraries, machine, pair, self_test, weights_health
from genpr.doctor.finding import Check, Finding


@dataclass(frozen=True)
class Examination:
    """All that was found.

    Attributes:
        genpr: Its version.
        findings: In the order in which they are shown.
        seconds: How long it took.
    """

    genpr: str
    findings: tuple[Finding, ...]
    seconds: float

    @property
    def is_healthy(self) -> bool:
        """Whether nothing is broken that a score would need."""
        return all(finding.state != "broken" for finding in self.findings)

    def to_record(self) -> dict[str, Any]:
        """As plain JSON types."""
        findings = [asdict(finding) for finding in self.findings]
        return {
            "genpr": self.genpr,
            "healthy": self.is_healthy,
            "seconds": self.seconds,
            "findings": findings,
        }


def examine(
    genpr: str,
    *,
    root: Path,
    full: bool = False,
    progress: Callable[[str], None] | None = None,
) -> Examination:
    """Look at everything, whatever of it is broken.

    Args:
        genpr: The version to put on record.
        root: The cache folder.
        full: Hash all weights and all cached features, which may take minutes.
        progress: Told what is looked at next.
    """
    started = time.monotonic()
    if progress:
        progress("libraries")
    found = libraries.probe()
    findings: list[Finding] = []
    broken = libraries.broken_among(found)
    with _kept_out([name for name in broken if found[name].get("ends_process")]):
        for check in _checks(genpr, found, root, full=full):
            if progress:
                progress(check.name)
            findings += check.run(broken)
    return Examination(genpr, tuple(findings), round(time.monotonic() - started, 2))


@contextmanager
def _kept_out(names: Sequence[str]) -> Iterator[None]:
    """Nothing that ends a process is imported into this one; whoever tries gets an ImportError."""
    blocked: dict[str, Any] = dict.fromkeys(names)
    before = {name: sys.modules[name] for name in names if name in sys.modules}
    sys.modules.update(blocked)
    try:
        yield
    finally:
        for name in names:
            sys.modules.pop(name, None)
        sys.modules.update(before)


def _checks(genpr: str, found: libraries.Libraries, root: Path, *, full: bool) -> Sequence[Check]:
    needed = ("numpy", "torch", "scipy", "faiss")
    return (
        Check("genpr", lambda: machine.look_at_versions(genpr)),
        Check("torch", lambda: pair.look_at_the_pair(found)),
        Check("libraries", lambda: libraries.look_at_libraries(found)),
        Check("extras", libraries.look_at_extras),
        Check("cuda", lambda: devices.look_at_devices(found)),
        Check("machine", machine.look_at_the_machine, needs=("numpy",)),
        Check("environment", machine.look_at_the_environment),
        Check("cache", lambda: cache_health.look_at_the_folder(root)),
        Check("cached", lambda: cache_health.look_at_shards(root, full=full), needs=("torch", "safetensors")),
        Check("weights", lambda: weights_health.look_at_weights(full=full)),
        Check("directions", self_test.look_at_directions, needs=(*needed, "PIL")),
        Check("exactness", self_test.look_at_exactness, needs=needed),
        Check("exactness cuda", self_test.look_at_gpus, needs=needed),
        Check("decoding", self_test.look_at_codecs, needs=("numpy", "PIL")),
        Check("same features", self_test.look_at_features, needs=(*needed, "PIL")),
    )
