"""Speed of embedding: images per second of decoding alone, of the network alone, and of both, with random weights."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import click
import numpy as np
import torch
from _embedding import load_genpr, make_images, write_random_weights
from PIL import Image

import genpr
from genpr.features.custom import wrap_extractor
from genpr.features.embed import ExtractorRun
from genpr.features.extractor import FeatureExtractor, PreparingExtractor, prepare_batch
from genpr.images.policy import DecodePolicy
from genpr.images.read_ahead import read_ahead
from genpr.images.source import open_source
from genpr.runtime import resolve_device, state_guard, usable_cores


def rates(extractor: FeatureExtractor, folder: Path, *, batch_size: int, rounds: int = 3) -> dict[str, float]:
    """Images per second, the best of `rounds`.

    Returns:
        "decode": Files to what goes to the device, in threads, without a network.
        "network": Forward passes over one batch that is on the device and prepared.
        "pixels": Arrays in memory to features on the CPU.
        "files": Files to features.
    """
    source, run_of = open_source(folder), ExtractorRun(wrap_extractor(extractor), None, batch_size)
    pixels = np.stack([np.asarray(Image.open(path).convert("RGB")) for path in sorted(folder.iterdir())])
    device = torch.device(getattr(extractor, "device", "cpu"))
    batch = torch.from_numpy(np.resize(pixels, (batch_size, *pixels.shape[1:]))).permute(0, 3, 1, 2)
    passes = -(-len(pixels) // batch_size)

    def decode() -> None:
        for _ in read_ahead(enumerate(source), [run_of.reader], DecodePolicy()):
            pass

    def network() -> None:
        for _ in range(passes):
            run(prepared)
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    run: Any = getattr(extractor, "forward", extractor)
    with state_guard(), torch.inference_mode():
        prepared = prepare_batch(extractor, batch) if isinstance(extractor, PreparingExtractor) else batch
        prepared = prepared.to(device)
        return {
            "decode": len(pixels) / _best(decode, rounds),
            "network": passes * batch_size / _best(network, rounds),
            "pixels": len(pixels)
            / _best(lambda: genpr.embed(pixels, extractor, batch_size=batch_size), rounds),
            "files": len(pixels)
            / _best(lambda: genpr.embed(folder, extractor, batch_size=batch_size), rounds),
        }


def _best(work: Callable[[], object], rounds: int) -> float:
    """Seconds; the first call is a warm-up."""
    times = []
    for _ in range(rounds + 1):
        start = perf_counter()
        work()
        times.append(perf_counter() - start)
    return min(times[1:])


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--extractor", "names", multiple=True, default=["inception", "inception@bfloat16"], show_default=True
)
@click.option(
    "--images", default=512, show_default=True, type=click.IntRange(2), help="Number of generated PNG files."
)
@click.option(
    "--size", default=256, show_default=True, type=click.IntRange(8), help="Side of the images in pixels."
)
@click.option("--batch-size", default=64, show_default=True, type=click.IntRange(1))
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1))
@click.option("--device", default="auto", show_default=True)
def main(names: tuple[str, ...], images: int, size: int, batch_size: int, rounds: int, device: str) -> None:
    """Print a JSON line for each extractor, with random weights and without downloads."""
    with tempfile.TemporaryDirectory(prefix="genpr-bench-") as scratch:
        folder = Path(scratch) / "images"
        folder.mkdir()
        make_images(folder, count=images, size=size)
        for name in names:
            resolved = resolve_device(device)
            extractor = load_genpr(name, write_random_weights(name, Path(scratch)), str(resolved))
            found = rates(extractor, folder, batch_size=batch_size, rounds=rounds)
            facts = {
                "extractor": name,
                "device": str(resolved),
                "cores": usable_cores(),
                "batch_size": batch_size,
            }
            click.echo(json.dumps({**facts, **{key: round(rate, 1) for key, rate in found.items()}}))


if __name__ == "__main__":
    main()
