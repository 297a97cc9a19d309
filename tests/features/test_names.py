import pytest
from raising import raising

from genpr.errors import UsageError
from genpr.features.registry import ExtractorName, canonical_name, group_by_network, weights_of


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("vgg16", ExtractorName("vgg16")),
        ("vgg16@bfloat16", ExtractorName("vgg16", precision="bfloat16")),
        ("vgg16@clip", ExtractorName("vgg16", resize="clip")),
        ("vgg16@bfloat16@clip", ExtractorName("vgg16", "clip", "bfloat16")),
        ("timm:resnet18.a1_in1k@bfloat16", ExtractorName("timm:resnet18.a1_in1k", precision="bfloat16")),
        ("timm:vit@256@cls", ExtractorName("timm:vit", side=256, pooling="cls")),
        ("timm:vit@clip@map@1@bfloat16", ExtractorName("timm:vit", "clip", "bfloat16", 1, "map")),
    ],
)
def test_names_are_parsed(text, name):
    assert ExtractorName.parse(text) == name
    assert ExtractorName.parse(str(name)) == name


@pytest.mark.parametrize(
    "text",
    (
        "vgg16@ vgg16@half vgg16@bfloat16@bfloat16 vgg16@clip@tf1-bilinear vgg16@cls vgg16@256 open_clip:a:b@224 "
        f"timm:vit@0 timm:vit@4097 timm:vit@-8 timm:vit@² timm:vit@1@2 timm:vit@cls@mean timm:vit@{5000 * '1'}"
    ).split(),
)
def test_unknown_and_contradictory_variants_are_errors(text):
    with raising(UsageError, "unknown-variant"):
        ExtractorName.parse(text)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("inception@tf1-bilinear", "inception"),
        ("inception@bfloat16@tf1-bilinear", "inception@bfloat16"),
        ("inception@bfloat16@clip", "inception@clip@bfloat16"),
        ("timm:vit@clip@mean@0256", "timm:vit@256@mean@clip"),
        ("some@place/file.py:load", "some@place/file.py:load"),
    ],
)
def test_one_extractor_has_one_canonical_name(text, canonical):
    assert canonical_name(text) == canonical


def test_layers_of_one_network_are_grouped():
    names = (
        "inception vgg16 inception-softmax inception@bfloat16 gabor inception@clip vgg16 inception-64@clip"
    )
    assert group_by_network(names.split()) == (
        ("inception", "inception-softmax"),
        ("vgg16",),
        ("inception@bfloat16",),
        ("gabor",),
        ("inception@clip", "inception-64@clip"),
    )


def test_weights_file_is_used_by_the_network_of_its_name(tmp_path):
    vgg, inception = tmp_path / "vgg16-397923af.pth", tmp_path / "pt_inception-2015-12-05-6726825d.pth"
    vgg.touch()
    assert weights_of("vgg16", vgg) == vgg
    assert weights_of("inception", vgg) is None
    assert weights_of("gabor", vgg) is weights_of("gabor", tmp_path / "renamed.pth") is None
    assert weights_of("inception", tmp_path / "renamed.pth") == tmp_path / "renamed.pth"
    assert weights_of("vgg16", tmp_path) == vgg
    assert weights_of("inception", tmp_path) is None
    inception.touch()
    assert weights_of("inception-softmax", tmp_path) == inception
