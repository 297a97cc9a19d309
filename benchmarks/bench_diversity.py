"""Time and memory of diversity within groups, compared with embedding the images once plus the pairs, and with LPIPS of each pair."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from unittest.mock import patch

import click
import numpy as np
import torch
from _shared import PeakMemory, append_record, describe_machine, in_new_process, pin_to_cores
from numpy.typing import NDArray

import genpr
from genpr.evaluation import diversity
from genpr.features.networks.lpips import PerceptualDistance
from genpr.features.weights import Weights
from genpr.metrics.paired import MultiScaleSSIM
from genpr.runtime import reused_memory

_BATCH = 16
_CHANNELS = {"alex": (64, 192, 384, 256, 256), "vgg": (64, 128, 256, 512, 512)}
Pixels = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Job:
    """One measurement; the weights of LPIPS are random."""

    way: str
    metric: str
    net: str
    groups: int
    images: int
    side: int


@dataclass(frozen=True, slots=True)
class Cost:
    """Wall and processor seconds, bytes above the level before, and the mean over groups."""

    wall: float
    processor: float
    bytes: int
    value: float


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--metric", "metrics", multiple=True, default=("lpips", "ms_ssim"), show_default=True)
@click.option("--net", default="alex", show_default=True, type=click.Choice(list(_CHANNELS)))
@click.option("--groups", default=100, show_default=True)
@click.option("--images", default=10, show_default=True, help="Images of a group.")
@click.option("--side", default=64, show_default=True, help="Pixels of a side for lpips; 176 for ms_ssim.")
@click.option("--repeats", default=3, show_default=True, type=click.IntRange(min=1))
@click.option("--pair-by-pair/--no-pair-by-pair", default=True, help="Also each pair through the network.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="JSON lines file to append to.")
def main(
    metrics: tuple[str, ...],
    net: str,
    groups: int,
    images: int,
    side: int,
    repeats: int,
    *,
    pair_by_pair: bool,
    out: Path | None,
) -> None:
    """Measure `genpr.diversity` on arrays in memory, alternately with the other ways.

    The aim is a ratio of at most 1.2 to the sum of parts. Values are compared before times are.
    """
    machine = describe_machine(threads=1)
    for metric in metrics:
        size = 176 if metric == "ms_ssim" else side
        ways = ["genpr", "parts", *["pair by pair"] * pair_by_pair]
        turns: list[dict[str, Cost]] = []
        for _ in range(repeats):
            turn = {
                way: in_new_process(_measure, Job(way, metric, net, groups, images, size)) for way in ways
            }
            values = [cost.value for cost in turn.values()]
            if max(values) - min(values) > 1e-6:
                raise SystemExit(f"values differ: {turn}")
            turns.append(turn)
        for way in ways[1:]:
            ratios = [
                (turn["genpr"].processor / turn[way].processor, turn["genpr"].wall / turn[way].wall)
                for turn in turns
            ]
            processor, wall = (median(each) for each in zip(*ratios, strict=True))
            memory = [median(turn[name].bytes for turn in turns) / 1e6 for name in ("genpr", way)]
            facts = {
                "metric": metric,
                "net": net,
                "groups": groups,
                "images": images,
                "side": size,
                "way": way,
            }
            runs = [{name: asdict(cost) for name, cost in turn.items()} for turn in turns]
            append_record(out, "diversity", machine, **facts, processor=processor, wall=wall, runs=runs)
            click.echo(
                f"{metric}, {groups} x {images} of {size} x {size}: {processor:.2f} x the processor time and {wall:.2f} x the wall "
                f"time of {way} ({median(turn['genpr'].processor for turn in turns):.1f} s; {memory[0]:.0f} and {memory[1]:.0f} MB)"
            )


def _measure(job: Job) -> Cost:
    pin_to_cores(1)
    torch.set_num_threads(1)
    pixels = np.random.default_rng(0).integers(
        0, 256, (job.groups, job.images, job.side, job.side, 3), np.uint8
    )
    ways = {"genpr": _by_genpr, "parts": _by_parts, "pair by pair": _by_pairs}
    with ExitStack() as stack:
        distance, used = _distance(job.net), {"weights": Path()} if job.metric == "lpips" else {}
        stack.enter_context(patch.object(diversity, "find_weights", lambda _: used))
        stack.enter_context(patch.object(diversity, "perceptual_distance", lambda *_: distance))
        measure: PerceptualDistance | MultiScaleSSIM = distance if job.metric == "lpips" else MultiScaleSSIM()
        work = ways[job.way]
        work(job, pixels[:2], measure)  # warm up
        with PeakMemory() as memory:
            wall, processor = perf_counter(), process_time()
            value = work(job, pixels, measure)
            cost = Cost(perf_counter() - wall, process_time() - processor, memory.above_level, value)
    return cost


def _distance(net: str) -> PerceptualDistance:
    from torchvision import models

    torch.manual_seed(0)
    network = models.vgg16(weights=None) if net == "vgg" else models.alexnet(weights=None)
    linear = {
        f"lin{place}.model.1.weight": torch.rand(1, count, 1, 1) for place, count in enumerate(_CHANNELS[net])
    }
    backbone = {name: tensor for name, tensor in network.state_dict().items() if name.startswith("features.")}
    return PerceptualDistance(net, Weights(backbone, ""), Weights(linear, ""), torch.device("cpu"))


def _by_genpr(job: Job, pixels: Pixels, _measure: object) -> float:
    labels = np.repeat(np.arange(len(pixels)), job.images)
    images = pixels.reshape(-1, *pixels.shape[2:])
    result = genpr.diversity(images, groups=labels, metrics=[job.metric], batch_size=_BATCH, device="cpu")
    return result[f"diversity.{job.metric}"]


def _by_parts(job: Job, pixels: Pixels, measure: PerceptualDistance | MultiScaleSSIM) -> float:
    """Hash and embed each image once, in batches, and compare the pairs, without anything else."""
    import hashlib

    images = torch.from_numpy(pixels.reshape(-1, *pixels.shape[2:])).permute(0, 3, 1, 2)
    kept: list[list[torch.Tensor]] = []
    means: list[float] = []
    with torch.inference_mode(), reused_memory:
        for batch in torch.split(images, _BATCH):
            for image in batch:
                hashlib.sha256(image.numpy().tobytes()).digest()
            layers = list(measure.activations(batch))
            kept += [[layer[row : row + 1] for layer in layers] for row in range(len(batch))]
            while len(kept) >= job.images:
                pairs = combinations(kept[: job.images], 2)
                means.append(
                    float(np.mean([float(measure.compared(zip(*pair, strict=True))) for pair in pairs]))
                )
                del kept[: job.images]
    return float(np.mean(means))


def _by_pairs(job: Job, pixels: Pixels, measure: PerceptualDistance | MultiScaleSSIM) -> float:
    """Both images of each pair through the network, as with the function of lpips or torchmetrics."""
    means = []
    with torch.inference_mode(), reused_memory:
        for group in pixels:
            images = torch.from_numpy(group).permute(0, 3, 1, 2)
            first, second = torch.triu_indices(job.images, job.images, 1)
            parts = zip(torch.split(images[first], _BATCH), torch.split(images[second], _BATCH), strict=True)
            layers = ((measure.activations(a), measure.activations(b)) for a, b in parts)
            means.append(
                float(torch.cat([measure.compared(zip(*each, strict=True)) for each in layers]).mean())
            )
    return float(np.mean(means))


if __name__ == "__main__":
    main()
