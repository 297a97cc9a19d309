"""What truncation trades: precision against recall of a generator, as a table and as a picture.

python scripts/truncation_sweep.py real/ gan.py:load --checkpoint G.pt --out sweep
python scripts/truncation_sweep.py real/ genpr.demo:ShapesGenerator --extractor gabor --n 1000 --out sweep

The same as `genpr sweep --generator`, in a few lines of Python to start from.
"""

from __future__ import annotations

from pathlib import Path

import click

import genpr
from genpr.checkpoints.rank import Objective
from genpr.checkpoints.sweep import SweepFolder
from genpr.report.checkpoint_tables import sweep_table
from genpr.report.files import write_sweep


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("real")
@click.argument("generator", metavar="MODULE:FACTORY")
@click.option("--checkpoint", help="What the factory is called with.")
@click.option("--psi", "psis", multiple=True, type=float, default=(0.2, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0))
@click.option("--n", default=10_000, show_default=True, type=click.IntRange(min=2), help="Images per psi.")
@click.option("--rule", help="How psi truncates, if not the generator does it.")
@click.option("--extractor", help="See `genpr list extractors`.")
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), default=Path("sweep"), show_default=True
)
def main(
    real: str,
    generator: str,
    checkpoint: str | None,
    psis: tuple[float, ...],
    n: int,
    rule: str | None,
    extractor: str | None,
    out: Path,
) -> None:
    """Sweep psi of a generator against the images in REAL."""
    evaluator = genpr.Evaluator(real, extractor=extractor)
    loaded = genpr.load_generator(generator, checkpoint)
    found = genpr.truncation_sweep(loaded, evaluator, psis, n=n, rule=rule, out=out)
    objective = Objective(maximize="f1")
    write_sweep(found, objective, SweepFolder(out))
    click.echo(sweep_table(found, objective))


if __name__ == "__main__":
    main()
