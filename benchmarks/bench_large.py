"""More reals than fit in memory as float32: a memory-mapped float16 file against a few fakes in memory."""

from __future__ import annotations

import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

import click
import numpy as np
import torch
from _shared import PeakMemory, append_record, describe_machine, random_rotation, write_gaussian
from numpy.typing import NDArray

import genpr

_EXPONENT = 1.5
_FAKE_SCALE = 0.95
_PILOT_SHARE = 10


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--reals", default=250_000, show_default=True, type=click.IntRange(100))
@click.option("--fakes", default=10_000, show_default=True, type=click.IntRange(10))
@click.option(
    "--d", default=1024, show_default=True, type=click.IntRange(1), help="Number of features per row."
)
@click.option("--k", default=5, show_default=True, type=click.IntRange(1))
@click.option("--device", default="cpu", show_default=True, type=click.Choice(["cpu", "cuda"]))
@click.option("--max-minutes", default=90.0, show_default=True, help="Stop if the estimated time is longer.")
@click.option(
    "--temp-dir",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder for the temporary file of the reals: 2 bytes per feature.",
)
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="JSON lines file to append to.  [default: benchmarks/results/large-<date>-<machine>.jsonl]",
)
def main(
    reals: int,
    fakes: int,
    d: int,
    k: int,
    device: str,
    max_minutes: float,
    temp_dir: Path | None,
    out: Path | None,
) -> None:
    """Time genpr.manifold_metrics on REALS memory-mapped float16 rows of a power-law 1.5 spectrum.

    A tenth of the reals is timed first to estimate the time of all. Resident memory is counted with and without pages
    of the mapped file, which the system can reclaim at any time.
    """
    with tempfile.TemporaryDirectory(prefix="genpr-bench-", dir=temp_dir) as folder:
        click.echo(f"writing {reals:,} reals and {fakes:,} fakes, d = {d:,}, float16", err=True)
        real, fake = _features(Path(folder), reals=reals, fakes=fakes, d=d)
        pilot = _seconds(real[: reals // _PILOT_SHARE], fake, k=k, device=device)
        expected = pilot * _PILOT_SHARE**2
        click.echo(
            f"{reals // _PILOT_SHARE:,} reals took {pilot:.1f} s: all of them take at most about {expected:.0f} s",
            err=True,
        )
        if expected > max_minutes * 60:
            raise click.ClickException(f"that is more than --max-minutes {max_minutes:g}")
        with PeakMemory() as memory:
            start = perf_counter()
            values = _metrics(real, fake, k=k, device=device)
            seconds = perf_counter() - start
        del real
    facts = {"reals": reals, "fakes": fakes, "d": d, "k": k, "device": device, "values": values}
    times = {"seconds": seconds, "pilot_seconds": pilot, "expected_seconds": expected}
    _report({**facts, **times, **_memory_facts(memory)}, out)


def _features(
    folder: Path, *, reals: int, fakes: int, d: int
) -> tuple[NDArray[np.float16], NDArray[np.float16]]:
    """The mapped reals, and the fakes in memory."""
    rotation = random_rotation(d)
    sides = {"real": (reals, 1.0), "fake": (fakes, _FAKE_SCALE)}
    for seed, (side, (rows, scale)) in enumerate(sides.items()):
        write_gaussian(
            folder / f"{side}.npy",
            rows=rows,
            d=d,
            exponent=_EXPONENT,
            scale=scale,
            rotation=rotation,
            seed=[seed],
            dtype=np.float16,
        )
    return np.load(folder / "real.npy", mmap_mode="r"), np.load(folder / "fake.npy")


def _seconds(real: NDArray[np.float16], fake: NDArray[np.float16], *, k: int, device: str) -> float:
    """After a small call, so that imports and thread pools are not timed."""
    _metrics(real[:100], fake[:100], k=k, device=device)
    start = perf_counter()
    _metrics(real, fake, k=k, device=device)
    return perf_counter() - start


def _metrics(
    real: NDArray[np.float16], fake: NDArray[np.float16], *, k: int, device: str
) -> dict[str, float]:
    return genpr.manifold_metrics(real, fake, k=k, device=device)._asdict()


def _memory_facts(memory: PeakMemory) -> dict[str, int]:
    return {
        "peak_bytes": memory.peak,
        "peak_bytes_above_level": memory.above_level,
        "anonymous_peak_bytes": memory.anonymous_peak,
        "anonymous_peak_bytes_above_level": memory.anonymous_peak - memory.anonymous_level,
    }


def _report(found: dict[str, Any], out: Path | None) -> None:
    machine = describe_machine(threads=torch.get_num_threads(), device=found["device"])
    out = append_record(out, "large", machine, **found)
    click.echo(f"{found['reals']:,} reals x {found['fakes']:,} fakes, d = {found['d']:,}, on {machine}")
    click.echo(f"{found['seconds']:.1f} s; " + ", ".join(f"{m} {v:.4f}" for m, v in found["values"].items()))
    click.echo(
        f"peak resident memory {found['peak_bytes'] / 1e9:.2f} GB, of it {found['anonymous_peak_bytes'] / 1e9:.2f} GB "
        f"not pages of files; above the level before: {found['peak_bytes_above_level'] / 1e9:.2f} GB"
    )
    click.echo(f"wrote {out}", err=True)


if __name__ == "__main__":
    main()
