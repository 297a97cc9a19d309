"""The compared tools and their properties."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TypeAlias

import _baseline_faiss
import _baseline_torch
import _peers
from _cases import Outcome, Ties
from torch import Tensor

Run: TypeAlias = Callable[[Tensor, Tensor, int], Outcome]


@dataclass(frozen=True, slots=True)
class Tool:
    """An implementation of the metrics.

    Attributes:
        name: Name on the command line and in tables.
        module: Module that must be installed.
        package: Name of the package for pip.
        run: Computes the metrics of (real, fake, k).
        ties: The tie rule it follows.
        devices: Supported devices.
        default_on: Devices on which it runs unless tools are named.
        bytes_per_pair: Memory per pair of rows if it allocates n x n arrays, else 0.
        slow: Whether large n are left out by default outside the learned family.
    """

    name: str
    module: str
    package: str
    run: Run
    ties: Ties = "closed"
    devices: tuple[str, ...] = ("cpu",)
    default_on: tuple[str, ...] = ("cpu",)
    bytes_per_pair: float = 0
    slow: bool = False

    @property
    def installed(self) -> bool:
        """Whether the module is installed."""
        return find_spec(self.module) is not None


def genpr_with(ties: Ties) -> Run:
    """Return a function that runs genpr with a tie rule."""
    return lambda real, fake, k: _peers.genpr_metrics(real, fake, k, ties)


_BOTH = ("cpu", "cuda")

TOOLS = {
    tool.name: tool
    for tool in (
        Tool("genpr", "genpr", "genpr", genpr_with("closed"), devices=_BOTH, default_on=_BOTH),
        Tool("faiss-flat", "faiss", "faiss-cpu", _baseline_faiss.faiss_flat),
        Tool("torch-tiles", "torch", "torch", _baseline_torch.torch_tiles, devices=_BOTH, default_on=_BOTH),
        Tool(
            "torch-cdist", "torch", "torch", _baseline_torch.torch_cdist, devices=_BOTH, default_on=("cuda",)
        ),
        Tool(
            "torch-fidelity",
            "torch_fidelity",
            "torch-fidelity",
            _peers.torch_fidelity,
            devices=_BOTH,
            bytes_per_pair=14,  # 1.4 GB at n = 10,000
            slow=True,
        ),
        Tool(
            "torch-fidelity-save-ram",
            "torch_fidelity",
            "torch-fidelity",
            _peers.torch_fidelity_save_ram,
            devices=_BOTH,
            default_on=(),
            slow=True,
        ),
        Tool("scikit-learn", "sklearn", "scikit-learn", _peers.scikit_learn, slow=True),
        Tool("prdc", "prdc", "prdc", _peers.prdc, ties="strict", bytes_per_pair=12, slow=True),
    )
}
"""Tools by name, in the order in which they run: genpr first, because the others are compared with it."""
