"""What the files behind a set of features have in common: formats and sizes, which metrics see although they should not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

_SHOWN = 5
_SMALL = 32  # pixels; the smallest images that networks were trained on
_LOSSLESS = {"PNG", "BMP", "PPM", "TIFF", "WEBP lossless"}


@dataclass(frozen=True)
class ImageFacts:
    """Of the images that came as files.

    Attributes:
        formats: How many are of which format, such as {"PNG": 900}.
        sizes: The commonest sizes, such as {"640 x 480": 900}, at most five; of images whose size is known.
        n_sizes: How many different sizes there are.
        n_small: Images with a side of less than 32 pixels.
    """

    formats: Mapping[str, int] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    n_sizes: int = 0
    n_small: int = 0

    @classmethod
    def of(cls, formats: Counter[str], sizes: Counter[tuple[int, int]]) -> ImageFacts:
        """From counts of formats and of (width, height)."""
        ordered = sorted(sizes.items(), key=lambda entry: (-entry[1], entry[0]))
        return cls(
            formats=dict(sorted(formats.items())),
            sizes={f"{width} x {height}": count for (width, height), count in ordered[:_SHOWN]},
            n_sizes=len(sizes),
            n_small=sum(count for size, count in sizes.items() if min(size) < _SMALL),
        )

    @classmethod
    def joined(cls, parts: Sequence[ImageFacts]) -> ImageFacts:
        """Of several sets together; of a set with many sizes only the commonest are known, so there are at least so many."""
        formats: Counter[str] = Counter()
        sizes: Counter[str] = Counter()
        for part in parts:
            formats.update(part.formats)
            sizes.update(part.sizes)
        return cls(
            formats=dict(sorted(formats.items())),
            sizes=dict(sorted(sizes.items(), key=lambda entry: (-entry[1], entry[0]))[:_SHOWN]),
            n_sizes=max([len(sizes), *(part.n_sizes for part in parts)]),
            n_small=sum(part.n_small for part in parts),
        )

    @property
    def codec(self) -> str | None:
        """How most images are compressed: "lossless", or a format that loses something; None if none prevails."""
        codecs: Counter[str] = Counter()
        for name, count in self.formats.items():
            codecs["lossless" if name in _LOSSLESS else name] += count
        for codec, count in codecs.items():
            if 2 * count > codecs.total():
                return codec
        return None

    @property
    def shown_sizes(self) -> str:
        """The commonest sizes in words."""
        rest = self.n_sizes - len(self.sizes)
        listed = [f"{size} ({count:,})" for size, count in self.sizes.items()]
        return ", ".join([*listed, f"and {rest:,} more"] if rest else listed)
