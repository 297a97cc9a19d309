"""Copy images to a CUDA device asynchronously, with a ring of pinned buffers and a separate stream for copies."""

from collections import deque
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import groupby

import torch
from torch import Tensor

_MAX_BYTES = 64 * 2**20  # of a buffer; a batch of 64 images of 256 x 256 pixels takes a fifth
_BUFFERS = 3  # one is filled, one is copied, and the network reads the copy of one
_ALIGNMENT = 16  # bytes, enough for any type


class PinnedBuffer:
    """Pinned bytes, their copy on the device, and an event after the work that reads the copy."""

    def __init__(self) -> None:
        self.pinned = torch.empty(0, dtype=torch.uint8, device="cpu")
        self.sent: Tensor | None = None
        self.done = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call] # waits without a busy loop


class Uploads:
    """Copies images to a CUDA device through `buffers` in rotation, from the thread that issues the work of the network.

    Before a buffer is reused, the host waits for its event. The event was recorded on the network's stream when the next
    images were sent, that is, after all work that reads the copy, and the network's stream had waited for the copy. After
    the event, nothing reads the pinned bytes or their copy, whose memory belongs to the stream of copies and may be reused.
    Only errors and Ctrl-C release buffers earlier: torch keeps pinned memory until its copies are done, and a network that
    reads an overwritten copy has its output discarded.
    """

    def __init__(self, device: torch.device, *, buffers: int = _BUFFERS, limit: int = _MAX_BYTES) -> None:
        self._device, self._limit = device, limit
        self.buffers = deque(PinnedBuffer() for _ in range(buffers))

    def send(self, images: Sequence[Tensor]) -> Iterator[Tensor]:
        """The images on the device in order, as stacks (n, ...) of consecutive images of one shape.

        Work that reads a stack must be issued before the next stack is requested, in this call or a later one.
        """
        start = size = 0
        for end, image in enumerate(images):
            size += image.nbytes + _ALIGNMENT
            if size > self._limit and end > start:
                yield from self._send(images[start:end])
                start, size = end, image.nbytes + _ALIGNMENT
        yield from self._send(images[start:])

    def _send(self, images: Sequence[Tensor]) -> Iterator[Tensor]:
        if images[0].nbytes > self._limit:  # the only one
            yield images[0][None].to(self._device)
            return
        network = torch.cuda.current_stream(self._device)
        self.buffers[-1].done.record(network)
        self.buffers.rotate(-1)
        buffer = self.buffers[-1]
        buffer.done.synchronize()
        buffer.sent = None
        groups, total = [], 0
        for _, group in groupby(images, lambda image: (image.shape, image.dtype)):
            groups.append((total, list(group)))
            total += -(-sum(image.nbytes for image in groups[-1][1]) // _ALIGNMENT) * _ALIGNMENT
        if total > len(buffer.pinned):
            buffer.pinned = torch.empty(total, dtype=torch.uint8, device="cpu", pin_memory=True)
        for start, members in groups:
            for target, image in zip(_stack_at(buffer.pinned, start, members), members, strict=True):
                target.copy_(image)
        copies = _stream_of_copies(network.device)
        with torch.cuda.stream(copies):
            buffer.sent = buffer.pinned[:total].to(self._device, non_blocking=True)
        network.wait_stream(copies)
        for start, members in groups:
            yield _stack_at(buffer.sent, start, members)


def _stack_at(memory: Tensor, start: int, images: Sequence[Tensor]) -> Tensor:
    """A view of the bytes from `start` as a stack of such images, in their memory format."""
    first = images[0]
    channels_last = first.ndim == 3 and not first.is_contiguous()
    shape = (*first.shape[1:], first.shape[0]) if channels_last else first.shape
    flat = memory[start : start + len(images) * first.nbytes].view(first.dtype)
    stack = flat.view(len(images), *shape)
    return stack.permute(0, 3, 1, 2) if channels_last else stack


@cache
def _stream_of_copies(device: torch.device) -> torch.cuda.Stream:
    """The stream of copies of a device; a single one, since torch caches freed memory per stream."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
