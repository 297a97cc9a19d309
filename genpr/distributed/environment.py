"""What a launcher such as torchrun says in the environment; light, so that every command can ask."""

from __future__ import annotations

import os

NEEDED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def is_launched() -> bool:
    """Whether this process was started as one of several.

    A training under torchrun hands its variables on to whatever it starts; GENPR_ALONE says that they are not meant.
    """
    if os.environ.get("GENPR_ALONE", "0") not in {"", "0"}:
        return False
    rank, size = (os.environ.get(name, "") for name in ("RANK", "WORLD_SIZE"))
    is_one_of_several = rank.isdecimal() and size.isdecimal() and int(rank) < int(size) > 1
    return is_one_of_several and all(name in os.environ for name in NEEDED)


def launched_rank() -> int:
    """Which of them."""
    return int(os.environ["RANK"])
