import sys

import pytest
from raising import raising

from genpr.errors import ResourceError, UsageError, WeightsError
from genpr.features.known_weights import INCEPTION_2015
from genpr.features.registry import list_extractors, load_extractor


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(UsageError, match=r"'incepton' \(similar: inception\).*vgg16") as caught:
        load_extractor("incepton")
    assert (caught.value.code, caught.value.exit_code) == ("unknown-extractor", 2)


def test_the_list_says_what_each_needs(tmp_path, monkeypatch):
    monkeypatch.setenv("GENPR_CACHE", str(tmp_path / "genpr"))
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    listed = {item.name: item for item in list_extractors()}
    inception, gabor = listed["inception"], listed["gabor"]
    assert (inception.name, inception.dim, inception.comparable) == ("inception", 2048, True)
    assert (inception.weights, inception.license) == (INCEPTION_2015.name, "Apache-2.0")
    assert not inception.cached
    assert (gabor.name, gabor.weights, gabor.license, gabor.comparable) == ("gabor", None, None, False)
    assert gabor.cached


@pytest.mark.parametrize("name", ["gabor", "some/file.py:load"])
def test_weights_for_an_extractor_without_a_weights_file_are_refused(name):
    with raising(UsageError, "weights-unused", "takes no weights file"):
        load_extractor(name, weights="vgg.pth")


def test_weights_may_belong_to_a_network_of_the_fakes_alone(sides):
    import genpr

    options = {"extractor": "gabor", "weights": __file__, "control": False, "device": "cpu"}
    with raising(WeightsError, "weights-hash"):  # the file is looked at as Inception's
        genpr.score(*sides, metrics=["is", "precision"], **options)
    with raising(UsageError, "weights-unused"):
        genpr.score(*sides, metrics=["precision"], **options)


def test_without_torchvision_what_needs_none_works_and_the_rest_says_what_to_do(monkeypatch, sides):
    import genpr

    monkeypatch.setitem(sys.modules, "torchvision", None)  # its import fails from here on
    options = {"device": "cpu", "control": False, "intervals": False, "k": 3}
    result = genpr.score(sides[0], sides[0], extractor="gabor", **options)
    assert result["precision"] == 1
    monkeypatch.setitem(sys.modules, "timm", None)  # which imports torchvision
    with raising(ResourceError, "broken-library", r"timm.*torchvision"):
        load_extractor("timm:resnet18", device="cpu")


@pytest.mark.parametrize(
    ("said", "kind"),
    [("operator torchvision::nms does not exist", ResourceError), ("a bug of ours", RuntimeError)],
)
def test_a_torchvision_of_another_torch_is_told_from_other_errors(monkeypatch, said, kind):
    def importing(_name):
        raise RuntimeError(said)

    monkeypatch.setattr("genpr.features.registry.import_module", importing)
    with pytest.raises(kind, match=said) as caught:
        load_extractor("timm:resnet18", device="cpu")
    assert getattr(caught.value, "code", None) == ("broken-library" if kind is ResourceError else None)
