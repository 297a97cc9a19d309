"""Command-line options made from option records (`genpr.features.options`), and the groups that several commands share."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import Field, dataclass, replace
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click
from click.core import ParameterSource

from genpr.checkpoints.options import SamplerKeywords, SamplerOptions
from genpr.errors import UsageError
from genpr.evaluation.options import KNN, LabelOptions, ScoreOptions
from genpr.features.options import option, option_fields

if TYPE_CHECKING:
    from genpr.checkpoints.sampler import CheckpointImages
    from genpr.evaluation.evaluator import Evaluator
    from genpr.evaluation.per_class import ClassOptions


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


def click_option(each: Field[Any]) -> Callable[[Any], Any]:
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
        return wraps(told["parse"])(partial(_parsed, told["parse"]))
    if told["choices"]:
        return click.Choice(told["choices"])
    if (told["least"], told["most"]) != (None, None):
        return click.IntRange(told["least"], told["most"])
    if "int" in kinds and "str" not in kinds:
        return int
    return float if "float" in kinds else click.Path() if "os.PathLike[str]" in kinds else str


def _parsed(parse: Callable[[str], object], text: object) -> object:
    """What a function of the library makes of a text; a default is a value already."""
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


def check_sources(*sources: object) -> None:
    """Refuse sources that are not there, before torch is imported, which takes seconds."""
    from genpr.images.paths import check_exists

    for source in sources:
        check_exists(str(source))


def _follow(_context: click.Context, _parameter: click.Parameter, is_requested: bool) -> None:
    from genpr.images.folder import follow_links

    if is_requested:
        follow_links()  # until the command ends: see `genpr.cli.main.run`


follow_symlinks = click.option(
    "--follow-symlinks",
    is_flag=True,
    expose_value=False,
    callback=_follow,
    help="Look into linked folders, too; each folder counts once.",
)


@dataclass(frozen=True, kw_only=True)
class LabelFlags:
    """Whether and how the classes of fakes are recognized, and whether each class is scored."""

    labels: bool = option(
        False,
        "Do fakes look like the classes that they were asked to be? Adds label.gan_test, label.gan_train and others.",
    )
    classifier: str = option(
        KNN,
        "knn (a vote of the nearest 5), linear (a linear probe), or a .csv, .json or .npy file with the labels that the "
        "fakes were recognized as.",
        metavar="KIND",
    )
    real_labels: str | None = option(
        None,
        "Classes of REAL: .csv of name,label, StyleGAN's .json, .npy in their order, or the word folders.",
        unset="dataset.json in it, arr_1 of an .npz, else sub-folders",
        metavar="FILE",
    )
    fake_labels: str | None = option(None, "Classes of FAKE, likewise.", metavar="FILE")
    per_class: bool = option(False, "Score each class within itself, too, and list the worst.")
    min_per_class: int = option(50, "Images that a class needs on each side.", metavar="N")

    def chosen(self) -> LabelOptions | None:
        """What to compare; None if no labels are to be compared."""
        if not self.labels:
            refuse_given({"classifier"}, "needs --labels")
            if not self.per_class:
                refuse_given({"real_labels", "fake_labels"}, "needs --labels, or --per-class of genpr score")
            return None
        chosen = LabelOptions(self.real_labels, self.fake_labels, self.classifier)
        if chosen.is_file and not self.per_class:
            refuse_given({"real_labels"}, "is not used where another tool recognized the fakes")
        return chosen

    def classes(self) -> ClassOptions | None:
        """Keyword arguments of `genpr.Evaluator.score_classes`; None if no classes are requested."""
        if not self.per_class:
            refuse_given({"min_per_class"}, "needs --per-class")
            return None
        names = ("real_labels", "fake_labels", "min_per_class")
        return cast("ClassOptions", {name: getattr(self, name) for name in names})


def score_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a score to a command that scores many sets, which gets a `ScoreOptions` as `options`."""

    @wraps(command)
    def with_labels(*args: object, options: ScoreOptions, labels: LabelFlags, **values: object) -> object:
        return command(*args, options=replace(options, labels=labels.chosen()), **values)

    labels = option_group(LabelFlags, "labels", without={"per_class", "min_per_class"})
    return option_group(ScoreOptions, without={"held_out"})(follow_symlinks(labels(with_labels)))


DRAWN_BY_SCORE = ("seed", "axis", "batch_size", "device")
"""Fields of `SamplerOptions` that a command takes from its other options."""


@dataclass(frozen=True, kw_only=True)
class GeneratorFlags(SamplerOptions):
    """Which generator draws, and how many images of what kind."""

    generator: str | None = option(
        None,
        "package.module:factory or path/file.py:factory of a generator that draws the fakes.",
        metavar="SPEC",
    )
    n: int | None = option(None, "Images to draw.", unset="as many as reals", least=2, most=2**40)

    def check(self) -> None:
        """Refuse options that need a generator where there is none."""
        if self.generator is None:
            needing = {"rule", "latent_dim", "image_range", "n", "psi", "axis_name", "checkpoint", "settings"}
            refuse_given({*needing, "pattern"}, "needs --generator")

    def sampling(self, options: ScoreOptions, axis: str) -> SamplerKeywords:
        """How it draws, along an axis."""
        own = {name: getattr(self, name) for name in ("rule", "latent_dim", "image_range")}
        given = {name: getattr(options, name) for name in ("seed", "batch_size", "device")}
        return cast("SamplerKeywords", {"axis": axis, **own, **given})


@dataclass(frozen=True, kw_only=True)
class CheckpointFlags(GeneratorFlags):
    """The same for one generator per checkpoint, all at one setting."""

    psi: float | None = option(
        None,
        "Where on its axis the generator draws.",
        unset="no truncation, and no axis is passed",
        flag=("--psi", "--setting"),
        metavar="X",
    )
    axis_name: str = option("psi", "Name of what --setting sets.", flag="--axis", metavar="NAME")

    def check(self) -> None:
        """Refuse what can be seen to be wrong before there is any image."""
        super().check()
        if self.generator is not None:
            from genpr.checkpoints.generator import check_factory

            self._images(Path(), n=self.n or 2, options=ScoreOptions())
            check_factory(self.generator)

    def images_of(self, evaluator: Evaluator, options: ScoreOptions) -> Callable[[Path], CheckpointImages]:
        """From a checkpoint to its images: as many as there are reals, if nothing else was asked for."""
        return partial(self._images, n=self.n or evaluator.n_real, options=options)

    def _images(self, path: Path, *, n: int, options: ScoreOptions) -> CheckpointImages:
        from genpr.checkpoints.sampler import CheckpointImages

        assert self.generator is not None
        how = self.sampling(options, self.axis_name)
        return CheckpointImages(self.generator, path, n=n, setting=self.psi, **how)
