"""Run the comparisons: first of features, then of times in rounds in which the tools alternate."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from _extractor_cases import GENPR, Comparison, Found, Job, Mode, Record, Side
from _extractor_weights import write_random_weights
from _process import CaseFailedError, call_script

_SCRIPT = Path(__file__).with_name("bench_extractors.py")
_WARM_UP_IMAGES = 64
_TIMEOUT_SECONDS = 3600


@dataclass(frozen=True, slots=True)
class Workplace:
    """Folders and settings of a run.

    Attributes:
        folder: Images, numbered.
        warm_up: Folder with the first of them.
        scratch: Folder for weights and features.
        device: "cpu" or "cuda".
        batch_size: Of genpr.
        rounds: Number of timed rounds.
        log: Called with progress messages.
    """

    folder: Path
    warm_up: Path
    scratch: Path
    device: str
    batch_size: int
    rounds: int
    log: Callable[[str], None]

    @property
    def images(self) -> int:
        """Number of images."""
        return sum(1 for _ in self.folder.iterdir())


def copy_first(folder: Path, warm_up: Path) -> None:
    """Copy images to the folder for the warm-up."""
    for path in sorted(folder.iterdir())[:_WARM_UP_IMAGES]:
        shutil.copyfile(path, warm_up / path.name)


def run(comparison: Comparison, place: Workplace) -> Record:
    """Compare the features, then measure times; a tool that fails is not run again."""
    weights = write_random_weights(comparison.extractor, place.scratch)
    tools = _tools(comparison, place, weights)
    for side, job in tools:
        _check(side, job, place)
    difference, spread = _compare([Path(job.features) for side, job in tools if not side.failure])
    for number in range(place.rounds):
        for side, job in tools:
            if not side.failure and (found := _found(side, job, place, mode="time")):
                side.seconds.append(found.seconds)
                rate = place.images / found.seconds
                place.log(f"{job.extractor}: {side.tool}, round {number + 1}: {rate:.1f} images/s")
    sides = [side for side, _ in tools]
    return Record(comparison.extractor, place.images, sides, difference, spread)


def _tools(comparison: Comparison, place: Workplace, weights: Path | None) -> list[tuple[Side, Job]]:
    peer = comparison.peer
    named = [(GENPR, "genpr_embed", place.batch_size)]
    if peer is not None and peer.installed:
        named.append((peer.name, peer.function, peer.batch_size))
    tools = [
        (
            Side(tool, batch_size),
            Job(
                function=function,
                extractor=comparison.extractor,
                weights=None if weights is None else str(weights),
                folder=str(place.folder),
                warm_up=str(place.warm_up),
                device=place.device,
                batch_size=batch_size,
                mode="check",
                features=str(place.scratch / f"{function}.npy"),
            ),
        )
        for tool, function, batch_size in named
    ]
    if peer is not None and not peer.installed:
        place.log(f"{peer.name} is left out: {peer.module} cannot be imported")
    return tools


def _check(side: Side, job: Job, place: Workplace) -> None:
    place.log(f"{job.extractor}: {side.tool}, features and memory")
    found = _found(side, job, place, mode="check")
    if found is not None:
        side.peak_bytes, side.level_bytes = found.peak_bytes, found.level_bytes
        side.cuda_peak_bytes = found.cuda_peak_bytes


def _found(side: Side, job: Job, place: Workplace, *, mode: Mode) -> Found | None:
    try:
        answer = call_script(
            _SCRIPT, "job", json.dumps({**asdict(job), "mode": mode}), timeout=_TIMEOUT_SECONDS
        )
    except CaseFailedError as error:
        side.failure = str(error).replace(str(place.scratch.parent), "...")
        place.log(f"{job.extractor}: {side.tool} failed: {side.failure}")
        return None
    return Found(**json.loads(answer))


def _compare(files: list[Path]) -> tuple[float | None, float | None]:
    """Largest difference of the features, and their spread over images, both over their range."""
    if len(files) < 2:
        return None, None
    ours, theirs = (np.load(file).astype(np.float64) for file in files)
    if ours.shape != theirs.shape:
        return float("inf"), 0.0
    extent = float(theirs.max() - theirs.min()) or 1.0
    return float(np.abs(ours - theirs).max()) / extent, float(np.median(theirs.std(axis=0))) / extent
