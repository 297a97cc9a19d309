"""Which engine serves which device."""

from __future__ import annotations

from importlib.util import find_spec

import torch

from genpr.neighbors.engine import Engine
from genpr.neighbors.faiss_engine import FaissEngine
from genpr.neighbors.torch_engine import TorchEngine


def choose_engine(device: torch.device) -> Engine:
    """The fastest engine that is available for data on `device`."""
    if device.type == "cpu" and find_spec("faiss") is not None:
        return FaissEngine()
    return TorchEngine()
