"""`genpr weights list | fetch | verify`: published weight files, and those on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import click

from genpr.cli.console import print_stderr, print_stdout, progress_bars
from genpr.cli.options import GroupedCommand, click_option, option_group
from genpr.cli.output import TextOutput
from genpr.errors import UsageError, WeightsError, printable, short, similar, some
from genpr.features import known_weights
from genpr.features.options import EmbedOptions
from genpr.features.weights import WeightsFile, cached_path, find_or_fetch, verify_file, weights_folder


@click.group(name="weights")
def command() -> None:
    """List, download and verify the weights of the extractors.

    \b
    genpr weights list                    all files, and whether they are cached
    genpr weights fetch inception vgg16   download for use without a network
    genpr weights verify                  hash every downloaded file
    """  # noqa: D301 - click reads the backspace as "do not rewrap"


@command.command(cls=GroupedCommand, name="list", short_help="List all known files.")
@option_group(TextOutput, "output", without={"quiet"})
def list_files(*, output: TextOutput) -> None:
    """List all known files with extractors, size and license, and whether they are on this machine."""
    from genpr.report.text import listing

    names = ("name", "used_by", "size", "license", "sha256", "url")
    rows, shown = [], []
    for entry in known_weights.KNOWN_WEIGHTS:
        path = cached_path(entry)
        facts = {name: getattr(entry, name) for name in names}
        rows.append({**facts, "cached": path is not None, "path": path and str(path)})
        first, *others = entry.used_by or ("-",)
        size = None if entry.size is None else f"{entry.size / 1e6:,.0f} MB"
        row = {"used by": f"{first} (+{len(others)})" if others else first, "size": size}
        row |= {"license": entry.license, "cached": "no" if path is None else "yes", "name": entry.name}
        shown.append(row)
    output.show_record(rows, listing(shown, ("name",)))


@command.command(cls=GroupedCommand, short_help="Download weights, by extractor or file name.")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click_option(EmbedOptions.__dataclass_fields__["offline"], group="common")
@click_option(TextOutput.__dataclass_fields__["quiet"])
def fetch(names: Sequence[str], *, offline: bool, quiet: bool) -> None:
    """Download weights, by extractor or file name. Files that are on this machine are verified."""
    for entry in _chosen(names):
        with progress_bars(quiet=quiet, in_bytes=True) as update:
            report = None if update is None else partial(update, short(entry.name, 30))
            path = find_or_fetch(entry, offline=offline, progress=report)
        print_stdout(printable(f"{entry.name}  {path}"))


@command.command(cls=GroupedCommand, short_help="Verify the downloaded files.")
@click.argument("names", nargs=-1, metavar="[NAME...]")
def verify(names: Sequence[str]) -> int:
    """Hash the downloaded files, and print one line for each.

    The exit code is 4 if a file is damaged, or if a named one is missing.
    """
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
        print_stdout(printable(line))
    if not count:
        print_stderr(f"found no weights in {weights_folder()} or in the caches of other programs")
    return code


def _chosen(names: Sequence[str]) -> list[WeightsFile]:
    """The files with these names or of these extractors, each once; all files without names."""
    chosen: dict[str, WeightsFile] = {}
    every = known_weights.KNOWN_WEIGHTS
    for name in names:
        found = [entry for entry in every if name == entry.name or name in entry.used_by]
        if not found:
            known = dict.fromkeys(item for entry in every for item in entry.used_by or (entry.name,))
            raise UsageError(
                f"no weights are known for {name!r}{similar(name, known)}; expected a file name, or an extractor with weights: "
                f"{some(known, 20)}",
                code="unknown-weights",
            )
        chosen.update({entry.name: entry for entry in found})
    return list(chosen.values()) if names else list(every)
