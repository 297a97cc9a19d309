"""Verification of weights files: their sha256, and their format, before anything of them is used.

A file with a published sha256 must have it. The sha256 of any other must begin with its published prefix, and the file must
have its published length and look like weights.

Two formats are read: PyTorch checkpoints, by their tensors alone, and safetensors. Neither can run code here: checkpoints
are read by torch's restricted unpickler, which builds tensors and refuses everything else. TorchScript archives hold
programs and are refused.
"""

from __future__ import annotations

import hashlib
import io
import pickle
import re
import zipfile
from io import BufferedIOBase
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from genpr.errors import WeightsError
from genpr.features.weights.known import WeightsFile
from genpr.images.archive import DAMAGE
from genpr.images.item import printable
from genpr.limits import ARCHIVED_PARSED_BYTES, parse_json

if TYPE_CHECKING:
    from torch import Tensor

_CHECKPOINT, _SAFETENSORS = "PyTorch checkpoint", "safetensors file"
_FORMATS = {".pth": _CHECKPOINT, ".pt": _CHECKPOINT, ".bin": _CHECKPOINT, ".safetensors": _SAFETENSORS}
_OLD_CHECKPOINT = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."  # how torch.save began files before 1.6
_LONGEST_HEADER = 100_000_000  # safetensors' own limit


def check_content(entry: WeightsFile, file: BufferedIOBase, source: object, *, hint: str) -> str:
    """Hash `file`, and refuse it unless it is `entry`.

    Args:
        entry: What it should be.
        file: Its bytes, from which what is accepted must then be read.
        source: Where they come from, for messages.
        hint: The likely cause of a refusal.

    Returns:
        The sha256 of the file.

    Raises:
        WeightsError: It is another file ("weights-hash"), or not of a form that genpr reads.
    """
    file.seek(0)
    digest = hashlib.file_digest(file, "sha256").hexdigest()
    size = file.seek(0, 2)
    if not digest.startswith(entry.sha256 or entry.sha256_prefix or "") or entry.size not in {None, size}:
        raise WeightsError(
            f"{source} is not {entry.name}: expected {entry.identity}, got {digest} ({size:,} bytes); {hint}",
            code="weights-hash",
            path=str(source),
        )
    if entry.sha256 is None:
        check_format(entry, file, source)
    return digest


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
