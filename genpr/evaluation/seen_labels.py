"""What each image was asked to be, and what it was recognised as."""

from __future__ import annotations

from dataclasses import dataclass

from genpr.evaluation.label_table import Label


@dataclass(frozen=True, slots=True)
class SeenLabels:
    """Of m fakes, in the order in which they were scored.

    Attributes:
        asked: (m,) the class that each was asked to be of; None for those without one, which are not judged.
        recognised: (m,) the class that it was seen as; None for those that were not judged, or seen as nothing.
    """

    asked: tuple[Label, ...]
    recognised: tuple[Label, ...]

    def mistaken(self) -> dict[tuple[str, str], list[int]]:
        """Rows by (asked, recognised), where the two differ: the largest group first, equally large ones by name."""
        groups: dict[tuple[str, str], list[int]] = {}
        for row, (asked, recognised) in enumerate(zip(self.asked, self.recognised, strict=True)):
            if asked is not None and recognised is not None and asked != recognised:
                groups.setdefault((asked, recognised), []).append(row)
        return dict(sorted(groups.items(), key=lambda each: (-len(each[1]), each[0])))
