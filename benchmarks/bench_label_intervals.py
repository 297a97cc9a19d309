"""How often intervals of label metrics hold the truth, with halves drawn of all images or class by class.

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

from genpr.metrics.label_tally import RATES, Tally
from genpr.metrics.recognition import Voters
from genpr.metrics.uncertainty import Interval, interval_of
from genpr.neighbours.frame import Frame
from genpr.neighbours.halves import Halves, unpacked

_K, _HALVES, _D = 5, 100, 6
_CASES = {
    "even classes": ([100] * 5, 2.0, 0.2, False),
    "even, drawn at random": ([100] * 5, 2.0, 0.2, True),
    "uneven classes": ([300, 100, 50, 30, 20], 2.0, 0.2, False),
    "uneven, drawn at random": ([300, 100, 50, 30, 20], 2.0, 0.2, True),
    "nearly perfect": ([100] * 5, 5.0, 0.0, True),
}

Labelled = tuple[Tensor, Tensor]


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
    values, found = defaultdict[str, list[float]](list), defaultdict[tuple[str, bool], list[Interval]](list)
    for draw in range(draws):
        real = _drawn(random, sizes, shift, 0.0, is_random=is_random)
        fake = _drawn(random, sizes, shift, wrong, is_random=is_random)
        for direction, tested, trained in (("test", fake, real), ("train", real, fake)):
            frame = Frame.around(trained[0])
            voters = Voters.of(frame.place(tested[0]), frame.place(trained[0]), trained[1], _K)
            rates = Tally.of(tested[1], voters.elected(_K), len(sizes)).rates()
            for rate in RATES:
                values[f"{direction} {rate}"].append(float(rates[rate]))
            for by_class in (False, True) if draw < intervals else ():
                halves = _halved(voters, tested[1], trained[1], len(sizes), by_class=by_class).rates()
                for rate in RATES:
                    known = torch.from_numpy(halves[rate])
                    interval = interval_of(float(rates[rate]), known, n=sum(sizes))
                    found[f"{direction} {rate}", by_class].append(interval)
    for rate, several in values.items():
        truth, sd = np.mean(several), np.std(several)
        line = f"{name:24} {rate:22} truth {truth:.3f} sd {sd:.4f}"
        for by_class in (False, True):
            ends = found[rate, by_class]
            held = np.mean([float(truth) in each for each in ends])
            width = np.mean([(each.high - each.low) / 2 for each in ends]) / 1.96 / sd
            line += f" | {'by class' if by_class else 'of all'} {held:.1%}, {width:.2f}"
        print(line, flush=True)


def _drawn(
    random: np.random.Generator, sizes: Sequence[int], shift: float, wrong: float, *, is_random: bool
) -> Labelled:
    """Features and labels asked for, some of whose images are of the next class."""
    shares = np.array(sizes) / sum(sizes)
    labels = (
        random.choice(len(sizes), sum(sizes), p=shares)
        if is_random
        else np.repeat(np.arange(len(sizes)), sizes)
    )
    centres = np.random.default_rng(5).normal(size=(len(sizes), _D))
    centres *= np.linspace(0.5, 1.5, len(sizes))[:, None] * shift / np.linalg.norm(centres, axis=1)[:, None]
    look = np.where(random.random(len(labels)) < wrong, (labels + 1) % len(sizes), labels)
    features = centres[look] + random.normal(size=(len(labels), _D))
    return torch.tensor(features, dtype=torch.float32), torch.tensor(labels)


def _halved(voters: Voters, tested: Tensor, trained: Tensor, n_classes: int, *, by_class: bool) -> Tally:
    of_tested, of_trained = _members(tested, 1, by_class=by_class), _members(trained, 0, by_class=by_class)
    tallies = []
    for inside, voting in zip(of_tested, of_trained, strict=True):
        rows = inside.nonzero()[:, 0]
        tallies.append(Tally.of(tested[rows], voters.elected(_K, rows=rows, may_vote=voting), n_classes))
    return Tally.stacked(tallies)


def _members(labels: Tensor, stream: int, *, by_class: bool) -> Tensor:
    """Which images are in each half: (B, n) bool."""
    inside = torch.zeros(_HALVES, len(labels), dtype=torch.bool)
    groups = sorted(set(labels.tolist())) if by_class else [None]
    for group in groups:
        rows = torch.arange(len(labels)) if group is None else (labels == group).nonzero()[:, 0]
        number = stream if group is None else 2 * (int(group) + 1) + stream
        halves = Halves.drawn(len(rows), seed=0, stream=number, count=_HALVES, device=labels.device)
        inside[:, rows] = unpacked(halves.member).T[:_HALVES]
    return inside


if __name__ == "__main__":
    main()
