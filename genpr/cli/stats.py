"""`genpr stats SOURCE OUT.npz`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import click

from genpr.cli.console import progress_bars
from genpr.cli.grouped import SOURCE, GroupedCommand
from genpr.cli.options import check_sources, follow_symlinks, option_group
from genpr.cli.output import OUTPUT, FileOutput, input_paths
from genpr.errors import printable
from genpr.evaluation.options import StatisticsOptions


@click.command(cls=GroupedCommand, name="stats")
@click.argument("source", type=SOURCE)
@click.argument("out", type=OUTPUT)
@option_group(StatisticsOptions)
@follow_symlinks
@option_group(FileOutput, "output")
def command(source: str, out: Path, *, options: StatisticsOptions, output: FileOutput) -> None:
    """Write mean and covariance of the features of the images in SOURCE to OUT (.npz), for Fréchet distances.

    SOURCE contains images or features, as for `genpr features`, or statistics of another tool, such as EDM2's .pkl, which is
    never executed. pytorch-fid reads OUT, and `genpr score` accepts it as REAL or with --reference-statistics. Its key
    `genpr` records extractor, weights, resize rule and number of images.

    \b
    genpr stats train/ train256.npz --prepare center-crop:256 --spatial
    genpr score train256.npz samples/ --metrics fid,sfid,is
    genpr stats img512.pkl img512.npz
    """  # noqa: D301 - click reads the backspace as "do not rewrap"
    from genpr.features.statistics import check_statistics_file

    check_statistics_file(out, source, inputs=input_paths(), overwrite=output.overwrite)
    check_sources(source)
    from genpr.distributed import rank_zero_only
    from genpr.evaluation.write_statistics import compute_statistics, save_statistics
    from genpr.images.item import passed_over_text

    with progress_bars(quiet=output.quiet) as bars:
        found, notices = compute_statistics(source, replace(options, progress=bars))
    if not rank_zero_only():
        return
    save_statistics(out, found, overwrite=output.overwrite)
    moments = [
        {"key": each.key, "extractor": each.extractor, "dim": len(each.mean)} for each in found.moments
    ]
    if output.as_json:
        text = json.dumps(
            {"out": str(out), "n": found.count, "passed_over": dict(found.passed_over), "moments": moments}
        )
    else:
        names = ", ".join(f"{each['extractor'] or 'unknown features'} ({each['dim']:,})" for each in moments)
        of = "" if found.count is None else f" of {found.count:,} images"
        others = passed_over_text(found.passed_over)
        text = printable(f"wrote mean and covariance of {names}{of} to {out}{others}")
    output.show(notices, text)
