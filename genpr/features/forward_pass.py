"""Blocks of images through the network: padded to one batch size, halved when memory runs out, in parallel on CPU.

Every pass has the same batch size, because kernels may round differently for different ones; so adding files to
a folder never changes the features of the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from types import TracebackType
from typing import Self

import torch
from torch import Tensor

from genpr.errors import FeatureError, ResourceError
from genpr.features.extractor import (
    FeatureExtractor,
    PreparingExtractor,
    device_preparation,
    extractor_device,
)
from genpr.notices import emit_notice
from genpr.runtime import empty_device_cache, is_out_of_memory, torch_threads, usable_cores

_MAX_WORKERS = 4  # each holds the activations of one batch, about 1 GB for Inception


class ForwardPass:
    """Context manager that runs blocks of prepared images; results come as futures.

    On a CPU several blocks run side by side, each on its share of the cores: that keeps every core busy with
    small networks too, and does not collapse when other processes compete for the cores, as one network on all
    of them does (measured: 5x slower). It needs an extractor that says `thread_safe = True`, as the built-in
    ones do; a user's network may keep state between its layers, so it runs one block at a time.

    Args:
        extractor: What to run.
        batch_size: Images per pass.
    """

    def __init__(self, extractor: FeatureExtractor, batch_size: int) -> None:
        self._extractor = extractor
        self._run = extractor.forward if isinstance(extractor, PreparingExtractor) else extractor
        self._prepare = device_preparation(extractor)
        self._device = extractor_device(extractor)
        self._asked, self.batch_size = batch_size, batch_size  # halved when the device runs out of memory
        parallel = self._device.type == "cpu" and getattr(extractor, "thread_safe", False)
        self.workers = min(usable_cores(), _MAX_WORKERS) if parallel else 1
        self._stack = ExitStack()
        self._pool: ThreadPoolExecutor | None = None

    def __enter__(self) -> Self:
        if self.workers > 1:
            self._stack.enter_context(torch_threads(usable_cores() // self.workers))
            self._pool = self._stack.enter_context(ThreadPoolExecutor(self.workers, "genpr-embed"))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
        self._stack.close()
        if self.batch_size < self._asked:
            emit_notice("oom-smaller-batches", device=self._device, asked=self._asked, size=self.batch_size)

    def submit(self, images: Sequence[Tensor]) -> Future[Tensor]:
        """Embed n images, (3, h, w) each: float32 (n, dim) on the CPU, now or soon.

        They are of one size, unless the extractor prepares them on its device.

        The future raises FeatureError if the extractor returns something else, and ResourceError if the device
        has no memory for a single image.
        """
        if self._pool is not None:
            return self._pool.submit(self._embed, images)
        done: Future[Tensor] = Future()
        done.set_result(self._embed(images))
        return done

    def _embed(self, images: Sequence[Tensor]) -> Tensor:
        # Both modes belong to a thread; a training loop's autocast would turn features into bfloat16.
        with torch.inference_mode(), torch.autocast(self._device.type, enabled=False):
            return self._embed_in_memory(images)

    def _embed_in_memory(self, images: Sequence[Tensor]) -> Tensor:
        while True:
            size = self.batch_size  # another thread may halve it meanwhile
            try:
                starts = range(0, len(images), size)
                return torch.cat([self._embed_batch(images[start : start + size], size) for start in starts])
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
                if size == 1:
                    remedy = "free it" if self._device.type == "cpu" else "free it or use --device cpu"
                    raise ResourceError(
                        f"{self._device} has no memory left for one image of {tuple(images[0].shape[1:])} pixels; "
                        + remedy,
                        code="oom",
                    ) from error
            empty_device_cache(self._device.type)  # here, where the error no longer holds what the batch took
            self.batch_size = min(self.batch_size, (size + 1) // 2)

    def _call(self, batch: Tensor) -> Tensor:
        try:
            return self._run(batch)
        except Exception as error:
            if not is_out_of_memory(error):
                error.add_note(f"extractor {self._extractor.name} failed")
            raise

    def _embed_batch(self, images: Sequence[Tensor], size: int) -> Tensor:
        padded = [*images, *[images[-1]] * (size - len(images))]
        if self._prepare is None:
            batch = torch.stack(padded).to(self._device)
        else:
            batch = torch.stack([self._prepare(image.to(self._device)) for image in padded])
        output = self._call(batch)
        expected = (size, self._extractor.dim)
        if not isinstance(output, Tensor) or output.shape != expected:
            came = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
            raise FeatureError(
                f"extractor {self._extractor.name} must return one row of {self._extractor.dim} numbers per "
                f"image, {expected} for this batch, but returned {came}",
                code="feature-shape",
            )
        return output[: len(images)].float().cpu()
