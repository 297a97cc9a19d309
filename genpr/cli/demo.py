"""`genpr demo`."""

from __future__ import annotations

from pathlib import Path

import click

from genpr.cli.console import progress_bars
from genpr.cli.options import GroupedCommand, click_option, grouped_option, option_group
from genpr.cli.output import TextOutput
from genpr.errors import printable
from genpr.features.options import EmbedOptions

_READING = """\
Precision and density measure fidelity: whether the fakes look like real images.
Recall and coverage measure diversity: how much of the real variety is covered.
The calibrated pair is precision and recall divided by the value of a perfect
generator. These features need no weights; published values use other features."""


@click.command(cls=GroupedCommand, name="demo")
@grouped_option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Also write the images to this folder, as PNG files.",
)
@grouped_option(
    "--n",
    default=800,
    show_default=True,
    type=click.IntRange(50, 100_000),
    help="Number of images per set.",
)
@click_option(EmbedOptions.__dataclass_fields__["seed"], help="Random seed.")
@click_option(EmbedOptions.__dataclass_fields__["device"])
@option_group(TextOutput, "output")
def command(*, out: Path | None, n: int, seed: int, device: str, output: TextOutput) -> None:
    """Draw a set of "real" images and four sets of fakes with different failures, and score the fakes.

    The table shows which metric detects which failure. Nothing is downloaded.
    """
    EmbedOptions(device=device)  # checks it
    from genpr.demo import build_demo, save_sets
    from genpr.evaluation.evaluator import Evaluator
    from genpr.report.compare_tables import comparison_table

    real, *fakes = sets = build_demo(n=n, seed=seed)
    more = "Write the images to folders: genpr demo --out genpr-demo"
    if out is not None:
        save_sets(sets, out)
        output.note(f"wrote {len(sets)} folders of images to {out}")
        more = printable(f"Next: genpr score {out}/real {out}/blurred --extractor gabor")
    with progress_bars(quiet=output.quiet) as progress:
        evaluator = Evaluator(real.images, extractor="gabor", device=device, progress=progress)
        results = {fake.name: evaluator.score(fake.images) for fake in fakes}
    record = {name: result.to_dict() for name, result in results.items()}
    descriptions = "\n".join(f"  {shown.name:<13} {shown.description}" for shown in sets)
    effects = "\n".join(f"  {fake.name:<13} {fake.effect}" for fake in fakes)
    table = comparison_table(results)
    text = f"{n} images per set:\n{descriptions}\n\n{table}\n\n{effects}\n\n{_READING}\n\n{more}"
    output.show_record(record, text)
