"""Ours against transformers and against the authors' arithmetic, with random weights.

Tolerance: 1e-5 of the range of the features, in float32.
"""

import re

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from genpr.features.known_weights import DINOV2
from genpr.features.networks import timm_models
from genpr.features.registry import ExtractorName
from genpr.features.weights import Weights

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def published_state(width: int, depth: int, *, swiglu: int = 0) -> dict[str, torch.Tensor]:
    """Random weights under the names and in the shapes of the authors' files."""
    shapes = {
        "cls_token": (1, 1, width),
        "pos_embed": (1, 1 + 37 * 37, width),
        "mask_token": (1, width),
        "patch_embed.proj.weight": (width, 3, 14, 14),
        "patch_embed.proj.bias": (width,),
        "norm.weight": (width,),
        "norm.bias": (width,),
    }
    layers = {"attn.qkv": (3 * width, width), "attn.proj": (width, width)}
    layers |= (
        {"mlp.w12": (2 * swiglu, width), "mlp.w3": (width, swiglu)}
        if swiglu
        else {"mlp.fc1": (4 * width, width), "mlp.fc2": (width, 4 * width)}
    )
    for block in range(depth):
        for name, (outputs, inputs) in layers.items():
            shapes[f"blocks.{block}.{name}.weight"] = (outputs, inputs)
            shapes[f"blocks.{block}.{name}.bias"] = (outputs,)
        for name in ("norm1.weight", "norm1.bias", "norm2.weight", "norm2.bias", "ls1.gamma", "ls2.gamma"):
            shapes[f"blocks.{block}.{name}"] = (width,)
    generator = torch.Generator().manual_seed(0)
    return {name: live_tensor(name, shape, generator) for name, shape in shapes.items()}


def live_tensor(name: str, shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    value = torch.randn(shape, generator=generator)
    if re.search(r"norm\d?\.weight|gamma", name):
        return 1 + 0.2 * value
    if name.endswith("weight"):
        return value * (2 / value[0].numel()) ** 0.5
    if name == "pos_embed":  # neighbors agree, as in a trained network
        squares = value[:, 1:].mT.reshape(1, -1, 37, 37)
        smooth = F.avg_pool2d(squares, 5, 1, padding=2).flatten(2).mT
        return torch.cat((value[:, :1], 4 * smooth), 1)
    return 0.2 * value


def authors_positions(positions: torch.Tensor, grid: int) -> torch.Tensor:
    """Bicubic interpolation as in torch with a factor of (grid + 0.1) / 37, in float64 and by definition."""
    table = positions[0, 1:].double().numpy().reshape(37, 37, -1)
    weights = np.zeros((grid, 37))
    for i in range(grid):
        center = (i + 0.5) / ((grid + 0.1) / 37) - 0.5
        first = int(np.floor(center)) - 1
        for tap in range(first, first + 4):
            weights[i, min(max(tap, 0), 36)] += cubic(abs(center - tap))
    resampled = np.einsum("ia,jb,abd->ijd", weights, weights, table, optimize=True)
    patches = torch.from_numpy(resampled.reshape(1, grid * grid, -1)).float()
    return torch.cat((positions[:, :1], patches), 1)


def cubic(x: float, a: float = -0.75) -> float:
    """Keys' kernel."""
    if x <= 1:
        return (a + 2) * x**3 - (a + 3) * x**2 + 1
    return a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a if x < 2 else 0.0


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
    renamed = {
        "embeddings.cls_token": state["cls_token"],
        "embeddings.position_embeddings": state["pos_embed"],
        "embeddings.mask_token": state["mask_token"],
        "embeddings.patch_embeddings.projection.weight": state["patch_embed.proj.weight"],
        "embeddings.patch_embeddings.projection.bias": state["patch_embed.proj.bias"],
        "layernorm.weight": state["norm.weight"],
        "layernorm.bias": state["norm.bias"],
    }
    renames = {
        "attn.proj": ["attention.o_proj"],
        "attn.qkv": ["attention.q_proj", "attention.k_proj", "attention.v_proj"],
        "ls1": ["layer_scale1"],
        "ls2": ["layer_scale2"],
        "gamma": ["lambda1"],
        "mlp.w12": ["mlp.gate_proj", "mlp.up_proj"],  # the first half goes through the SiLU
        "mlp.w3": ["mlp.down_proj"],
    }
    for name, value in state.items():
        if not name.startswith("blocks."):
            continue
        new = [name.replace("blocks.", "encoder.layer.")]
        for old, others in renames.items():
            new = [each.replace(old, other) for each in new for other in (others if old in each else [old])]
        renamed |= zip(new, value.chunk(len(new)), strict=True)
    with torch.device("meta"):
        model = Dinov2Model(config).eval()
    model.load_state_dict(renamed, strict=True, assign=True)
    return lambda batch: model(pixel_values=batch).last_hidden_state[:, 0]


def relative(features: torch.Tensor, expected: torch.Tensor) -> float:
    spread = float(expected.max() - expected.min())
    assert expected.std(dim=0).median() > 0.01 * spread, "the random network distinguishes the images"
    return float((features - expected).abs().max()) / spread


def test_network_equals_transformers_on_the_grid_of_the_authors(images):
    small, names = published_state(384, 12), [ExtractorName("dinov2-vits14")]
    ours = timm_models.build(Weights(small, DINOV2["s"].sha256), names=names, device=torch.device("cpu"))
    features = torch.cat([ours(image[None]) for image in images])
    mean, std = torch.tensor([[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]])[:, :, None, None]
    seen = torch.stack([(ours.prepare(image) / 255 - mean) / std for image in images])
    resampled = {**small, "pos_embed": authors_positions(small["pos_embed"], 16)}
    with torch.inference_mode():
        assert relative(features, reference(resampled, side=224)(seen)) < 1e-5


@pytest.mark.parametrize(
    ("model", "shape", "side"),
    [("small", {"width": 384, "depth": 1}, 518), ("giant", {"width": 1536, "depth": 1, "swiglu": 4096}, 224)],
    ids=["training size", "SwiGLU"],
)
def test_network_equals_transformers_at_the_training_size_and_with_swiglu(model, shape, side):
    state = published_state(**shape)
    batch = torch.randn(2, 3, side, side, generator=torch.Generator().manual_seed(2))
    grid = {} if side == 518 else {"pos_embed": authors_positions(state["pos_embed"], 16)}
    with torch.inference_mode():
        ours = timm_models.dinov2(f"vit_{model}_patch14_dinov2", state, side=side, depth=1)
        assert relative(ours(batch), reference({**state, **grid}, side=side)(batch)) < 1e-5
