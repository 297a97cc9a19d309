"""Any model of timm by its name, `timm:MODEL`, and what it shares with the other open families.

The features are what timm calls pooled: the input of the classifier, which is taken off. The model sees images
as its own evaluation transform shows them: Pillow resizes to a little more than the model's size, and the middle
is cut out.

References:
    R. Wightman, PyTorch Image Models, https://github.com/huggingface/pytorch-image-models (Apache-2.0).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.func import functional_call

from genpr.errors import UsageError, WeightsError
from genpr.features.catalogue import Request
from genpr.features.names import ExtractorName
from genpr.features.network import Colour, InputRule, NetworkExtractor, describe_part
from genpr.features.resize import ResizeRule, find_rule
from genpr.features.weights import (
    WeightsFile,
    find_or_fetch,
    hub_file,
    is_cached,
    load_state_dict,
    loaded_sha256,
)
from genpr.runtime import state_guard
from genpr.storage import sha256_of_file

if TYPE_CHECKING:
    from timm.models import PretrainedCfg


def load(request: Request) -> NetworkExtractor:
    """The model that the name says, with its published weights or those of a file given.

    Raises:
        UsageError: timm has no such model, or no weights for it, or it is no network of square colour images.
        WeightsError: The weights are missing, or are not of this model.
    """
    (name,) = request.names
    published = published_weights(name.base.partition(":")[2])
    entry, path = find_family_weights(request, published)
    return build(entry, path, name=name, device=request.device, comparable=request.weights is None)


def build(
    entry: WeightsFile, path: Path, *, name: ExtractorName, device: torch.device, comparable: bool = True
) -> NetworkExtractor:
    """As `load`, with weights of any entry; `comparable` is whether they are the published ones."""
    model = name.base.partition(":")[2]
    network = classifier_free(model, load_state_dict(entry, path))
    rule = input_rule(name, network)
    return NetworkExtractor(
        network,
        [
            describe_part(
                name,
                rule,
                dim=feature_dim(network, rule.side, model),
                weights_sha256=loaded_sha256(entry, path),
                comparable=comparable,
            )
        ],
        rule=rule,
        device=device,
        precision=getattr(torch, name.precision),
    )


def published_weights(model: str) -> tuple[WeightsFile, ...]:
    """Files that hold the weights of `model`, the best first.

    Raises:
        UsageError: timm has no such model ("unknown-model"), or no weights for it ("no-weights").
    """
    config = _pretrained_config(model)
    licence = config.license or "unknown"
    if config.hf_hub_id:
        repo_id, _, revision = config.hf_hub_id.partition("@")
        files = (
            [config.hf_hub_filename] if config.hf_hub_filename else ["model.safetensors", "pytorch_model.bin"]
        )
        return tuple(hub_file(repo_id, file, revision or "main", licence=licence) for file in files)
    if isinstance(config.url, str) and config.url:
        name = config.url.rpartition("/")[2]
        return (WeightsFile(name=f"timm--{name}", url=config.url, size=None, sha256=None, licence=licence),)
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
    """The evaluation transform of a timm model, or another resize rule if `name` asks for one.

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
    return InputRule(resize, height, mean=grey_levels(config["mean"]), std=grey_levels(config["std"]))


def pillow_rule(family: str, interpolation: str, *, crop: float = 1.0, squash: bool = False) -> ResizeRule:
    """The rule of torchvision's `Resize` and `CenterCrop` on 8-bit Pillow images, such as "timm-bicubic-0.95".

    Args:
        family: First part of the rule's name.
        interpolation: "bilinear", "bicubic", "lanczos" and so on.
        crop: Share of the resized image's (shorter) side that is kept.
        squash: Resize to a square, instead of the shorter side only.

    Raises:
        UsageError: Pillow has no such interpolation, or nothing would be cropped but added.
    """
    name = f"{family}-{interpolation}-{crop}{'-squash' if squash else ''}"
    if interpolation.upper() not in Image.Resampling.__members__ or not 0 < crop <= 1:
        raise UsageError(f"resize rule {name!r} is not supported", code="unsupported-model")
    resize = partial(
        _resize_and_crop, filter_=Image.Resampling[interpolation.upper()], crop=crop, squash=squash
    )
    shape = "to a square" if squash else "to the shorter side"
    return ResizeRule(
        name,
        resize,
        exact_on_device=False,
        summary=f"Pillow {interpolation} on 8-bit RGB {shape}, then centre crop",
    )


def _resize_and_crop(
    image: Tensor, side: int, *, filter_: Image.Resampling, crop: float, squash: bool
) -> Tensor:
    height, width = image.shape[1:]
    scaled = int(side / crop)  # as timm rounds it
    shorter = min(height, width)
    if squash:
        height = width = scaled
    else:  # torchvision truncates
        height, width = scaled * height // shorter, scaled * width // shorter
    top, left = round((height - side) / 2), round((width - side) / 2)  # and here it rounds, halves to even
    pixels = image.cpu().permute(1, 2, 0).contiguous().numpy()
    resized = Image.fromarray(pixels).resize((width, height), filter_)
    square = np.array(resized.crop((left, top, left + side, top + side)))
    return torch.from_numpy(square).permute(2, 0, 1).float().contiguous().to(image.device)


def grey_levels(colour: Sequence[float]) -> Colour:
    """Red, green and blue in 0..255, given in 0..1."""
    red, green, blue = colour
    return red * 255, green * 255, blue * 255


def find_family_weights(request: Request, published: Sequence[WeightsFile]) -> tuple[WeightsFile, Path]:
    """The weights of a model of an open family: the file that was given, else a published one.

    A published file is trusted at its first use (see `genpr.features.trust`). For the one that is given only its
    user vouches, so it is held to nothing but its own sha256, and nothing is remembered.

    Args:
        request: What to load.
        published: Files that hold the weights; the first one that can be had is taken.

    Raises:
        UsageError: The file that was given is not there.
        WeightsError: None can be had.
    """
    if request.weights is not None:
        return _own_file(request.weights.expanduser())
    cached = [entry for entry in published if is_cached(entry)]
    *alternatives, last = cached[:1] or published
    for entry in alternatives:
        try:
            return entry, find_or_fetch(entry, offline=request.offline, progress=request.progress)
        except WeightsError as error:
            if error.code != "weights-missing":
                raise
    return last, find_or_fetch(last, offline=request.offline, progress=request.progress)


def _own_file(path: Path) -> tuple[WeightsFile, Path]:
    if not path.is_file():
        raise UsageError(f"--weights {path} is not a file", code="path-not-found", path=str(path))
    sha256 = sha256_of_file(path)
    return WeightsFile(name=path.name, url="", size=None, sha256=sha256, licence="unknown"), path


def misfit(name: str, error: Exception) -> WeightsError:
    """The error for weights that are not of the model `name`."""
    reason = " ".join(str(error).split())
    return WeightsError(f"the weights are not of {name}: {reason[:500]}", code="weights-mismatch")


def unknown_model(library: str, model: str, known: Iterable[str], where: str) -> UsageError:
    """The error for a model that `library` does not have."""
    close = get_close_matches(model, list(known), n=3)
    meant = f"; did you mean {' or '.join(close)}?" if close else ""
    return UsageError(f"{library} has no model {model!r}{meant}; see {where}", code="unknown-model")
