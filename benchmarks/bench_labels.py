"""Label metrics and pooled metrics of images with wrong labels.

    genpr features cifar10/test.zip test.safetensors --extractor cifar10_cnn.py:load
    python benchmarks/bench_labels.py test.safetensors

Reals are 500 images of each class of CIFAR-10's test set. The "generators" return 300 other images of each class: unchanged;
with the labels of two classes exchanged; with half of the images of one class replaced by images of another; with a fifth of
all labels wrong at random; and with one image per class, 300 times.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import genpr
from genpr.evaluation.labels import FolderLabels
from genpr.features.feature_set import load_features

_REALS, _FAKES = 500, 300
_NOISE = 0.2 / 0.9  # a random label is the right one a tenth of the time

Rows = NDArray[np.int64]


def main() -> None:
    """Print a table per generator."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("features", type=Path, help="of the test set, by `genpr features`")
    parser.add_argument("--exchanged", nargs=2, default=["cat", "dog"], metavar="CLASS")
    parser.add_argument("--replaced", nargs=2, default=["truck", "automobile"], metavar="CLASS")
    options = parser.parse_args()
    features = load_features(options.features)
    labels = np.array(FolderLabels().match(features.names, range(len(features)), len(features)))
    rows = features.features.numpy()
    order = np.random.default_rng(0).permutation(len(labels))
    of = {label: order[labels[order] == label] for label in sorted(set(labels.tolist()))}
    reals = np.concatenate([each[:_REALS] for each in of.values()])
    fakes = np.concatenate([each[_REALS : _REALS + _FAKES] for each in of.values()])
    for name, images, requested in _generators(of, labels, fakes, options.exchanged, options.replaced):
        chosen = genpr.LabelOptions(real_labels=labels[reals].tolist(), fake_labels=requested.tolist())
        result = genpr.score(rows[reals], rows[images], labels=chosen, control=False)
        _show(name, result)


def _generators(
    of: dict[str, Rows],
    labels: NDArray[np.str_],
    fakes: Rows,
    exchanged: list[str],
    replaced: list[str],
) -> list[tuple[str, Rows, NDArray[np.str_]]]:
    """Name, images and requested labels of each generator."""
    requested = labels[fakes]
    first, second = exchanged
    swapped = np.where(requested == first, second, np.where(requested == second, first, requested))
    original, given = replaced
    spare = of[given][_REALS + _FAKES :][: _FAKES // 2]
    mixed = fakes.copy()
    mixed[np.flatnonzero(requested == original)[: len(spare)]] = spare
    random = np.random.default_rng(1)
    others = random.choice(list(of), len(requested))
    noisy = np.where(random.random(len(requested)) < _NOISE, others, requested)
    repeated = np.concatenate([each[_REALS : _REALS + 1].repeat(_FAKES) for each in of.values()])
    return [
        ("faithful", fakes, requested),
        (f"{first} and {second} exchanged", fakes, swapped),
        (f"half of {original} is {given}", mixed, requested),
        ("a fifth of the labels wrong", fakes, noisy),
        ("one image per class", repeated, requested),
    ]


def _show(name: str, result: genpr.Result) -> None:
    print(f"\n{name}: {result.real.n:,} reals, {result.fake.n:,} fakes")
    for metric, found in result.metrics.items():
        low, high = found.interval or (found.value, found.value)
        null = "" if found.null is None else f", perfect {found.null:.4f}"
        print(f"  {metric:22} {found.value:.4f} ({low:.3f} to {high:.3f}){null}")
    assert result.labels is not None
    for row in result.labels.rows[:4]:
        shares = [
            f"{'-' if value is None else f'{value:.2f}'} of {'-' if null is None else f'{null:.2f}'}"
            for value, null in ((row.precision, row.null_precision), (row.recall, row.null_recall))
        ]
        print(f"  {row.label:12} precision {shares[0]}, recall {shares[1]}")
    for pair in result.labels.confusions[:3]:
        print(f"  requested {pair.requested}, recognized {pair.recognized}: {pair.n:,}")
    print(f"  {result.seconds['labels']:.1f} s for labels")


if __name__ == "__main__":
    main()
