"""What a text encoder is: the protocol it follows, and the record that identifies it.

Importing this module does not import torch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor

TextProgress = Callable[[int, int], None]
"""Called with the texts that are done, and how many there are."""


@dataclass(frozen=True)
class TextEncoderInfo:
    """Which function from texts to vectors an encoder is.

    Attributes:
        name: That of the extractor whose images it belongs to.
        dim: Length of a vector.
        tokenizer: What cuts texts into tokens; "unknown" where a user's own does not say.
        context: Tokens that are read of a text, its two ends among them; None where that is unknown.
        weights_sha256: Hash of the weights file; for a user's own of the network, None if it is none.
        comparable: Whether the weights are the published ones.
        logit_scale: What the network was trained to multiply a cosine by before the softmax; None where it does not say.
    """

    name: str
    dim: int
    tokenizer: str
    context: int | None
    weights_sha256: str | None
    comparable: bool
    logit_scale: float | None


class TextEncoder(Protocol):
    """Anything that turns texts into vectors.

    Attributes:
        name: That of the extractor whose images it belongs to.
        dim: Length of a vector.
    """

    name: str
    dim: int

    @property
    def info(self) -> TextEncoderInfo:
        """What it is."""
        ...

    def encode_text(self, texts: Sequence[str], /, *, progress: TextProgress | None = None) -> Tensor:
        """Embed n texts, empty ones too, as float32 (n, dim) on the CPU; not scaled to length 1."""
        ...

    def truncated(self, texts: Sequence[str], /) -> list[bool] | None:
        """Of which of the texts the end is not read; None where that is unknown."""
        ...
