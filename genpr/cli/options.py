"""Command-line options made from option records (`genpr.features.options`), their help in groups, and shared records."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import Field, dataclass, replace
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click
from click.core import ParameterSource

from genpr.checkpoints.options import SamplerKeywords, SamplerOptions
from genpr.distributed import current_communicator
from genpr.errors import UsageError
from genpr.evaluation.options import KNN, LABELS_FILE, LABELS_UNSET, LabelOptions, ScoreOptions
from genpr.evaluation.plan import ScorePlan
from genpr.features.options import EmbedOptions, option, option_fields, shared_options
from genpr.images.folder import follow_links
from genpr.images.paths import check_exists

if TYPE_CHECKING:
    from click.types import OptionHelpExtra

    from genpr.checkpoints.generator import CheckpointImages
    from genpr.evaluation.per_class import ClassOptions

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

_METAVARS = {"integer": "N", "integer range": "N", "text": "NAME", "Path": "FILE"}
"""What help shows for the value of an option without a metavar, by the name of its type."""
_MAX_COLUMN = 28  # of an option with its metavar; longer ones have a line to themselves


class GroupedOption(click.Option):
    """An option with the group that it is listed in.

    `unset` says what the default None stands for. Help leaves out ranges of numbers, which errors state.
    """

    def __init__(self, *args: Any, group: str = "common", unset: str | None = None, **kwargs: Any) -> None:  # noqa: ANN401
        super().__init__(*args, **kwargs)
        self.group = group
        self.unset = unset
        self.metavar = self.metavar or _METAVARS.get(self.type.name)
        if self.multiple and self.help:
            self.help += " May be repeated."

    def get_help_extra(self, ctx: click.Context) -> OptionHelpExtra:
        """Click's parts of a help text, and `unset` as the default."""
        extra = super().get_help_extra(ctx)
        extra.pop("range", None)
        return {**extra, "default": self.unset} if self.unset else extra


class GroupedCommand(click.Command):
    """A command with its options in groups."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Refuse empty values, such as unset variables of a shell, since an empty path is the working folder."""
        for before, each in zip([self.name, *args], args, strict=False):
            is_empty = each == "" or re.fullmatch("--[a-z-]+=", each)
            if is_empty and "--prefix" not in (before, each[:-1]) and not ctx.resilient_parsing:
                raise click.UsageError(f"{each or before}: the value is empty", ctx=ctx)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - as click.Command
        """Run the command, which needs its inputs, and the same options on all ranks that share it ("ranks-differ")."""
        flags = {each.name or "": each.opts[0] for each in self.params if isinstance(each, click.Option)}
        shared = shared_options({name: value for name, value in ctx.params.items() if name in flags})
        own = {flags[name]: value for name, value in shared.items()}
        current_communicator().check_same(own, f"options of {ctx.info_name}")
        for each in self.params:
            given = ctx.params[each.name or ""] if each.type is INPUT else ()
            for text in [given] if isinstance(given, str) else given:
                check_exists(text)
        return super().invoke(ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the groups below each other, aligned."""
        params = [each for each in self.get_params(ctx) if isinstance(each, click.Option)]
        records = [(getattr(each, "group", "common"), each.get_help_record(ctx)) for each in params]
        shown = [(group, record) for group, record in records if record is not None]
        width = max(len(flags) for _, (flags, _) in shown if len(flags) <= _MAX_COLUMN)
        for group, heading in HEADINGS.items():
            rows = [(flags.ljust(width), text) for name, (flags, text) in shown if name == group]
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows, col_max=_MAX_COLUMN)


def grouped_option(*flags: str, **attributes: Any) -> Callable[[Any], Any]:  # noqa: ANN401 - as click.option
    """`click.option` with a group."""
    return click.option(*flags, cls=GroupedOption, **attributes)


class SourceType(click.Path):
    """A path, a pattern, or anything else that `genpr.images.paths` understands; shells complete it as a file."""


SOURCE = SourceType()
INPUT = SourceType()
"""One that must exist, which is checked before the import of torch, which takes seconds."""


def option_group(
    record: type[Any], name: str = "options", *, without: Collection[str] = ()
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add one option per field of an option record, but for `without`, to a command, which gets an instance as `name`."""
    shown = [each for each in option_fields(record) if each.metadata["in_cli"] and each.name not in without]

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def with_record(*args: object, **values: object) -> object:
            given = {each.name: values.pop(each.name) for each in shown}
            return command(*args, **values, **{name: record(**given)})

        added: Callable[..., Any] = with_record
        for each in reversed(shown):
            added = click_option(each)(added)
        return added

    return add


def click_option(each: Field[Any], *, dest: str | None = None, **changes: object) -> Callable[[Any], Any]:
    """The option of one field, passed as the parameter `dest`; `changes` replace keyword arguments of `click.option`."""
    metadata, extra = each.metadata, dict(each.metadata["click"])
    flags = extra.pop("flag", f"--{each.name.replace('_', '-')}")
    flag, *others = (flags,) if isinstance(flags, str) else flags
    given: dict[str, Any] = {"default": each.default, "help": metadata["description"]}
    given |= {"group": metadata["group"], "unset": metadata["unset"]}
    if isinstance(each.default, bool):
        flag = f"{flag}/--no-{flag[2:]}" if each.default else flag
        given |= {"is_flag": True, "show_default": each.default}
    else:
        given |= {"type": _type_of(each), "show_default": each.default not in (None, "", ())}
    return grouped_option(flag, *others, dest or each.name, **given | extra | changes)


def _type_of(each: Field[Any]) -> Any:  # noqa: ANN401 - a type of click or of Python
    """The type that converts the text of the command line."""
    metadata, kinds = each.metadata, {kind.strip() for kind in str(each.type).split("|")}
    if metadata["parse"] is not None:
        return wraps(metadata["parse"])(partial(_parsed, metadata["parse"]))
    if metadata["choices"]:
        return click.Choice(metadata["choices"])
    if (metadata["least"], metadata["most"]) != (None, None):
        return click.IntRange(metadata["least"], metadata["most"])
    if "int" in kinds and "str" not in kinds:
        return int
    if "float" in kinds:
        return float
    return click.Path() if "os.PathLike[str]" in kinds else SOURCE if "object" in kinds else str


def _parsed(parse: Callable[[str], object], text: object) -> object:
    """Convert a text by a function of the library; a default has been converted already."""
    try:
        return parse(text) if isinstance(text, str) else text
    except UsageError as error:
        raise click.BadParameter(str(error)) from None


def refuse_given(names: Collection[str], reason: str) -> None:
    """Refuse parameters of the running command that are on the command line; `reason` follows the flag in the message."""
    context = click.get_current_context()
    for each in context.command.params:
        is_given = context.get_parameter_source(each.name or "") is ParameterSource.COMMANDLINE
        if each.name in names and is_given:
            raise click.UsageError(f"{each.opts[0]} {reason}")


def _follow(_context: click.Context, _parameter: click.Parameter, is_requested: bool) -> None:
    if is_requested:
        follow_links()  # until the command ends: see `genpr.cli.main.run`


follow_symlinks = grouped_option(
    "--follow-symlinks",
    is_flag=True,
    expose_value=False,
    callback=_follow,
    group="advanced",
    help="Follow symbolic links to folders. Each folder is read once.",
)

cache_dir = click_option(
    EmbedOptions.__dataclass_fields__["cache_dir"], group="common", type=click.Path(path_type=Path)
)

force = grouped_option(
    "--force",
    is_flag=True,
    help="Accept results that are not comparable, such as those of different extractors.",
)


@dataclass(frozen=True, kw_only=True)
class LabelFlags:
    """Options for class labels: whether they are compared, and whether each class is scored."""

    labels: bool = option(
        False,
        "Compare classes of the fakes with those that a classifier predicts. Adds label.gan_test, label.gan_train and others.",
        group="labels",
    )
    classifier: str = option(
        KNN,
        "Classifier of --labels: knn (a vote of the 5 nearest reals) or a file. The file (.csv, .json, .npy) has the label that another tool predicted for each fake.",
        group="advanced",
    )
    real_labels: str | None = option(
        None,
        f"Classes of REAL: {LABELS_FILE}",
        group="labels",
        unset=LABELS_UNSET,
        metavar="FILE",
        type=SOURCE,
    )
    fake_labels: str | None = option(
        None,
        "Classes of FAKE, in the same forms.",
        group="labels",
        unset=LABELS_UNSET,
        metavar="FILE",
        type=SOURCE,
    )
    per_class: bool = option(
        False,
        "Also score each class, by fd and kd too, with the mean over classes (intra-FID).",
        group="labels",
    )
    min_per_class: int = option(
        50, "Images of a class that --per-class needs in both sets.", group="advanced"
    )

    def chosen(self) -> LabelOptions | None:
        """The options of the label metrics; None without --labels."""
        if not self.labels:
            refuse_given({"classifier"}, "needs --labels")
        if not self.labels and not self.per_class:
            refuse_given({"real_labels", "fake_labels"}, "needs --labels or --per-class")
        chosen = LabelOptions(self.real_labels, self.fake_labels, self.classifier)
        if chosen.is_file and not self.per_class:
            refuse_given({"real_labels"}, "is not used if --classifier is a file")
        return chosen if self.labels else None

    def classes(self) -> ClassOptions | None:
        """Keyword arguments of `genpr.Evaluator.score_classes`; None without --per-class."""
        if not self.per_class:
            refuse_given({"min_per_class"}, "needs --per-class")
            return None
        names = ("real_labels", "fake_labels", "min_per_class")
        return cast("ClassOptions", {name: getattr(self, name) for name in names})


def computed_metrics(*choices: ScoreOptions) -> list[str]:
    """The metrics that scores with these options compute."""
    found = [name for each in choices for name in ScorePlan.from_options(None, each).extractors]
    of_labels = [name for each in choices if each.labels is not None for name in each.labels.names]
    return list(dict.fromkeys([*found, *of_labels]))


def score_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a score to a command that scores many sets, which gets a `ScoreOptions` as `options`."""

    @wraps(command)
    def with_labels(*args: object, options: ScoreOptions, labels: LabelFlags, **values: object) -> object:
        return command(*args, options=replace(options, labels=labels.chosen()), **values)

    labels = option_group(LabelFlags, "labels", without={"per_class", "min_per_class"})
    return option_group(ScoreOptions, without={"held_out"})(follow_symlinks(labels(with_labels)))


SHARED_WITH_SCORE = ("seed", "batch_size", "device")
"""Fields of `SamplerOptions` that a command sets from its other options."""


@dataclass(frozen=True, kw_only=True)
class GeneratorFlags(SamplerOptions):
    """The generator that draws the fakes, and the number of images."""

    generator: str | None = option(
        None,
        "Generator that draws the fakes: module:factory or file.py:factory.",
        group="generator",
        metavar="FACTORY",
    )
    n: int | None = option(
        None,
        "Number of images.",
        group="generator",
        unset="as many as reals",
        least=2,
        most=2**40,
    )

    def check(self) -> None:
        """Refuse options that need a generator if there is none."""
        if self.generator is None:
            needing = {"rule", "latent_dim", "image_range", "n", "psi", "checkpoint", "settings", "pattern"}
            refuse_given(needing, "needs --generator")

    def sampling(self, options: ScoreOptions) -> SamplerKeywords:
        """Keyword arguments of the sampler."""
        own = {name: getattr(self, name) for name in ("axis", "rule", "latent_dim", "image_range")}
        given = {name: getattr(options, name) for name in SHARED_WITH_SCORE}
        return cast("SamplerKeywords", own | given)


@dataclass(frozen=True, kw_only=True)
class CheckpointFlags(GeneratorFlags):
    """The same for one generator per checkpoint, all at one setting."""

    psi: float | None = option(
        None,
        "Setting at which the generator draws.",
        group="generator",
        unset="no truncation, and the generator is called without it",
        flag=("--psi", "--setting"),
        metavar="X",
    )

    def check(self) -> None:
        """Refuse wrong options before any image is drawn."""
        super().check()
        if self.generator is None:
            refuse_given({"axis"}, "needs --generator")
        else:
            from genpr.checkpoints.generator import check_factory

            self.images_of(self.n or 2, ScoreOptions())(Path())
            check_factory(self.generator)

    def images_of(self, n: int, options: ScoreOptions) -> Callable[[Path], CheckpointImages]:
        """From a checkpoint to its `n` images."""
        from genpr.checkpoints.generator import CheckpointImages

        return partial(CheckpointImages, str(self.generator), n=n, setting=self.psi, **self.sampling(options))
