"""A model of the cost of scores of very large sets on 1, 8 and 64 GPUs, with the source of each number.

    python benchmarks/scaling.py           # the tables of benchmarks/scaling.md

Replace the rates (`Rates`) by measured ones for another machine.
"""

from __future__ import annotations

from dataclasses import dataclass

DIM = 2048
PER_NODE = 8


@dataclass(frozen=True)
class Rates:
    """Rates of one GPU and its share of a machine; scaling.md states their sources."""

    images_per_core: float = 112  # measured: `pixels`, 256 x 256 PNG, read, hashed, decoded
    cores: int = 16  # assumed: per GPU
    images_per_gpu: float = 2000  # assumed: 67 TFLOP/s stated, 11.4 GFLOP per image, a third achieved
    flop_per_second: float = 47e12  # assumed: 70 % of the stated 67 TFLOP/s in float32
    bytes_per_second: float = 2.0e12  # assumed: 60 % of the stated 3.35 TB/s
    scan_bytes: float = 16  # of a pair: its product is written, compared, and read again where it counts
    candidates: float = 40  # assumed: pairs per row that are looked at one by one, by two rows of DIM float32
    gather: float = 1.0e9  # assumed: bytes per second into a rank, gloo over TCP
    host: float = 2.0e9  # assumed: bytes per second of what every rank does with all features by itself


@dataclass(frozen=True)
class Case:
    """Reals, fakes, and coordinates that the search multiplies."""

    n: int
    m: int
    width: int
    control: bool = True

    @property
    def pairs(self) -> float:
        """Radii of both sides, one pass between them, one for near copies; the same for halves of the reals."""
        n, m = self.n, self.m
        own = n * n / 2 + m * m / 2 + 2 * n * m
        return own + (0.75 * n * n if self.control else 0.0)

    @property
    def bytes(self) -> float:
        """Bytes of all features in float32."""
        return 4.0 * DIM * (self.n + self.m)


def stages(case: Case, gpus: int, rates: Rates) -> dict[str, float]:
    """Seconds of each stage; decoding and embedding overlap."""
    images = case.n + case.m
    looked_at = rates.candidates * images * 2 * 4 * DIM / rates.bytes_per_second
    per_pair = 2 * (case.width + 2) / rates.flop_per_second + rates.scan_bytes / rates.bytes_per_second
    return {
        "decode": images / (rates.images_per_core * rates.cores * gpus),
        "embed": images / (rates.images_per_gpu * gpus),
        "gather": 0.0 if gpus == 1 else case.bytes * (1 - 1 / gpus) / rates.gather,
        # Each rank finds out for itself which pairs may count, whatever its share of a row's pairs.
        "pairs": case.pairs * per_pair / gpus + looked_at,
        "own": case.bytes / rates.host,
    }


def total(seconds: dict[str, float]) -> float:
    """Total seconds."""
    return sum(seconds.values()) - min(seconds["decode"], seconds["embed"])


def memory(case: Case, gpus: int) -> tuple[float, float, float]:
    """Gigabytes: on a GPU (features and, where they are fewer, coordinates), in the host per rank, and per machine."""
    kept = case.width + 2 if case.width < DIM else 0
    on_gpu = case.bytes + 4.0 * kept * (case.n + case.m)
    return on_gpu / 1e9, case.bytes / 1e9, case.bytes * min(gpus, PER_NODE) / 1e9


def shown(seconds: float) -> str:
    """A duration as short text."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def table(case: Case, rates: Rates) -> str:
    """The table in Markdown."""
    lines = ["| GPUs | decode | embed | gather | pairs | of each rank | in all | of one GPU | limit |"]
    lines.append("|--:|--:|--:|--:|--:|--:|--:|--:|---|")
    alone = total(stages(case, 1, rates))
    for gpus in (1, 8, 64):
        found = stages(case, gpus, rates)
        names = ("decode", "embed", "gather", "pairs", "own")
        limit = max(names, key=found.__getitem__).replace("own", "of each rank")
        cells = [shown(found[name]) for name in names]
        whole = total(found)
        lines.append(f"| {gpus} | {' | '.join(cells)} | {shown(whole)} | {alone / whole:.1f} x | {limit} |")
    return "\n".join(lines)


def main() -> None:
    """Print every table of scaling.md."""
    rates = Rates()
    for n, m in ((1_280_000, 50_000), (10_000_000, 1_000_000)):
        for width in (512, DIM):
            case = Case(n, m, width)
            print(f"\n### {n:,} x {m:,}, {width:,} coordinates\n\n{table(case, rates)}")
        print(f"\nWithout control, {DIM:,} coordinates:\n\n{table(Case(n, m, DIM, control=False), rates)}")
        on_gpu, per_rank, per_machine = memory(Case(n, m, 512), PER_NODE)
        print(
            f"\nMemory: {on_gpu:.0f} GB on each GPU, {per_rank:.0f} GB per rank, {per_machine:.0f} GB per machine of 8"
        )


if __name__ == "__main__":
    main()
