"""What a launcher such as torchrun says in the environment; light, so that every command can ask."""

from __future__ import annotations

import os

NEEDED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def is_launched() -> bool:
    """Whether this process was started as one of several."""
    size = os.environ.get("WORLD_SIZE", "1")
    return all(name in os.environ for name in NEEDED) and size.isdigit() and int(size) > 1


def launched_rank() -> int:
    """Which of them."""
    return int(os.environ["RANK"])
