"""From two sources to one `Result`: the real side is embedded and fitted once, any number of fakes scored."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Integral
from typing import Literal

import torch

from genpr.errors import UsageError
from genpr.features.extractor import FeatureExtractor
from genpr.features.feature_set import FeatureSet
from genpr.findings import Identities, findings
from genpr.images.decode import MAX_PIXELS
from genpr.memory import limited_memory, parse_size
from genpr.metrics.features import check_ties
from genpr.metrics.real_side import RealSide
from genpr.protocols import find_protocol
from genpr.result import MetricValue, Result, SideSummary, package_versions
from genpr.runtime import resolve_device
from genpr.sides import SideLoader, StageProgress, check_same_kind, check_untrained, open_side


@dataclass
class _Search:
    """A search among neighbours that is under way."""

    progress: StageProgress
    seconds: float = 0.0

    def report(self, done: int, total: int) -> None:
        """Pairs done with, as per cent."""
        self.progress("neighbours", 100 * done // max(total, 1), 100)


class Evaluator:
    """A real set, embedded and fitted once, against which any number of fake sets is scored.

    Args:
        real: Real images or their features: a folder, `.zip`, `.tar`, `.npz` or feature file; a uint8 array
            (n, h, w, 3) or tensor (n, 3, h, w); a float array or tensor (n, d) of features; a Dataset; or an
            iterable of image batches.
        extractor: A name, `module:factory`, `file.py:factory`, or an object that follows the
            `FeatureExtractor` protocol; None takes the protocol's. Feature files bring their own.
        protocol: Name of a recipe that sets extractor, k and ties.
        metrics: Which of precision, recall, density, coverage; None for all.
        k: Neighbours for every metric; None takes the protocol's (3 for precision and recall, else 5).
        ties: "closed" or "strict" balls; None takes the protocol's.
        max_images: Score a random subset of at most this many images of each side.
        seed: Chooses that subset.
        device: "auto", "cpu", "cuda" or "cuda:N".
        batch_size: Images per forward pass of the extractor.
        weights: File with the extractor's weights, instead of the downloaded one.
        offline: Never download.
        cache: Keep features of images that come from files, so that the next run embeds only new ones.
        cache_dir: Where; None takes GENPR_CACHE or the user's cache folder.
        on_bad: "error" refuses a source with unusable images after listing all; "skip" leaves them out.
        max_bad: With "skip", the largest tolerated share of unusable images.
        max_pixels: Images with more pixels are refused before they are decoded.
        max_memory: Plan with at most so many bytes for the process, such as "8GiB"; features that are larger than
            that allows are mapped from a file. None takes what is free.
        progress: Called with a stage ("real", "fake", "neighbours"), what is done, and the total or None.

    Raises:
        UsageError: A path or name does not exist, or an option is impossible.
        DataError: The real side cannot be used.
        ResourceError: Weights, device or memory are missing.

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> evaluator = Evaluator(rng.normal(size=(200, 8)))
        >>> result = evaluator.score(rng.normal(size=(200, 8)))
        >>> list(result.metrics)
        ['precision', 'recall', 'density', 'coverage']
    """

    def __init__(
        self,
        real: object,
        *,
        extractor: str | FeatureExtractor | None = None,
        protocol: str = "genpr",
        metrics: Sequence[str] | None = None,
        k: int | None = None,
        ties: Literal["closed", "strict"] | None = None,
        max_images: int | None = None,
        seed: int = 0,
        device: str | torch.device = "auto",
        batch_size: int = 64,
        weights: str | os.PathLike[str] | None = None,
        offline: bool = False,
        cache: bool = True,
        cache_dir: str | os.PathLike[str] | None = None,
        on_bad: Literal["error", "skip"] = "error",
        max_bad: float = 0.01,
        max_pixels: int = MAX_PIXELS,
        max_memory: str | int | None = None,
        progress: StageProgress | None = None,
    ) -> None:
        recipe = find_protocol(protocol)
        self._protocol = recipe.name
        self._ks = recipe.choose_ks(metrics, k)
        self._ties = recipe.ties if ties is None else ties
        check_ties(self._ties)
        _check_options(
            on_bad=on_bad,
            max_bad=max_bad,
            at_least_1=(("max_images", max_images), ("batch_size", batch_size), ("max_pixels", max_pixels)),
        )
        self._device = resolve_device(device)
        self._max_memory = None if max_memory is None else parse_size(max_memory)
        self._max_images = None if max_images is None else int(max_images)
        self._seed = int(seed)
        self._loader = SideLoader(
            extractor_request=extractor,
            default_extractor=recipe.extractor,
            device=self._device,
            weights=weights,
            offline=offline,
            max_images=max_images,
            seed=seed,
            batch_size=batch_size,
            cache=cache,
            cache_dir=cache_dir,
            on_bad=on_bad,
            max_bad=max_bad,
            max_pixels=max_pixels,
            progress=progress,
        )
        ball_ks = [k for name, k in self._ks.items() if name != "recall"]
        with limited_memory(self._max_memory):
            self._opened_real = open_side(real, "real")
            self._real = self._loader.load(self._opened_real, "real", minimum=max(ball_ks, default=0) + 1)
            self._real_identities = Identities.of(self._real)
            with self._searching() as search:
                self._side = RealSide.fit(
                    self._real.features, ks=ball_ks, device=self._device, progress=search.report
                )
        self._fit_seconds = search.seconds

    def score(self, fake: object) -> Result:
        """Score one fake set; only the fake side is embedded and fitted.

        Args:
            fake: Anything that `real` may be, of the same kind: images against images, features against
                features of the same extractor.

        Raises:
            UsageError: The path does not exist.
            DataError: The fake side cannot be used, or does not belong to the real side.
        """
        with limited_memory(self._max_memory):
            opened = open_side(fake, "fake")
            check_same_kind(self._opened_real, opened)
            fakes = self._loader.load(opened, "fake", minimum=self._ks.get("recall", 0) + 1)
            check_untrained(self._real, fakes)
            with self._searching() as search:
                values = self._side.score(
                    fakes.features, ks=self._ks, ties=self._ties, progress=search.report
                )
        return self._result(fakes, values, seconds=search.seconds)

    @contextmanager
    def _searching(self) -> Iterator[_Search]:
        """Time the block, and tell how far it is."""
        search = _Search(self._loader.progress or (lambda *_: None))
        search.report(0, 1)
        started = time.perf_counter()
        yield search
        search.seconds = time.perf_counter() - started
        search.report(1, 1)

    def _result(self, fakes: FeatureSet, values: Mapping[str, float], *, seconds: float) -> Result:
        metrics = {name: MetricValue(values[name], k) for name, k in self._ks.items()}
        real, fake = self._real_identities, Identities.of(fakes)
        return Result(
            metrics=metrics,
            protocol=self._protocol,
            ties=self._ties,
            extractor=fakes.extractor or self._real.extractor,
            real=SideSummary.of(self._real, n_duplicates=real.n_duplicates),
            fake=SideSummary.of(fakes, n_duplicates=fake.n_duplicates),
            n_shared=fake.n_shared_with(real),
            device=str(self._device),
            seed=self._seed,
            max_images=self._max_images,
            seconds={"fit_real": self._fit_seconds, "score_fake": seconds},
            versions=package_versions(),
            notices=findings(self._real, fakes, real, fake),
        )


def score(
    real: object,
    fake: object,
    *,
    extractor: str | FeatureExtractor | None = None,
    protocol: str = "genpr",
    metrics: Sequence[str] | None = None,
    k: int | None = None,
    ties: Literal["closed", "strict"] | None = None,
    max_images: int | None = None,
    seed: int = 0,
    device: str | torch.device = "auto",
    batch_size: int = 64,
    weights: str | os.PathLike[str] | None = None,
    offline: bool = False,
    cache: bool = True,
    cache_dir: str | os.PathLike[str] | None = None,
    on_bad: Literal["error", "skip"] = "error",
    max_bad: float = 0.01,
    max_pixels: int = MAX_PIXELS,
    max_memory: str | int | None = None,
    progress: StageProgress | None = None,
) -> Result:
    """Score one fake set against one real set; `Evaluator` documents every argument.

    Both sources are found and compared in kind before the first image is embedded.

    Raises:
        UsageError: A path or name does not exist, or an option is impossible.
        DataError: A side cannot be used, or the two do not belong together.
        ResourceError: Weights, device or memory are missing.

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> real = rng.normal(size=(300, 4))
        >>> collapsed = 0.01 * rng.normal(size=(300, 4))
        >>> result = score(real, collapsed)
        >>> result["precision"], result["recall"]
        (1.0, 0.0)
    """
    with limited_memory(max_memory):
        opened_real, opened_fake = open_side(real, "real"), open_side(fake, "fake")
    check_same_kind(opened_real, opened_fake)
    evaluator = Evaluator(
        opened_real,
        extractor=extractor,
        protocol=protocol,
        metrics=metrics,
        k=k,
        ties=ties,
        max_images=max_images,
        seed=seed,
        device=device,
        batch_size=batch_size,
        weights=weights,
        offline=offline,
        cache=cache,
        cache_dir=cache_dir,
        on_bad=on_bad,
        max_bad=max_bad,
        max_pixels=max_pixels,
        max_memory=max_memory,
        progress=progress,
    )
    return evaluator.score(opened_fake)


def _check_options(*, on_bad: str, max_bad: float, at_least_1: Sequence[tuple[str, int | None]]) -> None:
    if on_bad not in {"error", "skip"}:
        raise UsageError(f"on_bad must be 'error' or 'skip', not {on_bad!r}", code="bad-option")
    if not 0 <= max_bad <= 1:
        raise UsageError(f"max_bad is a share from 0 to 1, not {max_bad}", code="bad-option")
    for name, value in at_least_1:
        if value is not None and (not isinstance(value, Integral) or value < 1):
            raise UsageError(f"{name} must be an integer of at least 1, not {value!r}", code="bad-option")
