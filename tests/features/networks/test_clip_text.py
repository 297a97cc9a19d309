"""Text towers: weights, tokens and truncation, with a small model of the same architecture."""

import pytest
import torch
from raising import raising
from random_weights import random_state

from genpr.errors import UsageError, WeightsError
from genpr.features.networks import clip
from genpr.features.registry import ExtractorName
from genpr.features.text import load_text_encoder
from genpr.features.weights import Weights

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

TEXTS = ["a red square", "", "A  RED square", "zwei Kätzchen – 猫", "a red square on the left of a blue disc"]
LONG = " ".join(["word"] * 80)
TINY = clip.ClipModel(
    "tiny",
    {
        "embed_dim": 24,
        "quick_gelu": True,
        "vision_cfg": {"image_size": 32, "layers": 1, "width": 64, "head_width": 64, "patch_size": 32},
        "text_cfg": {"context_length": 77, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 2},
    },
    {},
)


@pytest.fixture(scope="module")
def state() -> dict[str, torch.Tensor]:
    """Random weights of both towers of a model of open_clip."""
    import open_clip

    with torch.device("meta"):
        shapes = open_clip.CLIP(**TINY.architecture).state_dict()
    return random_state(shapes) | {"logit_scale": torch.tensor(4.6052)}


def build(state, model=TINY, name: str = "clip-vit-b-32"):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clip, "find_model", lambda _: model)
        weights = Weights(state, "0" * 64)
        return clip.build_text(weights, name=ExtractorName.parse(name), device=torch.device("cpu"))


@pytest.fixture(scope="module")
def encoder(state):
    return build(state)


def test_vector_of_a_text_does_not_depend_on_the_batch(encoder):
    together = encoder.encode_text([*TEXTS, LONG] * 7)
    for row, text in enumerate([*TEXTS, LONG]):
        assert torch.equal(together[row], encoder.encode_text([text])[0])
    assert encoder.encode_text([]).shape == (0, 24)


def test_truncated_texts_are_reported(encoder):
    fits = " ".join(["word"] * 75)
    assert encoder.truncated([fits, fits + " word", *TEXTS, LONG]) == [False, True, *[False] * 5, True]
    whole, cut = encoder.encode_text([fits, fits + " and what is never read"])
    assert torch.equal(whole, cut)
    assert (encoder.tokens([LONG])[0, 0], encoder.tokens([LONG])[0, -1]) == (49406, 49407)


def test_info_has_logit_scale_and_comparability(encoder, state):
    assert encoder.info.logit_scale == pytest.approx(100, abs=0.01)
    assert encoder.info.comparable
    without = {key: value for key, value in state.items() if key != "logit_scale"}
    assert build(without).info.logit_scale is None
    assert not build(state, name="clip-vit-b-32@bfloat16").info.comparable


@pytest.mark.parametrize("change", ["missing", "additional"])
def test_mismatched_weights_are_an_error(change, state):
    changed = {**state, "ln_extra.bias": torch.zeros(1)}
    if change == "missing":
        del changed["ln_final.bias"], changed["ln_extra.bias"]
    with raising(WeightsError, "weights-mismatch", r"ln_final|ln_extra"):
        build(changed)


def test_coca_uses_its_whole_context_and_ignores_output_tokens():
    import open_clip

    text = {**TINY.architecture["text_cfg"], "context_length": 76, "embed_cls": True, "output_tokens": True}
    coca = clip.ClipModel("coca", {**TINY.architecture, "quick_gelu": False, "text_cfg": text}, {})
    with torch.random.fork_rng():
        model = open_clip.CustomTextCLIP(**coca.architecture).eval()
    encoder = build(model.state_dict(), coca)
    assert encoder.info.context == 76
    with torch.inference_mode():
        theirs = model.text(encoder.tokens(TEXTS))[0]
    torch.testing.assert_close(encoder.encode_text(TEXTS), theirs, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "name", ["open_clip:ViT-B-16-SigLIP:webli", "open_clip:roberta-ViT-B-32:laion2b_s12b_b32k"]
)
def test_unsupported_tokenizers_are_errors_before_weights_are_read(name):
    with raising(UsageError, "unsupported-tokenizer", "tokenizer of"):
        load_text_encoder(name, device="cpu")
