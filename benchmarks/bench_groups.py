"""Coverage of 95 % intervals where images come in dependent groups, such as slices of volumes, with and without the groups.

The features of an image are those of its group plus its own: with a correlation of r, the group has the share r of the variance.
The fakes have the distribution of the reals, or a shifted one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import click
import numpy as np
import torch
from _shared import append_record, describe_machine

import genpr

_METRICS = ("precision", "recall", "density", "coverage", "fd", "kd", "mind")
_DIM = 16
# Groups, images of a group (at most this multiple of half the number), correlation, shift
_CASES = ((40, 20, 0.2, 0.0), (40, 20, 0.5, 0.0), (40, 20, 0.5, 0.5), (40, 20, 0.9, 0.5), (100, 10, 0.5, 0.5))


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--draws", default=200, show_default=True, type=click.IntRange(min=2))
def main(draws: int) -> None:
    """Draw reals and fakes repeatedly, and count the intervals that hold the mean over all draws."""
    torch.set_num_threads(1)
    found = {}
    for groups, size, correlation, shift in _CASES:
        for varied in (False, True):
            values = list[list[float]]()
            ends: dict[str, list[Any]] = {"groups": [], "images": []}
            for draw in range(draws):
                rng = np.random.default_rng(draw)
                real, of_real = _draw(rng, groups, size, correlation, 0.0, varied=varied)
                fake, of_fake = _draw(rng, groups, size, correlation, shift, varied=varied)
                both: dict[str, dict[str, Any]] = {
                    "groups": {"real_groups": of_real, "fake_groups": of_fake},
                    "images": {},
                }
                for name, given in both.items():
                    result = genpr.score(real, fake, metrics=_METRICS, control=False, device="cpu", **given)
                    ends[name].append([result.metrics[each].interval or (math.nan,) * 2 for each in _METRICS])
                values.append([result[each] for each in _METRICS])
            truth = np.mean(values, axis=0)
            case = f"{groups} groups of {'1/2 to 2 times ' * varied}{size}, correlation {correlation}, shift {shift}"
            found[case] = {name: _covered(np.array(each), truth) for name, each in ends.items()}
            click.echo(f"{case}\n  {found[case]}")
    path = append_record(None, "groups", describe_machine(threads=1), draws=draws, held=found)
    click.echo(f"wrote {path}")


def _covered(ends: np.ndarray, truth: np.ndarray) -> Mapping[str, tuple[float, float]]:
    """By metric, the share of the intervals that hold the truth, and that of the draws with an interval."""
    low, high = np.moveaxis(ends, 2, 0)
    is_known = ~np.isnan(low)
    held = ((low <= truth) & (truth <= high)).sum(axis=0) / np.maximum(1, is_known.sum(axis=0))
    pairs = zip(held.round(3).tolist(), is_known.mean(axis=0).round(3).tolist(), strict=True)
    return dict(zip(_METRICS, pairs, strict=True))


def _draw(
    rng: np.random.Generator, groups: int, size: int, correlation: float, shift: float, *, varied: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Features of one set, and the group of each image."""
    sizes = rng.integers(size // 2, 2 * size, groups) if varied else np.full(groups, size)
    numbers = np.repeat(np.arange(groups), sizes)
    of_groups = rng.normal(size=(groups, _DIM))[numbers] * correlation**0.5
    return of_groups + rng.normal(size=(len(numbers), _DIM)) * (1 - correlation) ** 0.5 + shift, numbers


if __name__ == "__main__":
    main()
