"""What lies at a path: a folder, an archive, a file of arrays, or what a pattern names of these."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from genpr.errors import DataError, ResourceError, UsageError
from genpr.images.arrays import open_npy, open_npz
from genpr.images.file_list import STDIN, Communicator, ListSource, open_list, open_stdin_list
from genpr.images.folder import open_folder
from genpr.images.item import IMAGE_SUFFIXES, ImageSource, printable, suffix_of
from genpr.images.joined import joined
from genpr.images.parquet import open_parquet
from genpr.images.parquet_folder import open_parquet_files, parquet_files
from genpr.images.patterns import expand, split_choice
from genpr.images.saved_dataset import is_saved_dataset, open_arrow, open_saved_dataset
from genpr.images.tar_archive import open_tar
from genpr.images.zip_archive import open_zip

_FILE_READERS: tuple[tuple[tuple[str, ...], Callable[[Path, str], ImageSource]], ...] = (
    ((".zip",), open_zip),
    ((".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz", ".tbz2", ".tar.xz", ".txz"), open_tar),
    ((".npz",), open_npz),
    ((".npy",), open_npy),
    ((".txt",), open_list),
)
_COLUMN_READERS: dict[str, Callable[[Path, str, str | None], ImageSource]] = {
    ".parquet": open_parquet,
    ".arrow": open_arrow,
}
_IMAGE = "image"
_UNSAFE_SUFFIXES = {".pkl", ".pickle", ".pt", ".pth"}
_FILE_SUFFIXES = ", ".join(
    [*_COLUMN_READERS, *(suffix for suffixes, _ in _FILE_READERS for suffix in suffixes)]
)
_ACCEPTED = f"a folder of images, or a file with one of {_FILE_SUFFIXES} (a list of files)"


def open_path(
    text: str, name: str, *, follow_symlinks: bool = False, communicator: Communicator | None = None
) -> ImageSource:
    """Open what lies at a path, or what a pattern of paths stands for (`genpr.images.patterns.expand`).

    Args:
        text: As the user wrote it.
        name: What to call it in messages.
        follow_symlinks: Look into folders that a folder only links to, too.
        communicator: See `genpr.images.source.open_source`.

    Raises:
        UsageError: There is nothing, or nothing that could hold images, or several kinds of things ("mixed-kinds").
        DataError: It holds no images, or is damaged.
        ResourceError: Reading it could execute code.
    """
    if text == STDIN:
        return open_stdin_list(name, communicator)
    text, choice = split_choice(text)
    several = expand(text)
    if several is None:
        return _open_one(text, name, choice, follow_symlinks=follow_symlinks)
    kinds = {_kind_of(path): path for path in reversed(several)}
    if len(kinds) > 1:
        found = ", ".join(f"{kind} ({printable(str(path))})" for kind, path in sorted(kinds.items()))
        raise UsageError(
            f"the pattern {printable(text)!r} names different kinds of things: {found}; all of one source are of one "
            "kind, so make the pattern narrower",
            code="mixed-kinds",
            path=text,
        )
    if kinds.keys() == {_IMAGE}:
        return ListSource(name, Path(), tuple(map(str, several)))
    return joined(name, several, partial(_open_part, choice=choice, follow_symlinks=follow_symlinks))


def _open_part(path: Path, *, choice: str | None, follow_symlinks: bool) -> ImageSource:
    return _open_one(str(path), str(path), choice, follow_symlinks=follow_symlinks)


def check_there(text: str) -> None:
    """Refuse a path or pattern of nothing, before anything is opened and without importing torch.

    Raises:
        UsageError: There is nothing ("path-not-found").
    """
    text, _ = split_choice(text)
    if text != STDIN and expand(text) is None and (not text or not _exists(Path(text))):
        raise _nothing_at(text)


def _nothing_at(text: str) -> UsageError:
    return UsageError(
        f"there is nothing at {printable(text)!r}; check the spelling", code="path-not-found", path=text
    )


def _open_one(text: str, name: str, choice: str | None, *, follow_symlinks: bool) -> ImageSource:
    path = Path(text)
    shown = printable(text)
    if not text or not _exists(path):
        raise _nothing_at(text)
    if path.is_dir():
        return _open_folder(path, name, choice, follow_symlinks=follow_symlinks)
    if not path.is_file():  # reading a pipe or a device may never end
        raise UsageError(
            f"{shown} is neither a folder nor a regular file; needed is {_ACCEPTED}",
            code="source-kind",
            path=text,
        )
    suffix = suffix_of(text)
    if suffix in _COLUMN_READERS:
        return _COLUMN_READERS[suffix](path, name, choice)
    if choice is not None:
        raise UsageError(
            f"{shown} has no columns, so none can be chosen with '#{printable(choice)}'",
            code="no-column",
            path=text,
        )
    if suffix in _UNSAFE_SUFFIXES:
        raise ResourceError(
            f"{shown}: {suffix} files can execute code when they are loaded, so genpr never does; save images as "
            ".npz, features as .npy or .safetensors",
            code="unsafe-format",
            path=text,
        )
    for suffixes, opener in _FILE_READERS:
        if text.lower().endswith(suffixes):
            return opener(path, name)
    kind = "a single image" if suffix in IMAGE_SUFFIXES else f"of unknown kind ({suffix or 'no suffix'})"
    raise UsageError(f"{shown} is {kind}; needed is {_ACCEPTED}", code="source-kind", path=text)


def _open_folder(folder: Path, name: str, choice: str | None, *, follow_symlinks: bool) -> ImageSource:
    """Images below a folder; where there are none, what Hugging Face's tools leave in one."""
    if is_saved_dataset(folder):
        return open_saved_dataset(folder, name, choice)
    try:
        return open_folder(folder, name, follow_symlinks=follow_symlinks)
    except DataError as error:
        if error.code != "no-images" or not (files := parquet_files(folder)):
            raise
    return open_parquet_files(folder, files, name, choice)


def _kind_of(path: Path) -> str:
    """Folder, image, or the suffix that decides who reads it."""
    if path.is_dir():
        return "folder"
    if suffix_of(str(path)) in IMAGE_SUFFIXES:
        return _IMAGE
    text = str(path).lower()
    known = (suffixes[0] for suffixes, _ in _FILE_READERS if text.endswith(suffixes))
    return next(known, suffix_of(text) or "no suffix")


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # a name that is too long, or a folder that may not be entered
        return False
