"""`genpr list extractors | protocols | metrics`."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import click

from genpr.cli.console import as_json, print_stdout
from genpr.cli.grouped import GroupedCommand

Record = dict[str, Any]


@click.command(cls=GroupedCommand, name="list")
@click.argument("what", type=click.Choice(["extractors", "protocols", "metrics"]), default="extractors")
@as_json
def command(what: str, *, as_json: bool) -> None:
    """Show the known extractors (with their weights and license), protocols or metrics."""
    from genpr.report.text import listing

    records, in_columns, details = _LISTS[what]
    print_stdout(
        json.dumps(records()) if as_json else listing([in_columns(record) for record in records()], details)
    )


def _extractors() -> list[Record]:
    from genpr.features.registry import list_extractors

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
    from genpr.evaluation.protocols import PROTOCOLS

    names = ("name", "extractor", "ties", "equals", "measured", "reference")
    return [
        {name: getattr(item, name) for name in names}
        | {
            "metrics": list(item.metrics),
            "k": {name: item.k[name] for name in item.metrics if name in item.k},
            "reals": _count(item.n_real, item.max_real),
            "fakes": _count(item.n_fake, item.max_fake),
            "rows": item.max_rows,
            "statistics": item.reference_statistics,
            "free": sorted(item.free),
            "panel": dict(item.panel),
        }
        for item in PROTOCOLS.values()
    ]


def _protocol_row(record: Record) -> Record:
    rows = f", neighbors among {record['rows']:,} of each" if record["rows"] else ""
    moments = "; published statistics of reals" if record["statistics"] == "published" else ""
    others = "; others with --metrics" if "metrics" in record["free"] else ""
    return {
        **{key: record[key] for key in ("name", "extractor", "ties", "reference")},
        **({"extractor": f"panel of {len(record['panel'])}"} if record["panel"] else {}),
        "k": "/".join(str(k) for k in sorted(set(record["k"].values()))),
        "images": f"{record['reals']} reals, {record['fakes']} fakes{rows}{moments}",
        "metrics": ", ".join(record["metrics"]) + others,
        "equals": f"{'equals' if record['measured'] else 'is expected to equal'} {record['equals']}",
    }


def _count(needed: int | None, most: int | None) -> str:
    if needed is not None:
        return f"{needed:,}"
    return "all" if most is None else f"up to {most:,}"


def _metrics() -> list[Record]:
    from genpr.metrics.registry import ALL_METRICS

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
