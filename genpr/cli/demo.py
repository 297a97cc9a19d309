"""`genpr demo`."""

from __future__ import annotations

import json
from pathlib import Path

import click

from genpr.cli.console import complain, progress_bars
from genpr.cli.options import click_option, option_group
from genpr.cli.output import TextOutput
from genpr.errors import printable
from genpr.features.options import EmbedOptions

_READING = """\
Precision and density measure fidelity: the share of fakes that look real.
Recall and coverage measure diversity: the share of real variety that is covered.
The calibrated pair is precision and recall divided by the value of a perfect
generator. These features are weight-free: the values compare with no paper."""


@click.command(name="demo")
@click.option(
    "--save",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Also write the pictures there, as PNG files.",
)
@click.option(
    "--n", default=800, show_default=True, type=click.IntRange(50, 100_000), help="Pictures per set."
)
@click.option(
    "--seed", default=0, show_default=True, type=click.IntRange(0, 2**63 - 1), help="Chooses the pictures."
)
@click_option(EmbedOptions.__dataclass_fields__["device"])
@option_group(TextOutput, "output")
def command(*, save: Path | None, n: int, seed: int, device: str, output: TextOutput) -> None:
    """Draw a set of "real" pictures and four imitations that fail in four ways, and score them.

    Nothing is downloaded. The table shows which of the four numbers notices which failure.
    """
    EmbedOptions(device=device)  # which checks it
    from genpr.demo import build_demo, contact_sheet, save_sets
    from genpr.evaluation.evaluator import Evaluator
    from genpr.report.score_tables import comparison_table

    real, *fakes = sets = build_demo(n=n, seed=seed)
    more = "See the pictures, and score them as folders: genpr demo --save genpr-demo"
    if save is not None:
        save_sets(sets, save)
        contact_sheet(sets).save(save / "overview.png")
        complain(f"wrote {len(sets)} folders of pictures and {save / 'overview.png'}")
        more = printable(f"Next: genpr score {save}/real {save}/blurred --extractor gabor")
    with progress_bars(quiet=output.quiet) as progress:
        evaluator = Evaluator(real.images, extractor="gabor", device=device, progress=progress)
        results = {fake.name: evaluator.score(fake.images) for fake in fakes}
    if output.as_json:
        text = json.dumps({name: result.to_dict() for name, result in results.items()})
    else:
        stories = "\n".join(f"  {shown.name:<13} {shown.story}" for shown in sets)
        lessons = "\n".join(f"  {fake.name:<13} {fake.lesson}" for fake in fakes)
        table = comparison_table(results)
        text = f"{n} drawings per set:\n{stories}\n\n{table}\n\n{lessons}\n\n{_READING}\n\n{more}"
    output.show((), text)
