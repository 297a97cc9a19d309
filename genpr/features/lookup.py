"""What the name of an extractor stands for: whether it is known, what it is the same as, what shares its network.

Importing this module does not import torch.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from difflib import get_close_matches

from genpr.errors import UsageError
from genpr.features.catalogue import BUILT_IN, OPEN_FAMILIES
from genpr.features.names import ExtractorName


def check_known(name: str) -> None:
    """Refuse a name that is neither built in nor of the form of a custom extractor.

    Raises:
        UsageError: "unknown-extractor", or "unknown-variant".
    """
    if parse_name(name).base not in BUILT_IN and ":" not in name:
        close = get_close_matches(name, BUILT_IN, n=1)
        meant = f"; did you mean {close[0]}?" if close else ""
        raise UsageError(
            f"unknown extractor {name!r}{meant}; known are {', '.join(BUILT_IN)}, timm:MODEL, open_clip:MODEL:PRETRAINED, "
            "and custom ones as path/to/file.py:factory or package.module:factory",
            code="unknown-extractor",
        )


def canonical_name(name: str) -> str:
    """The same extractor by its shortest name: variants that are the network's own are left out.

    Raises:
        UsageError: As `check_known`.
    """
    check_known(name)
    parsed = parse_name(name)
    known = BUILT_IN.get(parsed.base)
    return str(replace(parsed, resize=None)) if known and parsed.resize == known.resize else str(parsed)


def is_same_extractor(name: str, other: str) -> bool:
    """Whether two names stand for the same extractor, such as "inception" and "inception@tf1-bilinear"."""
    names = [name, other]
    return name == other or (
        all(parse_name(each).base in BUILT_IN for each in names)
        and canonical_name(name) == canonical_name(other)
    )


def dim_of(name: str) -> int | None:
    """Length of the features of a built-in extractor; None for others."""
    known = BUILT_IN.get(parse_name(name).base)
    return known.dim if known else None


def members_of(name: str) -> int:
    """How many networks a built-in extractor holds side by side."""
    known = BUILT_IN.get(parse_name(name).base)
    return known.members if known else 1


def with_variants_of(name: str, other: str) -> str:
    """The built-in extractor `name`, with the resize rule and precision of `other` if that is of the same network."""
    ours, theirs = parse_name(name), parse_name(other)
    known, like = BUILT_IN[ours.base], BUILT_IN.get(theirs.base)
    if like is None or (known.loader, known.weights) != (like.loader, like.weights):
        return name
    return canonical_name(str(replace(ours, resize=theirs.resize, precision=theirs.precision)))


def group_by_network(names: Iterable[str]) -> tuple[tuple[str, ...], ...]:
    """Put together what one pass through one network can give, in the order of first mention, without repeats."""
    groups: dict[object, list[str]] = {}
    for name in dict.fromkeys(names):
        groups.setdefault(_network(name), []).append(name)
    return tuple(tuple(group) for group in groups.values())


def _network(name: str) -> object:
    """Equal for layers of the same network, under the same resize rule and precision."""
    parsed = parse_name(name)
    known = BUILT_IN.get(parsed.base)
    if known is None or known.weights is None:
        return name
    return known.loader, known.weights.name, parsed.resize or known.resize, known.side, parsed.precision


def parse_name(name: str) -> ExtractorName:
    """Custom extractors may have any character in their path, and have no variants."""
    own = name.partition("@")[0]
    return ExtractorName.parse(name) if own in BUILT_IN or family_loader(name) else ExtractorName(name)


def family_loader(name: str) -> str | None:
    """Loader of an open family, such as that of "timm:MODEL"."""
    return OPEN_FAMILIES.get(name.partition(":")[0]) if ":" in name else None
