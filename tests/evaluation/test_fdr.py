import pytest

from genpr.errors import UsageError
from genpr.evaluation.fdr import frechet_ratios
from genpr.features.registry import canonical_name, parse_name
from genpr.features.representations import FDR6

# FDR_VALIDATION_FD of FD-loss, eval_all_fds.py, and what timm's configurations must say of its models.
PUBLISHED = {"inception": 1.68, "convnext": 56.87, "dinov2": 14.19, "mae": 0.04, "siglip": 0.60, "clip": 5.60}
COLORS = {"siglip": (0.5, 0.5, 0.5), "clip": (0.48145466, 0.4578275, 0.40821073)}
DISTANCES = {"inception": 3.36, "convnext": 56.87, "dinov2": 28.38, "mae": 0.02, "siglip": 0.3, "clip": 0.0}


def test_ratios_and_their_mean_are_those_computed_by_hand():
    found = frechet_ratios(DISTANCES)
    expected = {"inception": 2, "convnext": 1, "dinov2": 2, "mae": 0.5, "siglip": 0.5, "clip": 0}
    assert found.ratios == pytest.approx(expected, rel=1e-12)
    assert found.mean == pytest.approx(1, rel=1e-12)
    assert list(found.ratios) == list(PUBLISHED)
    low = 3.36 / 1.685 + 56.87 / 56.875 + 28.38 / 14.195 + 0.02 / 0.045 + 0.3 / 0.605
    high = 3.36 / 1.675 + 56.87 / 56.865 + 28.38 / 14.185 + 0.02 / 0.035 + 0.3 / 0.595
    assert (6 * found.low, 6 * found.high) == pytest.approx((low, high), rel=1e-12)


@pytest.mark.parametrize("change", [{"mae": None}, {"vgg16": 1.0}, {"mae": float("nan")}, {"clip": -1e-3}])
def test_fdr6_needs_six_distances(change):
    distances = {name: value for name, value in {**DISTANCES, **change}.items() if value is not None}
    with pytest.raises(UsageError):
        frechet_ratios(distances)


@pytest.mark.parametrize("found", FDR6, ids=lambda each: each.name)
def test_representations_are_those_of_fd_loss(found):
    import timm

    assert found.validation_fd == PUBLISHED[found.name]
    assert canonical_name(found.extractor) == found.extractor
    name = parse_name(found.extractor)
    if found.name == "inception":
        return
    config = timm.get_pretrained_cfg(name.base.removeprefix("timm:"))
    assert config is not None
    assert config.mean == COLORS.get(found.name, (0.485, 0.456, 0.406))
    sides = {"convnext": 224, "dinov2": 256, "mae": 224, "siglip": 224, "clip": 256}
    poolings = {"convnext": "mean", "siglip": "map"}
    assert (name.side, name.pooling) == (sides[found.name], poolings.get(found.name, "cls"))
    assert (name.resize, name.precision) == ("torch-bicubic-antialias", "float32")
    assert f"_t{name.side}_" in found.statistics
