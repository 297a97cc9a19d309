"""Which weights are on this machine, and whether they are the published ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from genpr.doctor.finding import Finding, State

if TYPE_CHECKING:
    from genpr.features.weights.known import WeightsFile

_HASHED_BYTES = 700_000_000  # two seconds; more with --full
_USUAL = "inception"


@dataclass
class _Seen:
    """Names of extractors, by what is known of their weights."""

    right: list[str] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)
    not_hashed: list[str] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)


def look_at_weights(*, full: bool = False) -> Iterator[Finding]:
    """One line for each file that is damaged, and one for all.

    Args:
        full: Hash all that are here, not only the first few hundred megabytes.
    """
    from genpr.errors import WeightsError
    from genpr.features.weights.files import cached_path, known_files, verify_file
    from genpr.features.weights.places import weights_folder
    from genpr.runtime import is_offline

    seen, left = _Seen(), _HASHED_BYTES
    for entry in sorted(known_files(), key=lambda entry: (_USUAL not in entry.used_by, entry.size or 0)):
        own, name = weights_folder() / entry.name, _short(entry)
        path = own if own.is_file() else cached_path(entry)
        if path is None:
            seen.absent.append(name)
            continue
        if not full and path.stat().st_size > left:
            seen.not_hashed.append(name)
            continue
        left -= path.stat().st_size
        try:
            verify_file(entry, path)
        except WeightsError as error:
            seen.damaged.append(name)
            yield _damaged(name, path, error, is_own=path == own)
        else:
            seen.right.append(name)
    yield _summary(seen, is_offline=is_offline())


def _damaged(name: str, path: Path, error: Exception, *, is_own: bool) -> Finding:
    """A bad file of genpr's own stops every score with it; a bad one of another program's is not used."""
    state: State = "broken" if is_own else "warn"
    text = str(error) if is_own else f"{error}; it is another program's, and genpr does not use it"
    return Finding(name, state, text, f"rm '{path}' && genpr weights fetch {name}", {"path": str(path)})


def _summary(seen: _Seen, *, is_offline: bool) -> Finding:
    facts: dict[str, Any] = {**vars(seen), "offline": is_offline}
    parts = [f"{', '.join(seen.right)} hashed and right"] if seen.right else []
    if seen.not_hashed:
        parts.append(f"{', '.join(seen.not_hashed)} here, hashed with --full")
    if seen.absent:
        parts.append(f"{len(seen.absent)} files not here (genpr weights list)")
    if _USUAL not in seen.absent:
        return Finding("weights", "ok", "; ".join(parts), facts=facts)
    parts.append("those of inception, the usual extractor, have to be downloaded")
    remedy = f"genpr weights fetch {_USUAL}"
    if is_offline:
        parts[-1] += ", which GENPR_OFFLINE forbids"
        remedy = f"GENPR_OFFLINE=0 {remedy}"
    return Finding("weights", "warn", "; ".join(parts), remedy, facts)


def _short(entry: WeightsFile) -> str:
    """What one would type."""
    return entry.used_by[0] if entry.used_by else entry.name
