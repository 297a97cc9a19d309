"""What recall does an entity get that is never drawn, if thresholds come from what was asked for?

    python benchmarks/bench_never_drawn.py

Scores are noise and know nothing of the 30 % of the images that asked for it. Also told: how well thresholds seem to tell the
two kinds of images apart where they were chosen, and on the other half.
"""

from __future__ import annotations

import torch
from torch import Tensor

from genpr.metrics.presence import calibrate, present_by_halves

DRAWS, SIZES, ASKED = 200, (100, 400, 2000), 0.3


def balance(present: Tensor, asked: Tensor) -> float:
    """Balanced accuracy."""
    return float((present[asked].double().mean() + 1 - present[~asked].double().mean()) / 2)


def main() -> None:
    """Print a line per size."""
    for n in SIZES:
        rows = []
        for draw in range(DRAWS):
            generator = torch.Generator().manual_seed(draw)
            scores = torch.randn(n, 1, generator=generator)
            asked = torch.rand(n, 1, generator=generator) < ASKED
            by_halves = present_by_halves(scores, asked, torch.arange(n) % 2 == 1).present
            own = calibrate(scores, asked).present(scores)
            recall = float(by_halves[asked].double().mean())
            rows.append([recall, balance(own, asked), balance(by_halves, asked)])
        recall, seeming, true = torch.tensor(rows).mean(dim=0).tolist()
        print(
            f"{n:,} images: recall {recall:.3f}, balanced accuracy {seeming:.3f} where chosen, {true:.3f} by halves"
        )


if __name__ == "__main__":
    main()
