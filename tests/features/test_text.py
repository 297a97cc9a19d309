"""Text encoders of built-in and custom extractors."""

import pytest
import torch
from raising import raising
from torch import nn

from genpr.errors import FeatureError, UsageError
from genpr.features.custom import wrap_extractor
from genpr.features.text import load_text_encoder, text_encoder_of


class Pair(nn.Module):
    """A custom pair with a given function as `encode_text`."""

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
def test_extractors_without_a_text_encoder_are_errors(name):
    with raising(UsageError, "no-text-encoder", r"embeds images only.*clip-vit-b-32"):
        load_text_encoder(name, device="cpu")


def test_custom_pair_embeds_texts(tmp_path):
    path = tmp_path / "pair.py"
    path.write_text(
        "import torch\n"
        "class Pair:\n"
        "    dim, context, tokenizer = 2, 9, 'letters'\n"
        "    def __call__(self, images): return images\n"
        "    def encode_text(self, texts): return torch.tensor([[float(len(text)), 1.0] for text in texts])\n"
        "    def truncated(self, texts): return [len(text) > 9 for text in texts]\n"
    )
    encoder = load_text_encoder(f"{path}:Pair", device="cpu")
    assert encoder.encode_text(["", "abc"]).tolist() == [[0, 1], [3, 1]]
    assert encoder.truncated(["abc", "0123456789"]) == [False, True]
    info = encoder.info
    assert (info.dim, info.tokenizer, info.context, info.comparable) == (2, "letters", 9, False)
    assert info.name.endswith("pair.py:Pair")


def test_texts_are_embedded_in_batches_with_progress():
    own, updates = Pair().train(), []
    encoder = text_encoder_of(wrap_extractor(own))
    vectors = encoder.encode_text(["a"] * 130, progress=lambda *done: updates.append(done))
    assert torch.equal(vectors, torch.ones(130, 3)), "without dropout"
    assert own.drop.training
    assert own.calls == [64, 64, 2]
    assert updates == [(64, 130), (128, 130), (130, 130)]
    assert encoder.truncated(["a"]) is None
    assert encoder.encode_text([]).shape == (0, 3)


@pytest.mark.parametrize(
    ("given", "needed"),
    [
        (lambda texts: torch.zeros(len(texts), 4), r"\(1, 3\).*returned a Tensor of torch.float32 \(1, 4\)"),
        (lambda texts: torch.zeros(len(texts), 3).long(), "returned a Tensor of torch.int64"),
        (lambda texts: [[1.0, 2.0, 3.0]], "returned a list"),
        (lambda texts: torch.zeros(len(texts), 3, device="meta"), "returned a Tensor .*meta"),
    ],
    ids=["width", "integers", "list", "meta"],
)
def test_outputs_that_are_not_vectors_are_errors(given, needed):
    with pytest.raises(FeatureError, match=needed):
        text_encoder_of(wrap_extractor(Pair(given))).encode_text(["a"])
