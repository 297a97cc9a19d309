"""Ours against transformers, at the real size of ViT-B/32 and with random weights.

Tolerance: 1e-5 of the range of the features, in float32.
"""

import pytest
import torch
from clip_state import published_blocks, relative_error
from random_weights import random_state

from genpr.features.known_weights import CLIP
from genpr.features.networks import clip
from genpr.features.registry import ExtractorName
from genpr.features.weights import Weights

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def reference_network(activation: str):
    from transformers import CLIPVisionConfig, CLIPVisionModelWithProjection

    config = CLIPVisionConfig(patch_size=32, image_size=224, projection_dim=512, hidden_act=activation)
    with torch.device("meta"):
        network = CLIPVisionModelWithProjection(config).eval()
    network.vision_model.embeddings.position_ids = torch.arange(50)[
        None
    ]  # computed, and not in any state dict
    return network


@pytest.fixture(scope="module")
def theirs() -> dict[str, torch.Tensor]:
    """Random weights under transformers' names, that give different images different features."""
    return random_state(reference_network("quick_gelu").state_dict())


@pytest.fixture(scope="module")
def published(theirs) -> dict[str, torch.Tensor]:
    """The same weights under the names of the published file, as far as it concerns images."""
    embeddings = "vision_model.embeddings."
    state = {
        "logit_scale": torch.tensor(4.6),
        "visual.class_embedding": theirs[embeddings + "class_embedding"],
        "visual.positional_embedding": theirs[embeddings + "position_embedding.weight"],
        "visual.conv1.weight": theirs[embeddings + "patch_embedding.weight"],
        "visual.proj": theirs["visual_projection.weight"].T,
    }
    for kind in ("weight", "bias"):
        state[f"visual.ln_pre.{kind}"] = theirs[f"vision_model.pre_layrnorm.{kind}"]
        state[f"visual.ln_post.{kind}"] = theirs[f"vision_model.post_layernorm.{kind}"]
    return state | published_blocks(theirs, "vision_model", "visual.transformer")


@pytest.fixture(scope="module")
def features(published, images) -> torch.Tensor:
    weights = Weights(published, CLIP["vit-b-32"].sha256)
    ours = clip.build(weights, names=[ExtractorName("clip-vit-b-32")], device=torch.device("cpu"))
    return torch.cat([ours(image[None]) for image in images])


@pytest.fixture(scope="module")
def seen(images) -> torch.Tensor:
    """The images as open_clip's own transform shows them."""
    from open_clip.transform import image_transform
    from PIL import Image

    transform = image_transform(
        224,
        is_train=False,
        mean=(0.48145466, 0.4578275, 0.40821073),
        std=(0.26862954, 0.26130258, 0.27577711),
        resize_mode="shortest",
        interpolation="bicubic",
    )
    return torch.stack([transform(Image.fromarray(image.permute(1, 2, 0).numpy())) for image in images])


@pytest.mark.parametrize(("activation", "is_same"), [("quick_gelu", True), ("gelu", False)])
def test_image_embeddings_equal_transformers(activation, is_same, theirs, features, seen):
    network = reference_network(activation)
    network.load_state_dict(theirs, assign=True)
    with torch.inference_mode():
        error = relative_error(features, network(pixel_values=seen).image_embeds)
    assert error < 1e-5 if is_same else error > 1e-3
