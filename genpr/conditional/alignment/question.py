"""What is asked of images and prompts."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral

from genpr.conditional.alignment.copies import CopyQuestion
from genpr.errors import UsageError

DISTRACTORS = 99


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is asked of images and prompts.

    Attributes:
        distractors: Prompts of other images that each image ranks beside its own.
        text_to_image: Whether prompts rank images, too.
        prefix: Put in front of every prompt before it is embedded.
        seed: Chooses the distractors, and the halves of intervals.
        copies: What the images may be copies of; None if that is not asked.
    """

    distractors: int = DISTRACTORS
    text_to_image: bool = True
    prefix: str = ""
    seed: int = 0
    copies: CopyQuestion | None = None

    def __post_init__(self) -> None:
        for name, least in (("distractors", 1), ("seed", 0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
                raise UsageError(
                    f"{name} must be an integer of at least {least}, not {value!r}", code="bad-option"
                )
        if not isinstance(self.prefix, str) or "\0" in self.prefix:
            raise UsageError(f"prefix must be a text, not {self.prefix!r}", code="bad-option")


def copy_question(train: object, threshold: float, pairs: object) -> CopyQuestion | None:
    """What is asked about copies; None where no training images are given.

    Raises:
        UsageError: Known copies, and nothing that they are copied from.
    """
    if train is not None:
        return CopyQuestion(train=train, threshold=threshold, pairs=pairs)
    if pairs is not None:
        raise UsageError("pairs name copies of training images, which copies_of must give", code="bad-option")
    return None
