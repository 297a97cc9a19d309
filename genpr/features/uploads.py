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


def new_event() -> torch.cuda.Event:
    """An event that is waited for without taking a core from those who decode."""
    return torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]


class PinnedBuffer:
    """Pinned bytes, their copy on the device, and an event behind the work that reads that."""

    def __init__(self) -> None:
        self.pinned = torch.empty(0, dtype=torch.uint8, device="cpu")
        self.sent: Tensor | None = None
        self.done = new_event()


class Uploads:
    """Copies images to a CUDA device through `buffers` that take turns; for the thread that issues the network's work.

    When the turn of a buffer comes, the host waits for its event. This was recorded on the network's stream when the next
    images were sent, so behind all that reads the copy, and the network's stream had waited for the copy itself. From then
    on nothing reads the pinned bytes or their copy, whose memory belongs to the stream of copies and may be reused by it.
    Buffers are dropped earlier by errors and Ctrl-C only: torch keeps pinned memory until its copies are done, and what
    overwrites a copy on the device is read by a network whose output nobody waits for.
    """

    def __init__(
        self, device: torch.device, *, buffers: int = _BUFFERS, most_bytes: int = _MOST_BYTES
    ) -> None:
        self._device, self._most_bytes = device, most_bytes
        self._copies = _stream_of_copies(torch.empty(0, device=device).device)
        self.buffers = deque(PinnedBuffer() for _ in range(buffers))

    def event(self) -> torch.cuda.Event:
        """An event behind all work that the network's stream has been given."""
        event = new_event()
        event.record(torch.cuda.current_stream(self._device))
        return event

    def send(self, images: Sequence[Tensor]) -> Iterator[Tensor]:
        """The images on the device in order, as stacks (n, ...) of neighbors of one shape.

        What reads a stack must be issued before the next one is requested, by this call or a later one.
        """
        part: list[Tensor] = []
        size = 0
        for image in images:
            needed = image.nbytes + _ALIGNMENT
            if part and size + needed > self._most_bytes:
                yield from self._send(part)
                part, size = [], 0
            part.append(image)
            size += needed
        if part:
            yield from self._send(part)

    def _send(self, images: Sequence[Tensor]) -> Iterator[Tensor]:
        if images[0].nbytes > self._most_bytes:  # the only one
            yield images[0][None].to(self._device)
            return
        network = torch.cuda.current_stream(self._device)
        self.buffers[-1].done.record(network)
        self.buffers.rotate(-1)
        buffer = self.buffers[-1]
        buffer.done.synchronize()
        buffer.sent = None
        groups = [list(group) for _, group in groupby(images, lambda image: (image.shape, image.dtype))]
        starts, total = [], 0
        for group in groups:
            starts.append(total)
            total += -(-len(group) * group[0].nbytes // _ALIGNMENT) * _ALIGNMENT
        if total > len(buffer.pinned):
            buffer.pinned = torch.empty(total, dtype=torch.uint8, device="cpu", pin_memory=True)
        for start, group in zip(starts, groups, strict=True):
            for place, image in zip(_stack_at(buffer.pinned, start, group), group, strict=True):
                place.copy_(image)
        with torch.cuda.stream(self._copies):
            buffer.sent = buffer.pinned[:total].to(self._device, non_blocking=True)
        network.wait_stream(self._copies)
        for start, group in zip(starts, groups, strict=True):
            yield _stack_at(buffer.sent, start, group)


@cache
def _stream_of_copies(device: torch.device) -> torch.cuda.Stream:
    """One for all, since torch keeps freed memory apart for each stream; `device` has a number."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


def _stack_at(memory: Tensor, start: int, images: Sequence[Tensor]) -> Tensor:
    """A view of bytes from `start` on as a stack of such images, in their own order of channels and pixels."""
    first = images[0]
    channels_last = first.ndim == 3 and not first.is_contiguous()
    shape = (*first.shape[1:], first.shape[0]) if channels_last else first.shape
    flat = memory[start : start + len(images) * first.nbytes].view(first.dtype)
    stack = flat.view(len(images), *shape)
    return stack.permute(0, 3, 1, 2) if channels_last else stack
