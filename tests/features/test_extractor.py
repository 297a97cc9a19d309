import sys

import pytest
from raising import raising

from genpr.errors import ResourceError, UsageError, WeightsError
from genpr.features.known_weights import INCEPTION_2015
from genpr.features.registry import list_extractors, load_extractor


def test_unknown_name_is_an_error_that_lists_known_ones():
    with pytest.raises(UsageError, match=r"'incepton' \(similar: inception\b.*vgg16") as caught:
        load_extractor("incepton")
    assert (caught.value.code, caught.value.exit_code) == ("unknown-extractor", 2)


def test_list_of_extractors_has_their_requirements(tmp_path, monkeypatch):
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
def test_weights_for_an_extractor_without_weights_are_an_error(name):
    with raising(UsageError, "weights-unused", "takes no weights file"):
        load_extractor(name, weights="vgg.pth")


def test_weights_may_belong_to_a_network_used_only_for_fakes(sides):
    import genpr

    options = {"extractor": "gabor", "weights": __file__, "control": False, "device": "cpu"}
    with raising(WeightsError, "weights-hash"):  # the file is read as weights of Inception
        genpr.score(*sides, metrics=["is", "precision"], **options)
    with raising(UsageError, "weights-unused"):
        genpr.score(*sides, metrics=["precision"], **options)


def test_missing_torchvision_is_an_error_only_where_it_is_needed(monkeypatch, sides):
    import genpr

    monkeypatch.setitem(sys.modules, "torchvision", None)  # its import fails from here on
    options = {"device": "cpu", "control": False, "intervals": False, "k": 3}
    result = genpr.score(sides[0], sides[0], extractor="gabor", **options)
    assert result["precision"] == 1
    monkeypatch.setitem(sys.modules, "timm", None)  # which imports torchvision
    with raising(ResourceError, "broken-library", r"timm.*torchvision"):
        load_extractor("timm:resnet18", device="cpu")


@pytest.mark.parametrize(
    ("message", "kind"),
    [("operator torchvision::nms does not exist", ResourceError), ("a bug of ours", RuntimeError)],
)
def test_incompatible_torchvision_is_distinguished_from_other_errors(monkeypatch, message, kind):
    def importing(_name):
        raise RuntimeError(message)

    monkeypatch.setattr("genpr.features.registry.import_module", importing)
    with pytest.raises(kind, match=message) as caught:
        load_extractor("timm:resnet18", device="cpu")
    assert getattr(caught.value, "code", None) == ("broken-library" if kind is ResourceError else None)
