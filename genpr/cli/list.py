"""`genpr list extractors | protocols | metrics`."""

from __future__ import annotations

import click

from genpr.cli.console import emit


@click.command(name="list")
@click.argument("what", type=click.Choice(["extractors", "protocols", "metrics"]), default="extractors")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON array instead of a table.")
def command(what: str, *, as_json: bool) -> None:
    """Show the known extractors (with their weights and licence), protocols or metrics."""
    import json

    from genpr.report.terminal import listing_table

    rows = _ROWS[what]()
    emit(json.dumps(rows) if as_json else listing_table(rows))


def _extractors() -> list[dict[str, object]]:
    from dataclasses import asdict

    from genpr.features.registry import list_extractors

    return [asdict(item) for item in list_extractors()]


def _protocols() -> list[dict[str, object]]:
    from genpr.protocols import PROTOCOLS

    return [
        {"name": item.name, "extractor": item.extractor, "ties": item.ties, "k": dict(item.k)}
        for item in PROTOCOLS.values()
    ]


def _metrics() -> list[dict[str, object]]:
    from genpr.report.meaning import MEANING

    return [{"name": name, "meaning": meaning} for name, meaning in MEANING.items()]


_ROWS = {"extractors": _extractors, "protocols": _protocols, "metrics": _metrics}
