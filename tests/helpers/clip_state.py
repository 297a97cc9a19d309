"""Weights of CLIP under the names of its published files, from those of transformers."""

import torch

_NAMES = {
    "layer_norm1": "ln_1",
    "layer_norm2": "ln_2",
    "self_attn.out_proj": "attn.out_proj",
    "mlp.fc1": "mlp.c_fc",
    "mlp.fc2": "mlp.c_proj",
}


def published_blocks(theirs: dict[str, torch.Tensor], tower: str, prefix: str) -> dict[str, torch.Tensor]:
    """The twelve blocks of transformers' `tower` ("vision_model", "text_model"), with names that begin with `prefix`."""
    state = {}
    for layer in range(12):
        old, new = f"{tower}.encoder.layers.{layer}.", f"{prefix}.resblocks.{layer}."
        for kind in ("weight", "bias"):
            parts = [theirs[f"{old}self_attn.{part}_proj.{kind}"] for part in "qkv"]
            state[f"{new}attn.in_proj_{kind}"] = torch.cat(parts)
            state |= {f"{new}{ours}.{kind}": theirs[f"{old}{name}.{kind}"] for name, ours in _NAMES.items()}
    return state
