"""How often each class was asked for, recognised, and both: of all images, and of random halves of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from genpr.metrics.label.labels import mean_of_defined, ratios

Counts = NDArray[np.float64]

RATES = ("accuracy", "macro_precision", "macro_recall", "macro_f1")
"""What a tally knows, of single labels."""


@dataclass(frozen=True, slots=True)
class Tally:
    """Images by class, in float64 since they may be weighted.

    Attributes:
        right: (..., classes), asked for and recognised.
        asked: (..., classes).
        recognised: (..., classes); images that nobody recognised are in none.
    """

    right: Counts
    asked: Counts
    recognised: Counts

    @classmethod
    def of(cls, asked: Tensor, recognised: Tensor, n_classes: int, weights: Tensor | None = None) -> Tally:
        """Count.

        Args:
            asked: (m,) int64, the class that each image was asked to be of.
            recognised: (m,) int64, the class that it was recognised as; negative for none.
            n_classes: How many there are.
            weights: (m,) float64, by class asked for; None counts each image once.
        """
        asked, recognised = asked.cpu(), recognised.cpu()  # where sums have one order
        weights = torch.ones_like(asked, dtype=torch.float64) if weights is None else weights.cpu()

        def count(labels: Tensor, keep: Tensor) -> Counts:
            found: Counts = torch.bincount(labels[keep], weights[keep], minlength=n_classes).numpy()
            return found

        return cls(
            count(asked, asked == recognised),
            count(asked, torch.ones_like(asked, dtype=torch.bool)),
            count(recognised, recognised >= 0),
        )

    @classmethod
    def stacked(cls, tallies: Iterable[Tally]) -> Tally:
        """Several in one, (B, classes)."""
        columns = zip(*((each.right, each.asked, each.recognised) for each in tallies), strict=True)
        return cls(*(np.stack(column) for column in columns))

    def rates(self) -> dict[str, Counts]:
        """Accuracy, and the macro averages of what is defined, by name: (...) float64, NaN where nothing is."""
        precision, recall, f = ratios(self.right, self.asked, self.recognised)
        return {
            "accuracy": np.asarray(self.right.sum(axis=-1) / self.asked.sum(axis=-1)),
            "macro_precision": mean_of_defined(precision),
            "macro_recall": mean_of_defined(recall),
            "macro_f1": mean_of_defined(f),
        }
