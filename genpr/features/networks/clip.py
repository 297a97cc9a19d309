"""CLIP: the image embeddings of OpenAI's networks, and of any other that open_clip knows.

A feature is the projected image embedding as it is, not scaled to length 1. Images are resized and cropped as
the network's publishers do. Only the tower that sees images is built and kept; `genpr.features.networks.clip_text` keeps the other one.

OpenAI trained with QuickGELU, x sigmoid(1.702 x). Loaded behind the exact GELU, its weights fit just as well and
give other features, so that is checked.

References:
    A. Radford et al., Learning Transferable Visual Models From Natural Language Supervision, 2021,
    arXiv:2103.00020 (weights MIT).
    G. Ilharco et al., OpenCLIP, https://github.com/mlfoundations/open_clip (MIT).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from genpr.errors import UsageError
from genpr.features.networks.network import (
    InputRule,
    NetworkExtractor,
    gray_levels,
    misfit,
    single_layer,
    unknown_model,
)
from genpr.features.registry import ExtractorName
from genpr.features.resize import ResizeRule, find_rule, pillow_rule
from genpr.features.weights.files import Weights
from genpr.features.weights.known import WeightsFile, hub_file
from genpr.runtime import state_guard

_OPENAI: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "clip-vit-b-32": ("ViT-B-32", "openai"),
        "clip-vit-l-14": ("ViT-L-14", "openai"),
        "clip-vit-l-14-336": ("ViT-L-14-336", "openai"),
    }
)
_NO_TEXT = {"context_length": 1, "vocab_size": 1, "width": 1, "heads": 1, "layers": 1}
"""The smallest text tower that open_clip builds; it is thrown away."""


@dataclass(frozen=True)
class ClipModel:
    """What open_clip knows of a pair of model and training run.

    Attributes:
        model: Name of the architecture.
        architecture: Its configuration.
        training: Configuration of the training run: where the weights are, and how images were shown.
    """

    model: str
    architecture: Mapping[str, Any]
    training: Mapping[str, Any]

    @property
    def quick_gelu(self) -> bool:
        """Whether its activations are x sigmoid(1.702 x)."""
        return bool(self.training.get("quick_gelu") or self.architecture.get("quick_gelu"))


def build(weights: Weights, *, names: Sequence[ExtractorName], device: torch.device) -> NetworkExtractor:
    """OpenAI's CLIP, or "open_clip:MODEL:PRETRAINED".

    Raises:
        UsageError: open_clip has no such pair, or it shows images in a way that genpr does not know.
        WeightsError: The weights are not of this model.
    """
    (name,) = names
    model = find_model(name.base)
    resize = find_rule(name.resize) if name.resize else resize_rule(model.training)
    tower = _load_tower(model, weights.tensors)
    if model.quick_gelu:
        check_quick_gelu(tower, name.base)
    rule = InputRule(
        resize,
        _side(tower, name.base),
        mean=gray_levels(model.training["mean"]),
        std=gray_levels(model.training["std"]),
    )
    return single_layer(
        ImageTower(tower),
        name,
        rule,
        dim=model.architecture["embed_dim"],
        weights=weights,
        device=device,
    )


class ImageTower(nn.Module):
    """The embedding alone, of towers that also give something else."""

    def __init__(self, tower: nn.Module) -> None:
        super().__init__()
        self.tower = tower

    def forward(self, images: Tensor) -> Tensor:
        """Turn normalized (n, 3, side, side) into (n, dim)."""
        given = self.tower(images)
        embedding: Tensor = given[0] if isinstance(given, tuple) else given  # CoCa adds its tokens
        return embedding


def published_weights(name: str) -> tuple[WeightsFile, ...]:
    """Files that hold the weights of "open_clip:MODEL:PRETRAINED", the best first.

    Raises:
        UsageError: open_clip has no such pair, or its weights are not on the Hugging Face hub.
    """
    return files_of(find_model(name).training)


def files_of(training: Mapping[str, Any]) -> tuple[WeightsFile, ...]:
    """Files that hold the weights of a training run, the best first; never OpenAI's own, which are programs.

    Raises:
        UsageError: There is none on the Hugging Face hub.
    """
    repo_id, _, file = str(training.get("hf_hub", "")).rpartition("/")
    if not repo_id:
        raise UsageError(
            f"the weights at {training.get('url')!r} are not on the Hugging Face hub, from where genpr takes those of "
            "open_clip; give them with --weights",
            code="no-weights",
        )
    files = [file] if file else ["open_clip_model.safetensors", "open_clip_pytorch_model.bin"]
    if file.endswith((".bin", ".pth")):
        files.insert(0, f"{file[:-4]}.safetensors")
    return tuple(hub_file(repo_id, each, license="unknown") for each in files)


def resize_rule(training: Mapping[str, Any]) -> ResizeRule:
    """How the images of a training run were shown.

    Raises:
        UsageError: In a way that genpr does not know.
    """
    mode, interpolation = training["resize_mode"], training["interpolation"]
    match mode, interpolation:
        case "shortest", "bicubic":
            return find_rule("clip")
        case "squash", "bicubic":
            return find_rule("pil-bicubic-uint8")
        case "shortest" | "squash", "bilinear":
            return pillow_rule("open_clip", interpolation, squash=mode == "squash")
    raise UsageError(
        f"resize mode {mode!r} with {interpolation!r} interpolation is not supported; choose another resize rule by "
        "@RESIZE-RULE",
        code="unsupported-model",
    )


def check_quick_gelu(tower: nn.Module, name: str) -> None:
    """Refuse a transformer of which any activation is not QuickGELU.

    Raises:
        RuntimeError: There is one: open_clip changed, and the features would be others.
    """
    from open_clip.transformer import QuickGELU, TextTransformer, VisionTransformer

    kinds = {type(module) for module in tower.modules() if isinstance(module, nn.GELU | nn.SiLU | QuickGELU)}
    if isinstance(tower, VisionTransformer | TextTransformer) and kinds != {QuickGELU}:
        found = ", ".join(sorted(kind.__name__ for kind in kinds)) or "none"
        raise RuntimeError(f"{name} was trained with QuickGELU, but open_clip built it with {found}")


def find_model(name: str) -> ClipModel:
    """Look up a built-in name, or "open_clip:MODEL:PRETRAINED"."""
    import open_clip

    model, tag = _OPENAI.get(name) or _pair(name)
    training = open_clip.get_pretrained_cfg(model, tag)
    architecture = open_clip.get_model_config(model) if training else None
    if architecture is None:
        known = open_clip.list_pretrained(as_str=True)
        raise unknown_model("open_clip", f"{model}:{tag}", known, "open_clip.list_pretrained()")
    return ClipModel(model, architecture, training)


def _pair(name: str) -> tuple[str, str]:
    model, _, tag = name.partition(":")[2].partition(":")
    return model, tag


def _load_tower(model: ClipModel, state: Mapping[str, Tensor]) -> nn.Module:
    """The image tower with its part of a published state dict; the text tower's part is left aside.

    Raises:
        WeightsError: They are weights of another model.
    """
    from open_clip.convert import convert_state_dict
    from open_clip.model import resize_pos_embed

    with torch.device("meta"):  # the published tensors become the parameters: nothing to initialize
        whole = _empty_model(model)
    tower = whole.get_submodule("visual")
    if _has_computed_buffers(tower):
        with state_guard():  # open_clip draws random weights
            whole = _empty_model(model)
        tower = whole.get_submodule("visual")
    try:
        published = convert_state_dict(whole, without_wrapper(state))
        resize_pos_embed(published, whole)
        image = {
            key.removeprefix("visual."): value
            for key, value in published.items()
            if key.startswith("visual.")
        }
        tower.load_state_dict(image, strict=True, assign=True)
    except (RuntimeError, KeyError) as error:
        raise misfit(f"open_clip:{model.model}", error) from error
    return tower.eval()


def _empty_model(model: ClipModel) -> nn.Module:
    """CLIP with an empty text tower. Not `open_clip.create_model`, which speaks through the root logger."""
    import open_clip

    whole: nn.Module = open_clip.CLIP(
        embed_dim=model.architecture["embed_dim"],
        vision_cfg={**model.architecture["vision_cfg"], "timm_model_pretrained": False},
        text_cfg=_NO_TEXT,
        quick_gelu=model.quick_gelu,
    )
    return whole


def _has_computed_buffers(tower: nn.Module) -> bool:
    """Whether it has buffers that are not published but computed, as tables of rotary positions are."""
    return bool({name for name, _ in tower.named_buffers()} - tower.state_dict().keys())


def without_wrapper(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Names without the "module." that distributed training puts in front."""
    wrapped = next(iter(state), "").startswith("module.")
    return {key.removeprefix("module.") if wrapped else key: value for key, value in state.items()}


def _side(tower: nn.Module, name: str) -> int:
    size: Any = tower.image_size
    height, width = size if isinstance(size, tuple | list) else (size, size)
    if height != width:
        raise UsageError(
            f"{name!r} looks at {height} x {width} pixels, not at a square", code="unsupported-model"
        )
    return int(height)
