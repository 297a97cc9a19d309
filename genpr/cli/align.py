"""`genpr align IMAGES --prompts FILE`."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import click

from genpr.cli.console import progress_bars
from genpr.cli.grouped import SOURCE, GroupedCommand, grouped_option
from genpr.cli.options import follow_symlinks, option_group
from genpr.cli.output import ScoreOutput
from genpr.conditional.options import AlignOptions


@click.command(cls=GroupedCommand, name="align")
@click.argument("images", type=SOURCE)
@grouped_option(
    "--prompts",
    required=True,
    type=SOURCE,
    metavar="FILE",
    help="Prompt of each image: .csv, .tsv, .jsonl, .json, .txt, or a folder of .txt files.",
)
@option_group(AlignOptions)
@follow_symlinks
@option_group(ScoreOutput, "output")
def command(images: str, prompts: str, *, options: AlignOptions, output: ScoreOutput) -> int:
    """Compare IMAGES with the prompts that they were generated from: R-precision, hit rates, CLIPScore.

    A CLIP model embeds images and prompts. Each image ranks its own prompt among those of other images, and each prompt
    ranks its image. R-precision is the fraction that rank their own first.

    IMAGES is a folder, an archive, an .npz file, or a feature file of the same extractor.
    """
    from genpr.conditional.prompts import check_number, open_prompts

    output.check(options.names)
    check_number(open_prompts(prompts), options.recipe)  # before anything is downloaded

    from genpr.conditional.align import align_with
    from genpr.report.files import write_ranks
    from genpr.report.score_page import align_report
    from genpr.report.score_tables import result_text

    with progress_bars(quiet=output.quiet) as progress:
        found = align_with(images, prompts, replace(options, progress=progress))
    result = found.result
    copies_of = None if options.copies_of is None else str(options.copies_of)
    page = partial(align_report, found, policy=options.decoding)
    output.write_and_show(
        result.notices,
        result.to_json() if output.as_json else result_text(result),
        partial(output.write_table, partial(write_ranks, ranks=found.ranks, copies=found.copies)),
        partial(output.write_page, page, images, copies_of),
    )
    return output.exit_code({result.protocol: result})
