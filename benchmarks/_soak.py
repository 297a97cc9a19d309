"""Checkpoints of an improving generator, resources of a process, and scores of fresh processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from genpr.demo import ShapesGenerator, draw_latents

_DRAWN_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class Held:
    """Resources of a process.

    Attributes:
        resident: Bytes of its memory that are in RAM.
        anonymous: Bytes of these that do not belong to files: heap and stacks, without libraries and mapped files.
        files: Open files.
        threads: Threads.
    """

    resident: int
    anonymous: int
    files: int
    threads: int

    @classmethod
    def by(cls, pid: int) -> Held:
        """Return the resources of process `pid` (Linux)."""
        process = Path(f"/proc/{pid}")
        status = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
        kilobytes = {name: int(status[name].split()[0]) * 1024 for name in ("VmRSS", "RssAnon")}
        files = [name for name in os.listdir(process / "fd") if _is_open(process / "fd" / name)]  # noqa: PTH208
        return cls(kilobytes["VmRSS"], kilobytes["RssAnon"], len(files), int(status["Threads"]))


def _is_open(link: Path) -> bool:
    """Whether a descriptor is still open; the one that listed the folder is not."""
    try:
        return not os.readlink(link).endswith("/fd")  # noqa: PTH115
    except OSError:
        return False


def write_checkpoints(folder: Path, *, checkpoints: int, images: int, seed: int = 0) -> None:
    """Write real/ and samples/000, samples/001, ... below `folder`: PNG files of drawings, 32 x 32.

    Early checkpoints have few kinds of images and much noise; the last ones have the distribution of the reals. No two files are equal.
    """
    drawn = _drawings(2 * images, seed=seed)
    real, pool = drawn[:images], drawn[images:]
    _write(folder / "real", real)
    generator = torch.Generator().manual_seed(seed)
    for number in range(checkpoints):
        left = 1 - (number + 1) / checkpoints
        kinds = max(1, round((1 - left) * len(pool)))  # the latents are in no order: fewer drawings, repeated
        chosen = pool[torch.randint(kinds, (images,), generator=generator)]
        noise = torch.randn(chosen.shape, generator=generator) * (2 + 24 * left)
        _write(folder / "samples" / f"{number:03d}", (chosen + noise).clamp(0, 255).round().to(torch.uint8))


def _drawings(count: int, *, seed: int) -> Tensor:
    """uint8 (n, 3, 32, 32)."""
    draw = ShapesGenerator()
    latents = draw_latents(count, seed=seed)
    parts = [draw(latents[start : start + _DRAWN_AT_ONCE]) for start in range(0, count, _DRAWN_AT_ONCE)]
    return torch.cat([F.avg_pool2d(part.float(), 2).round().to(torch.uint8) for part in parts])


def _write(folder: Path, images: Tensor) -> None:
    folder.mkdir(parents=True)
    for number, image in enumerate(images):
        pixels = image.permute(1, 2, 0).contiguous().numpy()
        Image.fromarray(pixels).save(folder / f"{number:05d}.png", compress_level=1)


def fresh_score(real: Path, fake: Path, *, extractor: str, cache: Path) -> dict[str, Any]:
    """Return the JSON of `genpr score` from its own process."""
    command = [
        sys.executable,
        "-m",
        "genpr",
        "score",
        str(real),
        str(fake),
        "--extractor",
        extractor,
        "--device",
        "cpu",
    ]
    done = subprocess.run(
        [*command, "--json", "--quiet", "--cache-dir", str(cache)], capture_output=True, text=True, check=True
    )
    record: dict[str, Any] = json.loads(done.stdout)
    return record


def numbers_of(record: dict[str, Any]) -> dict[str, Any]:
    """Return the numbers that must not depend on the process: values, intervals and nulls by metric."""
    if "status" in record:  # a line of `genpr watch`
        return {
            name: {key: each for key, each in record[name].items() if key != "f1"}
            for name in ("metrics", "intervals", "nulls")
        }
    metrics = record["metrics"]
    parts = {"metrics": "value", "intervals": "interval", "nulls": "null"}
    return {
        name: {key: each[part] for key, each in metrics.items() if each[part] is not None}
        for name, part in parts.items()
    }
