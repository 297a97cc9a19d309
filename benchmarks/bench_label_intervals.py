"""Coverage of the intervals of label metrics, with halves drawn from all images or class by class.

    python benchmarks/bench_label_intervals.py --draws 400 --intervals 200

Gaussian classes in 6 dimensions; fakes have a fifth of their images from the next class. Truth is the mean of a metric over
all draws of both sides. "sd" is the deviation over these; a half width is given in units of the 1.96 sd that it should have.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from genpr.metrics.classification_accuracy import ClassTotals, KNNClassifier
from genpr.metrics.uncertainty import Interval, interval_of
from genpr.neighbors.halves import Halves, unpacked
from genpr.neighbors.index import Projection

_K, _HALVES, _D = 5, 100, 6
_CASES = {
    "even classes": ([100] * 5, 2.0, 0.2, False),
    "even, drawn at random": ([100] * 5, 2.0, 0.2, True),
    "uneven classes": ([300, 100, 50, 30, 20], 2.0, 0.2, False),
    "uneven, drawn at random": ([300, 100, 50, 30, 20], 2.0, 0.2, True),
    "nearly perfect": ([100] * 5, 5.0, 0.0, True),
}

Labeled = tuple[Tensor, Tensor]


def main() -> None:
    """Print a line per case, direction and rate."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=400)
    parser.add_argument("--intervals", type=int, default=200)
    options = parser.parse_args()
    for name, (sizes, shift, wrong, is_random) in _CASES.items():
        _report(name, sizes, shift, wrong, options.draws, options.intervals, is_random=is_random)


def _report(
    name: str,
    sizes: Sequence[int],
    shift: float,
    wrong: float,
    draws: int,
    intervals: int,
    *,
    is_random: bool,
) -> None:
    random = np.random.default_rng(1)
    values, found = defaultdict[str, list[float]](list), defaultdict[str, dict[str, list[Interval]]](dict)
    for draw in range(draws):
        real = _drawn(random, sizes, shift, 0.0, is_random=is_random)
        fake = _drawn(random, sizes, shift, wrong, is_random=is_random)
        for direction, tested, trained in (("test", fake, real), ("train", real, fake)):
            totals, halves_of = _of_votes(tested, trained, len(sizes), halves=draw < intervals)
            for rate, value in totals.rates().items():
                values[f"{direction} {rate}"].append(float(value))
                for kind, halves in halves_of.items():
                    known = torch.from_numpy(halves.rates()[rate])
                    ends = found[f"{direction} {rate}"].setdefault(kind, [])
                    if (interval := interval_of(float(value), known, n=sum(sizes))) is not None:
                        ends.append(interval)
    for rate, several in values.items():
        truth, sd = np.mean(several), np.std(several)
        line = f"{name:24} {rate:22} truth {truth:.3f} sd {sd:.4f}"
        for kind, ends in found[rate].items():
            held = np.mean([float(truth) in each for each in ends])
            width = np.mean([(each.high - each.low) / 2 for each in ends]) / 1.96 / sd
            line += f" | {kind} {held:.1%}, {width:.2f}"
        print(line, flush=True)


def _of_votes(
    tested: Labeled, trained: Labeled, n_classes: int, *, halves: bool
) -> tuple[ClassTotals, dict[str, ClassTotals]]:
    projection = Projection.around(trained[0])
    voters = KNNClassifier.from_points(
        projection.place(tested[0]), projection.place(trained[0]), trained[1], _K
    )
    totals = ClassTotals.from_labels(tested[1], voters.predict(_K), n_classes)
    kinds = {"of all": False, "by class": True} if halves else {}
    return totals, {
        kind: _halved(voters, tested[1], trained[1], n_classes, by_class=by_class)
        for kind, by_class in kinds.items()
    }


def _drawn(
    random: np.random.Generator, sizes: Sequence[int], shift: float, wrong: float, *, is_random: bool
) -> Labeled:
    """Features and requested labels; some images are of the next class."""
    shares = np.array(sizes) / sum(sizes)
    labels = (
        random.choice(len(sizes), sum(sizes), p=shares)
        if is_random
        else np.repeat(np.arange(len(sizes)), sizes)
    )
    centers = np.random.default_rng(5).normal(size=(len(sizes), _D))
    centers *= np.linspace(0.5, 1.5, len(sizes))[:, None] * shift / np.linalg.norm(centers, axis=1)[:, None]
    shown = np.where(random.random(len(labels)) < wrong, (labels + 1) % len(sizes), labels)
    features = centers[shown] + random.normal(size=(len(labels), _D))
    return torch.tensor(features, dtype=torch.float32), torch.tensor(labels)


def _halved(
    voters: KNNClassifier, tested: Tensor, trained: Tensor, n_classes: int, *, by_class: bool
) -> ClassTotals:
    of_tested, of_trained = _members(tested, 1, by_class=by_class), _members(trained, 0, by_class=by_class)
    parts = []
    for inside, voting in zip(of_tested, of_trained, strict=True):
        rows = inside.nonzero()[:, 0]
        parts.append(
            ClassTotals.from_labels(tested[rows], voters.predict(_K, rows=rows, mask=voting), n_classes)
        )
    return ClassTotals.stacked(parts)


def _members(labels: Tensor, stream: int, *, by_class: bool) -> Tensor:
    """Membership of images in each half, (B, n) bool."""
    inside = torch.zeros(_HALVES, len(labels), dtype=torch.bool)
    groups = sorted(set(labels.tolist())) if by_class else [None]
    for group in groups:
        rows = torch.arange(len(labels)) if group is None else (labels == group).nonzero()[:, 0]
        number = stream if group is None else 2 * (int(group) + 1) + stream
        halves = Halves.drawn(len(rows), seed=0, stream=number, count=_HALVES, device=labels.device)
        inside[:, rows] = unpacked(halves.masks).T[:_HALVES]
    return inside


if __name__ == "__main__":
    main()
