"""Atomic writes, safetensors files with checksums, and `from_dict`, the inverse of `dataclasses.asdict`.

Loading safetensors cannot execute code, but does not detect changed bits. So the header of every file written here contains the
sha256 of the other metadata and all tensors.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import json
import math
import os
import re
import stat
import tempfile
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin, get_type_hints

from genpr.errors import DataError, ResourceError, UsageError
from genpr.memory import fits

if TYPE_CHECKING:
    from torch import Tensor

CHECKSUM = "genpr.sha256"
_MAX_NAME_BYTES = 200  # of the name in a temporary name, of the usual 255
_MAX_SHOWN = 100
_HEAD_BYTES = 2**16
_KINDS = {"torch.float64": "F64", "torch.float32": "F32", "torch.float16": "F16", "torch.bfloat16": "BF16"}
_KINDS |= {"torch.int64": "I64", "torch.int32": "I32", "torch.int16": "I16", "torch.int8": "I8"}
_KINDS |= {"torch.uint8": "U8", "torch.bool": "BOOL"}
_unfinished: set[Path] = set()


def open_regular(path: Path) -> io.BufferedReader:
    """Open a file for reading, and refuse pipes, sockets and devices, which may block.

    A file of size 0 is read as empty, because some files in /proc wait for events.
    """
    if not stat.S_ISREG(path.stat().st_mode):  # before it is opened, since opening may change a device
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    # Without waiting for a writer if the path is a pipe now.
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    status = os.fstat(file.fileno())
    if stat.S_ISREG(status.st_mode) and status.st_size:
        return file
    file.close()
    if not stat.S_ISREG(status.st_mode):  # it was replaced in between
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return Path(os.devnull).open("rb")


def sha256_of_file(path: Path) -> str:
    """Hex sha256 of a file's bytes."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """A temporary path in the folder of `path`, which replaces `path`, but not the target of a link, if the block succeeds."""
    path = Path(os.path.realpath(path.parent), path.name)
    if path.exists() and not path.is_file():
        raise OSError(
            errno.EEXIST, "the path exists and is not a regular file, so it is not replaced", str(path)
        )
    kept = os.fsencode(path.name)[:_MAX_NAME_BYTES].decode("utf-8", "ignore")
    handle, name = tempfile.mkstemp(prefix=f".{kept}.", suffix=".tmp", dir=path.parent)
    os.close(handle)
    temporary = Path(name)
    _unfinished.add(temporary)
    try:
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~umask)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
        _unfinished.discard(temporary)


def replace_file(path: Path, content: str | bytes) -> None:
    """Write a file atomically; text is encoded as UTF-8."""
    with report_write_errors(path), atomic_path(path) as temporary:
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)


def remove_temporaries(folder: Path, names: str) -> None:
    """Remove temporary files of `atomic_path` in `folder`, left by killed processes, for names that match a regex."""
    for path in folder.iterdir() if folder.is_dir() else ():
        if re.fullmatch(rf"\.(?:{names})\.[^.]+\.tmp", path.name, re.DOTALL):
            path.unlink(missing_ok=True)


def remove_unfinished() -> None:
    """Remove unfinished files before this process ends."""
    for temporary in list(_unfinished):
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def exclusive_lock(path: Path, *, busy: str) -> Any:  # noqa: ANN401 - filelock's classes differ between systems
    """Acquire a lock file, to be used in a `with` statement; the lock is released when the process ends."""
    from filelock import FileLock, Timeout

    try:
        return FileLock(str(path), timeout=0).acquire()
    except Timeout as error:
        raise ResourceError(busy, code="locked", path=str(path.parent)) from error
    except (OSError, NotImplementedError) as error:  # a file system without locks
        raise _unwritable(path, error) from error


def check_output(
    path: Path,
    suffixes: Sequence[str],
    is_own: Callable[[Path], bool],
    *,
    inputs: Iterable[str | os.PathLike[str]] = (),
    overwrite: bool = False,
) -> None:
    """Refuse a path for an output before its content is computed. All outputs of commands and functions pass it.

    An existing file is replaced only if `is_own` recognizes it as written by genpr, for the same output, and if it is not
    write-protected; any file is replaced with `overwrite`.
    """
    if suffixes and path.suffix.lower() not in suffixes:
        text = f"{path} must be a name that ends in {' or '.join(suffixes)}, the format of this output"
        raise UsageError(text, code="output-suffix", path=str(path))
    check_place(path, inputs)
    if not path.parent.is_dir():
        text = (
            f"{path.parent} is a file" if path.parent.exists() else f"the folder {path.parent} does not exist"
        )
        text += "; create the folder, or choose another one"
        raise UsageError(text, code="path-not-found", path=str(path.parent))
    if not os.access(path.parent, os.W_OK | os.X_OK):
        text = f"the folder {path.parent} cannot be written to; change its permissions, or choose another one"
        raise UsageError(text, code="unwritable", path=str(path.parent))
    if overwrite or not path.exists():
        return
    reason = "exists, and is no earlier version of this output"
    if not path.stat().st_mode & 0o222:  # os.access would permit everything to root
        reason = "is write-protected"
    else:
        with contextlib.suppress(OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
            if is_own(path):
                return
    text = f"{path} {reason}; choose another file, or replace it with --overwrite (overwrite=True in Python)"
    raise UsageError(text, code="output-exists", path=str(path))


def check_place(path: Path, inputs: Iterable[str | os.PathLike[str]] = ()) -> None:
    """Refuse an output that is a folder, a device or a link, that is one of the inputs, or that lies in one."""
    try:
        is_link = path.is_symlink()
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        text = f"the name {str(path)[:_MAX_SHOWN]}... is too long for the file system; choose a shorter one"
        raise UsageError(text, code="bad-path", path=str(path)) from error
    if path.is_dir():
        raise UsageError(f"{path} is a folder; give the path of a file", code="is-a-folder", path=str(path))
    if path.exists() and not path.is_file():  # a file would replace /dev/null for all users
        raise UsageError(f"{path} is a device or a pipe", code="not-a-file", path=str(path))
    if is_link:
        text = f"{path} is a symbolic link, and outputs follow none; give the path that it leads to, or remove it"
        raise UsageError(text, code="output-is-link", path=str(path))
    check_outside(path, inputs)


def check_outside(path: Path, inputs: Iterable[str | os.PathLike[str]]) -> None:
    """Refuse an output that is one of the inputs, also under another name, or lies in one."""
    known: dict[object, str | os.PathLike[str]] = {_identity(each): each for each in inputs}
    known.pop(None, None)  # what is no path, or does not exist
    resolved = Path(os.path.realpath(path))
    for place in (resolved, *resolved.parents):
        if (given := known.get(_identity(place))) is not None:
            verb = "is" if place is resolved else "lies in"
            text = f"{path} {verb} the input {os.fspath(given)}; write outputs to another place"
            raise UsageError(text, code="output-is-input", path=str(path))


def _identity(path: str | os.PathLike[str]) -> tuple[int, int] | None:
    """Device and inode of a file, equal for all of its names."""
    with contextlib.suppress(OSError, ValueError):
        status = os.stat(path)  # noqa: PTH116 - a text, which may contain a NUL
        return status.st_dev, status.st_ino
    return None


def marked_by(matches: Callable[[bytes], object]) -> Callable[[Path], bool]:
    """A function that recognizes a file by its first bytes; `matches` checks all up to the mark, which others may quote."""

    def is_marked(path: Path) -> bool:
        with open_regular(path) as file:
            return bool(matches(file.read(_HEAD_BYTES)))

    return is_marked


def check_feature_file(
    path: Path, place: str, *, inputs: Iterable[str | os.PathLike[str]] = (), overwrite: bool = False
) -> None:
    """`check_output` for features of the source with the `place_of` `place`; those of another source are kept."""

    def is_of_source(other: Path) -> bool:
        return place_in(other) == place

    check_output(path, (".safetensors",), is_of_source, inputs=inputs, overwrite=overwrite)


def place_in(path: Path) -> str | None:
    """The `place_of` the embedded source that a feature file of genpr records; None for other safetensors files."""
    facts, _ = read_header(path)
    return json.loads(facts["place"]) if facts.get("format", "").startswith("genpr.features/") else None


def place_of(source: str) -> str:
    """Hex sha256 of the absolute path of a source, equal for all of its spellings; it names no folder of the user."""
    return hashlib.sha256(os.fsencode(os.path.realpath(source))).hexdigest()


@contextmanager
def report_write_errors(path: Path) -> Iterator[None]:
    """Convert errors of writing in the block to a `ResourceError` ("unwritable")."""
    try:
        yield
    except OSError as error:
        raise _unwritable(path, error) from error


def _unwritable(path: Path, error: Exception) -> ResourceError:
    reason = getattr(error, "strerror", None) or error
    remedy = "check free space and the permissions of its folder"
    if isinstance(error, FileNotFoundError):
        remedy = "check that its folder still exists"
    text = f"{path} cannot be written ({reason}); {remedy}"
    return ResourceError(text, code="unwritable", path=str(path))


def save_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Write CPU tensors and text metadata to `path` (safetensors), atomically and with a checksum inside."""
    import torch

    contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    # Larger elements first, as in the library, so that each tensor is aligned.
    ordered = sorted(contiguous, key=lambda name: (-contiguous[name].element_size(), name))
    described: dict[str, object] = {
        "__metadata__": dict(sorted({**metadata, CHECKSUM: tensors_sha256(contiguous, metadata)}.items()))
    }
    end = 0
    for name in ordered:
        tensor, start = contiguous[name], end
        end += tensor.numel() * tensor.element_size()
        kind = _KINDS[str(tensor.dtype)]
        described[name] = {"dtype": kind, "shape": list(tensor.shape), "data_offsets": [start, end]}
    header = json.dumps(described, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    with report_write_errors(path), atomic_path(path) as temporary, temporary.open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        for name in ordered:
            file.write(contiguous[name].flatten().view(torch.uint8).numpy().data)


def load_tensors(
    path: Path, *, require_checksum: bool = True, into: Mapping[str, Tensor] | None = None
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read tensors and metadata that `save_tensors` wrote; tensors in `into` are filled, and those too large for memory mapped."""
    places: Mapping[str, Tensor] = into or {}
    tensors: dict[str, Tensor] = {}
    with opened_tensors(path) as file:
        metadata = dict(file.metadata() or {})
        is_small = fits(path.stat().st_size)
        for name in file.keys():  # noqa: SIM118 - not a dict
            mapped = file.get_tensor(name)
            if name in places:
                place = places[name]
                if (place.shape, place.dtype) != (mapped.shape, mapped.dtype):
                    stored = f"{mapped.dtype} {tuple(mapped.shape)}"
                    raise ValueError(f"{name!r} is {stored} instead of {place.dtype} {tuple(place.shape)}")
                tensors[name] = place.copy_(mapped)
            else:
                tensors[name] = mapped.clone() if is_small else mapped
    expected = metadata.pop(CHECKSUM, None)
    if expected is None and not require_checksum:
        return tensors, metadata
    if expected != tensors_sha256(tensors, metadata):
        text = f"{path} does not match its own checksum; it was damaged or changed after it was written"
        raise DataError(text, code="file-damaged", path=str(path))
    return tensors, metadata


def read_header(path: Path) -> tuple[dict[str, str], dict[str, tuple[int, ...]]]:
    """The text metadata, without the checksum, and the shapes of the tensors, which are not read."""
    with opened_tensors(path, "numpy") as file:  # does not import torch
        shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
        metadata = {name: text for name, text in (file.metadata() or {}).items() if name != CHECKSUM}
        return metadata, shapes


@contextmanager
def opened_tensors(path: Path, framework: str = "pt") -> Iterator[Any]:
    """The object of `safetensors.safe_open`, which maps tensors; errors in the block are a `DataError` ("file-damaged")."""
    from safetensors import SafetensorError, safe_open

    try:
        open_regular(path).close()  # the library would wait for the writer of a pipe
        with safe_open(path, framework) as file:
            yield file
    except (SafetensorError, OSError, RuntimeError, ValueError) as error:
        reason = os.strerror(errno.EMFILE)
        if reason in str(error):  # may be a RuntimeError of the library; the file may be intact
            raise OSError(errno.EMFILE, reason, str(path)) from error
        if isinstance(error, RuntimeError):
            raise
        text = (
            f"{path} is not a readable safetensors file ({error}); check that it is complete and not renamed"
        )
        raise DataError(text, code="file-damaged", path=str(path)) from error


def tensors_sha256(tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> str:
    """Hex sha256 over metadata, and names, dtypes, shapes and bytes of `tensors`, in name order."""
    import torch

    digest = hashlib.sha256(json.dumps(dict(metadata or {}), sort_keys=True).encode())
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def from_dict(kind: Any, record: Any) -> Any:  # noqa: ANN401 - as many types as there are records
    """A value of the type `kind` from its JSON form, as given by `dataclasses.asdict`."""
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        if record is None and type(None) in get_args(kind):
            return None
        (other,) = [each for each in get_args(kind) if each is not type(None)]
        return from_dict(other, record)
    if is_dataclass(kind):
        if not isinstance(record, Mapping):
            raise TypeError(f"{record!r} is not an object")
        hints = get_type_hints(kind)
        made: Any = kind
        known = [field.name for field in fields(kind) if field.name in record]
        return made(**{name: from_dict(hints[name], record[name]) for name in known})
    if origin is Literal:
        if record not in get_args(kind):
            raise TypeError(f"{record!r} is not one of {get_args(kind)}")
        return record
    if origin is tuple:
        if not isinstance(record, list | tuple):
            raise TypeError(f"{record!r} is not a list")
        first, *more = get_args(kind)
        kinds = [first] * len(record) if more == [Ellipsis] else [first, *more]
        return tuple(from_dict(each, value) for each, value in zip(kinds, record, strict=True))
    if origin is not None and issubclass(origin, Mapping):
        if not isinstance(record, Mapping):
            raise TypeError(f"{record!r} is not an object")
        _, of_values = get_args(kind)
        return {str(key): from_dict(of_values, value) for key, value in record.items()}
    # JSON does not distinguish 1 from 1.0, and a bool is not a number.
    accepted = (int, float) if kind is float else kind
    if not isinstance(record, accepted) or (kind in (int, float) and isinstance(record, bool)):
        raise TypeError(f"{record!r} is not of type {kind.__name__}")
    if isinstance(record, int) and not -(2**63) <= record < 2**63:
        raise ValueError("a number has more than 64 bits")
    if isinstance(record, float) and not math.isfinite(record):
        raise ValueError(f"{record} is not a finite number")
    return float(record) if kind is float else record
