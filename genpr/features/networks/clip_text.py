"""The text towers of CLIP models, from the weights file that also holds the image tower.

A vector is the projected text embedding as it is, not scaled to length 1. Texts are cut into tokens by open_clip's own
tokenizer, whose vocabulary comes with it; models with another one are refused. What does not fit into the context of a
model (77 tokens for OpenAI's) is not read: the tokenizer keeps the beginning, and `truncated` says of which texts.

References:
    A. Radford et al., Learning Transferable Visual Models From Natural Language Supervision, 2021, arXiv:2103.00020.
    G. Ilharco et al., OpenCLIP, https://github.com/mlfoundations/open_clip (MIT).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from genpr.errors import FeatureError, UsageError
from genpr.features.extractor import TextEncoderInfo, TextProgress
from genpr.features.networks.clip import (
    ClipModel,
    check_quick_gelu,
    find_model,
    without_wrapper,
)
from genpr.features.networks.network import misfit
from genpr.features.registry import ExtractorName
from genpr.features.weights.files import Weights
from genpr.runtime import state_guard

_BATCH = 16
_LENGTHS = 16  # texts are cut to a multiple of so many tokens: short ones need no whole context
_TOKENIZER = "open_clip's byte pairs"
_OF_THE_WHOLE = {"context_length", "input_resolution", "vocab_size", "logit_scale", "logit_bias"}
"""What stands in a file beside the two towers."""


class ClipTextEncoder:
    """A text tower behind its tokenizer.

    Args:
        tower: From tokens (n, context) to (n, dim). It is moved, converted and frozen.
        info: What it is.
        device: Where to compute.
        precision: In which the tower computes; what it gives is float32.
    """

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
        # Where no token sees a later one and the last one of the text is what counts, the rest of the context is idle.
        ends_with_text = self._tower.cls_emb is None and self._tower.pool_type in {"argmax", "eos"}
        mask: Any = self._tower.attn_mask if ends_with_text else None
        self._mask: Tensor | None = mask

    def encode_text(self, texts: Sequence[str], /, *, progress: TextProgress | None = None) -> Tensor:
        """Embed n texts, empty ones too, as float32 (n, dim) on the CPU.

        A pass has the same batch size whatever the texts, and equal tokens are embedded once: so the vector of a text
        depends on no other text, and texts that the tower cannot tell apart have the same one.

        Raises:
            FeatureError: The tower gives NaN or infinity ("non-finite").
        """
        if not texts:
            return torch.empty(0, self.dim)
        tokens, places = torch.unique(self.tokens(texts), dim=0, return_inverse=True)
        vectors = torch.empty(len(tokens), self.dim)
        done = 0
        with torch.inference_mode(), torch.autocast(self.device.type, enabled=False), state_guard():
            for length, rows in self._batches(tokens):
                batch = tokens[rows, :length]
                padded = torch.cat([batch, batch[-1:].expand(_BATCH - len(batch), -1)])
                vectors[rows] = self._embed(padded.to(self.device))[: len(rows)].float().cpu()
                done += len(rows)
                if progress is not None:
                    progress(len(texts) * done // len(tokens), len(texts))
        vectors = vectors[places]
        if not vectors.isfinite().all():
            row = int((~vectors.isfinite().all(dim=1)).nonzero()[0])
            raise FeatureError(
                f"{self.name} gives NaN or infinity for {texts[row][:60]!r}", code="non-finite"
            )
        return vectors

    def tokens(self, texts: Sequence[str], /) -> Tensor:
        """What the tower sees of each text: int64 (n, context), zeros behind its end."""
        tokens: Tensor = self._tokenizer(list(texts))
        return tokens

    def truncated(self, texts: Sequence[str], /) -> list[bool]:
        """Of which of the texts the end is not read, since they have more tokens than the context."""
        beginning_and_end = 2
        return [len(self._tokenizer.encode(text)) + beginning_and_end > self._context for text in texts]

    def _batches(self, tokens: Tensor) -> Iterator[tuple[int, Tensor]]:
        """Rows of about equal length, and to how many tokens they may be cut without a change of their vectors."""
        ends = self._context - (tokens.flip(1) != 0).int().argmax(dim=1)
        lengths = (-(-ends // _LENGTHS) * _LENGTHS).clamp(max=self._context)
        if self._mask is None:
            lengths = torch.full_like(lengths, self._context)
        for length in sorted(set(lengths.tolist())):
            for rows in (lengths == length).nonzero()[:, 0].split(_BATCH):
                yield length, rows

    def _embed(self, tokens: Tensor) -> Tensor:
        if self._mask is not None:
            self._tower.attn_mask = self._mask[: tokens.shape[1], : tokens.shape[1]]
        given = self._tower(tokens)
        embedding: Tensor = given[0] if isinstance(given, tuple) else given  # CoCa adds its tokens
        return embedding


def build(weights: Weights, *, name: ExtractorName, device: torch.device) -> ClipTextEncoder:
    """The text tower of OpenAI's CLIP, or of "open_clip:MODEL:PRETRAINED".

    Raises:
        UsageError: open_clip has no such pair.
        WeightsError: The weights are not of this model.
    """
    model = find_model(name.base)
    state = without_wrapper(weights.tensors)
    tower = _load_tower(model, state)
    if model.quick_gelu:
        check_quick_gelu(tower, name.base)
    scale = state.get("logit_scale")
    info = TextEncoderInfo(
        name=str(name),
        dim=model.architecture["embed_dim"],
        tokenizer=_TOKENIZER,
        context=int(getattr(tower, "context_length", 0)),
        weights_sha256=weights.sha256,
        comparable=weights.is_published and name.precision == "float32",
        logit_scale=None if scale is None else math.exp(float(scale)),
    )
    return ClipTextEncoder(tower, info, device=device, precision=getattr(torch, name.precision))


def check_tokenizer(name: str) -> None:
    """Refuse a model whose texts are cut by a tokenizer that does not come with open_clip.

    Raises:
        UsageError: "unsupported-tokenizer", or open_clip has no such model.
    """
    text = find_model(name).architecture["text_cfg"]
    other = text.get("hf_tokenizer_name") or text.get("hf_model_name")
    if other or text.get("tokenizer_kwargs"):
        raise UsageError(
            f"{name!r} cuts texts with the tokenizer of {other}, which is not installed with open_clip and whose files "
            "genpr does not fetch from the Hugging Face hub; choose a model with CLIP's own tokenizer, such as "
            "clip-vit-b-32, or give both towers as path/to/file.py:factory whose object has encode_text",
            code="unsupported-tokenizer",
        )


def _load_tower(model: ClipModel, state: Mapping[str, Tensor]) -> nn.Module:
    """The text tower with its part of a published state dict; the image tower's part is left aside.

    Raises:
        WeightsError: They are weights of another model.
    """
    import open_clip
    from open_clip.convert import convert_state_dict

    with torch.device("meta"):  # the published tensors become the parameters: nothing to initialize
        whole = open_clip.CustomTextCLIP(
            embed_dim=model.architecture["embed_dim"],
            vision_cfg={**model.architecture["vision_cfg"], "timm_model_pretrained": False},
            text_cfg=model.architecture["text_cfg"],
            quick_gelu=model.quick_gelu,
        )
    tower: Any = whole.text
    try:
        published = _text_part(convert_state_dict(whole, dict(state)))
        tower.load_state_dict(published, strict=True, assign=True)
    except (RuntimeError, KeyError) as error:
        raise misfit(f"the text tower of open_clip:{model.model}", error) from error
    if tower.attn_mask is not None:  # it is computed, not published
        tower.register_buffer("attn_mask", tower.build_causal_mask(), persistent=False)
    return tower.eval()  # type: ignore[no-any-return]


def _text_part(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of the text tower: below "text.", or as in OpenAI's files, beside the image tower."""
    if any(key.startswith("text.") for key in state):
        return {key.removeprefix("text."): value for key, value in state.items() if key.startswith("text.")}
    return {
        key: value
        for key, value in state.items()
        if not key.startswith("visual.") and key not in _OF_THE_WHOLE
    }
