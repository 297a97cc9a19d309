"""`genpr list extractors | protocols | metrics`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import click

from genpr.cli.options import GroupedCommand, option_group
from genpr.cli.output import TextOutput
from genpr.evaluation.protocols import PROTOCOLS
from genpr.features.registry import list_extractors
from genpr.metrics.registry import ALL_METRICS

Record = dict[str, Any]


@click.command(cls=GroupedCommand, name="list")
@click.argument("what", type=click.Choice(["extractors", "protocols", "metrics"]), default="extractors")
@option_group(TextOutput, "output", without={"quiet"})
def command(what: str, *, output: TextOutput) -> None:
    """Show the known extractors (with their weights and license), protocols or metrics."""
    from genpr.report.text import listing

    records, in_columns, details = _LISTS[what]
    found = records()
    output.show_record(found, listing([in_columns(record) for record in found], details))


def _extractors() -> list[Record]:
    return [asdict(item) for item in list_extractors()]


def _extractor_row(record: Record) -> Record:
    remark = "" if record["comparable"] else "; not comparable with published numbers"
    has_weights = bool(record["weights"])
    return {
        **{key: record[key] for key in ("name", "dim", "resize")},
        "cached": ("yes" if record["cached"] else "no") if has_weights else None,
        "layer": f"{record['layer']}{remark}",
        "weights": f"{record['weights']} ({record['license']})" if has_weights else None,
    }


def _protocols() -> list[Record]:
    names = ("name", "extractor", "ties", "equals", "measured", "reference", "n_real", "max_real", "n_fake")
    return [
        {name: getattr(item, name) for name in (*names, "max_fake", "max_rows", "reference_statistics")}
        | {"metrics": list(item.metrics), "free": sorted(item.free), "panel": dict(item.panel)}
        | {"k": {name: item.k[name] for name in item.metrics if name in item.k}}
        for item in PROTOCOLS.values()
    ]


def _protocol_row(record: Record) -> Record:
    reals, fakes = (
        record[f"n_{side}"] or f"up to {record[f'max_{side}'] or 'all'}" for side in ("real", "fake")
    )
    rows = f", neighbors among {record['max_rows']:,} of each" if record["max_rows"] else ""
    moments = "; published statistics of reals" * (record["reference_statistics"] == "published")
    return {
        **{key: record[key] for key in ("name", "extractor", "ties", "reference")},
        **({"extractor": f"panel of {len(record['panel'])}"} if record["panel"] else {}),
        "k": "/".join(str(k) for k in sorted(set(record["k"].values()))),
        "images": f"{reals} reals, {fakes} fakes{rows}{moments}",
        "metrics": ", ".join(record["metrics"]) + "; others with --metrics" * ("metrics" in record["free"]),
        "equals": f"{'equals' if record['measured'] else 'is expected to equal'} {record['equals']}",
    }


def _metrics() -> list[Record]:
    names = ("better", "meaning", "reference")
    return [
        {
            "name": item.name,
            "features": item.extractor or "any",
            **{name: getattr(item, name) for name in names},
        }
        for item in ALL_METRICS.values()
    ]


_LISTS: dict[str, tuple[Callable[[], list[Record]], Callable[[Record], Record], tuple[str, ...]]] = {
    "extractors": (_extractors, _extractor_row, ("layer", "weights")),
    "protocols": (_protocols, _protocol_row, ("images", "metrics", "equals", "reference")),
    "metrics": (_metrics, dict, ("meaning", "reference")),
}
"""By name: the records, their columns, and the columns that are shown on lines of their own."""
