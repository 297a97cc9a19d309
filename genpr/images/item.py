"""The protocol of image sources, sources composed of other sources, and rules that all sources share.

A source lists names and functions that read images. It does not decode or hold pixels, so that images can be read in
several threads, and images that are not needed are never read.
"""

from __future__ import annotations

import os
import posixpath
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, chain, groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from numpy.typing import NDArray

from genpr.errors import DataError, ImageError, short, some
from genpr.errors import printable as printable
from genpr.images.formats import (
    IMAGE_SUFFIXES,
    OTHER_SUFFIXES,
    READABLE_SUFFIXES,
    SHARD_SUFFIXES,
    image_suffix,
    is_image_start,
)
from genpr.notices import Notice

if TYPE_CHECKING:
    from PIL.Image import Image

MAX_ENCODED_BYTES = 2**30
"""Maximum size of an image file, which is held in memory while it is decoded."""
INDEX_NAME = re.compile(r"\[[0-9]+\]")
"""The default name of an image by its index, as "[17]"."""

ImageData: TypeAlias = "bytes | NDArray[Any] | Image"
"""An image before it is decoded: the bytes of a file, pixels (h, w, 3) or other values (h, w, bands), or an image loaded by Pillow."""

# A part of a path that is "__MACOSX", or that begins with a dot and is neither "." nor "..".
_HIDDEN = re.compile(r"(?:\A|[/\\])(?:__MACOSX(?:[/\\]|\Z)|\.(?!\.?(?:[/\\]|\Z)))")
CONTAINERS_PAGE = "https://genpr.github.io/genpr/containers/"
_HINTS = {
    ".npy": "arrays such as latents are not pixels: decode them first; arrays of images need --value-range or --bands",
    ".arrow": "write a saved data set with to_parquet, or pass datasets.load_from_disk(...) in Python",
    **dict.fromkeys((".h5", ".hdf5", ".lmdb", ".mdb", ".mds"), f"see {CONTAINERS_PAGE}"),
} | {
    suffix: f"to read images inside of them, add '*{suffix}' to the folder, in quotes"
    for suffix in (*SHARD_SUFFIXES, ".npz")
}
_MOST_SUFFIXES, _LONGEST_SUFFIX = 20, 16  # of the files passed over
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Item:
    """One image that was not read yet; its name is a relative POSIX path, a member name, or "[17]".

    `read` may be called once, from any thread, and raises `ImageError` if the image cannot be read.
    """

    name: str
    read: Callable[[], ImageData]


@dataclass(frozen=True)
class SourceLabels:
    """Class labels from a source: an integer, a name or None per image, and a description of their origin."""

    labels: Sequence[object]
    origin: str


class ImageSource(Protocol):
    """An ordered collection of images, called `name` in messages. The sources of genpr derive from this class.

    The order does not depend on locale, file system or hash seed. `len` raises `TypeError` if the number is unknown. A source of
    files may have `passed_over`, the numbers of files that are no images, by suffix, "hidden", "link" or "none".
    """

    name: str
    is_in_files: bool = False
    """Whether items can be pickled, and read more than once in any process."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Item]: ...

    def select(self, indices: Iterable[int]) -> Iterator[Item]:
        """The images at ascending indices; sources that can skip other images override this."""
        items = enumerate(self)
        for index in indices:
            yield next(item for at, item in items if at == index)

    def names(self) -> Iterator[str] | None:
        """Names of the images in order; None if they are unknown before the images are read."""
        return None

    def source_labels(self) -> SourceLabels | None:
        """Class labels stored in the source; None if there are none."""
        return None


class IndexedSource(ImageSource):
    """Base of sources with random access, which define `select`. Default names are "[17]"."""

    def __iter__(self) -> Iterator[Item]:
        return self.select(range(len(self)))

    def names(self) -> Iterator[str]:
        """Names made of indices."""
        return (f"[{index}]" for index in range(len(self)))


def known_length(source: ImageSource) -> int | None:
    """Number of images in a source; None if it is unknown."""
    try:
        return len(source)
    except TypeError:
        return None


def suffix_of(name: str) -> str:
    """Lower-case suffix of a file or member name, "" if it has none."""
    # Without pathlib, which interns every name that it parses.
    suffix = posixpath.splitext(name.rstrip("/"))[1].lower()
    return "" if suffix == "." else suffix


def is_hidden(name: str) -> bool:
    """Whether a relative name is in a hidden file or folder, or in a folder that macOS adds to archives."""
    return _HIDDEN.search(name) is not None


def is_image(name: str, read_start: Callable[[], bytes]) -> bool:
    """Whether a file counts as an image: not hidden, with the suffix of an image, or with another and the first bytes of one.

    `read_start` is called only for suffixes that are not known, or if there is none. It may raise `OSError`.
    """
    if _HIDDEN.search(name) is not None:
        return False
    suffix = image_suffix(name)
    if suffix in IMAGE_SUFFIXES or suffix in OTHER_SUFFIXES:
        return suffix in IMAGE_SUFFIXES
    try:
        return is_image_start(read_start())
    except OSError:
        return False


def check_encoded_size(name: str, size: int) -> None:
    """Refuse a file or member that is too large to be held in memory ("image-too-large")."""
    if size > MAX_ENCODED_BYTES:
        text = f"{name}: {size:,} bytes, more than {MAX_ENCODED_BYTES:,}"
        raise ImageError(text, code="image-too-large", path=name)


def unreadable_error(name: str, reason: object) -> ImageError:
    """The error for an image whose bytes cannot be read."""
    return ImageError(f"{name}: cannot be read ({reason})", code="unreadable", path=name)


def filter_images(
    files: Iterable[T],
    name_of: Callable[[T], str],
    read_start: Callable[[T], bytes],
    container: str,
    others: Counter[str],
    more: Collection[str] = (),
) -> Iterator[T]:
    """Yield the files that count as images (`is_image`) or have a suffix in `more`; raises if there is none ("no-images").

    Counts the other files in `others`, by suffix, or as "hidden" or "none" (no suffix).
    """
    n_images = 0
    for file in files:
        name = name_of(file)
        if is_image(name, partial(read_start, file)) or (suffix_of(name) in more and not is_hidden(name)):
            n_images += 1
            yield file
        else:
            suffix = "hidden" if is_hidden(name) else suffix_of(name) or "none"
            others[short(suffix, _LONGEST_SUFFIX)] += 1
    if n_images:
        return
    content, first = "it is empty", list(count_suffixes(others).items())[:5]
    if others:
        shown = ", ".join(f"{suffix} ({count:,})" for suffix, count in first)
        content = f"{others.total():,} other files, suffixes: {shown}"
    hints = "".join(dict.fromkeys(f"; {_HINTS[suffix]}" for suffix, _ in first if suffix in _HINTS))
    text = f"{container} has no images ({content}{hints}); accepted are {', '.join(READABLE_SUFFIXES)}"
    raise DataError(text, code="no-images", path=container)


def count_suffixes(others: Counter[str]) -> dict[str, int]:
    """The counts of files passed over, the most frequent suffixes first; many rare ones together as "other"."""
    ordered = sorted(others.items(), key=lambda entry: (-entry[1], entry[0]))
    shown = dict(ordered[:_MOST_SUFFIXES])
    rest = others.total() - sum(shown.values())
    return shown | ({"other": rest} if rest else {})


def passed_over_text(counts: Mapping[str, int]) -> str:
    """The end of a line about a source: ", 12 other files passed over (.json 10, hidden 2)"; empty without any."""
    if not counts:
        return ""
    total = sum(counts.values())
    shown = some([f"{suffix} {count:,}" for suffix, count in counts.items()], 5)
    return f", {total:,} other file{'s' * (total != 1)} passed over ({shown})"


@dataclass(frozen=True)
class SubsetSource(ImageSource):
    """The images at some indices of a source, ascending unless the source has random access."""

    name: str
    source: ImageSource
    rows: Sequence[int]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Item]:
        return self.source.select(self.rows)

    def select(self, indices: Iterable[int]) -> Iterator[Item]:
        """The images at some indices of the subset."""
        return self.source.select(self.rows[index] for index in indices)

    def names(self) -> Iterator[str] | None:
        """Names of the subset, if the source knows them."""
        names, rows = self.source.names(), set(self.rows)
        known = {row: name for row, name in enumerate(names or ()) if row in rows}
        return names and map(known.__getitem__, self.rows)

    @property
    def is_in_files(self) -> bool:  # type: ignore[override] # read-only
        """As of the whole source."""
        return self.source.is_in_files

    @property
    def notices(self) -> tuple[Notice, ...]:
        """The notices of the whole source."""
        notices: tuple[Notice, ...] = getattr(self.source, "notices", ())
        return notices

    @property
    def passed_over(self) -> dict[str, int]:
        """Those of the whole source."""
        counts: dict[str, int] = getattr(self.source, "passed_over", {})
        return counts


@dataclass(frozen=True)
class ConcatSource(ImageSource):
    """The images of several sources in order; `prefixes` ("a.tar/") precede the names of their images."""

    name: str
    parts: tuple[ImageSource, ...]
    prefixes: tuple[str, ...]

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def __iter__(self) -> Iterator[Item]:
        for prefix, part in zip(self.prefixes, self.parts, strict=True):
            yield from _prefixed(part, prefix)

    def select(self, indices: Iterable[int]) -> Iterator[Item]:
        """The images at ascending indices; parts without selected images are not opened."""
        ends = list(accumulate(map(len, self.parts)))
        for number, group in groupby(indices, key=partial(bisect_right, ends)):
            part, prefix = self.parts[number], self.prefixes[number]
            start = ends[number] - len(part)
            yield from _prefixed(part.select(index - start for index in group), prefix)

    def names(self) -> Iterator[str] | None:
        """Names of all images, if all parts know them."""
        known = [part.names() for part in self.parts]
        if None in known:
            return None
        pairs = zip(self.prefixes, known, strict=True)
        return (prefix + name for prefix, names in pairs for name in names or ())

    @property
    def is_in_files(self) -> bool:  # type: ignore[override] # read-only
        """Whether all parts are."""
        return all(part.is_in_files for part in self.parts)

    @property
    def passed_over(self) -> dict[str, int]:
        """Those of all parts."""
        return count_suffixes(
            sum((Counter(getattr(part, "passed_over", {})) for part in self.parts), Counter())
        )

    def source_labels(self) -> SourceLabels | None:
        """Class labels of the parts; None for images of parts without labels."""
        by_part = [part.source_labels() for part in self.parts]
        origins = [each.origin for each in by_part if each is not None]
        if not origins:
            return None
        both = zip(by_part, self.parts, strict=True)
        labels = [[None] * len(part) if each is None else each.labels for each, part in both]
        more = f" and {len(origins) - 1:,} more" if len(origins) > 1 else ""
        return SourceLabels(list(chain.from_iterable(labels)), origins[0] + more)


def concat_sources(
    name: str, paths: Sequence[Path], open_part: Callable[[Path], ImageSource]
) -> ConcatSource:
    """Open several containers; names of images are paths relative to the common folder of all containers."""
    parts = tuple(open_part(path) for path in paths)
    return ConcatSource(name, parts, tuple(f"{each}/" for each in short_names(paths)))


def short_names(paths: Sequence[Path]) -> list[str]:
    """POSIX paths relative to the common folder."""
    shared = os.path.commonpath([path.parent for path in paths])
    return [path.relative_to(shared).as_posix() if shared else path.as_posix() for path in paths]


def _prefixed(items: Iterable[Item], prefix: str) -> Iterator[Item]:
    for item in items:
        yield Item(prefix + item.name, partial(_read, item.read, prefix))


def _read(read: Callable[[], ImageData], prefix: str) -> ImageData:
    try:
        return read()
    except ImageError as error:  # its path is the name in the container
        raise ImageError(f"{prefix}{error}", code=error.code, path=f"{prefix}{error.path}") from error


def plain_path(name: str) -> str:
    """A path with POSIX separators and without a leading "./"."""
    return name.replace("\\", "/").removeprefix("./")


def file_of(name: str) -> str:
    """The name of a file without its folders."""
    return plain_path(name).rpartition("/")[2]


def stem_of(name: str) -> str:
    """A relative path without the file suffix: "v1.2/a" for "v1.2/a.png"; ".a" has no suffix."""
    folder, slash, file = plain_path(name).rpartition("/")
    stem = file.rpartition(".")[0]
    return f"{folder}{slash}{stem or file}"
