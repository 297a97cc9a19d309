"""Command-line options made from option records (`genpr.features.options`), and options that no record has."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import Field
from functools import wraps
from typing import Any, TypeVar

import click

from genpr.errors import UsageError
from genpr.features.options import option_fields

Command = TypeVar("Command", bound=Callable[..., object])


def option_group(
    record: type[Any], name: str = "options", *, without: Collection[str] = ()
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add one option per field of a record to a command, which gets an instance of the record.

    Args:
        record: A dataclass whose fields are made by `genpr.features.options.option`.
        name: The command's parameter that gets the instance.
        without: Fields that keep their default.
    """
    shown = [each for each in option_fields(record) if each.metadata["in_cli"] and each.name not in without]

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def with_record(*args: object, **values: object) -> object:
            given = {each.name: values.pop(each.name) for each in shown}
            return command(*args, **values, **{name: record(**given)})

        return with_options(with_record, tuple(map(click_option, shown)))

    return add


def click_option(each: Field[Any]) -> Callable[[Command], Command]:
    """The option of one field: names, type, default and help follow from it."""
    told, extra = each.metadata, dict(each.metadata["click"])
    text = told["description"] + (f"  [default: {told['unset']}]" if told["unset"] else "")
    flags = extra.pop("flag", f"--{each.name.replace('_', '-')}")
    flag, *others = (flags,) if isinstance(flags, str) else flags
    given: dict[str, Any] = {"default": each.default, "help": text}
    if isinstance(each.default, bool):
        flag = f"{flag}/--no-{flag[2:]}" if each.default else flag
        given |= {"is_flag": True, "show_default": each.default}
    else:
        given |= {"type": _type_of(each), "show_default": each.default not in (None, "", ())}
    return click.option(flag, *others, each.name, **given | extra)


def _type_of(each: Field[Any]) -> Any:  # noqa: ANN401 - a type of click or of Python
    """From text to what the field holds."""
    told, kinds = each.metadata, {kind.strip() for kind in str(each.type).split("|")}
    if told["parse"] is not None:
        return _parsed(told["parse"])
    if told["choices"]:
        return click.Choice(told["choices"])
    if (told["least"], told["most"]) != (None, None):
        return click.IntRange(told["least"], told["most"])
    if "int" in kinds and "str" not in kinds:
        return int
    if "float" in kinds:
        return float
    return click.Path() if "os.PathLike[str]" in kinds else str


def _parsed(parse: Callable[[str], object]) -> Callable[[Any], object]:
    """What a function of the library makes of a text; a default is a value already."""

    def value(text: Any) -> object:  # noqa: ANN401
        try:
            return parse(text) if isinstance(text, str) else text
        except UsageError as error:
            raise click.BadParameter(str(error)) from None

    return value


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


def with_options(command: Command, options: tuple[Callable[[Command], Command], ...]) -> Command:
    """Add options to a command, in this order."""
    for option in reversed(options):
        command = option(command)
    return command


def _follow(_context: click.Context, _parameter: click.Parameter, is_requested: bool) -> None:
    from genpr.images.folder import follow_links

    if is_requested:
        follow_links()  # until the command ends: see `genpr.cli.main.run`


def source_flags(command: Command) -> Command:
    """`--follow-symlinks` and `--quiet`, which are no options of the library."""
    return with_options(command, _SOURCE_FLAGS)


_SOURCE_FLAGS = (
    click.option(
        "--follow-symlinks",
        is_flag=True,
        expose_value=False,
        callback=_follow,
        help="Look into linked folders, too; each folder counts once.",
    ),
    click.option("-q", "--quiet", is_flag=True, help="No progress bars and no notes."),
)
