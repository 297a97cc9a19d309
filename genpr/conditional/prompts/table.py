"""Prompts as they were found, and which image each belongs to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from genpr.errors import DataError, short
from genpr.images.item import printable, some
from genpr.images.naming import known_as, plain_path, stem_of

MAX_CHARACTERS = 2**16
"""Of one prompt; what is longer is no prompt but another file."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """One text that an image was asked to show.

    Attributes:
        text: As it was written.
        relevance: How well it fits the image, beside its other prompts; above 0.
        group: Prompts of one group are never ranked against each other; None for a group of its own.
    """

    text: str
    relevance: float = 1.0
    group: str | None = None


Captions = tuple[Prompt, ...]
"""All prompts of one image: one or more."""


@dataclass(frozen=True)
class NamedPrompts:
    """Prompts by the name of each image.

    Attributes:
        by_name: With POSIX separators, relative to the source of the images.
        origin: Where they come from, for people.
        stems: The names are without suffixes, as of text files beside images.
    """

    by_name: Mapping[str, Captions]
    origin: str
    stems: bool = False

    def of(self, names: Sequence[str], rows: Sequence[int], total: int | None) -> list[Captions]:
        """The prompts of each image: by relative path, or by file name where the prompts name no folders and files differ.

        Raises:
            DataError: Images have no prompts ("prompts-missing").
        """
        wanted = self._wanted(names)
        without = [name for name, each in zip(names, wanted, strict=True) if each not in self.by_name]
        if without:
            theirs = min(self.by_name.keys() - set(wanted), default=None)
            hint = f"; a prompt without an image is of {short(theirs)!r}" if theirs is not None else ""
            raise DataError(
                f"{len(without):,} of {len(names):,} images have no prompt in {printable(self.origin)}: {some(without)}{hint}; "
                "names must be relative to the source of the images",
                code="prompts-missing",
                path=self.origin,
            )
        return [self.by_name[each] for each in wanted]

    def check_used(self, names: Sequence[str]) -> None:
        """Refuse prompts of images that are not in the source.

        Args:
            names: Of all images of the source, chosen or not.

        Raises:
            DataError: They are listed ("prompts-unused").
        """
        wanted = set(self._wanted(names))
        unused = [name for name in self.by_name if name not in wanted]
        if unused:
            raise DataError(
                f"{printable(self.origin)} has prompts of {len(unused):,} images that are not there: {some(unused)}; the "
                f"images are called such as {short(names[0] if names else 'none')!r}. Were images lost, or is this the file "
                "of another run?",
                code="prompts-unused",
                path=self.origin,
            )

    def _wanted(self, names: Sequence[str]) -> list[str]:
        """Under which name the prompts of each image stand."""
        return known_as([stem_of(name) for name in names] if self.stems else names, self.by_name)


@dataclass(frozen=True)
class RowPrompts:
    """Prompts for each image in the order of the source, whether it was used or not."""

    prompts: tuple[Captions, ...]
    origin: str

    def of(self, names: Sequence[str], rows: Sequence[int], total: int | None) -> list[Captions]:
        """The prompts of each image, by its place in the source.

        Raises:
            DataError: There are more or fewer prompts than images in the source ("prompt-count").
        """
        needed = total if total is not None else max(rows, default=-1) + 1
        is_wrong = len(self.prompts) != needed if total is not None else len(self.prompts) < needed
        if is_wrong:
            raise DataError(
                f"{printable(self.origin)} holds {len(self.prompts):,} prompts, but there are {needed:,} images, such as "
                f"{short(names[0] if names else 'none')!r}; needed is one for each in their order, or a file that names the "
                "images",
                code="prompt-count",
                path=self.origin,
            )
        return [self.prompts[row] for row in rows]

    def check_used(self, names: Sequence[str]) -> None:
        """Nothing to check: the counts agree, or `of` refuses them."""


Prompts = NamedPrompts | RowPrompts
"""Prompts of one set of images."""


def by_name(pairs: Sequence[tuple[str, Prompt, str]], origin: str, *, stems: bool = False) -> NamedPrompts:
    """Prompts by name, several of one name in their order.

    Args:
        pairs: Name, prompt, and where they stand ("line 3").
        origin: Where all come from.
        stems: As in `NamedPrompts`.

    Raises:
        DataError: An image has the same prompt twice ("prompt-repeated"), or there are none at all.
    """
    found: dict[str, dict[str, Prompt]] = {}
    for raw, prompt, place in pairs:
        captions = found.setdefault(plain_path(raw), {})
        if prompt.text in captions:
            raise damaged(
                origin,
                f"{place} gives {short(raw)!r} the prompt {short(prompt.text)!r} for the second time",
                code="prompt-repeated",
            )
        captions[prompt.text] = prompt
    if not found:
        raise damaged(origin, "it is empty")
    return NamedPrompts({name: tuple(captions.values()) for name, captions in found.items()}, origin, stems)


def checked_text(text: str, origin: str, place: str, *, is_name: bool = False) -> str:
    """A prompt or name as it may be: not empty, without NUL, of bounded length; a prompt of whole characters.

    Raises:
        DataError: It is not.
    """
    reason = None
    if not text.strip():
        reason = "is empty"
    elif "\0" in text:
        reason = "holds a NUL character; is this a text file?"
    elif len(text) > MAX_CHARACTERS:
        reason = f"has {len(text):,} characters, more than the {MAX_CHARACTERS:,} of any prompt"
    elif not is_name and any("\ud800" <= c <= "\udfff" for c in text):  # names of files may be any bytes
        reason = "holds half a character (a lone surrogate), which no encoding has"
    if reason is None:
        return text.strip()
    raise damaged(
        origin,
        f"the text of {place} {reason}",
        code="prompt-empty" if "empty" in reason else "prompts-damaged",
    )


def damaged(origin: str, reason: str, *, code: str = "prompts-damaged") -> DataError:
    """The error for prompts that cannot be read."""
    return DataError(
        f"{printable(origin)} cannot be used as prompts: {printable(reason)}", code=code, path=origin
    )
