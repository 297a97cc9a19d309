"""Train a small GAN, let genpr choose the checkpoint while it trains, and sweep the truncation of the chosen one.

python scripts/train_gan.py cifar10/train.zip --only automobile --extractor gabor --out gan
python scripts/train_gan.py my-images/ --steps 100000 --out gan

An example to copy from: the data, the training loop and its evaluation. The calls of genpr begin in `main`. The networks are in
`small_gan.py`. The script writes log.jsonl, a checkpoint and samples.png to --out at each score, and training.png and sweep/ at the end.
"""

from __future__ import annotations

import io
import json
import random
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any
from zipfile import ZipFile

import click
import numpy as np
import torch
from matplotlib import rc_context
from matplotlib.figure import Figure
from PIL import Image, ImageOps
from small_gan import SIZE, Z_DIM, Generator, Training, load
from torch import Tensor
from torchvision.utils import save_image

import genpr
from genpr.checkpoints.rank import Ranking
from genpr.checkpoints.sweep import Objective, SweepFolder
from genpr.integrations.callback import GenprCallback
from genpr.report.compare_tables import ranking_table, sweep_table
from genpr.report.files import write_sweep
from genpr.report.plots import STYLE, draw_metrics, put_legend

IMAGES = (".jpg", ".jpeg", ".png", ".webp")
PSIS = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)

# ---- Data: images of a folder or a zip, in memory


def read_images(source: Path, only: str | None) -> Tensor:
    """Read images as uint8 (n, 3, 32, 32); with `only`, those in folders of that name."""
    crops = [
        ImageOps.fit(Image.open(io.BytesIO(data)).convert("RGB"), (SIZE, SIZE), Image.Resampling.BICUBIC)
        for name, data in files_in(source)
        if name.lower().endswith(IMAGES) and (only is None or f"/{only}/" in f"/{name}")
    ]
    if not crops:
        where = "" if only is None else f" in a folder {only}"
        raise click.UsageError(f"{source} contains no images ({', '.join(IMAGES)}){where}")
    return torch.from_numpy(np.stack([np.asarray(image) for image in crops])).permute(0, 3, 1, 2)


def files_in(source: Path) -> Iterator[tuple[str, bytes]]:
    """Yield names and contents in sorted order."""
    if source.is_dir():
        for path in sorted(path for path in source.rglob("*") if path.is_file()):
            yield path.relative_to(source).as_posix(), path.read_bytes()
    else:
        with ZipFile(source) as archive:
            for name in sorted(archive.namelist()):
                yield name, archive.read(name)


def batches(images: Tensor, size: int) -> Iterator[tuple[int, Tensor]]:
    """Yield the epoch and a batch of images in -1..1, flipped at random, without end."""
    epoch = 0
    while True:
        for rows in torch.randperm(len(images)).split(size):
            batch = images[rows].float() / 127.5 - 1
            yield epoch, torch.where(torch.rand(len(batch), 1, 1, 1) < 0.5, batch.flip(3), batch)
        epoch += 1


# ---- Training


class Recent:
    """Losses and gradient norms of the last 100 steps: their means are logged, and norms far above their median are spikes."""

    def __init__(self) -> None:
        self._values: dict[str, deque[float]] = {}

    def add(self, facts: dict[str, float]) -> dict[str, float]:
        """Add the losses and norms of one step; return the norms above five times their median."""
        spikes = {}
        for name, value in facts.items():
            before = self._values.setdefault(name, deque(maxlen=100))
            if name.startswith("grad") and len(before) == before.maxlen and value > 5 * median(before):
                spikes[name] = value
            before.append(value)
        return spikes

    def means(self) -> dict[str, float]:
        """Return the mean of each loss and norm."""
        return {name: sum(values) / len(values) for name, values in self._values.items()}


Results = dict[int, genpr.Result]  # by step
Lines = list[dict[str, Any]]  # of log.jsonl


def train(
    training: Training, data: Iterator[tuple[int, Tensor]], score: GenprCallback[Generator], out: Path
) -> tuple[Results, Lines]:
    """Run all steps; save a checkpoint at each score."""
    recent, results, lines = Recent(), Results(), Lines()
    grid = torch.randn(64, Z_DIM, device=training.device)
    with (out / "log.jsonl").open("w") as log:
        for step, (epoch, real) in zip(range(1, training.steps + 1), data, strict=False):
            spikes = recent.add(training.step(real))
            scores = score(step, training.average)
            if scores and score.result is not None:
                results[step] = score.result
                torch.save(training.average.state_dict(), checkpoint(out, step))
                save_image(training.average(grid), out / "samples.png", normalize=True, value_range=(-1, 1))
            if scores or spikes or step % 50 == 0:
                facts = {"step": step, "epoch": epoch, "lr": training.rate, **recent.means()}
                lines.append(facts | {"spikes": spikes} | scores)
                print(json.dumps(lines[-1]), file=log, flush=True)
            if scores or spikes:
                click.echo(format_line(lines[-1]))
    return results, lines


def checkpoint(out: Path, step: int) -> Path:
    """Return the path of a checkpoint; paths sort by step."""
    return out / f"step-{step:06}.pt"


def format_line(line: dict[str, Any]) -> str:
    """Format one line of the log for the terminal."""
    shown = {name: value for name, value in line.items() if isinstance(value, float)}
    texts = [
        f"{name.removeprefix('genpr/')} {value:.3g}"
        for name, value in shown.items()
        if not name.endswith(("_low", "_high"))
    ]
    texts += [f"SPIKE of {name}: {value:.3g}" for name, value in line["spikes"].items()]
    return f"step {line['step']}, epoch {line['epoch']}: {', '.join(texts)}"


# ---- Evaluation


def plot_run(results: Results, lines: Lines, chosen: int, out: Path) -> None:
    """Write training.png: scores with intervals and the chosen step, losses, gradient norms with their spikes."""
    with rc_context(STYLE):
        figure = Figure(figsize=(9.6, 5.0), layout="constrained")
        axes = figure.subplot_mosaic([["scores", "loss"], ["scores", "grad"]])
        draw_metrics(axes["scores"], "step", results)
        axes["scores"].axvline(chosen, color="black", linewidth=0.8, label=f"chosen: {chosen}")
        put_legend(axes["scores"], columns=3)
        for panel in ("loss", "grad"):
            for name in (f"{panel}_g", f"{panel}_d"):
                axes[panel].plot([line["step"] for line in lines], [line[name] for line in lines], label=name)
            axes[panel].set_title(f"{panel}, means of 100 steps", loc="left", fontsize=9)
        for line in lines:
            axes["grad"].plot([line["step"]] * len(line["spikes"]), line["spikes"].values(), "kx")
        axes["grad"].set(yscale="log", xlabel="step")
        axes["grad"].tick_params(axis="y", which="minor", labelleft=False)
        for panel in ("loss", "grad"):
            axes[panel].legend(frameon=False, fontsize=8)
        figure.savefig(out / "training.png", dpi=160)


def rescore(evaluator: genpr.Evaluator, lines: Lines, chosen: int, out: Path) -> Ranking:
    """Rank the chosen checkpoint against others with new latents, which had no part in the choice."""
    scored = {line["step"]: line for line in lines if "genpr/f1" in line}
    roles = {
        "chosen": chosen,
        "last": max(scored),
        "lowest loss": min(scored, key=lambda step: scored[step]["loss_g"]),
        "any": random.choice(list(scored)),
    }
    images = {}
    for step in dict.fromkeys(roles.values()):
        names = ", ".join(role for role, at in roles.items() if at == step)
        sampler = genpr.Sampler.of(
            load(str(checkpoint(out, step))), n=evaluator.n_real, seed=1, image_range=(-1, 1)
        )
        images[f"step {step} ({names})"] = sampler.images(1.0)
    return genpr.rank_checkpoints(evaluator, images, by="f1")


@click.command(context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.argument("source", type=click.Path(exists=True, path_type=Path))
@click.option("--only", metavar="NAME", help="Use only images in folders of this name, such as one class.")
@click.option("--steps", default=8000, type=click.IntRange(min=1))
@click.option("--batch-size", default=32, type=click.IntRange(min=2))
@click.option("--every", default=500, type=click.IntRange(min=1), help="Number of steps between two scores.")
@click.option(
    "--n",
    default=5000,
    type=click.IntRange(min=50),
    help="Maximum number of real images, and of fakes per score.",
)
@click.option("--extractor", help="Extractor, see `genpr list extractors`.")
@click.option("--device", default="cuda" if torch.cuda.is_available() else "cpu")
@click.option("--seed", default=0)
@click.option("--out", default="gan", type=click.Path(file_okay=False, path_type=Path))
def main(
    source: Path,
    only: str | None,
    steps: int,
    batch_size: int,
    every: int,
    n: int,
    extractor: str | None,
    device: str,
    seed: int,
    out: Path,
) -> None:
    """Train on the images in SOURCE, a folder or a zip file."""
    out.mkdir(parents=True, exist_ok=True)
    if (out / "log.jsonl").exists() or every > steps:
        raise click.UsageError(
            f"{out} already contains a run; choose another --out"
            if every <= steps
            else "--every must be at most --steps"
        )
    torch.manual_seed(seed)
    random.seed(seed)
    images = read_images(source, only)
    training = Training(steps, torch.device(device))

    # The reals are embedded once. Each score embeds only the fakes, which are generated from the same latents.
    evaluator = genpr.Evaluator(images[torch.randperm(len(images))[:n]], extractor=extractor, device=device)
    latents = torch.randn(evaluator.n_real, Z_DIM, device=training.device)

    def draw(generator: Generator) -> Iterator[Tensor]:
        return (generator(part) for part in latents.split(100))

    score = GenprCallback(
        evaluator, draw, every=every, monitor="genpr/f1", intervals=True, image_range=(-1, 1)
    )
    results, lines = train(training, batches(images, batch_size), score, out)
    assert score.history.best is not None, "there was a score"
    chosen = score.history.best.step
    plot_run(results, lines, chosen, out)
    click.echo(ranking_table(rescore(evaluator, lines, chosen, out)))

    generator = load(str(checkpoint(out, chosen))).to(training.device)
    sweep = genpr.truncation_sweep(
        generator, evaluator, PSIS, n=evaluator.n_real, seed=2, image_range=(-1, 1), out=out / "sweep"
    )
    write_sweep(sweep, Objective(), SweepFolder(out / "sweep"))
    click.echo(sweep_table(sweep, Objective()))


if __name__ == "__main__":
    try:
        main()
    except genpr.GenprError as error:
        raise SystemExit(f"error: {error}") from None
