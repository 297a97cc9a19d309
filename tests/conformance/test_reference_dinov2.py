"""Ours against transformers and against the authors' arithmetic, with random weights.

Tolerance: 1e-5 of the range of the features, in float32.
"""

import pytest
import torch
import torch.nn.functional as F
from random_weights import random_state, relative_error

from genpr.features.known_weights import DINOV2
from genpr.features.networks import timm_models
from genpr.features.registry import ExtractorName
from genpr.features.weights import Weights

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def published_state(model: str, depth: int) -> dict[str, torch.Tensor]:
    """Random weights under the names and in the shapes of the authors' files."""
    import timm

    with torch.device("meta"):
        network = timm.create_model(f"vit_{model}_patch14_dinov2", num_classes=0, depth=depth)
    state = random_state(network.state_dict()) | {"mask_token": torch.zeros(1, network.embed_dim)}
    positions = state["pos_embed"] / state["pos_embed"].std()
    squares = positions[:, 1:].mT.reshape(1, -1, 37, 37)  # neighbors agree, as in a trained network
    smooth = F.avg_pool2d(squares, 5, 1, padding=2).flatten(2).mT
    state["pos_embed"] = torch.cat((positions[:, :1], 4 * smooth), 1)
    layers = ("w12", "w3") if model == "giant" else ("fc1", "fc2")
    return {name.replace("fc1", layers[0]).replace("fc2", layers[1]): value for name, value in state.items()}


def authors_positions(positions: torch.Tensor, grid: int) -> torch.Tensor:
    """Bicubic interpolation as in torch with a factor of (grid + 0.1) / 37, by the places where it samples."""
    table = positions[:, 1:].double().mT.reshape(1, -1, 37, 37)
    axis = 2 * (torch.arange(grid, dtype=torch.float64) + 0.5) / (grid + 0.1) - 1
    places = torch.stack(torch.meshgrid(axis, axis, indexing="xy"), dim=-1)[None]
    how = {"mode": "bicubic", "padding_mode": "border", "align_corners": False}
    resampled = F.grid_sample(table, places, **how).flatten(2).mT
    return torch.cat((positions[:, :1], resampled.float()), 1)


def reference(state: dict[str, torch.Tensor], *, side: int):
    """The network of transformers 5, its positions those in `state`, which must be of the right number."""
    from transformers import Dinov2Config, Dinov2Model

    width = state["cls_token"].shape[-1]
    depth = 1 + max(int(name.split(".")[1]) for name in state if name.startswith("blocks."))
    config = Dinov2Config(
        hidden_size=width,
        num_hidden_layers=depth,
        num_attention_heads=width // 64,
        image_size=side,
        patch_size=14,
        use_swiglu_ffn="blocks.0.mlp.w12.weight" in state,
    )
    renames = {
        "cls_token": ["embeddings.cls_token"],
        "pos_embed": ["embeddings.position_embeddings"],
        "mask_token": ["embeddings.mask_token"],
        "patch_embed.proj": ["embeddings.patch_embeddings.projection"],
        "norm.": ["layernorm."],
        "blocks.": ["encoder.layer."],
        "attn.proj": ["attention.o_proj"],
        "attn.qkv": ["attention.q_proj", "attention.k_proj", "attention.v_proj"],
        "ls1": ["layer_scale1"],
        "ls2": ["layer_scale2"],
        "gamma": ["lambda1"],
        "mlp.w12": ["mlp.gate_proj", "mlp.up_proj"],  # the first half goes through the SiLU
        "mlp.w3": ["mlp.down_proj"],
    }
    renamed = {}
    for name, value in state.items():
        new = [name]
        for old, others in renames.items():
            new = [each.replace(old, other) for each in new for other in (others if old in each else [old])]
        renamed |= zip(new, value.chunk(len(new)), strict=True)
    with torch.device("meta"):
        model = Dinov2Model(config).eval()
    model.load_state_dict(renamed, strict=True, assign=True)
    return lambda batch: model(pixel_values=batch).last_hidden_state[:, 0]


def test_network_equals_transformers_on_the_grid_of_the_authors(images):
    small, names = published_state("small", 12), [ExtractorName("dinov2-vits14")]
    ours = timm_models.build(Weights(small, DINOV2["s"].sha256), names=names, device=torch.device("cpu"))
    features = torch.cat([ours(image[None]) for image in images])
    mean, std = torch.tensor([[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]])[:, :, None, None]
    seen = torch.stack([(ours.prepare(image) / 255 - mean) / std for image in images])
    resampled = {**small, "pos_embed": authors_positions(small["pos_embed"], 16)}
    with torch.inference_mode():
        assert relative_error(features, reference(resampled, side=224)(seen)) < 1e-5


@pytest.mark.parametrize(("model", "side"), [("small", 518), ("giant", 224)], ids=["training size", "SwiGLU"])
def test_network_equals_transformers_at_the_training_size_and_with_swiglu(model, side):
    state = published_state(model, 1)
    batch = torch.randn(2, 3, side, side, generator=torch.Generator().manual_seed(2))
    grid = {} if side == 518 else {"pos_embed": authors_positions(state["pos_embed"], 16)}
    with torch.inference_mode():
        ours = timm_models.dinov2(f"vit_{model}_patch14_dinov2", state, side=side, depth=1)
        assert relative_error(ours(batch), reference({**state, **grid}, side=side)(batch)) < 1e-5
