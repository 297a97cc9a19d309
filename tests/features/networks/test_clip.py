import pytest
import torch
from raising import raised, raising
from random_weights import random_state
from torch import nn

from genpr.errors import UsageError, WeightsError
from genpr.features.custom import extractor_info
from genpr.features.networks import clip
from genpr.features.registry import BUILT_IN, ExtractorName, load_extractor
from genpr.features.weights import Weights

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

OPENAI = ("clip-vit-b-32", "clip-vit-l-14", "clip-vit-l-14-336")


def empty(name: str) -> nn.Module:
    with torch.device("meta"):
        return clip._empty_model(clip.find_model(name), "visual")


def build(model, state, name="clip-vit-b-32"):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clip, "find_model", lambda _: model)
        return clip.build(Weights(state, "0" * 64), names=[ExtractorName(name)], device=torch.device("cpu"))


@pytest.mark.parametrize("name", OPENAI)
def test_networks_of_openai_equal_the_catalog_and_use_quick_gelu(name):
    from genpr.features.networks.timm_models import feature_dim

    model = clip.find_model(name)
    tower = empty(name).get_submodule("visual").eval()
    known = BUILT_IN[name]
    activations = {type(each).__name__ for each in tower.modules() if "GELU" in type(each).__name__}
    assert activations == {"QuickGELU"}
    assert model.training == clip.find_model(f"open_clip:{model.model}:openai").training
    assert clip.resize_rule(model.training).name == known.resize
    assert clip._side(tower, name) == known.side
    assert feature_dim(clip.EmbeddingOnly(tower), known.side, name) == known.dim
    assert (
        clip.published_weights(f"open_clip:{model.model}:openai")[0].url.rpartition("/resolve/")[0]
        in known.weights.url
    )


def test_unpublished_buffers_are_computed_and_other_tensors_must_match(images):
    import open_clip

    # EVA-02 has rotary positions, which a network that is only filled with published tensors lacks.
    name = "open_clip:PE-Core-T-16-384:meta"
    if "PE-Core-T-16-384" not in open_clip.list_models():
        pytest.skip("open_clip before 3 has no small network with such buffers")
    model = clip.find_model(name)
    tower = random_state(empty(name).get_submodule("visual").state_dict())
    state = {"logit_scale": torch.tensor(4.6)} | {f"visual.{key}": value for key, value in tower.items()}
    before = torch.get_rng_state()
    extractor = build(model, state, name)
    assert torch.equal(torch.get_rng_state(), before)
    assert not any(tensor.is_meta for tensor in extractor._network.buffers())
    assert extractor_info(extractor).resize == "open_clip-bilinear-1.0-squash-384"
    assert extractor(images[:1]).isfinite().all()
    for changed in (state | {"visual.ln_extra.bias": torch.zeros(1)}, dict(list(state.items())[:-1])):
        assert raised(WeightsError, build, model, changed, name).code == "weights-mismatch"


def test_every_pair_of_open_clip_has_a_resize_rule_and_safe_weights():
    import open_clip

    for model, tag in open_clip.list_pretrained():
        training = open_clip.get_pretrained_cfg(model, tag)
        clip.resize_rule(training)
        for file in clip.published_weights(f"open_clip:{model}:{tag}"):
            assert file.hub_address is not None
            assert file.name.endswith((".safetensors", ".bin"))


def test_unsupported_models_are_errors(monkeypatch):
    with pytest.raises(UsageError, match="'longest' with 'bicubic'"):
        clip.resize_rule({"resize_mode": "longest", "interpolation": "bicubic"})
    other = clip.ClipModel("x", {}, {"url": "https://example.org/x.pt"})
    monkeypatch.setattr(clip, "find_model", lambda _: other)
    with pytest.raises(UsageError, match=r"example\.org/x\.pt.*not on the Hugging Face hub"):
        clip.published_weights("open_clip:x:y")


@pytest.mark.parametrize(
    ("name", "close"),
    [
        ("open_clip:ViT-B-16:laion2b_s34b_b88", "ViT-B-16:laion2b_s34b_b88k"),
        ("open_clip:ViT-B-32", "ViT-B-32"),
        ("open_clip:hf-hub:org/x", "has no model"),
        ("timm:resnet50.a1_in1", r"resnet50\.a1_in1k"),
        ("timm:resnet5O", "resnet50"),
        ("timm:local-dir:x", "timm has no model"),
        ("timm:", "timm has no model"),
    ],
)
def test_unknown_pairs_are_errors_that_name_similar_ones(name, close):
    with raising(UsageError, "unknown-model", close):
        load_extractor(name, device="cpu")
