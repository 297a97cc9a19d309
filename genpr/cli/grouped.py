"""Commands whose help lists options in groups, the advanced ones only with `--help-all`; and shell completion of sources."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from genpr.distributed import current_communicator
from genpr.features.options import shared_options

if TYPE_CHECKING:
    from click.types import OptionHelpExtra

HEADINGS = {
    "common": "Options",
    "inputs": "Inputs",
    "features": "Features",
    "metrics": "Metrics",
    "labels": "Class labels",
    "generator": "Generator",
    "output": "Output",
    "advanced": "Advanced",
}
"""The heading of each group of options (`genpr.features.options.Group`), in display order."""

SHOWS_ALL = "genpr.help_all"
_MAX_COLUMN = 28  # of an option with its metavar; longer ones have a line to themselves


class GroupedOption(click.Option):
    """An option with the group that it is listed in.

    `unset` says what the default None stands for. Help leaves out ranges of numbers, which errors state.
    """

    def __init__(self, *args: Any, group: str = "common", unset: str | None = None, **kwargs: Any) -> None:  # noqa: ANN401
        super().__init__(*args, **kwargs)
        self.group = group
        self.unset = unset

    def get_help_extra(self, ctx: click.Context) -> OptionHelpExtra:
        """Extend click's parts of a help text by `unset`, and by on or off for `--x/--no-x`."""
        extra = super().get_help_extra(ctx)
        extra.pop("range", None)
        if self.unset:
            extra["default"] = self.unset
        elif self.is_bool_flag and self.secondary_opts and "default" in extra:
            extra["default"] = "on" if self.default else "off"
        return extra

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """The flags and the help text, in a shortened help its first sentence; and whether the option may be repeated."""
        record = super().get_help_record(ctx)
        if record is None or not self.help:
            return record
        flags, text = re.sub(r"--([a-z][a-z-]{0,40}) / --no-\1", r"--[no-]\1", record[0]), record[1]
        first, _, more = self.help.partition(". ")
        shown = f"{first}." if more and not ctx.meta.get(SHOWS_ALL) else self.help
        if self.multiple:
            shown += " May be repeated."
        return flags, text.replace(self.help, shown, 1)


class GroupedCommand(click.Command):
    """A command with its options in groups. If it has advanced ones, only `--help-all` shows these, and all texts in full."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
        super().__init__(*args, **kwargs)
        self._has_more = any(_group_of(each) == "advanced" for each in self.params)
        if self._has_more:
            self.params.append(_help_all())

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Refuse empty values, such as unset variables of a shell, since an empty path is the working folder."""
        if not ctx.resilient_parsing:
            given, _, _ = self.make_parser(ctx).parse_args([*args])
            for each in self.params:
                value = given.get(each.name or "")
                if each.name != "prefix" and (
                    value == "" or (isinstance(value, list | tuple) and "" in value)
                ):
                    raise click.BadParameter("it is empty", ctx=ctx, param=each)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - as click.Command
        """Run the command, which needs the same options on all ranks that share it ("ranks-differ")."""
        flags = {each.name or "": each.opts[0] for each in self.params if isinstance(each, click.Option)}
        shared = shared_options({name: value for name, value in ctx.params.items() if name in flags})
        own = {flags[name]: value for name, value in shared.items()}
        current_communicator().check_same(own, f"options of {ctx.info_name}")
        return super().invoke(ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the groups below each other, aligned."""
        if not self._has_more:
            ctx.meta[SHOWS_ALL] = True
        params = [each for each in self.get_params(ctx) if isinstance(each, click.Option)]
        records = [(_group_of(each), each.get_help_record(ctx)) for each in params]
        shown = [
            (group, record)
            for group, record in records
            if record is not None and (group != "advanced" or ctx.meta.get(SHOWS_ALL))
        ]
        widths = [len(flags) for _, (flags, _) in shown if len(flags) <= _MAX_COLUMN]
        for group, heading in HEADINGS.items():
            rows = [(flags.ljust(max(widths)), text) for name, (flags, text) in shown if name == group]
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows, col_max=_MAX_COLUMN)


class GroupedGroup(click.Group):
    """A group of such commands."""

    command_class = GroupedCommand


def _group_of(parameter: click.Parameter) -> str:
    return str(getattr(parameter, "group", "common"))


def _help_all() -> click.Option:
    def show(ctx: click.Context, _parameter: click.Parameter, is_requested: bool) -> None:
        if is_requested and not ctx.resilient_parsing:
            ctx.meta[SHOWS_ALL] = True
            click.echo(ctx.get_help(), color=ctx.color)
            ctx.exit()

    return click.Option(
        ["--help-all"],
        is_flag=True,
        expose_value=False,
        is_eager=True,
        callback=show,
        help="Show all options, with full descriptions, and exit.",
    )


def grouped_option(*flags: str, **attributes: Any) -> Callable[[Any], Any]:  # noqa: ANN401 - as click.option
    """`click.option` with a group."""
    return click.option(*flags, cls=GroupedOption, **attributes)


class SourceType(click.types.StringParamType):
    """A path, a pattern, or anything else that `genpr.images.paths` understands; shells complete it as a file."""

    name = "source"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Leave it to the shell."""
        return [CompletionItem(incomplete, type="file")]


SOURCE = SourceType()
