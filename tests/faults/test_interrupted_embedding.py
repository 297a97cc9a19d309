"""What an interrupt may cost: what runs is not waited for before what was embedded is written."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from genpr.features.custom import wrap_extractor
from genpr.features.embed import embed_source
from genpr.images.source import open_source


class Cache:
    """A cache that tells when it is written."""

    def __init__(self):
        self.rows = 0
        self.is_flushed = threading.Event()

    def get(self, _identity):
        return None

    def add(self, identities, *_rest):
        self.rows += len(identities)

    def flush(self):
        self.is_flushed.set()


class Stuck:
    """An extractor of which the third batch comes to its end only after the cache was written, if that is soon."""

    name, dim, thread_safe = "stuck", 3, True

    def __init__(self, cache):
        self.cache = cache
        self.is_kept = None
        self.has_begun = threading.Event()

    def __call__(self, images):
        if images[0, 0, 0, 0] == 10:  # the third five of the images that follow, whichever thread has it
            self.has_begun.set()
            self.is_kept = self.cache.is_flushed.wait(5)
        return images.float().mean((2, 3))


def test_what_was_embedded_is_written_before_what_runs_is_waited_for(write_images, monkeypatch):
    monkeypatch.setattr("genpr.features.embed.usable_cores", lambda: 2)
    cache = Cache()
    extractor = Stuck(cache)
    folder = write_images("images", np.arange(40, dtype=np.uint8).repeat(192).reshape(40, 8, 8, 3))

    def interrupted(done, _total):
        if done == 20:
            assert extractor.has_begun.wait(60), "two were waited for, and this is next"
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        embed_source(
            open_source(folder), wrap_extractor(extractor), batch_size=5, cache=cache, progress=interrupted
        )
    assert extractor.is_kept
    assert cache.rows >= 5
