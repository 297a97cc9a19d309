"""Published weight files: where they come from, where they lie, and the proof that they are what they claim.

A file is used only if the sha256 of all its bytes equals the registered one, at every load and not just after
a download; only then is it deserialised, and never with code execution. There is no fallback to other weights.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from genpr.errors import UsageError, WeightsError
from genpr.runtime import cache_root, is_offline, private_folder
from genpr.storage import atomic_path, sha256_of_file

if TYPE_CHECKING:
    from torch import Tensor

Progress = Callable[[int, int], None]
"""Called with the bytes received so far and the bytes expected in all."""

_TIMEOUT_S = 5.0  # to connect, and between two pieces of a download
_PIECE_BYTES = 2**20


@dataclass(frozen=True)
class WeightsFile:
    """One published file of weights.

    Attributes:
        name: File name, the same wherever it is stored.
        url: Where it is published.
        size: Length in bytes.
        sha256: Hex digest of all its bytes.
        licence: SPDX identifier of the weights.
    """

    name: str
    url: str
    size: int
    sha256: str
    licence: str


INCEPTION_2015 = WeightsFile(
    name="pt_inception-2015-12-05-6726825d.pth",
    url=(
        "https://github.com/mseitzer/pytorch-fid/releases/download/fid_weights/"
        "pt_inception-2015-12-05-6726825d.pth"
    ),
    size=95_628_359,
    sha256="6726825d0af5f729cebd5821db510b11b1cfad8faad88a03f1befd49fb9129b2",
    licence="Apache-2.0",
)


def find_or_fetch(
    entry: WeightsFile,
    *,
    weights: Path | str | None = None,
    offline: bool = False,
    progress: Progress | None = None,
) -> Path:
    """Find verified weights on this machine, or download them.

    Looked at in this order: the explicit path, genpr's cache, torch.hub's cache, the network.

    Args:
        entry: What is wanted.
        weights: A file given by the user; it must be exactly the registered one.
        offline: Never use the network; GENPR_OFFLINE=1 says the same.
        progress: Told how a download is going.

    Returns:
        Path of a file whose sha256 was just verified.

    Raises:
        UsageError: The explicit path is not a file.
        WeightsError: The weights are missing ("weights-missing") or not the registered ones ("weights-hash").
    """
    if weights is not None:
        return _explicit(entry, Path(weights).expanduser())
    cached = weights_folder() / entry.name
    if cached.is_file():
        _verify(entry, cached, hint="it was damaged or replaced; delete it to download it again")
        return cached
    shared = _torch_hub_folder() / entry.name
    if _has_size(shared, entry) and sha256_of_file(shared) == entry.sha256:
        return shared
    if is_offline(offline):
        raise _missing(entry, "downloads are switched off (--offline or GENPR_OFFLINE=1)")
    return _fetch(entry, cached, progress)


def load_state_dict(entry: WeightsFile, path: Path) -> dict[str, Tensor]:
    """Read the tensors of a weights file, on the CPU, after checking the very bytes that are then read.

    Raises:
        WeightsError: The file is not the registered one ("weights-hash"); nothing of it was deserialised.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise _unreadable(path, error) from error
    digest = hashlib.sha256(data).hexdigest()
    if digest != entry.sha256:
        raise _mismatch(entry, path, digest, hint="it changed while it was being loaded")

    import torch

    tensors: dict[str, Tensor] = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    return tensors


def is_cached(entry: WeightsFile) -> bool:
    """Whether a file of the right name and size lies on this machine; its content is checked when it is loaded."""
    return any(_has_size(folder / entry.name, entry) for folder in (weights_folder(), _torch_hub_folder()))


def weights_folder() -> Path:
    """Folder of downloaded weights; it need not exist yet."""
    return cache_root() / "weights"


def _torch_hub_folder() -> Path:
    home = os.environ.get("TORCH_HOME")
    if not home:
        home = str(Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "torch")
    return Path(home).expanduser() / "hub" / "checkpoints"


def _explicit(entry: WeightsFile, path: Path) -> Path:
    if not path.is_file():
        raise UsageError(
            f"--weights {path} is not a file; it must be {entry.name}", code="path-not-found", path=str(path)
        )
    hint = (
        f"other weights would give scores that are not {entry.name}'s; "
        "use them through a custom extractor (--extractor path/to/file.py:factory)"
    )
    _verify(entry, path, hint=hint)
    return path


def _fetch(entry: WeightsFile, target: Path, progress: Progress | None) -> Path:
    from filelock import FileLock

    private_folder(cache_root())
    folder = private_folder(target.parent)
    with FileLock(str(folder / f".{entry.name}.lock")):
        if not target.is_file():  # another process may have fetched it while this one waited
            with atomic_path(target) as temporary:
                _download(entry, temporary, progress)
        _verify(entry, target, hint="it was damaged or replaced; delete it to download it again")
    return target


def _download(entry: WeightsFile, path: Path, progress: Progress | None) -> None:
    """Stream `entry.url` into `path`; raise unless what arrived is the registered file."""
    from http.client import HTTPException
    from urllib.error import HTTPError, URLError
    from urllib.request import urlopen

    digest, received = hashlib.sha256(), 0
    try:
        with urlopen(entry.url, timeout=_TIMEOUT_S) as response, path.open("wb") as file:
            # One byte more than expected is read at most: a wrong answer must not fill the disk.
            while piece := response.read(min(_PIECE_BYTES, entry.size + 1 - received)):
                digest.update(piece)
                file.write(piece)
                received += len(piece)
                if progress is not None:
                    progress(received, entry.size)
    except (OSError, HTTPException) as error:
        reason: object = error
        if isinstance(error, HTTPError):
            error.close()  # it is also the server's answer, and holds the connection
        elif isinstance(error, URLError):
            reason = error.reason
        raise _missing(entry, f"the download failed ({reason})") from error
    if digest.hexdigest() != entry.sha256:
        length = f"more than {entry.size:,}" if received > entry.size else f"{received:,} of {entry.size:,}"
        hint = f"{length} bytes came; a proxy or login page may have answered, nothing was kept"
        raise _mismatch(entry, entry.url, digest.hexdigest(), hint=hint)


def _verify(entry: WeightsFile, path: Path, *, hint: str) -> None:
    try:
        digest = sha256_of_file(path)
    except OSError as error:
        raise _unreadable(path, error) from error
    if digest != entry.sha256:
        raise _mismatch(entry, path, digest, hint=hint)


def _has_size(path: Path, entry: WeightsFile) -> bool:
    return path.is_file() and path.stat().st_size == entry.size


def _missing(entry: WeightsFile, reason: str) -> WeightsError:
    return WeightsError(
        f"the weights {entry.name} are not on this machine and {reason}; get {entry.url} "
        f"({entry.size:,} bytes, sha256 {entry.sha256}) and put it into {weights_folder()} or pass "
        "--weights PATH. Without weights: `genpr demo`, or --extractor gabor (not comparable with published "
        "numbers)",
        code="weights-missing",
        path=str(weights_folder() / entry.name),
    )


def _mismatch(entry: WeightsFile, source: Path | str, got: str, *, hint: str) -> WeightsError:
    return WeightsError(
        f"{source} is not {entry.name}: expected sha256 {entry.sha256}, got {got}; {hint}",
        code="weights-hash",
        path=str(source),
    )


def _unreadable(path: Path, error: OSError) -> WeightsError:
    return WeightsError(
        f"the weights {path} cannot be read ({error.strerror or error})",
        code="weights-unreadable",
        path=str(path),
    )
