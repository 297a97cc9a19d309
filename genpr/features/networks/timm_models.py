"""Any model of timm by its name, `timm:MODEL`.

The features are what timm calls pooled: the input of the classifier, which is taken off. The model sees images
as its own evaluation transform shows them: Pillow resizes to a little more than the model's size, and the middle
is cut out.

References:
    R. Wightman, PyTorch Image Models, https://github.com/huggingface/pytorch-image-models (Apache-2.0).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

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
from genpr.features.resize import find_rule, pillow_rule
from genpr.features.weights.files import Weights
from genpr.features.weights.known import WeightsFile, hub_file
from genpr.runtime import state_guard

if TYPE_CHECKING:
    from timm.models import PretrainedCfg


def build(weights: Weights, *, names: Sequence[ExtractorName], device: torch.device) -> NetworkExtractor:
    """The model that the name says.

    Raises:
        UsageError: timm has no such model, or it is no network of square color images.
        WeightsError: The weights are not of this model.
    """
    (name,) = names
    model = name.base.partition(":")[2]
    network = classifier_free(model, weights.tensors)
    rule = input_rule(name, network)
    return single_layer(
        network,
        name,
        rule,
        dim=feature_dim(network, rule.side, model),
        weights=weights,
        device=device,
    )


def published_weights(name: str) -> tuple[WeightsFile, ...]:
    """Files that hold the weights of "timm:MODEL", the best first.

    Raises:
        UsageError: timm has no such model ("unknown-model"), or no weights for it ("no-weights").
    """
    model = name.removeprefix("timm:")
    config = _pretrained_config(model)
    terms = config.license or "unknown"
    if config.hf_hub_id:
        repo_id, _, revision = config.hf_hub_id.partition("@")
        files = (
            [config.hf_hub_filename] if config.hf_hub_filename else ["model.safetensors", "pytorch_model.bin"]
        )
        return tuple(hub_file(repo_id, file, revision or "main", license=terms) for file in files)
    if isinstance(config.url, str) and config.url:
        name = config.url.rpartition("/")[2]
        return (WeightsFile(name=f"timm--{name}", url=config.url, size=None, sha256=None, license=terms),)
    tags = _tags_with_weights(model)
    others = f"; those with weights are {', '.join(tags)}" if tags else ""
    raise UsageError(f"timm publishes no weights for {model!r}{others}", code="no-weights")


def _pretrained_config(model: str) -> PretrainedCfg:
    import timm

    known = timm.is_model(model) and ":" not in model
    try:
        config = timm.get_pretrained_cfg(model) if known else None
    except RuntimeError:  # the architecture is known, the tag behind it is not
        known = False
    if not known:
        names = [*timm.list_models(pretrained=True), *timm.list_models()]
        raise unknown_model("timm", model, names, "timm.list_models(pretrained=True)")
    return timm.models.PretrainedCfg() if config is None else config


def _tags_with_weights(model: str) -> list[str]:
    import timm

    return list(timm.list_models(f"{model.partition('.')[0]}.*", pretrained=True))


def classifier_free(model: str, state: Mapping[str, Tensor]) -> nn.Module:
    """The model with the weights in `state`, as they are published, without its classifier.

    It is loaded with the classifier, since timm does not mind missing weights otherwise.

    Raises:
        WeightsError: They are weights of another model.
    """
    import timm

    _pretrained_config(model)
    try:
        with state_guard():  # timm draws random weights first
            network: nn.Module = timm.create_model(
                model, pretrained=True, pretrained_cfg_overlay={"state_dict": dict(state)}
            )
    except (RuntimeError, KeyError) as error:
        raise misfit(f"timm:{model}", error) from error
    config: Any = network.pretrained_cfg
    del config["state_dict"]  # timm keeps a copy, which would double the memory
    reset: Any = network.reset_classifier
    reset(0)
    return network.eval()


def feature_dim(network: nn.Module, side: int, name: str) -> int:
    """Length of the features of `network`, which is run with shapes alone.

    Raises:
        UsageError: It does not give one vector per image.
    """
    shapes = {key: value.to("meta") for key, value in (*network.named_parameters(), *network.named_buffers())}
    with torch.no_grad():
        features = functional_call(network, shapes, (torch.empty(2, 3, side, side, device="meta"),))
    if not isinstance(features, Tensor) or features.ndim != 2:
        raise UsageError(f"{name!r} does not give one vector per image", code="unsupported-model")
    return features.shape[1]


def input_rule(name: ExtractorName, network: nn.Module) -> InputRule:
    """The evaluation transform of a timm model, or another resize rule if `name` has one.

    Raises:
        UsageError: The transform is none of those that genpr knows.
    """
    from timm.data.config import resolve_model_data_config

    config: dict[str, Any] = resolve_model_data_config(network)  # type: ignore[no-untyped-call]
    channels, height, width = config["input_size"]
    if channels != 3 or height != width or config["crop_mode"] not in {"center", "squash"}:
        raise UsageError(
            f"{name.base!r} looks at {channels} x {height} x {width} numbers cropped by {config['crop_mode']!r}; "
            "supported are squares of 3 channels cropped by 'center' or 'squash'",
            code="unsupported-model",
        )
    squash = config["crop_mode"] == "squash"
    if name.resize:
        resize = find_rule(name.resize)
    else:
        resize = pillow_rule("timm", config["interpolation"], crop=config["crop_pct"], squash=squash)
    return InputRule(resize, height, mean=gray_levels(config["mean"]), std=gray_levels(config["std"]))
