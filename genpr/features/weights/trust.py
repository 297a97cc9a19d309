"""Which bytes a weights file must have: the published sha256, else the ones that were first used here.

The rule. A file with a published sha256 must have it. Any other must begin with its published prefix, have its
published length, and look like weights; the sha256 that it has when it is first used, downloaded or found, is
recorded in genpr's weights folder, and from then on every file of that name must have it.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from genpr.errors import ResourceError, WeightsError
from genpr.features.weights.formats import check_format
from genpr.features.weights.known import WeightsFile
from genpr.features.weights.places import is_trusted, make_weights_folder, weights_folder
from genpr.storage import atomic_path, open_regular

RECORD_SUFFIX = ".sha256.json"

Pinned = Literal["sha256", "prefix", "first use"]


@dataclass(frozen=True)
class Record:
    """What is remembered of a file without a published sha256, since its first use.

    Attributes:
        name: File name.
        url: Where it is published.
        size: Length in bytes.
        sha256: Hex digest of all its bytes.
        licence: Of the weights.
        used_by: Names of extractors.
        pinned: What the file was held to at its first use.
        announced: Whether the server, or Hugging Face's cache, named this very digest beforehand.
        date: Day of the first use, in UTC.
    """

    name: str
    url: str
    size: int
    sha256: str
    licence: str
    used_by: tuple[str, ...]
    pinned: Pinned
    announced: bool
    date: str

    @property
    def entry(self) -> WeightsFile:
        """The file that is recorded."""
        return WeightsFile(
            name=self.name,
            url=self.url,
            size=self.size,
            sha256=None,
            licence=self.licence,
            used_by=self.used_by,
        )

    @property
    def identity(self) -> str:
        """What is remembered about its content, for messages."""
        return f"{self.size:,} bytes, sha256 {self.sha256}, as first used here on {self.date}"


def pinned_by(entry: WeightsFile) -> Pinned:
    """What decides whether a file is `entry` at its first use."""
    if entry.sha256 is not None:
        return "sha256"
    return "first use" if entry.sha256_prefix is None else "prefix"


def accept(
    entry: WeightsFile,
    file: io.BufferedReader | io.BytesIO,
    source: Path | str,
    *,
    hint: str,
    announced: str | None = None,
) -> str:
    """Hash `file`, and refuse it unless it is `entry`; at first use, record what it is.

    Args:
        entry: What it should be.
        file: Its bytes, from which what is accepted must then be read.
        source: Where they come from, for messages.
        hint: The likely cause of a refusal.
        announced: The digest that its source claims, if it claims one.

    Returns:
        The sha256 of the file.

    Raises:
        WeightsError: It is another file ("weights-hash"), or not of a form that genpr reads.
        ResourceError: The record cannot be written.
    """
    file.seek(0)
    digest = hashlib.file_digest(file, "sha256").hexdigest()
    size = file.seek(0, 2)
    found = f"got {digest} ({size:,} bytes)"
    expected = entry.sha256 or _recorded_sha256(entry)
    if expected is None:
        return _first_use(entry, file, source, digest, found=found, hint=hint, announced=announced)
    if digest != expected or not digest.startswith(entry.sha256_prefix or ""):
        raise _mismatch(entry, source, found, hint=hint)
    return digest


def record_path(entry: WeightsFile) -> Path:
    """Where the record of `entry` lies, if there is one."""
    return weights_folder() / (entry.name + RECORD_SUFFIX)


def record_of(entry: WeightsFile) -> Record | None:
    """What was recorded at the first use of `entry`; None before it.

    Raises:
        WeightsError: The record is damaged ("weights-record").
    """
    try:
        if not is_trusted(record_path(entry)):
            raise _bad_record(entry, "other users can write to it or to its folder")
        with open_regular(record_path(entry)) as file:
            text = file.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _bad_record(entry, error.strerror or str(error)) from error
    record = _parsed(text)
    if record is None or record.name != entry.name:
        raise _bad_record(entry, "it is not of the form that genpr writes")
    return record


def records() -> list[Record]:
    """The readable records, by file name."""
    found = []
    for path in sorted(weights_folder().glob(f"*{RECORD_SUFFIX}")):
        record = None
        with contextlib.suppress(OSError):
            record = _parsed(path.read_bytes()) if is_trusted(path) else None
        if record is not None and path.name == record.name + RECORD_SUFFIX:
            found.append(record)
    return found


def _first_use(
    entry: WeightsFile,
    file: io.BufferedReader | io.BytesIO,
    source: Path | str,
    digest: str,
    *,
    found: str,
    hint: str,
    announced: str | None,
) -> str:
    with _alone(entry):
        held = _recorded_sha256(entry)  # another process may have been first
        if held is None:
            size = file.seek(0, 2)
            if not digest.startswith(entry.sha256_prefix or "") or entry.size not in {None, size}:
                raise _mismatch(entry, source, found, hint=hint)
            if announced not in {None, digest}:
                raise _mismatch(entry, source, found, hint=hint, announced=announced)
            check_format(entry, file, source)
            _write(entry, digest, size, announced=announced is not None)
        elif held != digest:
            raise _mismatch(entry, source, found, hint=hint)
    return digest


def _recorded_sha256(entry: WeightsFile) -> str | None:
    record = record_of(entry)
    return None if record is None else record.sha256


def _write(entry: WeightsFile, digest: str, size: int, *, announced: bool) -> None:
    record = Record(
        name=entry.name,
        url=entry.url,
        size=size,
        sha256=digest,
        licence=entry.licence,
        used_by=entry.used_by,
        pinned=pinned_by(entry),
        announced=announced,
        date=datetime.now(UTC).date().isoformat(),
    )
    try:
        with atomic_path(record_path(entry)) as temporary:
            temporary.write_text(json.dumps(asdict(record), indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise _cannot_record(entry, error) from error


@contextlib.contextmanager
def _alone(entry: WeightsFile) -> Iterator[None]:
    from filelock import FileLock

    lock = FileLock(str(make_weights_folder() / f".{entry.name}.record.lock"))
    try:
        lock.acquire()
    except (OSError, NotImplementedError) as error:  # the latter of a file system without locks
        raise _cannot_record(entry, error) from error
    try:
        yield
    finally:
        lock.release()


def _parsed(text: bytes) -> Record | None:
    try:
        fields = json.loads(text)
        record = Record(**{**fields, "used_by": tuple(fields["used_by"])})
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    texts = (
        record.name,
        record.url,
        record.licence,
        record.pinned,
        record.date,
        record.sha256,
        *record.used_by,
    )
    is_right = all(isinstance(item, str) for item in texts) and isinstance(record.size, int)
    return record if is_right and re.fullmatch(r"[0-9a-f]{64}", record.sha256) else None


def _mismatch(
    entry: WeightsFile, source: Path | str, found: str, *, hint: str, announced: str | None = None
) -> WeightsError:
    record = None if entry.sha256 else record_of(entry)
    expected = entry.identity
    if announced is not None:
        expected = f"sha256 {announced}, as its server says"
    elif record is not None:
        expected = record.identity
        hint += f"; to accept another file under this name, delete {record_path(entry)} and the file"
    return WeightsError(
        f"{source} is not {entry.name}: expected {expected}, {found}; {hint}",
        code="weights-hash",
        path=str(source),
    )


def _cannot_record(entry: WeightsFile, error: Exception) -> ResourceError:
    reason = getattr(error, "strerror", None) or error
    return ResourceError(
        f"{entry.name} has no published sha256, and the one of its first use cannot be recorded at "
        f"{record_path(entry)} ({reason}); set GENPR_CACHE to a folder you can write",
        code="cache-unusable",
        path=str(record_path(entry)),
    )


def _bad_record(entry: WeightsFile, reason: str) -> WeightsError:
    path = record_path(entry)
    return WeightsError(
        f"{path}, which says what {entry.name} was at its first use, cannot be read ({reason}); if you trust the "
        "weights that are here now, delete the record",
        code="weights-record",
        path=str(path),
    )
