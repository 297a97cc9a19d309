"""`genpr reconstruct REAL RECONSTRUCTED`."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import click

from genpr.cli.console import progress_bars
from genpr.cli.grouped import SOURCE, GroupedCommand
from genpr.cli.options import check_sources, follow_symlinks, option_group
from genpr.cli.output import ScoreOutput
from genpr.evaluation.reconstruction_options import FAMILY, ReconstructOptions


@click.command(cls=GroupedCommand, name="reconstruct")
@click.argument("real", type=SOURCE)
@click.argument("reconstructed", type=SOURCE)
@option_group(ReconstructOptions)
@follow_symlinks
@option_group(ScoreOutput, "output")
def command(real: str, reconstructed: str, *, options: ReconstructOptions, output: ScoreOutput) -> int:
    """Compare the images in RECONSTRUCTED with their originals in REAL.

    Both are sources of images as for `genpr score`. Image files are paired by their relative names without suffix, images
    of arrays (.npz, .npy) by their order. Both images of a pair must have the same size; --prepare center-crop:256, for
    example, makes all sizes equal.

    \b
    genpr reconstruct val/ recon/                       PSNR, SSIM, LPIPS, rFID
    genpr reconstruct val/ recon/ --metrics psnr,ssim   needs no weights
    genpr reconstruct val.npz recon.npz --csv pairs.csv --html pairs.html
    """  # noqa: D301 - click reads the backspace as "do not rewrap"
    output.check([FAMILY + name for name in options.chosen])
    check_sources(real, reconstructed)

    from genpr.evaluation.reconstruction import reconstruct_with
    from genpr.report.files import write_pairs
    from genpr.report.score_page import reconstruction_report
    from genpr.report.score_tables import result_text

    with progress_bars(quiet=output.quiet) as progress:
        found = reconstruct_with(real, reconstructed, replace(options, progress=progress))
    result = found.result
    page = partial(reconstruction_report, found, policy=options.decoding)
    output.write_and_show(
        result.notices,
        result.to_json() if output.as_json else result_text(result),
        partial(output.write_table, partial(write_pairs, found=found)),
        partial(output.write_page, page, real, reconstructed),
    )
    return output.exit_code({result.protocol: result})
