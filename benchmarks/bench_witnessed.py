"""Witnessed fidelity and diversity on held-out sets with known faults, compared with other metrics."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Literal

import click
import numpy as np
from _machine import describe_machine
from _witnessed_cases import FEATURES, Case, feature_cases, made_up_cases
from _witnessed_sets import FeaturePool, Pair

from genpr.features.feature_set import load_features
from genpr.metrics.manifold import ball_scores
from genpr.metrics.real_manifold import RealManifold
from genpr.metrics.registry import needed_balls
from genpr.metrics.witnessed import witnessed
from genpr.runtime import torch_threads

Kind = Literal["fidelity", "diversity"]

_RESULTS = Path(__file__).parent / "results"
_KS = {"precision": 3, "recall": 3, "density": 5, "coverage": 5, "clipped_density": 5, "clipped_coverage": 5}
_KINDS: MappingProxyType[str, Kind] = MappingProxyType(
    {
        "witnessed_fidelity": "fidelity",
        "clipped_density": "fidelity",
        "density": "fidelity",
        "precision": "fidelity",
        "witnessed_diversity": "diversity",
        "witnessed_support": "diversity",
        "witnessed_coverage": "diversity",
        "clipped_coverage": "diversity",
        "coverage": "diversity",
        "recall": "diversity",
    }
)
_PAIR = ("witnessed_fidelity", "witnessed_diversity")
_POOL = 20_000  # rows of the feature file that are used
_LEGEND = """\
Cases met of those with a demand; k = 3 for precision and recall, 5 for density, coverage and the clipped pair. Witnessed
diversity is the lesser of support and coverage, which are listed, too. The demands were fixed before any of these
draws was measured; they are compared with means over draws of raw values. `!`: not met. Heavy tails, Swiss roll, torus,
mixtures and repeated reals are new kinds of cases; similar cases of all others were used in the design of the pair."""


@dataclass(frozen=True, slots=True)
class Record:
    """Result of one case.

    Attributes:
        group: The kind of fault.
        case: Description of the case.
        xs: Values of the varied parameter (g,); a single 0 if there is none.
        draws: Number of draws per point.
        seed: From which all draws follow.
        demands: Descriptions of requirements by kind; kinds without one are left out.
        means: By metric, over the draws, (g,).
        deviations: Their standard deviations over the draws, (g,).
        met: Whether each metric meets its requirement; metrics without one are left out.
    """

    group: str
    case: str
    xs: list[float]
    draws: int
    seed: int
    demands: dict[str, str]
    means: dict[str, list[float]]
    deviations: dict[str, list[float]]
    met: dict[str, bool]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--draws",
    default=5,
    show_default=True,
    type=click.IntRange(min=2),
    help="Number of draws per point of a curve.",
)
@click.option("--seed", default=51, show_default=True, type=click.IntRange(min=0))
@click.option(
    "--features",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Learned features of real images; without them, their cases are left out.",
)
@click.option(
    "--rows",
    default=3000,
    show_default=True,
    type=click.IntRange(min=300),
    help="Number of rows of the feature file.",
)
@click.option("--group", "groups", multiple=True, help="Only cases of this group; repeatable.")
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="JSON lines file to append to; Markdown is written next to it.  [default: benchmarks/results/witnessed-<date>.jsonl]",
)
def main(
    draws: int, seed: int, features: Path | None, rows: int, groups: tuple[str, ...], out: Path | None
) -> None:
    """Draw every case, and record which metrics meet its demands."""
    started = datetime.now(UTC).isoformat(timespec="seconds")
    out = out or _RESULTS / f"witnessed-{started[:10]}.jsonl"
    machine = asdict(describe_machine(threads=1, device="cpu"))
    shared = {"format": "genpr.witnessed/1", "started": started, "machine": machine}
    with torch_threads(1), out.open("a", encoding="utf-8") as file:
        for case in _cases(features, rows, groups):
            record = _recorded(case, draws, seed)
            file.write(json.dumps({**shared, **asdict(record)}) + "\n")
            file.flush()
            print(_row(record, tuple(_KINDS)), flush=True)
    everything = list(map(_restored, out.read_text(encoding="utf-8").splitlines()))
    out.with_suffix(".md").write_text(_markdown(everything, started), encoding="utf-8")


def _cases(features: Path | None, rows: int, groups: tuple[str, ...]) -> Iterator[Case]:
    requested = set(groups)
    yield from (case for case in made_up_cases() if not requested or case.group in requested)
    if features is not None and (not requested or FEATURES in requested):
        every = load_features(features).features
        chosen = np.sort(np.random.default_rng(0).permutation(len(every))[:_POOL])
        yield from feature_cases(FeaturePool(every[chosen].numpy(), rows))


def _recorded(case: Case, draws: int, seed: int) -> Record:
    found = [[_measured(case.draw(_rng(case, x, seed, i), x)) for i in range(draws)] for x in case.xs]
    values = {name: np.array([[draw[name] for draw in point] for point in found]) for name in _KINDS}
    demands = {"fidelity": case.fidelity, "diversity": case.diversity}
    met = {
        name: demand.holds(values[name].mean(axis=1))
        for name, kind in _KINDS.items()
        if (demand := demands[kind]) is not None
    }
    return Record(
        group=case.group,
        case=case.name,
        xs=list(case.xs),
        draws=draws,
        seed=seed,
        demands={kind: demand.text for kind, demand in demands.items() if demand is not None},
        means={name: of.mean(axis=1).round(4).tolist() for name, of in values.items()},
        deviations={name: of.std(axis=1, ddof=1).round(4).tolist() for name, of in values.items()},
        met=met,
    )


def _rng(case: Case, x: float, seed: int, draw: int) -> np.random.Generator:
    """A generator seeded by the name of the draw, so that a subset of the cases gives the same draws."""
    digest = hashlib.sha256(f"{seed}|{case.group}|{case.name}|{x:g}|{draw}".encode()).digest()
    return np.random.default_rng(int.from_bytes(digest[:16], "little"))


def _measured(pair: Pair) -> dict[str, float]:
    real, fake = (np.asarray(rows, dtype=np.float32) for rows in pair)
    counted = ball_scores(RealManifold.fit(real, balls=needed_balls(_KS)[0], device="cpu"), fake, ks=_KS)
    own = witnessed(real, fake, device="cpu")._asdict()
    return {**counted, **{f"witnessed_{name}": value for name, value in own.items()}}


def _restored(line: str) -> Record:
    stored = json.loads(line)
    return Record(**{field.name: stored[field.name] for field in fields(Record)})


def _markdown(records: Sequence[Record], started: str) -> str:
    parts = [f"# {started[:10]}, hold-outs of the witnessed pair", "", _LEGEND, "", *_counts(records)]
    missed = [record for record in records if not all(record.met.get(name, True) for name in _PAIR)]
    parts += ["", "## What the witnessed pair misses", ""]
    parts += [f"- {record.group}, {record.case}: {_shortfall(record)}" for record in missed]
    for kind in ("fidelity", "diversity"):
        names = tuple(name for name in _KINDS if _KINDS[name] == kind)
        parts += [
            "",
            f"## {kind.capitalize()}",
            "",
            *_table(("group", "case", "varied", "should be", *names)),
        ]
        parts += [_row(record, names, kind) for record in records]
    return "\n".join(parts) + "\n"


def _counts(records: Sequence[Record]) -> list[str]:
    groups = list(dict.fromkeys(record.group for record in records))
    lines = _table(("metric", *groups, "all"))
    for name in _KINDS:
        found = [
            [record.met[name] for record in records if record.group == group and name in record.met]
            for group in groups
        ]
        found.append([hit for hits in found for hit in hits])
        lines.append(_line((f"`{name}`", *(f"{sum(hits)} of {len(hits)}" for hits in found))))
    return lines


def _shortfall(record: Record) -> str:
    return "; ".join(
        f"{name} {_numbers(record.means[name])}, should be {record.demands[_KINDS[name]]}"
        for name in _PAIR
        if not record.met.get(name, True)
    )


def _row(record: Record, names: Sequence[str], kind: Kind | None = None) -> str:
    cells = (_numbers(record.means[name]) + ("" if record.met.get(name, True) else " !") for name in names)
    demand_cells = () if kind is None else (record.demands.get(kind, "-"),)
    varied = " ".join(f"{x:g}" for x in record.xs) if len(record.xs) > 1 else ""
    return _line((record.group, record.case, varied, *demand_cells, *cells))


def _numbers(values: Sequence[float]) -> str:
    return " ".join(f"{value:.2f}" for value in values)


def _table(heads: Sequence[str]) -> list[str]:
    return [_line(heads), _line(["---"] * len(heads))]


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    main()
