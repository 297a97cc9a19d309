"""Our text tower against transformers, at the real size of ViT-B/32 and with random weights.

Tolerance: 1e-5 of the range of the vectors, in float32.
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

TEXTS = ["a photo of a dog", "", "A cat & a dog!", "zwei Kätzchen – 猫", " ".join(["word"] * 90)]


def reference_network(activation: str):
    from transformers import CLIPTextConfig, CLIPTextModelWithProjection

    config = CLIPTextConfig(projection_dim=512, hidden_act=activation, eos_token_id=49407)
    with torch.device("meta"):
        network = CLIPTextModelWithProjection(config).eval()
    network.text_model.embeddings.position_ids = torch.arange(77)[None]  # computed, and not in any state dict
    return network


@pytest.fixture(scope="module")
def theirs() -> dict[str, torch.Tensor]:
    """Random weights under transformers' names, that give different texts different features."""
    return random_state(reference_network("quick_gelu").state_dict())


@pytest.fixture(scope="module")
def published(theirs) -> dict[str, torch.Tensor]:
    """The same weights under the names of the published file, as far as it concerns texts."""
    embeddings = "text_model.embeddings."
    state = {
        "logit_scale": torch.tensor(4.6052),
        "visual.proj": torch.zeros(768, 512),
        "token_embedding.weight": theirs[embeddings + "token_embedding.weight"],
        "positional_embedding": theirs[embeddings + "position_embedding.weight"],
        "text_projection": theirs["text_projection.weight"].T,
    }
    for kind in ("weight", "bias"):
        state[f"ln_final.{kind}"] = theirs[f"text_model.final_layer_norm.{kind}"]
    return state | published_blocks(theirs, "text_model", "transformer")


@pytest.fixture(scope="module")
def ours(published):
    weights = Weights(published, CLIP["vit-b-32"].sha256)
    return clip.build_text(weights, name=ExtractorName("clip-vit-b-32"), device=torch.device("cpu"))


@pytest.fixture(scope="module")
def vectors(ours) -> torch.Tensor:
    return ours.encode_text(TEXTS)


@pytest.mark.parametrize(("activation", "is_same"), [("quick_gelu", True), ("gelu", False)])
def test_text_embeddings_equal_transformers(activation, is_same, theirs, ours, vectors):
    network = reference_network(activation)
    network.load_state_dict(theirs, assign=True)
    with torch.inference_mode():
        error = relative_error(vectors, network(input_ids=ours.tokens(TEXTS)).text_embeds)
    assert error < 1e-5 if is_same else error > 1e-3


def test_properties_equal_those_of_the_catalog(ours):
    assert (ours.dim, ours.info.context, ours.info.comparable) == (512, 77, True)
    assert ours.info.weights_sha256 == CLIP["vit-b-32"].sha256
    assert sum(parameter.numel() for parameter in ours._tower.parameters()) == 63_428_096
