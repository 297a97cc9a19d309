"""Alignment and entities with a real architecture: both towers of a small open_clip model with random weights."""

import numpy as np
import pytest
import torch
from PIL import Image
from raising import raising
from torch import nn

import genpr
from genpr.cli.main import run
from genpr.conditional.recognition import calibrate
from genpr.errors import DataError, FeatureError, UsageError
from genpr.features.networks import clip

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

NAME = "open_clip:ViT-B-32:laion2b_s34b_b79k"
TINY = {
    "embed_dim": 24,
    "vision_cfg": {"image_size": 32, "layers": 1, "width": 64, "head_width": 64, "patch_size": 8},
    "text_cfg": {"context_length": 77, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 1},
}
THINGS = ["cat", "dog", "car", "tree"]
PROMPTS = [f"a {color} {thing}" for color in ("red", "blue", "green") for thing in THINGS]


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    import open_clip
    from safetensors.torch import save_file

    with torch.random.fork_rng():
        torch.manual_seed(0)
        whole = open_clip.CLIP(**TINY)
        nn.init.normal_(whole.positional_embedding, std=0.5)
        nn.init.normal_(whole.token_embedding.weight, std=0.5)
    path = tmp_path_factory.mktemp("weights") / "mine.safetensors"
    save_file(dict(whole.state_dict()), path)
    return path, whole.eval()


@pytest.fixture(autouse=True)
def _tiny(monkeypatch):
    training = clip.find_model(NAME).training
    monkeypatch.setattr(clip, "find_model", lambda _: clip.ClipModel("tiny", TINY, training))


@pytest.fixture(scope="module")
def images():
    return np.random.default_rng(0).integers(0, 256, (len(PROMPTS), 32, 32, 3), dtype=np.uint8)


def cosines(whole, images, texts):
    """Cosines (n, t) as open_clip computes them."""
    import open_clip

    model = clip.find_model(NAME)
    mean, std = (torch.tensor(model.training[each])[:, None, None] for each in ("mean", "std"))
    pixels = (torch.from_numpy(images).permute(0, 3, 1, 2) / 255 - mean) / std
    tokens = open_clip.get_tokenizer("ViT-B-32")(texts)
    with torch.inference_mode():
        return whole.encode_image(pixels, normalize=True) @ whole.encode_text(tokens, normalize=True).T


def test_alignment_equals_that_of_open_clip(weights, images):
    path, whole = weights
    result = genpr.align(images, PROMPTS, extractor=NAME, weights=path, device="cpu", distractors=11)
    cosine = cosines(whole, images, [f"A photo depicts {prompt}" for prompt in PROMPTS]).double()
    own = cosine.diag()
    ranks = (cosine > own[:, None]).sum(dim=1) + 1
    back = (cosine > own[None]).sum(dim=0) + 1
    assert result["retrieval.mrr"] == pytest.approx(float((1 / ranks.double()).mean()), abs=1e-9)
    assert result["retrieval.t2i_mrr"] == pytest.approx(float((1 / back.double()).mean()), abs=1e-9)
    assert result["retrieval.r_precision"] == pytest.approx(float((ranks == 1).double().mean()))
    assert result["alignment.clip_score"] == pytest.approx(2.5 * float(own.clamp(min=0).mean()), abs=1e-5)
    assert (result.extractor.name, result.comparable) == (NAME, False)
    assert (result.alignment.context, result.alignment.n_truncated) == (77, 0)


@pytest.fixture
def of_twelve(change_protocol):
    """The protocol coco30k, but of 12 images and the small model."""
    change_protocol("coco30k", n_fake=12, clip=NAME)


def test_coco30k_uses_square_images_and_prompts_with_the_prefix(of_twelve, weights):
    wide = np.random.default_rng(0).integers(0, 256, (len(PROMPTS), 30, 40, 3), dtype=np.uint8)
    squares = [Image.fromarray(each[:, 5:35]).resize((256, 256), Image.Resampling.LANCZOS) for each in wide]
    options = {"extractor": NAME, "weights": weights[0], "device": "cpu"}
    result = genpr.align(wide, PROMPTS, protocol="coco30k", **options)
    expected = genpr.align(np.stack(squares), PROMPTS, prefix="A photo depicts ", **options)
    assert result.to_flat_dict() == expected.to_flat_dict()
    assert (result.protocol, result.deviations) == ("coco30k", ())
    assert result.fingerprint != expected.fingerprint, "prepared by genpr, and by another"
    fewer = genpr.align(wide, PROMPTS, protocol="coco30k", max_images=11, **options)
    assert fewer.deviations == ("11 fake images where coco30k needs 12",)
    assert "protocol-not-met" in {item.code for item in fewer.notices}


def test_coco30k_pins_the_number_of_prompts_and_the_recipe(of_twelve, weights):
    wide = np.zeros((12, 8, 8, 3), np.uint8)
    options = {"extractor": NAME, "weights": weights[0], "device": "cpu", "protocol": "coco30k"}
    pairs = [PROMPTS[row : row + 2] for row in range(0, 12, 2)]
    for prompts in (PROMPTS[:11], [*PROMPTS, "more"], [[each, f"{each}s"] for each in PROMPTS], pairs):
        with raising(DataError, "prompt-count", "coco30k needs 12 prompts"):
            genpr.align(wide, prompts, **options)
    pinned = ({"prefix": ""}, {"prepare": "none"}, {"extractor": "clip-vit-l-14"})
    for other, code in (
        *((each, "protocol-pinned") for each in pinned),
        ({"protocol": "adm"}, "protocol-without-prompts"),
        ({"protocol": "coco"}, "unknown-protocol"),
    ):
        with raising(UsageError, code):
            genpr.align(wide, PROMPTS, **options | other)


def test_features_of_other_weights_are_an_error(weights, images, tmp_path):
    from safetensors.torch import save_file

    path, whole = weights
    other = tmp_path / "other.safetensors"
    save_file({**whole.state_dict(), "logit_scale": torch.tensor(1.0)}, other)
    folder = tmp_path / "images.npz"
    np.savez(folder, images)
    features = tmp_path / "f.safetensors"
    assert run(["features", str(folder), str(features), "--extractor", NAME, "--weights", str(path)]) == 0
    good = genpr.align(features, PROMPTS, extractor=NAME, weights=path, device="cpu")
    assert good.fake.n_embedded == 0
    with raising(FeatureError, "other-extractor", "different weights"):
        genpr.align(features, PROMPTS, extractor=NAME, weights=other, device="cpu")


def test_entities_equal_those_by_cosines_of_open_clip(weights, images):
    """Both towers end to end: cosines with "a photo of a NAME.", thresholds of labeled images."""
    path, whole = weights
    labeled = {"calibrate_on": images, "calibrate_expected": [[thing] for thing in THINGS * 3]}
    options = {"classifier": NAME, "vocabulary": THINGS, "weights": path, "device": "cpu", **labeled}
    result = genpr.score_entities_in_images(PROMPTS, images, **options)
    cosine = cosines(whole, images, [f"a photo of a {thing}." for thing in THINGS])
    expected = torch.tensor([[thing in prompt for thing in THINGS] for prompt in PROMPTS])
    levels = [each.thresholds[0] for each in calibrate(cosine, expected, THINGS)]
    thresholds = [each.thresholds[0] for each in result.entities.classifier.entities]
    assert levels == pytest.approx(thresholds, abs=1e-5)
    hits = ((cosine >= torch.tensor(levels)) & expected).sum()
    assert result["entity.micro_recall"] == pytest.approx(float(hits) / len(PROMPTS))
    assert result.extractor.weights_sha256
