"""Files that carry a right checksum over wrong content: a checksum is no signature, anybody can make one."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from random import Random

import torch
from safetensors.torch import load

from fuzz.texts import change_json
from genpr.storage import CHECKSUM, save_tensors


def signed(rng: Random, data: bytes) -> bytes:
    """One tensor or one fact is another, or missing, and the checksum is made anew."""
    length = int.from_bytes(data[:8], "little")
    facts = json.loads(data[8 : 8 + length]).get("__metadata__", {})
    facts.pop(CHECKSUM, None)
    tensors = load(data)
    name, fact = rng.choice(sorted(tensors)), rng.choice(sorted(facts) or ["format"])
    match rng.randrange(6):
        case 0:
            del tensors[name]
        case 1:
            tensors[rng.choice(("features", "names", "identities", "x"))] = tensors.pop(name)
        case 2 | 3:
            tensors[name] = _other(rng, tensors[name])
        case 4:
            facts.pop(fact, None)
        case _:
            facts[fact] = change_json(rng, facts.get(fact, "null").encode()).decode("utf-8", "replace")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.safetensors"
        save_tensors(path, tensors, facts)
        return path.read_bytes()


def _other(rng: Random, tensor: torch.Tensor) -> torch.Tensor:
    """Of another type, shape or content."""
    kinds = (
        torch.float16,
        torch.float64,
        torch.uint8,
        torch.int64,
        torch.bool,
        torch.complex64,
        torch.bfloat16,
    )
    match rng.randrange(7):
        case 0:
            return tensor.to(rng.choice(kinds))
        case 1:
            return tensor.flatten()
        case 2:
            return tensor[None]
        case 3:
            return tensor[: rng.randrange(len(tensor) + 1)] if tensor.ndim else tensor
        case 4:
            return torch.full_like(tensor, rng.choice((0, 1, 127)))
        case 5 if tensor.is_floating_point():
            return tensor * rng.choice((float("nan"), float("inf"), 1e30, -1.0))
        case _:
            return torch.zeros(rng.choice(((), (0,), (0, 8), (3, 0), (1, 1), (2, 3, 4))), dtype=tensor.dtype)
