"""Kernel launches, synchronizations, bytes and memory of a score, counted on the emulated GPU of the tests.

The times are estimates for an H200 by its data sheet (scripts/practice_cuda.py), not measurements.
"""

from __future__ import annotations

import importlib
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import click
import numpy as np
from torch import Tensor

_ROOT = Path(__file__).resolve().parent.parent
_SCRIPTS = _ROOT / "scripts"
_COLUMNS = ("launches", "synchronizations", "MB to device", "MB to host", "peak MB", "estimated ms")


@dataclass(frozen=True, slots=True)
class Case:
    """A score of n reals and n fakes of d features; the estimate assumes `width` features, where so many are too slow."""

    n: int
    d: int
    width: int | None = None
    with_intervals: bool = False


CASES = {
    "900 x 64": Case(900, 64),
    "900 x 64, intervals": Case(900, 64, with_intervals=True),
    "4,000 x 512": Case(4_000, 512),
    "12,000 x 48": Case(12_000, 48),
    "50,000 x 136 as 2,048": Case(50_000, 136, width=2_048),
    "50,000 x 2,048": Case(50_000, 2_048),  # takes ten minutes
}


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--case", "names", multiple=True, type=click.Choice(list(CASES)), default=list(CASES)[:-1])
@click.option("--commit", "commits", multiple=True, help="Default: the files as they are.")
@click.option("--where", is_flag=True, help="Also print which lines synchronize.")
@click.option("--one", hidden=True)
def main(names: tuple[str, ...], commits: tuple[str, ...], where: bool, one: str | None) -> None:
    """Print a table of the cases for each commit."""
    if one is not None:
        click.echo(json.dumps(_count(CASES[one])))
        return
    print("| commit | case |", *(f"{column} |" for column in _COLUMNS))
    print("|---|---|" + "--:|" * len(_COLUMNS))
    for commit in commits or ("",):
        with tempfile.TemporaryDirectory(prefix="genpr-count-") as folder:
            if commit:
                files = subprocess.check_output(["git", "archive", commit, "genpr"], cwd=_ROOT)
                with tarfile.open(fileobj=io.BytesIO(files)) as archive:
                    archive.extractall(folder, filter="data")
            path = os.pathsep.join([folder if commit else str(_ROOT), str(_SCRIPTS)])
            for name in names:
                command = [sys.executable, __file__, "--one", name]
                found = json.loads(subprocess.check_output(command, env={**os.environ, "PYTHONPATH": path}))
                print("|", commit or "now", "|", name, "|", *(f"{found[column]} |" for column in _COLUMNS))
                for line in found["where"] if where else []:
                    print(f"    {line}")


def _count(case: Case) -> dict[str, Any]:
    """Run one case, after a small one."""
    import genpr

    practice_cuda: Any = importlib.import_module("practice_cuda")

    rng, scales = np.random.default_rng(0), (1.0, 0.995)
    sets = [(rng.standard_normal((case.n, case.d)) * scale).astype(np.float32) for scale in scales]
    seconds = practice_cuda._seconds

    def widened(tensors: list[Tensor]) -> list[Any]:
        return [_Widened(x, case.d, case.width or case.d) for x in tensors]

    def seconds_of(name: str, tensors: list[Tensor], results: list[Tensor]) -> float:
        return float(seconds(name, widened(tensors), widened(results)))

    settings = {"limit": 64 * 2**30, "reorder": False}
    with (
        practice_cuda.practice_device(**settings) as device,
        patch.object(practice_cuda, "_seconds", seconds_of),
    ):
        for rows in (200, case.n):
            device.reset()
            real, fake = (each[:rows] for each in sets)
            if case.with_intervals:
                genpr.score(real, fake, device="cuda")
            else:
                genpr.manifold_metrics(real, fake, device="cuda")
        lines = [
            f"{count} {what} at {line}" for (what, line), count in device.synchronizations.most_common(15)
        ]
        up, down = (device.copied_bytes[way] for way in ("to device", "to host"))
        rest = up * ((case.width or case.d) / case.d - 1)  # what goes up is features
        values = (
            device.kernels,
            device.synchronizations.total(),
            *(f"{count / 1e6:.1f}" for count in (up + rest, down)),
            f"{device.peak_bytes / 1e6:.0f}" if case.width is None else "",
            f"{(device.seconds + rest / practice_cuda._HOST_BANDWIDTH) * 1e3:.1f}",
        )
    return {**dict(zip(_COLUMNS, values, strict=True)), "where": lines}


class _Widened(SimpleNamespace):
    """The shape of a tensor, `width` wherever it is `d`."""

    def __init__(self, x: Tensor, d: int, width: int) -> None:
        self.shape = [width if length == d else length for length in x.shape]
        self.dtype = x.dtype
        self.nbytes = self.numel() * x.element_size()

    def numel(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    def dim(self) -> int:
        return len(self.shape)


if __name__ == "__main__":
    main()
