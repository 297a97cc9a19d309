"""Commands that call one function of the library with an option record, and show its result."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

from genpr.cli.console import progress_bars
from genpr.cli.options import SOURCE, grouped_option, refuse_given
from genpr.cli.output import ScoreOutput, TextOutput, source_command
from genpr.conditional.options import AlignOptions, EntityOptions
from genpr.evaluation.options import DIVERSITY, FAMILY, DiversityOptions, ModesOptions, ReconstructOptions
from genpr.features.options import keywords_of, option_fields
from genpr.report.files import write_groups, write_pairs, write_ranks

_OF_ANSWERS = {"classifier", "vocabulary", "exclude", "seed"}


@source_command("real", "fake", options=ModesOptions, output=TextOutput)
@grouped_option(
    "--all", "every", is_flag=True, help="Show all clusters, not only the significant ones.", group="output"
)
def modes(real: str, fake: str, *, options: ModesOptions, every: bool, output: TextOutput) -> None:
    """Find modes of REAL that the generator lacks, and clusters of images that do not match.

    REAL and FAKE are sources as for `genpr score`. A missing mode has hardly any fake. Then both sets are clustered
    together. A cluster is uncovered if significantly many of its reals are not covered by a fake, and outside if
    significantly many of its fakes lie outside the manifold of the reals. If classes are known, the most common classes
    of each cluster are named.
    """
    from genpr.evaluation.modes import find_modes
    from genpr.report.score_tables import modes_table

    with progress_bars(quiet=output.quiet) as progress:
        found = find_modes(real, fake, **keywords_of(replace(options, progress=progress)))
    output.show(found.notices, found.to_json() if output.as_json else modes_table(found, every=every))


@source_command("real", "reconstructed", options=ReconstructOptions, output=ScoreOutput)
def reconstruct(real: str, reconstructed: str, *, options: ReconstructOptions, output: ScoreOutput) -> int:
    """Compare the images in RECONSTRUCTED with their originals in REAL.

    Both are sources of images as for `genpr score`. Image files are paired by their relative names without suffix or, with
    --pair order, by the numbers in their names, images of arrays (.npz, .npy) by their order. Both images of a pair must have
    the same size; --prepare center-crop:256, for example, makes all sizes equal.

    \b
    genpr reconstruct val/ recon/                       PSNR, SSIM, LPIPS, rFID
    genpr reconstruct val/ recon/ --metrics psnr,ssim   needs no weights
    genpr reconstruct val/ recon/ --pair order          by the numbers in names
    genpr reconstruct val.npz recon.npz --csv pairs.csv --html pairs.html
    """  # noqa: D301 - click reads the backspace as "do not rewrap"
    output.check([FAMILY + name for name in options.chosen])
    from genpr.evaluation.reconstruction import reconstruct_with
    from genpr.report.score_page import reconstruction_report

    found = output.run(reconstruct_with, real, reconstructed, options=options)
    page = partial(reconstruction_report, found, real, reconstructed, policy=options.decoding)
    return output.finish(found.result, page, partial(write_pairs, found=found))


@source_command("fake", options=DiversityOptions, output=ScoreOutput)
def diversity(fake: str, *, options: DiversityOptions, output: ScoreOutput) -> int:
    """Compute how different the images of one group are in FAKE, such as those of one prompt, class or source image.

    Distances of pairs are averaged over the pairs of a group, then over groups. Groups are sub-folders, or labels of
    the images. With --real, the same is computed for the reals of these groups.

    \b
    genpr diversity out/ --real photos/                a folder per class
    genpr diversity out/ --groups 'pattern:^(.+)_\\d+'  cat_0001.png is in cat
    genpr diversity out/ --metrics ms_ssim --groups all
    """  # noqa: D301 - click reads the backspace as "do not rewrap"
    output.check([DIVERSITY + name for name in options.chosen])
    from genpr.evaluation.diversity import diversity_with
    from genpr.report.score_page import diversity_report

    found = output.run(diversity_with, fake, options=options)
    page = partial(diversity_report, found, {"fake": fake, "real": options.real}, policy=options.decoding)
    return output.finish(found.result, page, partial(write_groups, result=found.result))


@source_command("images", options=AlignOptions, output=ScoreOutput)
@grouped_option(
    "--prompts",
    required=True,
    type=SOURCE,
    metavar="FILE",
    help="Prompt of each image: .csv, .tsv, .jsonl, .json, .txt, or a folder of .txt files.",
)
def align(images: str, prompts: str, *, options: AlignOptions, output: ScoreOutput) -> int:
    """Compare IMAGES with the prompts that they were generated from: R-precision, hit rates, CLIPScore.

    A CLIP model embeds images and prompts. Each image ranks its own prompt among those of other images, and each prompt
    ranks its image. R-precision is the fraction that rank their own first.

    IMAGES is a folder, an archive, an .npz file, or a feature file of the same extractor.
    """
    output.check(options.names)
    from genpr.conditional.align import align_with
    from genpr.report.score_page import align_report

    found = output.run(align_with, images, prompts, options=options)
    page = partial(align_report, found, images, policy=options.decoding)
    return output.finish(found.result, page, partial(write_ranks, ranks=found.ranks))


@source_command("expected", "found", options=EntityOptions, output=ScoreOutput, without={"table"})
def entities(expected: str, found: str, *, options: EntityOptions, output: ScoreOutput) -> int:
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
    from genpr.report.score_page import html_report

    if options.classifier is None:
        of_images = {each.name for each in option_fields(EntityOptions)} - _OF_ANSWERS
        refuse_given(of_images, "needs --classifier, the model that recognizes entities in images")
        from genpr.conditional.entity_scores import score_entities

        words = {"vocabulary": options.vocabulary, "exclude": options.exclude}
        result = score_entities(Path(expected), found, **words, seed=options.seed)
    else:
        from genpr.conditional.recognition import score_entities_in_images

        with progress_bars(quiet=output.quiet) as progress:
            given = keywords_of(replace(options, progress=progress))
            result = score_entities_in_images(Path(expected), found, **given)
    return output.finish(result, partial(html_report, result))
