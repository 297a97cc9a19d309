"""Run all checks, in a fixed order."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from genpr.doctor import Check, Finding, checks, libraries


@dataclass(frozen=True)
class Examination:
    """The findings of all checks.

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
    """Run all checks, whatever is broken.

    Args:
        genpr: The version to put on record.
        root: The cache folder.
        full: Hash all weights and all cached features, which may take minutes.
        progress: Called with the name of each check before it runs.
    """
    started = time.monotonic()
    if progress:
        progress("libraries")
    found = libraries.probe()
    findings: list[Finding] = []
    broken = libraries.broken_among(found)
    with _blocked_imports([name for name in broken if found[name].get("ends_process")]):
        for check in _checks(genpr, found, root, full=full):
            if progress:
                progress(check.name)
            findings += check.run(broken)
    return Examination(genpr, tuple(findings), round(time.monotonic() - started, 2))


@contextmanager
def _blocked_imports(names: Sequence[str]) -> Iterator[None]:
    """Make imports of these libraries, which would end the process, raise ImportError."""
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
        Check("genpr", lambda: checks.check_versions(genpr)),
        Check("torch", lambda: libraries.check_torch_pair(found)),
        Check("libraries", lambda: libraries.check_libraries(found)),
        Check("extras", libraries.check_extras),
        Check("cuda", lambda: libraries.check_gpus(found)),
        Check("machine", checks.check_machine, needs=("numpy",)),
        Check("environment", checks.check_environment),
        Check("cache", lambda: checks.check_cache_folder(root)),
        Check(
            "cached", lambda: checks.check_cached_features(root, full=full), needs=("torch", "safetensors")
        ),
        Check("weights", lambda: checks.check_weights(full=full)),
        Check("directions", checks.check_directions, needs=(*needed, "PIL")),
        Check("exactness", checks.check_exactness, needs=needed),
        Check("exactness cuda", checks.check_exactness_on_gpus, needs=needed),
        Check("decoding", checks.check_codecs, needs=("numpy", "PIL")),
        Check("same features", checks.check_features, needs=(*needed, "PIL")),
    )
