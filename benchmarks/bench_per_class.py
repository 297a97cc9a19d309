"""Cost of scores per class: a score of all images alone, with every class, and every class scored by itself; equal to the bit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

import click
import numpy as np
import torch
from _shared import append_record, describe_machine
from numpy.typing import NDArray

import genpr
from genpr.evaluation.result import ClassScores
from genpr.metrics.metric import MetricValue

CASES = {
    "10 x 500, d = 512": (10, 500, 512),
    "10 x 500, d = 2048": (10, 500, 2048),
    "100 x 50, d = 2048": (100, 50, 2048),
}
METRICS: dict[str, list[str] | None] = {
    "default": None,
    "with distances": ["precision", "recall", "fd", "kd"],
}
_DISTANCES = ("fd", "kd")  # which classes have by default


def draw(classes: int, each: int, d: int, seed: int) -> NDArray[np.float32]:
    """Clusters of equal size with eigenvalues that fall as 1 / i, as those of learned features do."""
    rng, scales = np.random.default_rng(seed), np.arange(1, d + 1) ** -0.5
    centers = np.random.default_rng(0).normal(size=(classes, d)) * scales
    rows: NDArray[np.float64] = np.repeat(centers, each, axis=0)
    return (rows + rng.normal(size=rows.shape) * scales).astype(np.float32)


@dataclass(frozen=True)
class Job:
    """Two sets of equal classes, and the options of their score."""

    real: NDArray[np.float32]
    fake: NDArray[np.float32]
    labels: NDArray[np.str_]
    metrics: list[str] | None
    control: bool

    def evaluator(self) -> genpr.Evaluator:
        """The reals, fitted."""
        return genpr.Evaluator(self.real, metrics=self.metrics, control=self.control, device="cpu")

    def pooled(self) -> object:
        """A score of all images."""
        return self.evaluator().score(self.fake)

    def per_class(self) -> ClassScores:
        """A score of all images and of each class."""
        return self.evaluator().score_classes(self.fake, real_labels=self.labels, fake_labels=self.labels)

    def one_by_one(self) -> dict[str, Mapping[str, MetricValue]]:
        """A score of the images of each class alone."""
        metrics = self.metrics or [*self.evaluator().metrics, *_DISTANCES]
        options: dict[str, Any] = {"metrics": metrics, "control": False, "device": "cpu"}
        rows = ((label, self.labels == label) for label in dict.fromkeys(self.labels))
        return {label: genpr.score(self.real[own], self.fake[own], **options).metrics for label, own in rows}


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--repeats", default=5, show_default=True, type=click.IntRange(min=1))
@click.option("--control/--no-control", default=True, show_default=True)
@click.option("--case", "names", multiple=True, type=click.Choice([*CASES]), default=[*CASES])
@click.option("--metrics", "kinds", multiple=True, type=click.Choice([*METRICS]), default=[*METRICS])
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="JSON lines file to append to.")
def main(
    repeats: int, control: bool, names: tuple[str, ...], kinds: tuple[str, ...], out: Path | None
) -> None:
    """Measure processor time in turns, with features given."""
    machine = describe_machine(threads=torch.get_num_threads())
    for name in names:
        classes, each, d = CASES[name]
        real, fake = draw(classes, each, d, 1), draw(classes, each, d, 2)
        labels = np.repeat(np.arange(classes), each).astype(str)
        for kind in kinds:
            job = Job(real, fake, labels, METRICS[kind], control)
            found, alone = job.per_class(), job.one_by_one()  # which also warms up
            if any(dict(score.metrics) != dict(alone[score.label]) for score in found.classes):
                raise SystemExit(f"{name}, {kind}: scores of a class differ from a score of its images")
            ways = {"pooled": job.pooled, "per class": job.per_class}
            seconds: dict[str, list[float]] = {way: [] for way in ways}
            for _ in range(repeats):
                for way, run in ways.items():
                    started = process_time()
                    run()
                    seconds[way].append(process_time() - started)
            middle = {way: median(times) for way, times in seconds.items()}
            ratio = middle["per class"] / middle["pooled"]
            shown = ", ".join(f"{way} {time:.2f} s" for way, time in middle.items())
            click.echo(
                f"{name}, {kind}{'' if control else ', no control'}: {shown}; per class / pooled {ratio:.2f}"
            )
            facts = {"case": name, "metrics": kind, "control": control, "seconds": seconds, "ratio": ratio}
            append_record(out, "per-class", machine, **facts)


if __name__ == "__main__":
    main()
