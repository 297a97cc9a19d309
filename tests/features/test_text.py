"""Which extractors have a text encoder, and encoders of the user's own."""

from __future__ import annotations

import textwrap

import numpy as np
import pytest
import torch
from torch import nn

from genpr.errors import FeatureError, UsageError, WeightsError
from genpr.features.custom import wrap_extractor
from genpr.features.text import load_text_encoder, text_encoder_of

PAIR = """
import torch

class Pair:
    dim = 2
    context = 9
    tokenizer = "letters"
    def __call__(self, images):
        return images.float().mean((2, 3))[:, :2]
    def encode_text(self, texts):
        return torch.tensor([[float(len(text)), 1.0] for text in texts])
    def truncated(self, texts):
        return [len(text) > 9 for text in texts]

def load():
    return Pair()
"""


class Own(nn.Module):
    """A pair of which the result of `encode_text` can be chosen."""

    dim = 3

    def __init__(self, given=None) -> None:
        super().__init__()
        self.given = given
        self.drop = nn.Dropout(0.5)
        self.calls: list[int] = []

    def forward(self, images):
        return images.float().mean((2, 3))

    def encode_text(self, texts):
        self.calls.append(len(texts))
        return self.drop(torch.ones(len(texts), 3)) if self.given is None else self.given(texts)


@pytest.mark.parametrize(
    "name", ["inception", "dinov2-vits14", "gabor", "vgg16", "timm:resnet18.a1_in1k", "pixels@clip"]
)
def test_extractors_of_images_alone_are_refused(name):
    with pytest.raises(UsageError, match=r"embeds images only.*clip-vit-b-32") as caught:
        load_text_encoder(name, device="cpu")
    assert caught.value.code == "no-text-encoder"


def test_unknown_names_are_refused_as_elsewhere():
    with pytest.raises(UsageError, match="did you mean clip-vit-b-32"):
        load_text_encoder("clip-vit-b32")
    with pytest.raises(WeightsError, match="open_clip_model"):
        load_text_encoder("clip-vit-b-32", device="cpu", offline=True)


def test_a_pair_of_the_users_own_embeds_texts(tmp_path):
    path = tmp_path / "pair.py"
    path.write_text(textwrap.dedent(PAIR))
    encoder = load_text_encoder(f"{path}:load", device="cpu")
    assert encoder.encode_text(["", "abc"]).tolist() == [[0, 1], [3, 1]]
    assert encoder.truncated(["abc", "0123456789"]) == [False, True]
    info = encoder.info
    assert (info.dim, info.tokenizer, info.context, info.comparable) == (2, "letters", 9, False)
    assert info.name.endswith("pair.py:load")


def test_one_that_embeds_no_texts_is_refused():
    with pytest.raises(UsageError, match="embeds images only") as caught:
        text_encoder_of(wrap_extractor(NoText()))
    assert caught.value.code == "no-text-encoder"


class NoText:
    dim = 3

    def __call__(self, images):
        return images


def test_networks_are_in_evaluation_mode_and_are_left_as_they_were():
    own = Own().train()
    encoder = text_encoder_of(wrap_extractor(own))
    assert torch.equal(encoder.encode_text(["a"] * 5), torch.ones(5, 3)), "without dropout"
    assert own.drop.training


def test_texts_come_in_batches_and_progress_is_told():
    own, told = Own(), []
    encoder = text_encoder_of(wrap_extractor(own))
    encoder.encode_text(["a"] * 130, progress=lambda *done: told.append(done))
    assert own.calls == [64, 64, 2]
    assert told == [(64, 130), (128, 130), (130, 130)]
    assert encoder.truncated(["a"]) is None
    assert encoder.encode_text([]).shape == (0, 3)


def test_arrays_are_as_good_as_tensors():
    encoder = text_encoder_of(wrap_extractor(Own(lambda texts: np.full((len(texts), 3), 2.0))))
    assert encoder.encode_text(["a"]).tolist() == [[2, 2, 2]]


@pytest.mark.parametrize(
    ("given", "needed"),
    [
        (lambda texts: torch.zeros(len(texts), 4), r"\(1, 3\).*returned torch.float32 \(1, 4\)"),
        (lambda texts: torch.zeros(len(texts), 3).long(), "returned torch.int64"),
        (lambda texts: [[1.0, 2.0, 3.0]], "returned list"),
        (lambda texts: torch.full((len(texts), 3), torch.nan), "NaN or infinity for 'a'"),
    ],
    ids=["width", "integers", "list", "nan"],
)
def test_what_is_no_vector_is_refused(given, needed):
    with pytest.raises(FeatureError, match=needed):
        text_encoder_of(wrap_extractor(Own(given))).encode_text(["a"])


def test_an_answer_for_some_texts_only_is_refused():
    own = Own()
    own.truncated = lambda texts: [True]
    with pytest.raises(FeatureError, match="each of 2 texts"):
        text_encoder_of(wrap_extractor(own)).truncated(["a", "b"])


def test_what_fails_in_a_users_code_is_named():
    with pytest.raises(ZeroDivisionError) as caught:
        text_encoder_of(wrap_extractor(Own(lambda texts: 1 / 0))).encode_text(["a"])
    assert caught.value.__notes__ == ["encode_text of Own failed"]
