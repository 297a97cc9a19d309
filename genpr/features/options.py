"""Option records: one frozen field per option, with its type, default and description.

Signatures, docstrings and command-line flags are generated from the fields. Importing this module does not import torch.
"""

from __future__ import annotations

import inspect
import os
import textwrap
from collections.abc import Callable, Collection, Sequence
from dataclasses import Field, dataclass, field, fields, is_dataclass
from functools import cached_property
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar

from genpr.errors import UsageError
from genpr.images.policy import MAX_PIXELS, BadImagePolicy, DecodePolicy
from genpr.memory import parse_size
from genpr.runtime import check_device
from genpr.validation import check_count, check_flag

if TYPE_CHECKING:
    import torch

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., object])

StageProgress = Callable[[str, int, int | None], None]
"""Called with the stage ("real", "fake": images embedded; "neighbors": percent of a search), the number of finished
items, and the total (None if unknown)."""

Group = Literal["common", "inputs", "features", "metrics", "labels", "generator", "output", "advanced"]
"""Where the help of a command lists an option: `genpr.cli.options`."""

_MAX = 2**31 - 1
_WIDTH = 120


def option(
    default: T,
    description: str,
    *,
    group: Group = "common",
    unset: str | None = None,
    least: int | None = None,
    most: int | None = None,
    choices: Sequence[str] = (),
    parse: Callable[[str], object] | None = None,
    check: Callable[[Any], object] | None = None,
    in_cli: bool = True,
    **click: object,
) -> T:
    """A field of an option record; `unset` describes the value None, and `least` and `most` (2^31 - 1) bound integers.

    `group` is where the help of a command lists it, and the first sentence of `description` is all that its short help shows.
    `parse` turns the text of a command line into the value, and `check` is called with it; both raise UsageError. `click` are
    further keyword arguments of `click.option`; `flag` replaces the flag's name.
    """
    limits = {"least": least, "most": most, "choices": tuple(choices), "parse": parse, "check": check}
    shown = {"description": description, "group": group, "unset": unset, "in_cli": in_cli, "click": click}
    return field(default=default, metadata={**limits, **shown})


def option_fields(record: type[Any]) -> list[Field[Any]]:
    """The fields of an option record, with inherited fields last."""
    own = vars(record).get("__annotations__", {})
    return sorted(fields(record), key=lambda each: each.name not in own)


def takes_options(record: type[Any], *, without: Collection[str] = ()) -> Callable[[F], F]:
    """Replace `**options` in the signature and in the docstring of a function or class by the fields of a record."""

    def show(target: F) -> F:
        shown = [each for each in option_fields(record) if each.name not in without]
        function: Any = vars(target)["__init__"] if isinstance(target, type) else target
        signature = inspect.signature(function)
        own = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
        kind = inspect.Parameter.KEYWORD_ONLY
        more = [
            inspect.Parameter(each.name, kind, default=each.default, annotation=each.type) for each in shown
        ]
        function.__signature__ = signature.replace(parameters=[*own, *more])
        if target.__doc__ is not None:
            target.__doc__ = _with_fields(target.__doc__, shown)
        return target

    return show


def _with_fields(text: str, shown: Sequence[Field[Any]]) -> str:
    """A docstring in which the entry `**options` is replaced by one entry per field."""
    lines = text.splitlines()
    (at,) = (number for number, line in enumerate(lines) if line.lstrip().startswith("**options:"))
    indent = lines[at][: len(lines[at]) - len(lines[at].lstrip())]
    entries: list[str] = []
    for each in shown:
        unset = each.metadata["unset"]
        entry = f"{each.name}: {each.metadata['description']}" + (f" None: {unset}." if unset else "")
        entries += textwrap.wrap(
            entry, _WIDTH, initial_indent=indent, subsequent_indent=f"{indent}    ", break_on_hyphens=False
        )
    return "\n".join([*lines[:at], *entries, *lines[at + 1 :]])


def keywords_of(options: Any) -> dict[str, Any]:  # noqa: ANN401 - any option record
    """The fields of a record as keyword arguments."""
    return {each.name: getattr(options, each.name) for each in fields(options)}


_OF_ONE_RANK = (
    *("device", "workers", "weights", "offline", "cache", "cache_dir", "max_memory", "progress"),
    *("quiet", "as_json"),
)
_FILES = (  # which another rank may have elsewhere; but all have them, or none
    *("held_out", "reference_statistics", "real_labels", "fake_labels"),
    *("real_groups", "fake_groups", "groups", "groups_of_real", "calibrate_on", "real", "html", "table"),
)


def shared_options(options: Any) -> dict[str, Any]:  # noqa: ANN401 - any option record, or options by name
    """The options that must be equal on all ranks that compute one score, as plain JSON types."""
    if is_dataclass(options):
        options = keywords_of(options)
    shared = {name: value for name, value in options.items() if name not in _OF_ONE_RANK}
    return {name: value is not None if name in _FILES else _plain(value) for name, value in shared.items()}


def _plain(value: object) -> object:
    if isinstance(value, Real) and not isinstance(value, bool):
        return int(value) if isinstance(value, Integral) else float(value)
    if isinstance(value, list | tuple):
        return list(map(_plain, value))
    if is_dataclass(value) and not isinstance(value, type):
        return shared_options(value)
    return value if value is None or isinstance(value, bool | str) else type(value).__name__


def parse_share(text: str) -> float:
    """A share of a whole, written as 1% or 0.01."""
    try:
        return float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        raise UsageError(f"{text!r} is not a share such as 1% or 0.01", code="bad-option") from None


class EmbedKeywords(TypedDict, total=False):
    """The fields of `EmbedOptions` as keyword arguments."""

    max_images: int | None
    seed: int
    on_bad: Literal["error", "skip"]
    max_bad: float
    max_pixels: int
    prepare: str | None
    value_range: str | Sequence[Any] | None
    bands: str | Sequence[int] | None
    device: str | torch.device
    batch_size: int
    workers: int | None
    weights: str | os.PathLike[str] | None
    offline: bool
    cache: bool
    cache_dir: str | os.PathLike[str] | None
    max_memory: str | int | None
    progress: StageProgress | None


@dataclass(frozen=True, kw_only=True)
class EmbedOptions:
    """Which images of a source are used, how they are decoded, and how they become features."""

    max_images: int | None = option(None, "Random subset of at most N images of each source.", least=1)
    seed: int = option(
        0,
        "Random seed. It decides the subset of max_images, intervals, blocks, clusters and distractors.",
        least=0,
        most=2**63 - 1,
    )
    on_bad: Literal["error", "skip"] = option(
        "error",
        "Refuse a source with unusable images (error), or leave them out (skip). An error lists all of them.",
        group="inputs",
        choices=("error", "skip"),
    )
    max_bad: float = option(
        0.01,
        "Largest fraction of unusable images that may be left out, such as 1% or 0.01.",
        group="advanced",
        parse=parse_share,
        metavar="FRACTION",
    )
    max_pixels: int = option(
        MAX_PIXELS,
        "Refuse images with more pixels than this before they are decoded.",
        group="advanced",
        least=1,
    )
    prepare: str | None = option(
        None,
        "Crop or resize decoded images to N x N. center-crop:N is ADM's rule, square-crop:N that of NVIDIA's tools (Lanczos), "
        "resize:N is bicubic and changes the aspect ratio, and none keeps the size.",
        unset="the protocol's, or none",
        parse=lambda text: DecodePolicy(prepare=text).prepare,
        metavar="RULE:N",
    )
    value_range: str | Sequence[Any] | None = option(
        None,
        "Values of black and white of images that are not of 8 bits, such as 0:4095. One range for all bands, or one for each.",
        group="inputs",
        unset="only images of 8 bits, and those of 16 bits by their highest 8",
        parse=lambda text: DecodePolicy(value_range=text).value_range,
        metavar="LOW:HIGH",
    )
    bands: str | Sequence[int] | None = option(
        None,
        "Bands that become red, green and blue, such as 4,3,2, or one as gray, from 1; or all, for custom extractors.",
        group="inputs",
        unset="images of one or three bands, without alpha",
        parse=lambda text: DecodePolicy(bands=text).bands,
        metavar="R,G,B",
    )
    device: str | torch.device = option(
        "auto",
        "auto, cpu, cuda or cuda:N. With auto, work that runs out of GPU memory is repeated on the CPU.",
        check=check_device,
        metavar="DEVICE",
    )
    batch_size: int = option(
        64,
        "Images per forward pass of a network, at most 2,048. Built-in networks take at most 16 on a CPU.",
        group="features",
        least=1,
    )
    workers: int | None = option(
        None,
        "Processes that decode image files, or 0 for threads.",
        group="features",
        unset="processes for a GPU, 4 cores and 2,000 images or more, else threads",
        least=0,
        most=256,
    )
    weights: str | os.PathLike[str] | None = option(
        None,
        "Weights of the extractor: a file, or a folder of files. Files in a folder have their published names.",
        group="features",
        unset="downloaded",
    )
    offline: bool = option(False, "Download nothing. GENPR_OFFLINE=1 does the same.", group="advanced")
    cache: bool = option(True, "Keep features of image files on disk for later runs.", group="features")
    cache_dir: str | os.PathLike[str] | None = option(
        None,
        "Folder of the feature cache.",
        group="advanced",
        unset="GENPR_CACHE, or the user's cache folder",
        metavar="DIR",
    )
    max_memory: str | int | None = option(
        None,
        "Memory that the process plans with, such as 8GiB; it may use .6 GB more. Features that do not fit are memory-mapped.",
        group="advanced",
        unset="the free memory",
        check=parse_size,
        metavar="SIZE",
    )
    progress: StageProgress | None = option(
        None,
        'Called with a stage ("real", "fake", "neighbors"), the number of finished items, and the total or None.',
        in_cli=False,
    )

    def __post_init__(self) -> None:
        for each in fields(self):
            value, least, most = getattr(self, each.name), each.metadata["least"], each.metadata["most"]
            if isinstance(each.default, bool):
                check_flag(value, each.name)
            if value is None and each.default is None:
                continue
            if each.metadata["check"] is not None:
                each.metadata["check"](value)
            if (choices := each.metadata["choices"]) and value not in choices:
                text = f"{each.name} must be {' or '.join(map(repr, choices))}, not {value!r}"
                raise UsageError(text, code="bad-option")
            if least is not None:
                check_count(value, each.name, minimum=least, maximum=most or _MAX)
        if not isinstance(self.max_bad, Real) or not 0 <= self.max_bad <= 1:
            raise UsageError(f"max_bad is a share from 0 to 1, not {self.max_bad!r}", code="bad-option")
        _ = self.decoding  # which validates its options

    @cached_property
    def bad_images(self) -> BadImagePolicy:
        """The policy for unusable images."""
        return BadImagePolicy(self.on_bad, self.max_bad)

    @cached_property
    def decoding(self) -> DecodePolicy:
        """How images are decoded."""
        prepare = "none" if self.prepare is None else self.prepare
        return DecodePolicy(self.max_pixels, prepare, self.value_range, self.bands)
