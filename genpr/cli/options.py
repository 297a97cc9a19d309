"""Command-line options that several commands share, each named like its parameter in Python."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

import click

from genpr.errors import UsageError
from genpr.images.policy import MAX_PIXELS, DecodePolicy

Command = TypeVar("Command", bound=Callable[..., object])


def share(text: str) -> float:
    """A share of a whole: `1%` or `0.01`."""
    try:
        value = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a share such as 1% or 0.01") from None
    if not 0 <= value <= 1:
        raise click.BadParameter(f"{text} is not between 0% and 100%")
    return value


def background(text: str) -> str:
    """What becomes of transparency: `drop`, `white`, `black` or `#rrggbb`."""
    try:
        return DecodePolicy(alpha=text).alpha
    except UsageError as error:
        raise click.BadParameter(str(error)) from None


def threshold(text: str) -> tuple[str, float]:
    """`metric=number`."""
    metric, separator, number = text.partition("=")
    try:
        least = float(number)
    except ValueError:
        least = math.nan
    if math.isnan(least):  # no value is ever below NaN: the gate would always be open
        needed = "a number" if separator else "metric=x, such as precision=0.7"
        raise click.BadParameter(f"{text!r}: needed {needed}")
    return metric, least


def _follow(_context: click.Context, _parameter: click.Parameter, is_asked: bool) -> None:
    from genpr.images.folder import follow_links

    if is_asked:
        follow_links()  # until the command ends: see `genpr.cli.main.run`


def source_options(command: Command) -> Command:
    """Everything that decides which images of a source are used."""
    return with_options(command, _SOURCE_OPTIONS)


def image_options(command: Command) -> Command:
    """Everything that decides how images become features."""
    return with_options(embedding_options(command), _EXTRACTOR_OPTIONS)


def embedding_options(command: Command) -> Command:
    """The same, where something else names the network."""
    return with_options(source_options(command), _FEATURE_OPTIONS)


def recipe_options(command: Command) -> Command:
    """What to compute, and everything that decides how images become features."""
    return with_options(image_options(command), _RECIPE_OPTIONS)


def names_in(text: str | None) -> list[str] | None:
    """`a,b` as a list; None stays None."""
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def with_options(command: Command, options: tuple[Callable[[Command], Command], ...]) -> Command:
    """Add options to a command, in this order."""
    for option in reversed(options):
        command = option(command)
    return command


_SOURCE_OPTIONS = (
    click.option(
        "--max-images", type=click.IntRange(min=1), help="Use a random subset of at most this many."
    ),
    click.option(
        "--seed",
        default=0,
        show_default=True,
        type=click.IntRange(max=2**63 - 1),  # as torch takes it
        help="Chooses the subset of --max-images.",
    ),
    click.option(
        "--on-bad",
        type=click.Choice(["error", "skip"]),
        default="error",
        show_default=True,
        help="Unusable images: refuse the source after listing all, or leave them out.",
    ),
    click.option(
        "--max-bad", type=share, default="1%", show_default=True, help="Most that --on-bad skip accepts."
    ),
    click.option(
        "--max-pixels",
        default=MAX_PIXELS,
        show_default=True,
        type=click.IntRange(min=1),
        help="Larger images are refused before decoding.",
    ),
    click.option(
        "--alpha",
        type=background,
        default="drop",
        show_default=True,
        metavar="drop|COLOUR",
        help="Transparency: drop it, or lay white, black or #rrggbb behind it.",
    ),
    click.option(
        "--exif",
        type=click.Choice(["ignore", "apply"]),
        default="ignore",
        show_default=True,
        help="Orientation in EXIF: take pixels as stored, or turn them.",
    ),
    click.option(
        "--follow-symlinks",
        is_flag=True,
        expose_value=False,
        callback=_follow,
        help="Look into linked folders, too; each folder counts once.",
    ),
    click.option("-q", "--quiet", is_flag=True, help="No progress bars and no notes."),
)
_EXTRACTOR_OPTIONS = (
    click.option(
        "--extractor",
        metavar="NAME",
        help="See `genpr list extractors`; or package.module:factory or path/file.py:factory.  [default: the protocol's, or clip-vit-b-32 for prompts]",
    ),
)


def _checked_device(_context: click.Context, _option: click.Parameter, value: str) -> str:
    """Before torch is imported to look for it."""
    from genpr.runtime import check_device

    check_device(value)
    return value


def _checked_memory(_context: click.Context, _option: click.Parameter, value: str | None) -> str | None:
    if value is not None:
        from genpr.memory import parse_size

        parse_size(value)
    return value


device_option = click.option(
    "--device",
    default="auto",
    show_default=True,
    callback=_checked_device,
    help="auto, cpu, cuda or cuda:N.",
)
_FEATURE_OPTIONS = (
    device_option,
    click.option(
        "--batch-size",
        default=64,
        show_default=True,
        type=click.IntRange(min=1),
        help="Images per forward pass.",
    ),
    click.option(
        "--weights", type=click.Path(), help="File with the extractor's weights, or a folder of such files."
    ),
    click.option("--offline", is_flag=True, help="Never download (also GENPR_OFFLINE=1)."),
    click.option(
        "--cache/--no-cache", default=True, help="Keep features for the next run.  [default: cache]"
    ),
    click.option("--cache-dir", type=click.Path(), help="Where to keep them.  [default: GENPR_CACHE]"),
    click.option(
        "--max-memory",
        metavar="SIZE",
        callback=_checked_memory,
        help="Plan with at most so much, such as 8GiB, of which libraries take 0.3; larger features are mapped from a file.  "
        "[default: what is free]",
    ),
)
_RECIPE_OPTIONS = (
    click.option(
        "--metrics",
        metavar="A,B",
        help="Only these (see `genpr list metrics`), or all.  [default: the protocol's]",
    ),
    click.option(
        "--k", type=int, help="Neighbours for every metric that counts them.  [default: the protocol's]"
    ),
    click.option(
        "--ties", type=click.Choice(["closed", "strict"]), help="Balls with or without their surface."
    ),
    click.option(
        "--intervals/--no-intervals",
        default=True,
        show_default=True,
        help="95 % intervals, by halves of both sets.",
    ),
    click.option(
        "--control/--no-control",
        default=True,
        show_default=True,
        help="Score one half of the reals against the other, too.",
    ),
)
