"""Pair the images of two sources by name, or by order if they have no names."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Literal

from genpr.errors import BadImagesError, DataError, ImageError, count_of, printable, some
from genpr.images.item import ImageSource, SubsetSource, known_length, stem_of
from genpr.unicode_forms import normalize

PairedBy = Literal["name", "order"]
_INDEX = re.compile(r"\[[0-9]+\]")  # the last part of the names of images in arrays


def pair_sources(real: ImageSource, fake: ImageSource) -> tuple[SubsetSource, SubsetSource, PairedBy]:
    """Two sources in one order: unchanged if both have numbered images, else paired by relative names without suffix.

    Raises:
        BadImagesError: Names without a partner, or several images of one name ("bad-pairs"; `bad` has all of them).
        DataError: Different numbers of images ("pair-count"), or only one source has names ("pair-names").
    """
    names = [_names(real), _names(fake)]
    labels = [printable(each.name) for each in (real, fake)]
    numbered = [all(_INDEX.fullmatch(name.rpartition("/")[2]) for name in each) for each in names]
    if numbered[0] is not numbered[1]:
        text = f"{labels[numbered[0]]} has named images and {labels[numbered[1]]} numbered ones, which cannot be paired; "
        text += "write the array as image files that have the names of the folder"
        raise DataError(text, code="pair-names", path=fake.name)
    rows: Sequence[int] = range(len(names[1]))
    if not numbered[0]:
        keys = [[normalize("NFC", stem_of(name)) for name in each] for each in names]
        _check_names(names, keys, labels)
        row_of = {key: row for row, key in enumerate(keys[1])}
        rows = [row_of[key] for key in keys[0]]
    elif len(names[0]) != len(rows):
        text = f"{labels[1]} has {count_of(len(rows), 'image')}, and {labels[0]} {len(names[0]):,}; images of arrays are paired by "
        raise DataError(f"{text}their order, so both need the same number", code="pair-count", path=fake.name)
    parts = SubsetSource(real.name, real, range(len(rows))), SubsetSource(fake.name, fake, rows)
    return *parts, "order" if numbered[0] else "name"


def _names(source: ImageSource) -> list[str]:
    names, total = source.names(), known_length(source)
    if names is not None:
        return list(names)
    return [f"[{row}]" for row in range(sum(1 for _ in source) if total is None else total)]


def _check_names(
    names: Sequence[Sequence[str]], keys: Sequence[Sequence[str]], labels: Sequence[str]
) -> None:
    """Raise an error for names without a partner, and for names that occur more than once."""
    bad = []
    for side, role in enumerate(("reconstruction", "original")):
        others, counts = set(keys[1 - side]), Counter(keys[side])
        for name, key in zip(names[side], keys[side], strict=True):
            if counts[key] > 1:
                code, reason = "ambiguous-name", "the name of another image except for the suffix"
            elif key not in others:
                code, reason = "no-partner", f"no {role} in {labels[1 - side]}"
            else:
                continue
            bad.append(ImageError(f"{name} has {reason}", code=code, path=name))
    if bad:
        total = f"{len(names[0]):,} originals and {len(names[1]):,} reconstructions"
        text = f"of {total}, {len(bad):,} cannot be paired: {some([str(each) for each in bad], 5, longest=100)}. "
        text += "Images are paired by their path relative to the source, without suffix"
        raise BadImagesError(text, bad=bad, code="bad-pairs", path=labels[1])
