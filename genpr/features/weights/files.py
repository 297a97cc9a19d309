"""Published weight files: found on this machine or downloaded, and verified before anything of them is used.

A file is used only if the sha256 of all its bytes is the published one, as far as one is published, at every load and not
just after a download; only then is it deserialized, and never with code execution (`genpr.features.weights.verify`). There is
no fallback to other weights.
"""

from __future__ import annotations

import io
import os
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from genpr.errors import ResourceError, UsageError, WeightsError
from genpr.features.weights.known import (
    Progress,
    WeightsFile,
    is_trusted,
    make_weights_folder,
    sha256_of_blob,
    shared_copy,
    weights_folder,
)
from genpr.features.weights.verify import check_content, format_of, read_tensors
from genpr.runtime import expanded, is_offline
from genpr.storage import atomic_path, open_regular, sha256_of_file

if TYPE_CHECKING:
    from torch import Tensor


_TIMEOUT_S = 5.0  # to connect, and between two pieces of a download
_PAUSES_S = (1.0, 4.0)  # before the second and the third attempt
_DAMAGED = "it was damaged or replaced; delete it to download it again"


def find_or_fetch(
    entry: WeightsFile,
    *,
    weights: Path | str | None = None,
    offline: bool = False,
    progress: Progress | None = None,
) -> Path:
    """Find verified weights on this machine, or download them.

    Searched in this order: the explicit path, genpr's cache, the cache of torch.hub or Hugging Face, the network.

    Args:
        entry: Which file.
        weights: A file given by the user; it must be exactly the published one.
        offline: Never use the network; GENPR_OFFLINE=1 and HF_HUB_OFFLINE=1 say the same.
        progress: Called as a download proceeds.

    Returns:
        Path of a file whose sha256 was just verified.

    Raises:
        UsageError: The explicit path is not a file.
        WeightsError: The weights are missing ("weights-missing"), not the published ones ("weights-hash"), or of a form that genpr does not read ("unsafe-format", "weights-format").
    """
    format_of(entry)
    if weights is not None:
        return _explicit(entry, expanded(weights))
    own = weights_folder() / entry.name
    if own.is_file():
        if entry.sha256 is None and not is_trusted(own):  # nothing but its place says what it is
            raise _untrusted(own)
        verify_file(entry, own)
        return own
    if (shared := _usable_shared_copy(entry)) is not None:
        return shared
    is_hub_offline = os.environ.get("HF_HUB_OFFLINE", "").lower() in {"1", "true", "yes", "on"}
    if is_offline(offline) or is_hub_offline:
        raise _missing(entry, "downloads are switched off (--offline, GENPR_OFFLINE=1 or HF_HUB_OFFLINE=1)")
    return _fetch(entry, own, progress)


class Weights(NamedTuple):
    """Verified weights.

    Attributes:
        tensors: By name, on the CPU.
        sha256: Of their file.
        is_published: Whether they are of a published file, and not of one that only the user knows.
    """

    tensors: dict[str, Tensor]
    sha256: str
    is_published: bool = True


def load_weights(entry: WeightsFile, path: Path) -> Weights:
    """Read the tensors of a weights file, after checking the very bytes that are then read.

    The file is read once, into one buffer that is hashed and then deserialized, so that it cannot be exchanged
    in between. While the tensors are built, memory holds the file twice; the buffer is then freed.

    Raises:
        WeightsError: The file is another one ("weights-hash"), and nothing of it was deserialized; or it holds
            something else than tensors ("unsafe-format", "weights-format").
    """
    try:
        with open_regular(path) as opened:
            file = io.BytesIO(opened.read())
    except OSError as error:
        raise _unreadable(path, error) from error
    sha256 = check_content(entry, file, path, hint="it changed while it was being loaded")
    return Weights(read_tensors(entry, file, path), sha256)


def load_any_weights(
    published: Sequence[WeightsFile],
    *,
    weights: Path | None = None,
    offline: bool = False,
    progress: Progress | None = None,
) -> Weights:
    """The weights of a model that is published as one of several files.

    Args:
        published: The files; the first one that can be had is taken, of those on this machine if there are any.
        weights: A file given by the user, who alone knows what it is; or a folder that may hold one of the published files.
        offline: As in `find_or_fetch`.
        progress: As in `find_or_fetch`.

    Raises:
        UsageError: The file that was given is not there.
        WeightsError: None can be had.
    """
    if weights is not None and weights.is_dir():
        for entry in published:
            if (weights / entry.name).is_file():
                return load_weights(entry, find_or_fetch(entry, weights=weights / entry.name))
    elif weights is not None:
        return _load_own(expanded(weights))
    cached = [entry for entry in published if is_cached(entry)]
    *alternatives, last = cached[:1] or published
    for entry in alternatives:
        try:
            return load_weights(entry, find_or_fetch(entry, offline=offline, progress=progress))
        except WeightsError as error:
            if error.code != "weights-missing":
                raise
    return load_weights(last, find_or_fetch(last, offline=offline, progress=progress))


def _load_own(path: Path) -> Weights:
    if not path.is_file():
        raise UsageError(f"--weights {path} is not a file", code="path-not-found", path=str(path))
    entry = WeightsFile(name=path.name, url="", size=None, sha256=sha256_of_file(path), license="unknown")
    return load_weights(entry, path)._replace(is_published=False)


def verify_file(entry: WeightsFile, path: Path, *, hint: str = _DAMAGED) -> str:
    """Hash the file at `path` and return its sha256.

    Args:
        entry: What it should be.
        path: The file.
        hint: The likely cause of a refusal.

    Raises:
        WeightsError: It is not `entry`, or cannot be read.
    """
    try:
        with open_regular(path) as file:
            return check_content(entry, file, path, hint=hint)
    except OSError as error:
        raise _unreadable(path, error) from error


def known_files() -> tuple[WeightsFile, ...]:
    """The files that genpr can fetch by name."""
    from genpr.features.weights import known  # as it is now: programs may add to it

    return known.KNOWN_WEIGHTS


def cached_path(entry: WeightsFile) -> Path | None:
    """A file of the right name and size on this machine; its content is checked when it is loaded."""
    for path in (weights_folder() / entry.name, shared_copy(entry)):
        if path.is_file() and entry.size in {None, path.stat().st_size}:
            return path
    return None


def is_cached(entry: WeightsFile) -> bool:
    """Whether there is a `cached_path`."""
    return cached_path(entry) is not None


def _explicit(entry: WeightsFile, path: Path) -> Path:
    if not path.is_file():
        raise UsageError(
            f"--weights {path} is not a file; it must be {entry.name}", code="path-not-found", path=str(path)
        )
    hint = (
        f"other weights would give scores that are not {entry.name}'s; "
        "use them through a custom extractor (--extractor path/to/file.py:factory)"
    )
    verify_file(entry, path, hint=hint)
    return path


def _usable_shared_copy(entry: WeightsFile) -> Path | None:
    """The copy of torch.hub or Hugging Face, if there is one and it is the right file."""
    path = shared_copy(entry)
    if not path.is_file() or entry.size not in {None, path.stat().st_size}:
        return None
    try:
        digest = verify_file(entry, path)
    except WeightsError:
        return None  # it is not genpr's to complain about: a good one is downloaded instead
    return path if sha256_of_blob(path) in {None, digest} else None


def _fetch(entry: WeightsFile, target: Path, progress: Progress | None) -> Path:
    from filelock import FileLock

    folder = make_weights_folder()
    try:
        with FileLock(str(folder / f".{entry.name}.lock")):
            if target.is_file():  # another process fetched it while this one waited
                verify_file(entry, target)
                return target
            _remove_partial(folder, entry)
            with atomic_path(target) as temporary:
                _download(entry, temporary, progress)
    except (OSError, NotImplementedError) as error:  # the latter of a file system without locks
        reason = getattr(error, "strerror", None) or error
        raise ResourceError(
            f"cannot write {target} ({reason}); set GENPR_CACHE to a folder you can write",
            code="cache-unusable",
            path=str(target),
        ) from error
    return target


def _remove_partial(folder: Path, entry: WeightsFile) -> None:
    """Remove what a killed process left; the caller must hold the lock of `entry`."""
    for path in folder.iterdir():
        if re.fullmatch(rf"\.{re.escape(entry.name)}\.[^.]+\.tmp", path.name):
            path.unlink(missing_ok=True)


def _download(entry: WeightsFile, path: Path, progress: Progress | None) -> None:
    """Put `entry` into `path`, trying again after a pause where a server is busy or the connection breaks."""
    from genpr.features.weights.download import DownloadError, download

    for pause_s in (*_PAUSES_S, None):
        try:
            received = download(entry.url, path, size=entry.size, progress=progress, timeout_s=_TIMEOUT_S)
            break
        except DownloadError as error:
            if pause_s is None or not error.may_pass:
                raise _missing(entry, f"the download failed ({error})") from error
            time.sleep(pause_s)
    came = f"{received:,}"
    if entry.size is not None:
        came = f"{came} of {entry.size:,}" if received <= entry.size else f"more than {entry.size:,}"
    hint = f"{came} bytes came; a proxy or login page may have answered, nothing was kept"
    with path.open("rb") as file:
        check_content(entry, file, entry.url, hint=hint)


def _missing(entry: WeightsFile, reason: str) -> WeightsError:
    target = weights_folder() / entry.name
    return WeightsError(
        f"the weights {entry.name} are not on this machine and {reason}; get {entry.url} ({entry.identity}) and put it "
        f"at {target} or pass --weights PATH. Without weights: `genpr demo`, or, of images alone, --extractor gabor (not "
        "comparable with published numbers)",
        code="weights-missing",
        path=str(target),
    )


def _untrusted(path: Path) -> WeightsError:
    return WeightsError(
        f"the weights {path} have no published sha256, and other users can write to this file or to its folder; remove the "
        "file, or run chmod go-w on the folder if you trust it",
        code="weights-foreign",
        path=str(path),
    )


def _unreadable(path: Path, error: OSError) -> WeightsError:
    return WeightsError(
        f"the weights {path} cannot be read ({error.strerror or error})",
        code="weights-unreadable",
        path=str(path),
    )
