"""Coverage of the 95 % intervals of entity metrics, where the images of a prompt share its difficulty."""

from __future__ import annotations

import click
import numpy as np
from _shared import append_record, describe_machine

from genpr.metrics.entities import ENTITY_METRICS, EntityMetrics, entity_set_metrics

_ENTITIES = tuple(f"entity {i}" for i in range(15))
_SIZES = ((40, 1), (100, 1), (400, 1), (400, 4))  # images, and images of one prompt
_UNREADABLE, _WRONG = 0.1, 0.15


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--draws", default=200, show_default=True, type=click.IntRange(min=1))
@click.option(
    "--truth", default=60_000, show_default=True, help="Number of images from which true values are computed."
)
def main(draws: int, truth: int) -> None:
    """Draw answers about images of 15 entities with different frequencies and difficulties, repeatedly.

    One in ten answers is unreadable. For each image, two absent entities are found with a probability of 15 % each.
    """
    rng = np.random.default_rng(0)
    ease = rng.uniform(0.2, 0.95, len(_ENTITIES))
    found = {}
    for n, images in _SIZES:
        real = _draw(rng, ease, truth, images)
        held, widths = dict.fromkeys(ENTITY_METRICS, 0), []
        for seed in range(draws):
            metrics = _draw(rng, ease, n, images, seed)
            for name, score in metrics.scores.items():
                low, high = score.interval or (0.0, -1.0)
                held[name] += low <= real[name] <= high
            interval = metrics.scores["recall"].interval
            widths.append(0.0 if interval is None else (interval[1] - interval[0]) / 2)
        shares = {name: count / draws for name, count in held.items()}
        found[f"{n} images of {n // images} prompts"] = {
            **shares,
            "half width of recall": float(np.mean(widths)),
        }
        click.echo(f"{n} images of {n // images} prompts: {found[f'{n} images of {n // images} prompts']}")
    machine = describe_machine(threads=1)
    path = append_record(None, "entity-intervals", machine, draws=draws, held=found)
    click.echo(f"wrote {path}")


def _draw(rng: np.random.Generator, ease: np.ndarray, n: int, images: int, seed: int = 0) -> EntityMetrics:
    """Metrics of n images in groups of `images`, which share a prompt and its difficulty."""
    names, odds = np.array(_ENTITIES), np.log(ease / (1 - ease))
    often = 1 / np.arange(1, len(names) + 1)
    expected, found, groups = [], [], []
    for prompt in range(n // images):
        chosen = rng.choice(len(names), rng.integers(1, 4), replace=False, p=often / often.sum())
        others = rng.choice(np.setdiff1d(np.arange(len(names)), chosen), 2, replace=False)
        chances = 1 / (1 + np.exp(-odds[chosen] - rng.normal(0, 0.8)))
        for _ in range(images):
            seen = np.concatenate([chosen[rng.random(len(chosen)) < chances], others[rng.random(2) < _WRONG]])
            expected.append(set(names[chosen].tolist()))
            found.append(None if rng.random() < _UNREADABLE else set(names[seen].tolist()))
            groups.append(prompt)
    return entity_set_metrics(expected, found, vocabulary=_ENTITIES, groups=groups, seed=seed)


if __name__ == "__main__":
    main()
