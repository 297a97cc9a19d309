"""Verification of weights files: their sha256, and their format, before anything of them is used.

A file with a published sha256 must have it. Any other must begin with its published prefix, have its published length,
and look like weights; the sha256 that it has when it is first used, downloaded or found, is recorded in genpr's weights
folder, and from then on every file of that name must have it.

Two formats are read: PyTorch checkpoints, by their tensors alone, and safetensors. Neither can run code here: checkpoints
are read by torch's restricted unpickler, which builds tensors and refuses everything else. TorchScript archives hold
programs and are refused.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import pickle
import re
import zipfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from io import BufferedIOBase
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Literal

from genpr.errors import ResourceError, WeightsError
from genpr.features.weights.known import WeightsFile, is_trusted, make_weights_folder, weights_folder
from genpr.images.archive import DAMAGE
from genpr.images.item import printable
from genpr.limits import ARCHIVED_PARSED_BYTES, parse_json
from genpr.storage import atomic_path, open_regular

if TYPE_CHECKING:
    from torch import Tensor

_CHECKPOINT, _SAFETENSORS = "PyTorch checkpoint", "safetensors file"
_FORMATS = {".pth": _CHECKPOINT, ".pt": _CHECKPOINT, ".bin": _CHECKPOINT, ".safetensors": _SAFETENSORS}
_OLD_CHECKPOINT = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."  # how torch.save began files before 1.6
_LONGEST_HEADER = 100_000_000  # safetensors' own limit


def format_of(entry: WeightsFile) -> str:
    """Which format the file name promises.

    Raises:
        WeightsError: One that genpr does not read ("unsafe-format").
    """
    suffix = PurePosixPath(entry.name).suffix.lower()
    if suffix not in _FORMATS:
        raise WeightsError(
            f"weights are read from {', '.join(_FORMATS)} files only, not from {entry.name}: other formats may "
            "run code or are unknown",
            code="unsafe-format",
        )
    return _FORMATS[suffix]


def check_format(entry: WeightsFile, file: BufferedIOBase, source: object) -> None:
    """Refuse a file that is not of the form its name promises, such as a web page, without deserializing it.

    Args:
        entry: What it should be.
        file: Its bytes.
        source: Where they come from, for the message.

    Raises:
        WeightsError: It is of another form or cut short ("weights-format"), or a program ("unsafe-format").
    """
    kind = format_of(entry)
    file.seek(0)
    head = file.read(len(_OLD_CHECKPOINT))
    if kind == _SAFETENSORS:
        is_right = _is_safetensors(file)
    elif head == _OLD_CHECKPOINT:
        is_right = True
    else:
        names = _names_in_archive(file)
        if any(name.endswith("/constants.pkl") for name in names):
            raise WeightsError(
                f"{source} is a TorchScript archive, a program and not only weights; genpr does not run it. Save "
                "its state_dict() with torch.save or safetensors instead",
                code="unsafe-format",
                path=str(source),
            )
        is_right = any(name.endswith("/data.pkl") for name in names)
    if not is_right:
        raise WeightsError(
            f"{source} is no {kind}, or is cut short: it begins with {head!r}; a proxy or login page may have "
            "been saved in its place",
            code="weights-format",
            path=str(source),
        )


def read_tensors(entry: WeightsFile, file: io.BytesIO, source: object) -> dict[str, Tensor]:
    """The tensors in `file`, on the CPU; no code of the file runs.

    Raises:
        WeightsError: It needs code to be run ("unsafe-format") or holds anything but named tensors ("weights-format").
    """
    import torch

    check_format(entry, file, source)
    file.seek(0)
    try:
        if format_of(entry) == _SAFETENSORS:
            from safetensors.torch import load

            tensors: object = load(file.getvalue())
        else:
            tensors = torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise _refused(source, error) from error
    except Exception as error:  # a damaged file can fail anywhere inside the readers
        raise WeightsError(
            f"{source} cannot be read ({' '.join(str(error).split())})",
            code="weights-format",
            path=str(source),
        ) from error
    if not isinstance(tensors, dict) or not all(
        isinstance(value, torch.Tensor) for value in tensors.values()
    ):
        raise WeightsError(
            f"{source} holds something else than named tensors", code="weights-format", path=str(source)
        )
    return tensors


def _refused(source: object, error: pickle.UnpicklingError) -> WeightsError:
    named = re.search(r"GLOBAL (\S+)", str(error))  # the rest of torch's message advises to trust the file
    if named is None:
        return WeightsError(
            f"{source} is damaged: it is no pickle of tensors", code="weights-format", path=str(source)
        )
    return WeightsError(
        f"{source} holds more than tensors: it asks for {printable(named[1])} to be called. Nothing of it was run or used; "
        "weights from a trustworthy source need no code",
        code="unsafe-format",
        path=str(source),
    )


def _names_in_archive(file: BufferedIOBase) -> list[str]:
    try:
        with zipfile.ZipFile(file) as archive:
            return archive.namelist()
    except (*DAMAGE, OSError):
        return []


def _is_safetensors(file: BufferedIOBase) -> bool:
    """Whether the header is one, and the data end where it says."""
    size = file.seek(0, 2)
    file.seek(0)
    length = int.from_bytes(file.read(8), "little")
    if not 2 <= length <= min(size - 8, _LONGEST_HEADER):
        return False
    try:
        header = parse_json(file.read(length), most=ARCHIVED_PARSED_BYTES)
        ends = [item["data_offsets"][1] for name, item in header.items() if name != "__metadata__"]
        return bool(size == 8 + length + max(ends, default=0))
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError):
        return False


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
        license: Of the weights.
        used_by: Names of extractors.
        pinned: What the file was held to at its first use.
        announced: Whether the server, or Hugging Face's cache, named this very digest beforehand.
        date: Day of the first use, in UTC.
    """

    name: str
    url: str
    size: int
    sha256: str
    license: str
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
            license=self.license,
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
    with _locked(entry):
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
        license=entry.license,
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
def _locked(entry: WeightsFile) -> Iterator[None]:
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
        record.license,
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
