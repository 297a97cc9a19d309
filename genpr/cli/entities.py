"""`genpr entities EXPECTED FOUND`."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import click

from genpr.cli.console import progress_bars
from genpr.cli.grouped import SOURCE, GroupedCommand
from genpr.cli.options import check_sources, follow_symlinks, option_group, refuse_given
from genpr.cli.output import ScoreOutput
from genpr.conditional.options import EntityOptions
from genpr.features.options import option_fields

_OF_ANSWERS = {"classifier", "vocabulary", "aliases", "exclude", "seed"}


@click.command(cls=GroupedCommand, name="entities")
@click.argument("expected", type=click.Path(path_type=Path))
@click.argument("found", type=SOURCE)
@option_group(EntityOptions)
@follow_symlinks
@option_group(ScoreOutput, "output", without={"table"})
def command(expected: Path, found: str, *, options: EntityOptions, output: ScoreOutput) -> int:
    """Compute which of the entities in EXPECTED were found, in answers of a language model or in images.

    EXPECTED (.csv, .jsonl, .json) has an id and the expected entities of each image, or its prompt, in which entities of
    the vocabulary are found. FOUND has the answer of a language model, or a list of found entities, for the same ids.
    Answers may wrap their list in any text; those that cannot be parsed are listed and left out of the scores.

    With --classifier, FOUND is images (a folder, an archive, .npz), whose names are the ids.

    \b
    genpr entities expected.csv answers.jsonl
    genpr entities prompts.csv answers.jsonl --vocabulary objects.txt
    genpr entities expected.csv images/ --classifier detector.py:load
    genpr entities prompts.csv images/ --classifier clip --calibrate-on real/ ...
    genpr entities expected.csv answers.csv --json > a.json    # for compare, rank
    """  # noqa: D301 - click reads the backspace as "do not rewrap"
    output.check(options.names)
    check_sources(expected, found)
    if options.classifier is None:
        of_images = {each.name for each in option_fields(EntityOptions)} - _OF_ANSWERS
        refuse_given(of_images, "needs --classifier, the model that recognizes entities in images")
        from genpr.conditional.entity_scores import score_entities

        words = {name: getattr(options, name) for name in ("vocabulary", "aliases", "exclude")}
        result = score_entities(expected, found, **words, seed=options.seed)
    else:
        from genpr.conditional.recognition import score_entities_with

        with progress_bars(quiet=output.quiet) as progress:
            result = score_entities_with(expected, found, replace(options, progress=progress))
    from genpr.report.score_page import html_report
    from genpr.report.score_tables import result_text

    text = result.to_json() if output.as_json else result_text(result)
    output.write_and_show(result.notices, text, partial(output.write_page, partial(html_report, result)))
    return output.exit_code({result.protocol: result})
