"""Images of several generators from the same latents, or of the same name, beside each other.

Latents are known to be equal where genpr generated the images itself, with the same number, width and seed of latents and
the same labels: `Sampler.identity` holds them. Of files, only equal names are known, and the gallery says so.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from genpr.checkpoints.rank import listed
from genpr.errors import DataError, ImageError, UsageError
from genpr.evaluation.result import Identities, Result
from genpr.features.feature_set import FeatureSet
from genpr.features.inputs import Pictures, open_input
from genpr.images.datasets import BatchSource, CountedBatches
from genpr.images.decode import content_sha256
from genpr.images.item import ImageSource, known_length
from genpr.images.source import subset
from genpr.report.gallery import Gallery, Picture, made_small, thumbnail
from genpr.report.text import shown

MOST_ROWS = 12
_LATENTS = ("n", "latent_dim", "seed", "labels")
_NOISE = ("batch_size", "device")  # its streams start anew for each batch
_NAME = 40  # characters of a result's name


@dataclass(frozen=True)
class _Opened:
    given: object
    source: ImageSource


def side_by_side(
    sources: Mapping[str, object], *, rows: int = MOST_ROWS, scored: Mapping[str, Result] | None = None
) -> Gallery:
    """A row of images for each of some latents, or names of images, with one image of each source.

    Args:
        sources: Images by what to call them: what `Sampler.images` gives, `CheckpointImages`, or anything else that
            `genpr.score` takes as images. Each is read once more.
        rows: At most so many: the first of what generators make, else spread evenly over the names that all have.
        scored: Results by the same names; hashes of all files then show whether the images are those that were scored.

    Returns:
        For `genpr.compare_report`; its sentence says what is known of the latents.

    Raises:
        UsageError: There are fewer than two sources, one holds features, or can be read only once.
        DataError: They have no name in common ("no-common-names"), or cannot be read.

    Example:
        >>> import genpr
        >>> from genpr.demo import ShapesGenerator
        >>> sampler = genpr.Sampler.of(ShapesGenerator(), n=8)
        >>> gallery = side_by_side({"psi=0.5": sampler.images(0.5), "psi=1": sampler.images(1.0)}, rows=2)
        >>> [name for name, _ in gallery.groups]
        ['latent 0', 'latent 1']
        >>> gallery.sentence
        'Each row shares one latent and the same noise.'
    """
    if len(sources) < 2 or rows < 1:
        raise UsageError(
            f"images side by side need at least two sources and one row, found {len(sources)} and {rows}",
            code="too-few-results",
        )
    opened = {name: _open(name, source) for name, source in sources.items()}
    names = _common_names(opened)
    is_generated = all(isinstance(each.given, CountedBatches) for each in opened.values())
    count = min(rows, len(names))
    # Spread evenly, so that folders by class give more than one class.
    chosen = names[:rows] if is_generated else [names[index * len(names) // count] for index in range(count)]
    found = [
        Pictures(each.source, chosen, keep=made_small).read(range(len(chosen))) for each in opened.values()
    ]
    complete = [index for index in range(len(chosen)) if all(index in each for each in found)]
    sentences = [_about_latents(opened) if is_generated else _about_names(opened)]
    sentences += [] if scored is None else [_about_scores(opened, scored)]
    if missing := len(chosen) - len(complete):
        sentences.append(f"{missing} of {len(chosen)} rows are left out, since not all images could be read.")
    pictures = [
        Picture(
            thumbnail(images[index]),
            f"{number} {shown(name, longest=_NAME)}",
            group=f"latent {chosen[index].strip('[]')}" if is_generated else chosen[index],
        )
        for index in complete
        for number, (name, images) in enumerate(zip(opened, found, strict=True), 1)
    ]
    title = "The same latents" if _are_equal(opened, _LATENTS) else "Side by side"
    return Gallery(title, " ".join(sentences), tuple(pictures))


def _open(name: str, source: object) -> _Opened:
    opened = open_input(source, name)
    if isinstance(opened, FeatureSet):
        raise UsageError(
            f"{shown(name)} needs images to show, and {shown(opened.source)} holds features; give the images that they are of",
            code="bad-samples",
        )
    if isinstance(opened.source, BatchSource) and opened.source.is_one_shot:
        raise UsageError(
            f"the images of {shown(name)} can be read only once, and were; give a list, a dataset or a folder",
            code="bad-samples",
        )
    return _Opened(source, opened.source)


def _common_names(opened: Mapping[str, _Opened]) -> list[str]:
    """Names that all sources have, in the order of the first.

    Raises:
        DataError: There are none.
    """
    named = {name: _names_of(each.source) for name, each in opened.items()}
    common = [each for each in next(iter(named.values())) if all(each in others for others in named.values())]
    if not common:
        held = "; ".join(
            f"{shown(name)}: {', '.join(shown(one, longest=60) for one in list(each)[:3])}, ..."
            for name, each in list(named.items())[:3]
        )
        raise DataError(f"no image of all sources has the same name ({held})", code="no-common-names")
    return common


def _names_of(source: ImageSource) -> dict[str, None]:
    """In order; of batches by their number alone, without generating any."""
    if isinstance(source, BatchSource) and (count := known_length(source)) is not None:
        return {f"[{row}]": None for row in range(count)}
    return dict.fromkeys(source.names() or (item.name for item in source))


def _are_equal(opened: Mapping[str, _Opened], keys: Sequence[str]) -> bool:
    """Whether genpr generated all of them, with the same of `keys`."""
    made_by = [
        each.given.drawn_by if isinstance(each.given, CountedBatches) else None for each in opened.values()
    ]
    known = [each for each in made_by if each is not None]
    return len(known) == len(made_by) and all(
        each.get(key) == known[0].get(key) for each in known for key in keys
    )


def _about_latents(opened: Mapping[str, _Opened]) -> str:
    if not _are_equal(opened, _LATENTS):
        return (
            "Each row has the same index, but not the same latent: the number, width, seed or labels of latents differ or "
            "are unknown."
        )
    return f"Each row shares one latent{' and the same noise' if _are_equal(opened, _NOISE) else ', with different noise'}."


def _about_names(opened: Mapping[str, _Opened]) -> str:
    is_by_file = any(isinstance(each.given, str | os.PathLike) for each in opened.values())
    what = "name" if is_by_file else "index"
    return (
        f"Each row holds the images of one {what}. Whether they come from the same latents is not recorded."
    )


def _about_scores(opened: Mapping[str, _Opened], scored: Mapping[str, Result]) -> str:
    """Whether these are the images behind the numbers."""
    verdicts = {name: _is_scored(each.source, scored[name]) for name, each in opened.items()}
    if all(verdicts.values()):
        return "By their hashes, they are the images that were scored."
    parts = []
    for verdict, text in (
        (False, "Not the images that were scored"),
        (None, "Not known whether these were scored"),
    ):
        if names := [shown(name, longest=_NAME) for name, each in verdicts.items() if each is verdict]:
            parts.append(f"{text}: {listed(names)}.")
    return " ".join(parts)


def _is_scored(source: ImageSource, result: Result) -> bool | None:
    """By the hashes of all images; None where a score of features, or one that left images out, does not tell."""
    summary = result.fake
    if summary.n_embedded + summary.n_cached == 0 or summary.skipped:
        return None
    if result.max_images is not None:
        source = subset(source, result.max_images, result.seed)
    if (count := known_length(source)) is not None and count != summary.n:
        return False
    try:
        rows = tuple(bytes.fromhex(content_sha256(item.read())) for item in source)
    except ImageError:
        return False
    return Identities(rows, frozenset(rows), of_images=True).content == summary.content
