"""CLIP: image and text embeddings of OpenAI's networks, and of all other models of open_clip.

Vectors are the projected embeddings without normalization. Both towers are in one weights file, and only the needed one is
built. Texts are truncated to the context of a model (77 tokens for OpenAI's). OpenAI trained with QuickGELU,
x sigmoid(1.702 x); with the exact GELU, the same weights give other features.

References:
    A. Radford et al., Learning Transferable Visual Models From Natural Language Supervision, 2021,
    arXiv:2103.00020 (weights MIT).
    G. Ilharco et al., OpenCLIP, https://github.com/mlfoundations/open_clip (MIT).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from genpr.errors import UsageError
from genpr.features.extractor import TextEncoderInfo, TextProgress
from genpr.features.networks.network import InputRule, NetworkExtractor, gray_levels, misfit, unknown_model
from genpr.features.registry import ExtractorName
from genpr.features.resize import ResizeRule, find_rule, pillow_rule
from genpr.features.weights import Weights, WeightsFile, hub_file
from genpr.runtime import state_guard
from genpr.validation import entry_point

_OPENAI: Mapping[str, tuple[str, str]] = {
    "clip-vit-b-32": ("ViT-B-32", "openai"),
    "clip-vit-l-14": ("ViT-L-14", "openai"),
    "clip-vit-l-14-336": ("ViT-L-14-336", "openai"),
}
_NO_TEXT = {"context_length": 1, "vocab_size": 1, "width": 1, "heads": 1, "layers": 1}
"""The smallest text tower that open_clip builds, which is discarded."""
_OF_THE_WHOLE = {"context_length", "input_resolution", "vocab_size", "logit_scale", "logit_bias"}
"""Entries of a file outside the two towers."""
_TEXT_BATCH = 16
_LENGTHS = 16  # texts are padded to a multiple of this number of tokens instead of the whole context


@dataclass(frozen=True)
class ClipModel:
    """The configurations of open_clip for a model and a training run."""

    model: str
    architecture: Mapping[str, Any]
    training: Mapping[str, Any]


def build(weights: Weights, *, names: Sequence[ExtractorName], device: torch.device) -> NetworkExtractor:
    """The image tower of OpenAI's CLIP, or of "open_clip:MODEL:PRETRAINED"."""
    (name,) = names
    model = find_model(name.base)
    resize = find_rule(name.resize) if name.resize else resize_rule(model.training)
    tower = _load_tower(model, weights.tensors, part="visual")
    mean, std = (gray_levels(model.training[key]) for key in ("mean", "std"))
    rule = InputRule(resize, _side(tower, name.base), mean=mean, std=std)
    dim = model.architecture["embed_dim"]
    return NetworkExtractor(EmbeddingOnly(tower), names, [dim], rule=rule, weights=weights, device=device)


def build_text(weights: Weights, *, name: ExtractorName, device: torch.device) -> ClipTextEncoder:
    """The text tower of OpenAI's CLIP, or of "open_clip:MODEL:PRETRAINED"."""
    model = find_model(name.base)
    tower = _load_tower(model, weights.tensors, part="text")
    scale = without_wrapper(weights.tensors).get("logit_scale")
    info = TextEncoderInfo(
        name=str(name),
        dim=model.architecture["embed_dim"],
        tokenizer="open_clip's byte pairs",
        context=int(getattr(tower, "context_length", 0)),
        weights_sha256=weights.sha256,
        comparable=weights.is_published and name.precision == "float32",
        logit_scale=None if scale is None else math.exp(float(scale)),
    )
    return ClipTextEncoder(tower, info, device=device, precision=getattr(torch, name.precision))


class EmbeddingOnly(nn.Module):
    """The embedding (n, dim) of towers that also return something else, such as the tokens of CoCa."""

    def __init__(self, tower: nn.Module) -> None:
        super().__init__()
        self.tower = tower

    def forward(self, inputs: Tensor) -> Tensor:
        """Embed normalized images (n, 3, side, side) or tokens (n, context)."""
        given = self.tower(inputs)
        embedding: Tensor = given[0] if isinstance(given, tuple) else given
        return embedding


class ClipTextEncoder:
    """A tokenizer and a text tower from tokens (n, context) to (n, dim), which is moved, converted and frozen."""

    def __init__(
        self, tower: nn.Module, info: TextEncoderInfo, *, device: torch.device, precision: torch.dtype
    ) -> None:
        from open_clip import SimpleTokenizer

        assert info.context is not None
        self.name = info.name
        self.dim = info.dim
        self.info = info
        self.device = device
        self._context = info.context
        self._tokenizer: Any = SimpleTokenizer(context_length=info.context)
        self._tower: Any = tower.to(precision).requires_grad_(False).eval().to(device)
        # With causal attention and pooling at the last token of the text, later positions have no effect.
        ends_with_text = self._tower.cls_emb is None and self._tower.pool_type in {"argmax", "eos"}
        mask: Any = self._tower.attn_mask if ends_with_text else None
        self._mask: Tensor | None = mask
        self._embed = EmbeddingOnly(self._tower)

    @entry_point
    def encode_text(self, texts: Sequence[str], /, *, progress: TextProgress | None = None) -> Tensor:
        """Embed n texts as float32 (n, dim) on the CPU, in batches of fixed size, so that vectors do not depend on other texts."""
        if not texts:
            return torch.empty(0, self.dim)
        tokens, inverse = torch.unique(self.tokens(texts), dim=0, return_inverse=True)
        vectors = torch.empty(len(tokens), self.dim, dtype=torch.float32)
        done = 0
        with torch.inference_mode(), state_guard():
            for length, rows in self._batches(tokens):
                batch = tokens[rows, :length]
                padded = torch.cat([batch, batch[-1:].expand(_TEXT_BATCH - len(batch), -1)])
                if self._mask is not None:
                    self._tower.attn_mask = self._mask[:length, :length]
                vectors[rows] = self._embed(padded.to(self.device))[: len(rows)].float().cpu()
                done += len(rows)
                if progress is not None:
                    progress(len(texts) * done // len(tokens), len(texts))
        return vectors[inverse]

    def tokens(self, texts: Sequence[str], /) -> Tensor:
        """The tokens of each text, int64 (n, context), padded with zeros."""
        tokens: Tensor = self._tokenizer(list(texts))
        return tokens

    def truncated(self, texts: Sequence[str], /) -> list[bool]:
        """Whether each text has more tokens than the context and is truncated."""
        beginning_and_end = 2
        return [len(self._tokenizer.encode(text)) + beginning_and_end > self._context for text in texts]

    def _batches(self, tokens: Tensor) -> Iterator[tuple[int, Tensor]]:
        """Batches of rows with the number of tokens that determine their vectors."""
        ends = self._context - (tokens.flip(1) != 0).int().argmax(dim=1)
        lengths = (-(-ends // _LENGTHS) * _LENGTHS).clamp(max=self._context)
        if self._mask is None:
            lengths = torch.full_like(lengths, self._context)
        for length in sorted(set(lengths.tolist())):
            for rows in (lengths == length).nonzero()[:, 0].split(_TEXT_BATCH):
                yield length, rows


def published_weights(name: str) -> tuple[WeightsFile, ...]:
    """Files with the weights of "open_clip:MODEL:PRETRAINED", the preferred first; without OpenAI's files, which have code."""
    training = find_model(name).training
    repo_id, _, file = str(training.get("hf_hub", "")).rpartition("/")
    if not repo_id:
        text = f"the weights at {training.get('url')!r} are not on the Hugging Face hub; give them with --weights"
        raise UsageError(text, code="no-weights")
    files = [file] if file else ["open_clip_model.safetensors", "open_clip_pytorch_model.bin"]
    if file.endswith((".bin", ".pth")):
        files.insert(0, f"{file[:-4]}.safetensors")
    return tuple(hub_file(repo_id, each, license="unknown") for each in files)


def resize_rule(training: Mapping[str, Any]) -> ResizeRule:
    """The resize rule of a training run; UsageError for unsupported rules."""
    mode, interpolation = training["resize_mode"], training["interpolation"]
    match mode, interpolation:
        case "shortest", "bicubic":
            return find_rule("clip")
        case "squash", "bicubic":
            return find_rule("pil-bicubic-uint8")
        case "shortest" | "squash", "bilinear":
            return pillow_rule("open_clip", interpolation, squash=mode == "squash")
    text = f"resize mode {mode!r} with {interpolation!r} interpolation is not supported; choose another by @RESIZE-RULE"
    raise UsageError(text, code="unsupported-model")


def find_model(name: str) -> ClipModel:
    """The configurations of a built-in name, or of "open_clip:MODEL:PRETRAINED"."""
    import open_clip

    model, tag = _OPENAI.get(name) or name.partition(":")[2].partition(":")[::2]
    training = open_clip.get_pretrained_cfg(model, tag)
    architecture = open_clip.get_model_config(model) if training else None
    if architecture is None:
        known = open_clip.list_pretrained(as_str=True)
        raise unknown_model("open_clip", f"{model}:{tag}", known, "open_clip.list_pretrained()")
    return ClipModel(model, architecture, training)


def check_tokenizer(name: str) -> None:
    """Raise an error for a model whose tokenizer is not part of open_clip ("unsupported-tokenizer")."""
    text = find_model(name).architecture["text_cfg"]
    other = text.get("hf_tokenizer_name") or text.get("hf_model_name")
    if other or text.get("tokenizer_kwargs"):
        text = (
            f"{name!r} needs the tokenizer of {other}, which is not part of open_clip; choose clip-vit-b-32"
        )
        raise UsageError(text, code="unsupported-tokenizer")


def without_wrapper(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Names without the prefix "module." of distributed training."""
    wrapped = next(iter(state), "").startswith("module.")
    return {key.removeprefix("module.") if wrapped else key: value for key, value in state.items()}


def _load_tower(model: ClipModel, state: Mapping[str, Tensor], *, part: str) -> nn.Module:
    """The tower `part`, "visual" or "text", with its tensors from a published state dict."""
    from open_clip.convert import convert_state_dict
    from open_clip.model import resize_pos_embed

    with torch.device("meta"):  # the published tensors become the parameters: nothing to initialize
        whole = _empty_model(model, part)
    tower: Any = whole.get_submodule(part)
    # Computed buffers, such as tables of rotary positions, are not in the file.
    if part == "visual" and {key for key, _ in tower.named_buffers()} - tower.state_dict().keys():
        with state_guard():  # open_clip draws random weights
            whole = _empty_model(model, part)
        tower = whole.get_submodule(part)
    try:
        published = convert_state_dict(whole, without_wrapper(state))
        if part == "visual":
            resize_pos_embed(published, whole)
        tower.load_state_dict(_tensors_of(part, published), strict=True, assign=True)
    except (RuntimeError, KeyError) as error:
        raise misfit(f"open_clip:{model.model} ({part})", error) from error
    if part == "text" and tower.attn_mask is not None:  # it is computed, not published
        tower.register_buffer("attn_mask", tower.build_causal_mask(), persistent=False)
    return tower.eval()  # type: ignore[no-any-return]


def _empty_model(model: ClipModel, part: str) -> nn.Module:
    """The model with a minimal other tower; `open_clip.create_model` is not used, since it logs to the root logger."""
    import open_clip

    kind, text = open_clip.CLIP, _NO_TEXT
    if part == "text":
        kind, text = open_clip.CustomTextCLIP, model.architecture["text_cfg"]
    whole: nn.Module = kind(
        embed_dim=model.architecture["embed_dim"],
        vision_cfg={**model.architecture["vision_cfg"], "timm_model_pretrained": False},
        text_cfg=text,
        quick_gelu=bool(model.training.get("quick_gelu") or model.architecture.get("quick_gelu")),
    )
    return whole


def _tensors_of(part: str, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors with prefix "PART."; in OpenAI's files, those of the text tower have no prefix."""
    start = f"{part}."
    if part == "text" and not any(key.startswith(start) for key in state):
        start = ""
        state = {k: v for k, v in state.items() if not k.startswith("visual.") and k not in _OF_THE_WHOLE}
    return {key.removeprefix(start): value for key, value in state.items() if key.startswith(start)}


def _side(tower: nn.Module, name: str) -> int:
    size: Any = tower.image_size
    height, width = size if isinstance(size, tuple | list) else (size, size)
    if height != width:
        raise UsageError(
            f"{name!r} has an input of {height} x {width} pixels; only squares are supported",
            code="unsupported-model",
        )
    return int(height)
