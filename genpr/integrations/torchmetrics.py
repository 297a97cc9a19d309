"""Precision, recall, density and coverage, or any other metrics of one network, as a `torchmetrics.Metric`."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from dataclasses import asdict, fields, replace
from typing import Any, Literal, NoReturn, Self

import torch
import torch.distributed as dist
from torch import Tensor

from genpr.distributed import barrier, single_process
from genpr.errors import ResourceError, UsageError
from genpr.evaluation.evaluator import Evaluator
from genpr.evaluation.options import ScoreOptions
from genpr.evaluation.plan import ScorePlan, with_pinned
from genpr.evaluation.result import Result
from genpr.features.custom import extractor_info
from genpr.features.extractor import ExtractorInfo, check_same_extractor
from genpr.features.feature_set import FeatureSet, ImageFacts
from genpr.features.options import keywords_of, shared_options, takes_options
from genpr.features.source_features import FROM_FILE, Embedder, ExtractorLike, OpenedImages
from genpr.images.arrays import ArraySource, ImageRange, checked_range
from genpr.images.decode import decoder_versions
from genpr.images.policy import FLAGS, in_order
from genpr.images.source import open_source
from genpr.integrations.common import as_uint8, given_evaluator, warn_no_overlap
from genpr.validation import check_flag, check_seconds, entry_point, is_plain

try:
    from torchmetrics import Metric
    from torchmetrics.utilities import dim_zero_cat
except ModuleNotFoundError as error:
    raise ResourceError(
        "genpr.integrations.torchmetrics needs the package torchmetrics: pip install torchmetrics",
        code="package-missing",
    ) from error

_STATES = ("real_rows", "fake_rows")
_HASH = 32
_HEAD = _HASH + 12  # with width, height and flags as int32


_OF_SCORE = {each.name for each in fields(ScoreOptions)}


@takes_options(ScoreOptions, without={"intervals"})
class PrecisionRecallDensityCoverage(Metric):
    """Precision, recall, density and coverage as a `torchmetrics.Metric`.

    `update(images, real=...)` embeds images, and `compute()` returns a flat dict with one float64 value per metric, and
    `f1` if precision and recall are among them; NaN for a metric that has no value with these images. Values are equal to
    those of `genpr.Evaluator` on the same images. `result` is then the full result, with intervals and notices.

    In a distributed run, every rank updates with its own images, and all ranks call `compute`. Metrics that count neighbors are
    then bit-equal to those of one process with all images. Intervals depend on the order of the images, with those of rank 0
    first. Images of two ranks count twice, such as those that torch's `DistributedSampler` adds to make shards equal.

    If `real` is an `Evaluator`, its options cannot be passed here. All metrics use the same network, and values are on the device
    of the metric. Updates are padded to a multiple of the batch size, so such updates are the fastest.

    Args:
        real: Fixed reals: an `Evaluator`, or a source of reals for it. None if reals are passed to
            `update(images, real=True)`.
        normalize: Float images have values from 0 to 1, as in torchmetrics. uint8 images are not changed.
        image_range: Values of black and white in float images, such as (-1, 1).
        intervals: Add both ends of 95 % intervals, as `precision_low` and `precision_high`.
        reset_real_features: Whether `reset` removes the reals of `update`.
        sync_timeout: Seconds that `compute` waits for the other ranks, before an error names the missing ones.
        **options: Fields of `ScoreOptions`.

    Keyword arguments of `torchmetrics.Metric` are accepted, too; with `sync_on_compute=False`, each rank scores its own images.

    Raises:
        UsageError: An option is impossible, or is an option of the passed Evaluator; or the metrics need several networks.
        DataError: The reals cannot be used.
        ResourceError: Weights, device or memory are missing.

    Example:
        >>> import torch
        >>> images = torch.randint(256, (40, 3, 16, 16), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
        >>> metric = PrecisionRecallDensityCoverage(extractor="gabor")
        >>> metric.update(images[:20], real=True)
        >>> metric.update(images[20:], real=False)
        >>> list(metric.compute())
        ['calibrated_precision', 'calibrated_recall', 'precision', 'recall', 'density', 'coverage', 'f1']
    """

    is_differentiable = False
    full_state_update = False
    plot_lower_bound = 0.0
    real_rows: list[Tensor]
    fake_rows: list[Tensor]

    def __init__(
        self,
        real: object = None,
        *,
        normalize: bool = False,
        image_range: ImageRange | None = None,
        intervals: bool = False,
        reset_real_features: bool = True,
        sync_timeout: float = 300.0,
        **options: Any,  # noqa: ANN401 - and those of torchmetrics
    ) -> None:
        super().__init__(**{name: options[name] for name in options if name not in _OF_SCORE})
        check_seconds("sync_timeout", sync_timeout)
        check_flag(normalize, "normalize")
        check_flag(reset_real_features, "reset_real_features")
        if normalize and image_range is not None:
            text = "normalize=True means image_range=(0, 1); pass only one of the two"
            raise UsageError(text, code="image-range")
        self._image_range = (0.0, 1.0) if normalize else checked_range(image_range)
        self._intervals = intervals
        self._sync_timeout = sync_timeout
        self.reset_real_features = reset_real_features
        own = {name: options[name] for name in options if name in _OF_SCORE}
        self._options = ScoreOptions(**{"control": False, **own}, intervals=intervals)
        self._given = None if real is None else given_evaluator(real, self._options, own)
        if self._given is not None:
            plan, self._embedder = self._given.plan, self._given.embedder
        else:
            pinned = with_pinned([self._options])
            nothing = torch.empty(0, 3, 1, 1, dtype=torch.uint8, device="cpu")
            source = OpenedImages(ArraySource("<real images>", nothing), on_disk=False)
            plan = ScorePlan.from_options(source, pinned)
            self._embedder = Embedder(replace(pinned, cache=False))
        self._names = tuple(plan.extractors)
        # A list, since a network would otherwise become a submodule.
        self._extractors: list[ExtractorLike] = list(dict.fromkeys(plan.extractors.values()))
        if len(self._extractors) > 1:
            names = ", ".join(f"{name} ({extractor})" for name, extractor in plan.extractors.items())
            raise UsageError(
                f"a metric object uses a single network, but these metrics need {len(self._extractors)}: {names}; use one object "
                "per network",
                code="several-extractors",
            )
        if self._extractors == [FROM_FILE]:
            raise UsageError(
                "the real features do not record their extractor, so images cannot be embedded in the same way; create the "
                "Evaluator with extractor=NAME",
                code="unlabeled-features",
            )
        self._fitted: tuple[bytes, Evaluator] | None = None
        self._info: ExtractorInfo | None = None
        self.result: Result | None = None
        for state in _STATES:
            self.add_state(state, [], dist_reduce_fx="cat")

    @entry_point
    def update(self, images: Tensor, real: bool | None = None) -> None:
        """Embed images (n, 3, h, w), uint8 or floats of the declared range, and keep their features.

        `real` is needed unless the reals were passed when the metric was created; then all images are fakes.
        """
        real = False if real is None and self._given is not None else real
        if not isinstance(real, bool):
            raise UsageError(f"real must be True or False, not {real!r}", code="bad-option")
        if real and self._given is not None:
            text = "the reals were passed when the metric was created, so update accepts only fakes"
            raise UsageError(text, code="real-given")
        if is_plain(images) and images.ndim == 4 and images.shape[:2] == (0, 3):  # as for an empty shard
            return
        role = "real" if real else "fake"
        rows, info = self._embedded(as_uint8(images, self._image_range), role)
        if self._info is not None:
            check_same_extractor("this update", info, "earlier ones", self._info)
        self._info = info
        (self.real_rows if real else self.fake_rows).append(rows.to(self.device))

    def compute(self) -> dict[str, Tensor]:
        """Score all images since the last reset, of all ranks: one float64 value per metric."""
        try:
            fakes, evaluator = self._side("fake"), self._given
            if evaluator is None:
                reals = self._side("real")
                assert reals.identities is not None
                key = hashlib.sha256(reals.identities.numpy().tobytes()).digest()
                if self._fitted is None or self._fitted[0] != key:  # other images, or in another order
                    self._fitted = (key, Evaluator(reals, **keywords_of(self._options)))
                evaluator = self._fitted[1]
            self.result = evaluator.score(fakes)
            warn_no_overlap(self.result)
        except BaseException:
            if self._is_synced and self._to_sync:
                self.unsync()  # otherwise the metric would keep the rows of all ranks
            raise
        flat = dict.fromkeys((f"genpr/{name}" for name in self._names), math.nan)
        flat |= self.result.to_flat_dict(intervals=self._intervals)
        return {
            name.removeprefix("genpr/"): torch.tensor(value, dtype=torch.float64, device=self.device)
            for name, value in flat.items()
        }

    def reset(self) -> None:
        """Remove the fakes; and the reals of `update`, unless `reset_real_features` is False."""
        if self._is_synced:
            self.unsync()
        kept = [] if self.reset_real_features else [*self.real_rows]
        super().reset()
        self.real_rows = kept
        self.result = None

    def forward(self, *_: object, **__: object) -> NoReturn:
        """Raise, since a batch has no score ("no-batch-score")."""
        raise UsageError(
            "a single batch has no precision or recall; call metric.update(images, real=...), and metric.compute() after all "
            "images",
            code="no-batch-score",
        )

    def sync(
        self,
        dist_sync_fn: Callable[..., Any] | None = None,
        process_group: dist.ProcessGroup | None = None,
        should_sync: bool = True,
        distributed_available: Callable[[], bool] | None = None,
    ) -> None:
        """Gather the rows of all ranks, after a barrier; a missing rank is a ResourceError."""
        available = distributed_available or self.distributed_available_fn
        if should_sync and not self._is_synced and callable(available) and available():
            barrier(
                f"{type(self).__name__}.compute",
                timeout=self._sync_timeout,
                hint="call compute on every rank, create the metric with sync_on_compute=False to score the images of one rank, "
                "or increase sync_timeout for slow ranks",
                own=self._identity(),
                group=process_group or self.process_group,
            )
            for name in _STATES:
                if not getattr(self, name):  # torchmetrics would send one dimension instead of two
                    setattr(self, name, [self._no_rows().to(self.device)])
        super().sync(dist_sync_fn, process_group, should_sync, distributed_available)

    def set_dtype(self, dst_type: str | torch.dtype) -> Self:
        """Do nothing: features are float32, and values are float64."""
        return self

    def _embedded(self, images: Tensor, role: str) -> tuple[Tensor, ExtractorInfo]:
        """Rows of uint8 (n, 3, h, w) images on the CPU, uint8 (n, 44 + 4 d), and their extractor.

        A row is the sha256 of an image, its width, height and flags, and its float32 features. It is bytes, because a module that is
        cast to half precision casts its floating-point state, too. Only the number of images with each flag is of use.
        """
        on_cpu = images.cpu() if is_plain(images) else images  # at once, and not image by image
        source = OpenedImages(open_source(on_cpu, name=f"<{role} images>"), on_disk=False)
        with single_process():  # each rank has its own images, also in `all_ranks`
            (found,) = self._embedder.embed(source, role, [self._extractors], None).values()
        assert found.identities is not None
        assert found.extractor is not None
        size = max(found.sizes, key=found.sizes.__getitem__)  # the only one, unless the images are a list
        facts = torch.tensor([*size, 0], dtype=torch.int32).repeat(len(found), 1)
        for flag, count in found.flags.items():
            facts[:count, 2] |= 1 << FLAGS.index(flag)
        columns = (found.identities, facts.view(torch.uint8), found.features.contiguous().view(torch.uint8))
        return torch.cat(columns, dim=1), found.extractor

    def _no_rows(self) -> Tensor:
        width = _HEAD + 4 * self._embedder.load(self._extractors).dim
        return torch.empty(0, width, dtype=torch.uint8, device="cpu")

    def _identity(self) -> dict[str, Any]:
        """What must be equal on all ranks, as plain JSON types."""
        given, info = self._given, asdict(self._extractor_info())
        options = shared_options(self._options) if given is None else given.recipe
        return {**options, **info, "intervals": self._intervals, "image_range": self._image_range}

    def _extractor_info(self) -> ExtractorInfo:
        return self._info or extractor_info(self._embedder.load(self._extractors))

    def _side(self, role: Literal["real", "fake"]) -> FeatureSet:
        gathered = getattr(self, f"{role}_rows")
        rows = (dim_zero_cat(gathered) if len(gathered) else self._no_rows()).cpu()
        facts, counts = torch.unique(
            rows[:, _HASH:_HEAD].contiguous().view(torch.int32), dim=0, return_counts=True
        )
        sizes, flags = Counter[tuple[int, int]](), Counter[str]()
        for (width, height, bits), count in zip(facts.tolist(), counts.tolist(), strict=True):
            sizes[width, height] += count
            flags.update({flag: count for at, flag in enumerate(FLAGS) if bits >> at & 1})
        return FeatureSet(
            features=rows[:, _HEAD:].contiguous().view(torch.float32),
            source=f"<{role} images>",
            extractor=self._extractor_info(),
            identities=rows[:, :_HASH].contiguous(),
            n_embedded=len(rows),
            flags=in_order(flags),
            facts=ImageFacts.from_counts(Counter(), sizes),
            decoder=decoder_versions() | self._embedder.options.decoding.choices,
        )

    def __getstate__(self) -> dict[str, Any]:
        """The state for another process, without networks and fitted reals, which are created again there."""
        if self._given is not None:
            raise UsageError(
                "fitted reals cannot be sent to another process; create the metric in the process that uses it, or pass the reals "
                "to update",
                code="not-portable",
            )
        unloaded = {"_embedder": Embedder(self._embedder.options), "_fitted": None, "result": None}
        return {**super().__getstate__(), **unloaded}

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """A copy with separate state that shares networks and the fitted reals."""
        names = ("_embedder", "_extractors", "_given", "_fitted", "result", "process_group")
        memo |= {id(getattr(self, name)): getattr(self, name) for name in names}
        copied = type(self).__new__(type(self))
        memo[id(self)] = copied
        copied.__setstate__(deepcopy(super().__getstate__(), memo))
        return copied
