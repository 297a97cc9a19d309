"""`genpr weights list | fetch | verify`: the published weight files, and what of them is on this machine."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import click

from genpr.cli.console import as_json, complain, emit, progress_bars
from genpr.errors import UsageError, WeightsError, printable, short, some

if TYPE_CHECKING:
    from genpr.features.weights import WeightsFile


@click.group(name="weights")
def command() -> None:
    """Show, download and check the weights of the extractors.

    \b
    genpr weights list                    what there is, and what is here
    genpr weights fetch inception vgg16   for use without a network later
    genpr weights verify                  hash every file that is here
    """  # noqa: D301 - click reads the backspace as "do not rewrap"


@command.command(name="list", short_help="Show every known file.")
@as_json
def list_files(*, as_json: bool) -> None:
    """Show every known file: who uses it, length, license, whether it is here."""
    from genpr.features.known_weights import KNOWN_WEIGHTS
    from genpr.features.weights import cached_path
    from genpr.report.score_tables import listing

    names = ("name", "used_by", "size", "license", "sha256", "url")
    rows, shown = [], []
    for entry in KNOWN_WEIGHTS:
        path = cached_path(entry)
        facts = {name: getattr(entry, name) for name in names}
        rows.append({**facts, "cached": path is not None, "path": path and str(path)})
        first, *others = entry.used_by or ("-",)
        shown.append(
            {
                "used by": f"{first} (+{len(others)})" if others else first,
                "size": None if entry.size is None else f"{entry.size / 1e6:,.0f} MB",
                "license": entry.license,
                "here": "no" if path is None else "yes",
                "name": entry.name,
            }
        )
    emit(json.dumps(rows) if as_json else listing(shown, ("name",)))


@command.command(short_help="Download weights, by extractor or file name.")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--offline", is_flag=True, help="Only look whether they are here (also GENPR_OFFLINE=1).")
@click.option("-q", "--quiet", is_flag=True, help="No progress bar.")
def fetch(names: Sequence[str], *, offline: bool, quiet: bool) -> None:
    """Download weights, by extractor or file name; what is here already is only verified."""
    from genpr.features.weights import find_or_fetch

    for entry in _chosen(names):
        with progress_bars(quiet=quiet, in_bytes=True) as update:
            report = None if update is None else partial(update, short(entry.name, 30))
            path = find_or_fetch(entry, offline=offline, progress=report)
        emit(printable(f"{entry.name}  {path}"))


@command.command(short_help="Hash the files that are here.")
@click.argument("names", nargs=-1, metavar="[NAME...]")
def verify(names: Sequence[str]) -> int:
    """Hash the files that are here, one line each; exit code 4 if one is damaged or named and missing."""
    from genpr.features.weights import cached_path, verify_file, weights_folder

    count, code = 0, 0
    for entry in _chosen(names):
        own = weights_folder() / entry.name
        path = own if own.is_file() else cached_path(entry)
        if path is None and not names:
            continue
        count += 1
        line = f"missing  {entry.name}"
        try:
            if path is not None:
                line = f"ok       {verify_file(entry, path)[:8]}  {entry.name}"
        except WeightsError as error:
            line = f"bad      {error}"
        code = code if line.startswith("ok") else WeightsError.exit_code
        emit(printable(line))
    if not count:
        complain(f"no weights are here, neither in {weights_folder()} nor in the caches of other programs")
    return code


def _chosen(names: Sequence[str]) -> list[WeightsFile]:
    """The files of these extractors or of these names, each once; without names, all."""
    from genpr.features.known_weights import KNOWN_WEIGHTS

    chosen: dict[str, WeightsFile] = {}
    for name in names:
        found = [entry for entry in KNOWN_WEIGHTS if name == entry.name or name in entry.used_by]
        if not found:
            known = some([item for entry in KNOWN_WEIGHTS for item in entry.used_by or (entry.name,)], 20)
            raise UsageError(
                f"no weights are known for {name!r}; extractors with weights: {known} (file names will do, too)",
                code="unknown-weights",
            )
        chosen.update({entry.name: entry for entry in found})
    return list(chosen.values()) if names else list(KNOWN_WEIGHTS)
