"""What several generators make of the same latents, or of what has the same name, beside each other.

Latents are known to be equal where genpr drew the images itself, with the same number, width and seed of latents and the
same labels: `Sampler.identity` has them. Of files nobody can tell; there, equal names are all that is known, and the
gallery says so.
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
from genpr.report.pages.gallery import Gallery, Picture
from genpr.report.pages.thumbnails import made_small, thumbnail
from genpr.report.safe_text import shown

MOST_ROWS = 12
_LATENTS = ("n", "latent_dim", "seed", "labels")
_NOISE = ("batch_size", "device")  # its streams start anew for each batch
_CAPTION = 40  # characters of a result's name


@dataclass(frozen=True)
class _Shown:
    """One source with what it was given as."""

    given: object
    source: ImageSource

    @property
    def drawn_by(self) -> Mapping[str, object] | None:
        """What drew its images, where genpr did, once some were read."""
        return self.given.drawn_by if isinstance(self.given, CountedBatches) else None


def side_by_side(
    sources: Mapping[str, object], *, rows: int = MOST_ROWS, scored: Mapping[str, Result] | None = None
) -> Gallery:
    """A row of pictures for each of some latents, or names of images: what every source has there.

    Args:
        sources: Images by what to call them: what `Sampler.images` gives, `CheckpointImages`, or anything else that
            `genpr.score` takes as images. Each is read once more.
        rows: At most so many: the first of what generators draw, else spread evenly over the names that all have.
        scored: Results by the same names; whether the images are those that were scored is then told by their hashes,
            for which all files are read.

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
        'Each row is drawn from the same latent, with the same noise.'
    """
    if len(sources) < 2 or rows < 1:
        raise UsageError(
            f"images side by side need at least two sources and one row, found {len(sources)} and {rows}",
            code="too-few-results",
        )
    opened = {name: _opened(name, source) for name, source in sources.items()}
    names = _common_names(opened)
    is_drawn = all(isinstance(each.given, CountedBatches) for each in opened.values())
    chosen = names[:rows] if is_drawn else _spread(names, rows)
    found = {name: _thumbnails(each.source, chosen) for name, each in opened.items()}
    whole = [place for place in range(len(chosen)) if all(place in each for each in found.values())]
    sentences = [_of_latents(opened) if is_drawn else _of_names(opened)]
    if scored is not None:
        sentences.append(_of_scores(opened, scored))
    if len(whole) < len(chosen):
        sentences.append(
            f"{len(chosen) - len(whole)} of {len(chosen)} rows are left out, since not all could be read."
        )
    pictures = tuple(
        Picture(found[name][place], _caption(number, name), group=_row_name(chosen[place], is_drawn=is_drawn))
        for place in whole
        for number, name in enumerate(opened, 1)
    )
    return Gallery(
        "The same latents" if _are_equal(opened, _LATENTS) else "Side by side", " ".join(sentences), pictures
    )


def _opened(name: str, source: object) -> _Shown:
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
    return _Shown(source, opened.source)


def _common_names(opened: Mapping[str, _Shown]) -> list[str]:
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
        raise DataError(
            f"no image of all sources has the same name, so none belong beside each other ({held})",
            code="no-common-names",
        )
    return common


def _names_of(source: ImageSource) -> dict[str, None]:
    """In order; of batches by their number alone, without drawing any."""
    if isinstance(source, BatchSource) and (count := known_length(source)) is not None:
        return {f"[{row}]": None for row in range(count)}
    return dict.fromkeys(source.names() or (item.name for item in source))


def _spread(names: Sequence[str], rows: int) -> list[str]:
    """Evenly over all, so that folders by class give more than one class."""
    count = min(rows, len(names))
    return [names[place * len(names) // count] for place in range(count)]


def _thumbnails(source: ImageSource, names: Sequence[str]) -> dict[int, bytes]:
    pixels = Pictures(source, names, keep=made_small).read(range(len(names)))
    return {place: thumbnail(each) for place, each in pixels.items()}


def _caption(number: int, name: str) -> str:
    return f"{number} {shown(name, longest=_CAPTION)}"


def _row_name(name: str, *, is_drawn: bool) -> str:
    return f"latent {name.strip('[]')}" if is_drawn else name


def _are_equal(opened: Mapping[str, _Shown], keys: Sequence[str]) -> bool:
    """Whether genpr drew all of them, with the same of `keys`."""
    drawn_by = [each.drawn_by for each in opened.values()]
    known = [each for each in drawn_by if each is not None]
    return len(known) == len(drawn_by) and all(
        each.get(key) == known[0].get(key) for each in known for key in keys
    )


def _of_latents(opened: Mapping[str, _Shown]) -> str:
    if not _are_equal(opened, _LATENTS):
        return (
            "Each row is drawn with the same number, but not from the same latent: the generators got another number, width, "
            "seed or labels of latents, or nobody knows which."
        )
    noise = "with the same noise" if _are_equal(opened, _NOISE) else "with noise of its own"
    return f"Each row is drawn from the same latent, {noise}."


def _of_names(opened: Mapping[str, _Shown]) -> str:
    is_by_file = any(isinstance(each.given, str | os.PathLike) for each in opened.values())
    what = "name" if is_by_file else "place"
    return (
        f"Each row holds the images of one {what}. Whether they were drawn from the same latents is not recorded: whoever "
        "gave them says so, and if not, a row says nothing."
    )


def _of_scores(opened: Mapping[str, _Shown], scored: Mapping[str, Result]) -> str:
    """Whether these are the images behind the numbers."""
    verdicts = {name: _is_scored(each.source, scored[name]) for name, each in opened.items()}
    if all(verdicts.values()):
        return "They are the images that were scored, by their hashes."
    parts = []
    if strange := [shown(name, longest=_CAPTION) for name, verdict in verdicts.items() if verdict is False]:
        parts.append(f"Not the images that were scored: {listed(strange)}.")
    if unknown := [shown(name, longest=_CAPTION) for name, verdict in verdicts.items() if verdict is None]:
        parts.append(f"Nobody can tell whether these were scored: {listed(unknown)}.")
    return " ".join(parts)


def _is_scored(source: ImageSource, result: Result) -> bool | None:
    """By the hashes of all images; None where a score of features, or one that left images out, does not tell."""
    side = result.fake
    if side.n_embedded + side.n_cached == 0 or side.skipped:
        return None
    if result.max_images is not None:
        source = subset(source, result.max_images, result.seed)
    if (count := known_length(source)) is not None and count != side.n:
        return False
    try:
        rows = tuple(bytes.fromhex(content_sha256(item.read())) for item in source)
    except ImageError:
        return False
    return Identities(rows, frozenset(rows), of_images=True).content == side.content
