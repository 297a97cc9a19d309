"""Metrics with correct values on hold-out cases, raw and over their nulls: values, tables and a rule against near-duplicates."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import click
import numpy as np
from _holdout_cases import FEATURES, Case, feature_cases, made_up_cases
from _holdout_distributions import Rows
from _holdout_metrics import VARIANTS, measured
from _holdout_report import Record, markdown, restored
from _shared import RESULTS, describe_machine

from genpr.features.feature_set import load_features
from genpr.runtime import torch_threads

_DIGITS = 3


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--draws", default=10, show_default=True, type=click.IntRange(min=2), help="Per case.")
@click.option("--seed", default=61, show_default=True, type=click.IntRange(min=0))
@click.option(
    "--features",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Features of at least 6,000 real images; without them, their cases are left out.",
)
@click.option("--group", "groups", multiple=True, help="Only cases of this group; repeatable.")
@click.option("--jobs", default=1, show_default=True, type=click.IntRange(min=1), help="Processes.")
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="JSON lines file, of which finished cases are not repeated; the tables are written next to it as Markdown.  "
    "[default: benchmarks/results/holdout-<date>.jsonl]",
)
def main(
    draws: int, seed: int, features: Path | None, groups: tuple[str, ...], jobs: int, out: Path | None
) -> None:
    """Draw every case, and count which metrics are right."""
    started = datetime.now(UTC).isoformat(timespec="seconds")
    out = out or RESULTS / f"holdout-{started[:10]}.jsonl"
    machine = asdict(describe_machine(threads=1, device="cpu"))
    shared = {"format": "genpr.holdout/1", "started": started, "machine": machine}
    done = {(each.group, each.case) for each in _stored(out) if (each.draws, each.seed) == (draws, seed)}
    names = [
        name
        for case in _cases(features)
        if (name := (case.group, case.name)) not in done and (not groups or case.group in groups)
    ]
    run = partial(_recorded, draws=draws, seed=seed, features=features)
    # A fresh process has no threads of torch that a fork would break.
    with out.open("a", encoding="utf-8") as file, ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        for record in pool.map(run, names):
            file.write(json.dumps({**shared, **asdict(record)}, separators=(",", ":")) + "\n")
            file.flush()
            print(f"{record.group}: {record.case}", flush=True)
    out.with_suffix(".md").write_text(markdown(_stored(out)), encoding="utf-8")


def _stored(path: Path) -> list[Record]:
    return list(map(restored, path.read_text(encoding="utf-8").splitlines())) if path.exists() else []


def _cases(features: Path | None) -> Iterator[Case]:
    yield from made_up_cases()
    if features is not None:
        yield from feature_cases(load_features(features).features.numpy())


def _recorded(name: tuple[str, str], *, draws: int, seed: int, features: Path | None) -> Record:
    """The record of the case of this group and name."""
    source = features if name[0] == FEATURES else None
    case = next(case for case in _cases(source) if (case.group, case.name) == name)
    with torch_threads(1):
        found = [measured(case.draw(case.rng(seed, draw))) for draw in range(draws)]
    used = [variant for variant in VARIANTS if any(variant in each for each in found)]
    values: dict[str, dict[str, list[float]]] = {}
    nulls: dict[str, dict[str, list[float]]] = {}
    for variant in used:
        of_draws = [each.get(variant, each["plain"]) for each in found]
        keys = [key for key in of_draws[0] if all(key in each for each in of_draws)]
        values[variant] = {key: _listed([each[key].value for each in of_draws]) for key in keys}
        nulls[variant] = {key: _listed([each[key].null for each in of_draws]) for key in keys}
    return Record(
        group=case.group,
        case=case.name,
        fidelity=case.fidelity,
        diversity=case.diversity,
        draws=draws,
        seed=seed,
        values=values,
        nulls=nulls,
    )


def _listed(values: list[float]) -> list[float]:
    """Rounded values; one number if all are equal, as for nulls with a closed form."""
    rounded: Rows = np.round(values, _DIGITS)
    return [float(rounded[0])] if (rounded == rounded[0]).all() else rounded.tolist()


if __name__ == "__main__":
    main()
