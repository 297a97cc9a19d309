"""Our towers of CLIP against transformers, at the real size of ViT-B/32 and with random weights.

Tolerance: 1e-5 of the range of the vectors, in float32.
"""

import pytest
import torch
from clip_state import published_blocks
from random_weights import random_state, relative_error

from genpr.features.known_weights import CLIP
from genpr.features.networks import clip
from genpr.features.registry import ExtractorName
from genpr.features.weights import Weights

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

TEXTS = ["a photo of a dog", "", "A cat & a dog!", "zwei Kätzchen – 猫", " ".join(["word"] * 90)]
CPU = torch.device("cpu")


def reference(network):
    """A network of transformers, with random weights that give different inputs different vectors, and these."""
    weights = random_state(network.state_dict())
    network.load_state_dict(weights, assign=True)
    return network.eval(), weights


def test_image_embeddings_equal_transformers(images):
    from open_clip.transform import image_transform
    from PIL import Image
    from transformers import CLIPVisionConfig, CLIPVisionModelWithProjection

    config = CLIPVisionConfig(patch_size=32, image_size=224, projection_dim=512, hidden_act="quick_gelu")
    with torch.device("meta"):
        network = CLIPVisionModelWithProjection(config)
    network.vision_model.embeddings.position_ids = torch.arange(50)[None]  # computed, and in no state dict
    network, theirs = reference(network)
    embeddings = "vision_model.embeddings."
    published = {
        "logit_scale": torch.tensor(4.6),
        "visual.class_embedding": theirs[embeddings + "class_embedding"],
        "visual.positional_embedding": theirs[embeddings + "position_embedding.weight"],
        "visual.conv1.weight": theirs[embeddings + "patch_embedding.weight"],
        "visual.proj": theirs["visual_projection.weight"].T,
    }
    for kind in ("weight", "bias"):
        published[f"visual.ln_pre.{kind}"] = theirs[f"vision_model.pre_layrnorm.{kind}"]
        published[f"visual.ln_post.{kind}"] = theirs[f"vision_model.post_layernorm.{kind}"]
    published |= published_blocks(theirs, "vision_model", "visual.transformer")
    weights = Weights(published, CLIP["vit-b-32"].sha256)
    ours = clip.build(weights, names=[ExtractorName("clip-vit-b-32")], device=CPU)
    features = torch.cat([ours(image[None]) for image in images])
    transform = image_transform(224, is_train=False)
    seen = torch.stack([transform(Image.fromarray(image.permute(1, 2, 0).numpy())) for image in images])
    with torch.inference_mode():
        assert relative_error(features, network(pixel_values=seen).image_embeds) < 1e-5


def test_text_embeddings_equal_transformers():
    from transformers import CLIPTextConfig, CLIPTextModelWithProjection

    with torch.device("meta"):
        network = CLIPTextModelWithProjection(
            CLIPTextConfig(projection_dim=512, hidden_act="quick_gelu", eos_token_id=49407)
        )
    network.text_model.embeddings.position_ids = torch.arange(77)[None]
    network, theirs = reference(network)
    embeddings = "text_model.embeddings."
    published = {
        "logit_scale": torch.tensor(4.6052),
        "visual.proj": torch.zeros(768, 512),
        "token_embedding.weight": theirs[embeddings + "token_embedding.weight"],
        "positional_embedding": theirs[embeddings + "position_embedding.weight"],
        "text_projection": theirs["text_projection.weight"].T,
    }
    for kind in ("weight", "bias"):
        published[f"ln_final.{kind}"] = theirs[f"text_model.final_layer_norm.{kind}"]
    published |= published_blocks(theirs, "text_model", "transformer")
    weights = Weights(published, CLIP["vit-b-32"].sha256)
    ours = clip.build_text(weights, name=ExtractorName("clip-vit-b-32"), device=CPU)
    with torch.inference_mode():
        expected = network(input_ids=ours.tokens(TEXTS)).text_embeds
    assert relative_error(ours.encode_text(TEXTS), expected) < 1e-5
    assert (ours.dim, ours.info.context, ours.info.comparable) == (512, 77, True)
    assert ours.info.weights_sha256 == CLIP["vit-b-32"].sha256
    assert sum(parameter.numel() for parameter in ours._tower.parameters()) == 63_428_096
