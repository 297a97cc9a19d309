"""Images to a CUDA device without waiting for it: a ring of pinned buffers, and a stream for copies beside the network's."""

from collections import deque
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import groupby

import torch
from torch import Tensor

_MOST_BYTES = 64 * 2**20  # of a buffer; a batch of 64 images of 256 x 256 pixels takes a fifth
_BUFFERS = 3  # one is filled while the second is copied and the network reads what came of the third
_ALIGNMENT = 16  # bytes, enough for any type


class PinnedBuffer:
    """Pinned bytes, their copy on the device, and an event behind the work that reads that."""

    def __init__(self) -> None:
        self.pinned = torch.empty(0, dtype=torch.uint8, device="cpu")
        self.sent: Tensor | None = None
        self.done = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call] # takes no core while it is waited for


class Uploads:
    """Copies images to a CUDA device through `buffers` that take turns; for the thread that issues the network's work.

    When the turn of a buffer comes, the host waits for its event. This was recorded on the network's stream when the next
    images were sent, so behind all that reads the copy, and the network's stream had waited for the copy itself. From then
    on nothing reads the pinned bytes or their copy, whose memory belongs to the stream of copies and may be reused by it.
    Buffers are dropped earlier by errors and Ctrl-C only: torch keeps pinned memory until its copies are done, and what
    overwrites a copy on the device is read by a network whose output is discarded.
    """

    def __init__(self, device: torch.device, *, buffers: int = _BUFFERS, limit: int = _MOST_BYTES) -> None:
        self._device, self._limit = device, limit
        self.buffers = deque(PinnedBuffer() for _ in range(buffers))

    def send(self, images: Sequence[Tensor]) -> Iterator[Tensor]:
        """The images on the device in order, as stacks (n, ...) of neighbors of one shape.

        What reads a stack must be issued before the next one is requested, by this call or a later one.
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
            for place, image in zip(_stack_at(buffer.pinned, start, members), members, strict=True):
                place.copy_(image)
        copies = _stream_of_copies(network.device)
        with torch.cuda.stream(copies):
            buffer.sent = buffer.pinned[:total].to(self._device, non_blocking=True)
        network.wait_stream(copies)
        for start, members in groups:
            yield _stack_at(buffer.sent, start, members)


def _stack_at(memory: Tensor, start: int, images: Sequence[Tensor]) -> Tensor:
    """A view of bytes from `start` on as a stack of such images, in their own order of channels and pixels."""
    first = images[0]
    channels_last = first.ndim == 3 and not first.is_contiguous()
    shape = (*first.shape[1:], first.shape[0]) if channels_last else first.shape
    flat = memory[start : start + len(images) * first.nbytes].view(first.dtype)
    stack = flat.view(len(images), *shape)
    return stack.permute(0, 3, 1, 2) if channels_last else stack


@cache
def _stream_of_copies(device: torch.device) -> torch.cuda.Stream:
    """One for all of a device, since torch keeps freed memory apart for each stream."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
