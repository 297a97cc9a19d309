"""The search engine of the metrics: where searches of `genpr.neighbors` learn which processes share them."""

from __future__ import annotations

import torch

from genpr.distributed import current_communicator
from genpr.neighbors import engine
from genpr.neighbors.engine import Engine


def choose_engine(device: torch.device) -> Engine:
    """The fastest engine for data on `device`, whose searches all ranks share (`genpr.distributed.all_ranks`)."""
    return engine.choose_engine(device, current_communicator)
