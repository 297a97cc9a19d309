"""`genpr list extractors | protocols | metrics`."""

from __future__ import annotations

from collections.abc import Callable

import click

from genpr.cli.console import emit

Record = dict[str, object]


@click.command(name="list")
@click.argument("what", type=click.Choice(["extractors", "protocols", "metrics"]), default="extractors")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON array instead of a table.")
def command(what: str, *, as_json: bool) -> None:
    """Show the known extractors (with their weights and license), protocols or metrics."""
    import json

    from genpr.report.score_tables import listing

    records, in_columns, details = _LISTS[what]
    if as_json:
        emit(json.dumps(records()))
    else:
        emit(listing([in_columns(record) for record in records()], details))


def _extractors() -> list[Record]:
    from dataclasses import asdict

    from genpr.features.registry import list_extractors

    return [asdict(item) for item in list_extractors()]


def _extractor_row(record: Record) -> Record:
    here = ("yes" if record["cached"] else "no") if record["weights"] else None
    remark = "" if record["comparable"] else "; not comparable with published numbers"
    weights = f"{record['weights']} ({record['license']})" if record["weights"] else None
    columns = {key: record[key] for key in ("name", "dim", "resize")}
    return {**columns, "cached": here, "layer": f"{record['layer']}{remark}", "weights": weights}


def _protocols() -> list[Record]:
    from genpr.evaluation.protocols import PROTOCOLS

    return [
        {
            "name": item.name,
            "extractor": item.extractor,
            "metrics": list(item.metrics),
            "k": {name: item.k[name] for name in item.metrics if name in item.k},
            "ties": item.ties,
            "distances": item.distances,
            "reals": _count(item.n_real, item.max_real),
            "fakes": _count(item.n_fake, item.max_fake),
            "rows": item.max_rows,
            "free": sorted(item.free),
            "equals": item.equals,
            "reference": item.reference,
        }
        for item in PROTOCOLS.values()
    ]


def _protocol_row(record: Record) -> Record:
    ks, metrics, free = record["k"], record["metrics"], record["free"]
    assert isinstance(free, list)
    rows = f", neighbors among {record['rows']:,} of each" if record["rows"] else ""
    assert isinstance(ks, dict)
    assert isinstance(metrics, list)
    return {
        "name": record["name"],
        "extractor": record["extractor"],
        "k": "/".join(str(k) for k in sorted(set(ks.values()))),
        "ties": record["ties"],
        "distances": record["distances"],
        "images": f"{record['reals']} reals, {record['fakes']} fakes{rows}",
        "metrics": ", ".join(metrics) + ("; any other if asked for" if "metrics" in free else ""),
        "equals": f"equals {record['equals']}",
        "reference": record["reference"],
    }


def _count(needed: int | None, most: int | None) -> str:
    if needed is not None:
        return f"{needed:,}"
    return "all" if most is None else f"up to {most:,}"


def _metrics() -> list[Record]:
    from genpr.metrics.registry import ALL_METRICS

    return [
        {
            "name": item.name,
            "features": item.space or "any",
            "better": item.better,
            "meaning": item.meaning,
            "reference": item.reference,
        }
        for item in ALL_METRICS.values()
    ]


_LISTS: dict[str, tuple[Callable[[], list[Record]], Callable[[Record], Record], tuple[str, ...]]] = {
    "extractors": (_extractors, _extractor_row, ("layer", "weights")),
    "protocols": (_protocols, _protocol_row, ("images", "metrics", "equals", "reference")),
    "metrics": (_metrics, dict, ("meaning", "reference")),
}
"""By name: the records, how one is shown, and which of its facts stand below the others."""
