"""Tensors that are not plain numbers in memory, made from a plain one."""

import warnings

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode


def _emulated(x: Tensor) -> Tensor:
    with FakeTensorMode():
        return torch.empty(x.shape, dtype=x.dtype)


SPECIAL = {
    "sparse": Tensor.to_sparse,
    "meta": lambda x: x.to("meta"),
    "nested": lambda x: torch.nested.nested_tensor(list(x)),
    "quantized": lambda x: torch.quantize_per_tensor(x.float(), 0.1, 0, torch.quint8),
    "packed": lambda x: torch.empty(x.shape, dtype=torch.uint4),
    "emulated": _emulated,
}


def special(kind: str, x: Tensor) -> Tensor:
    """`x` in one of the forms; torch warns that some are prototypes or deprecated."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return SPECIAL[kind](x)
