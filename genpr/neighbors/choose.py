"""Which engine serves which device."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec

import torch

from genpr.neighbors.engine import Engine
from genpr.neighbors.faiss_engine import FaissEngine
from genpr.neighbors.torch_engine import TorchEngine
from genpr.neighbors.workers import Communicator, SingleProcess


def choose_engine(device: torch.device, communicator: Callable[[], Communicator] = SingleProcess) -> Engine:
    """The fastest engine that is available for data on `device`.

    Args:
        device: Where the data is.
        communicator: Called as a search begins, for the processes that share it.
    """
    engine = TorchEngine(communicator=communicator)
    is_faiss_better = device.type == "cpu" and find_spec("faiss") is not None
    return FaissEngine(engine) if is_faiss_better else engine
