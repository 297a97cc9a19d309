"""Standard errors and biases of the Fréchet distance against its spread over independent draws of Gaussian sets."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass

import click
import numpy as np
import torch
from torch import Tensor

from genpr.metrics.frechet import frechet_influence

_FACTOR = 0.2  # standard deviation of the logarithms of the factors by which variances of fakes differ


@dataclass(frozen=True, slots=True)
class Record:
    """The result for one pair of distributions."""

    n: int  # images of each set
    d: int  # features
    spectrum: str  # of the reals' covariance: "flat", or "inverse" for 1 / i
    fakes: str  # "equal" or "different"
    draws: int
    mean: float  # of the distance
    limit: float  # the distance of endless images
    bias: float  # mean of its estimates
    spread: float  # standard deviation of the distance over draws
    error: float  # mean of the standard errors
    ratio: float  # error over spread, which is known to 1 / sqrt(2 draws)
    first_order: float  # root of the mean jackknife variance, over spread: without the correction
    held: float  # share of intervals that hold the mean
    seconds: float


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--n", default=5000, show_default=True, type=click.IntRange(min=3))
@click.option("--d", "widths", multiple=True, default=(64, 512), show_default=True, type=int)
@click.option("--draws", default=200, show_default=True, type=click.IntRange(min=2))
@click.option("--device", default="cpu", show_default=True)
@click.option("--minutes", type=float, help="Start no draw of a pair after so long.")
@click.option("--spectrum", "spectra", multiple=True, default=("flat", "inverse"), show_default=True)
@click.option("--fakes", "kinds", multiple=True, default=("equal", "different"), show_default=True)
def main(
    n: int,
    widths: tuple[int, ...],
    draws: int,
    device: str,
    minutes: float | None,
    spectra: tuple[str, ...],
    kinds: tuple[str, ...],
) -> None:
    """Draw reals and fakes many times, and print one JSON line for each pair of distributions."""
    for d in widths:
        for spectrum in spectra:
            for fakes in kinds:
                print(
                    json.dumps(asdict(compared(n, d, spectrum, fakes, draws, device, minutes=minutes))),
                    flush=True,
                )


def compared(
    n: int, d: int, spectrum: str, fakes: str, draws: int, device: str, *, minutes: float | None = None
) -> Record:
    """The distances and standard errors of independent draws, as many as `minutes` allow."""
    started = time.perf_counter()
    generator = torch.Generator(device).manual_seed(n + d)
    variances = torch.ones(d) if spectrum == "flat" else 1 / torch.arange(1, d + 1)
    variances = variances.to(device, torch.float64)
    mean, factors = torch.zeros_like(variances), torch.ones_like(variances)
    if fakes == "different":
        fixed = torch.Generator().manual_seed(d)
        logs, moves = torch.randn(2, d, generator=fixed, dtype=torch.float64).to(device)
        factors, mean = (_FACTOR * logs).exp(), _FACTOR / 2 * moves * variances.sqrt()
    limit = mean.square().sum() + (variances.sqrt() - (variances * factors).sqrt()).square().sum()

    def drawn(deviations: Tensor, at: Tensor) -> Tensor:
        rows = torch.randn(n, d, generator=generator, dtype=torch.float64, device=device)
        return rows * deviations + at

    values, errors, biases, first, low, high = np.empty((6, draws))
    for i in range(draws):
        if i > 1 and minutes is not None and time.perf_counter() - started > 60 * minutes:
            values, errors, biases, first, low, high = (
                each[:i] for each in (values, errors, biases, first, low, high)
            )
            break
        real = drawn(variances.sqrt(), torch.zeros_like(mean))
        fake = drawn((variances * factors).sqrt(), mean)
        values[i], influence = frechet_influence(real, fake, device=device)
        if influence is None:
            raise click.UsageError(f"{n} rows of {d} features have no interval")
        errors[i], first[i] = influence.standard_error, influence.jackknife_variance
        low[i], high[i] = influence.interval(values[i])
        biases[i] = np.nan if influence.bias is None else influence.bias
    spread, error = float(values.std(ddof=1)), float(errors.mean())
    return Record(
        n=n,
        d=d,
        spectrum=spectrum,
        fakes=fakes,
        draws=len(values),
        mean=float(values.mean()),
        limit=float(limit),
        bias=float(biases.mean()),
        spread=spread,
        error=error,
        ratio=error / spread,
        first_order=float(first.mean()) ** 0.5 / spread,
        held=float(np.mean((low <= values.mean()) & (values.mean() <= high))),
        seconds=time.perf_counter() - started,
    )


if __name__ == "__main__":
    main()
