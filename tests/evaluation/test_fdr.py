import pickle

import numpy as np
import pytest
import torch
from raising import raising

from genpr import Evaluator, score, score_panel
from genpr.cli.main import run
from genpr.errors import UsageError
from genpr.evaluation.protocols import find_protocol
from genpr.features.registry import canonical_name, load_extractor, parse_name
from genpr.features.representations import FDR6, frechet_ratios
from genpr.features.statistics import read_statistics
from genpr.metrics.frechet import frechet_distance

# eval_all_fds.py of FD-loss: FDR_VALIDATION_FD and sizes; what is pooled, and the mean that timm's configurations must have.
IMAGENET, CLIP = (0.485, 0.456, 0.406), (0.48145466, 0.4578275, 0.40821073)
RECIPES = {
    "inception": (1.68, None, None, None),
    "convnext": (56.87, 224, "mean", IMAGENET),
    "dinov2": (14.19, 256, "cls", IMAGENET),
    "mae": (0.04, 224, "cls", IMAGENET),
    "siglip": (0.60, 224, "map", (0.5, 0.5, 0.5)),
    "clip": (5.60, 256, "cls", CLIP),
}
PUBLISHED = {name: recipe[0] for name, recipe in RECIPES.items()}
DISTANCES = {"inception": 3.36, "convnext": 56.87, "dinov2": 28.38, "mae": 0.02, "siglip": 0.3, "clip": 0.0}


def test_ratios_and_their_mean_equal_hand_computed_values():
    found = frechet_ratios(DISTANCES)
    expected = {"inception": 2, "convnext": 1, "dinov2": 2, "mae": 0.5, "siglip": 0.5, "clip": 0}
    assert found.ratios == pytest.approx(expected, rel=1e-12)
    assert found.mean == pytest.approx(1, rel=1e-12)
    assert list(found.ratios) == list(PUBLISHED)
    low = 3.36 / 1.685 + 56.87 / 56.875 + 28.38 / 14.195 + 0.02 / 0.045 + 0.3 / 0.605
    high = 3.36 / 1.675 + 56.87 / 56.865 + 28.38 / 14.185 + 0.02 / 0.035 + 0.3 / 0.595
    assert (6 * found.low, 6 * found.high) == pytest.approx((low, high), rel=1e-12)


@pytest.mark.parametrize(
    "change", [{"mae": None}, {"vgg16": 1.0}, {"mae": float("nan")}, {"clip": -1e-3}, {"clip": "1"}]
)
def test_fdr6_needs_six_distances(change):
    distances = {name: value for name, value in {**DISTANCES, **change}.items() if value is not None}
    with pytest.raises(UsageError):
        frechet_ratios(distances)


@pytest.mark.parametrize("found", FDR6, ids=lambda each: each.name)
def test_representations_equal_those_of_fd_loss(found):
    import timm

    name, model = parse_name(found.extractor), found.extractor.partition("@")[0].removeprefix("timm:")
    config = timm.get_pretrained_cfg(model) if name.side else None
    mean = None if config is None else config.mean
    assert (found.validation_fd, name.side, name.pooling, mean) == RECIPES[found.name]
    assert canonical_name(found.extractor) == found.extractor
    if name.side:
        assert (name.resize, name.precision) == ("torch-bicubic-antialias", "float32")
        assert f"_t{name.side}_" in found.statistics


@pytest.mark.parametrize("kind", ["pickle", "folder"])
def test_moments_of_fd_loss_are_found_by_their_names(kind, tmp_path):
    arrays = {each.statistics: {"mu": np.full(3, 1.0 * i), "sigma": np.eye(3)} for i, each in enumerate(FDR6)}
    path = tmp_path / "paper_ref_stats.pkl"
    if kind == "pickle":
        arrays["jit_in256_stats.npz"] = {"mu": np.ones(3), "sigma": np.eye(3)}
        path.write_bytes(pickle.dumps(arrays))
    else:
        path = tmp_path
        for name, part in arrays.items():
            np.savez(path / name, **part)
    found = read_statistics(path)
    moments = [next(each for each in found.moments if each.is_of(one.extractor, None)) for one in FDR6]
    assert [each.mean[0] for each in moments] == list(range(6))


FACTORY = """
import torch

class Projection:
    def __init__(self, seed):
        self.name, self.dim, self.cache_key = f"projection {seed}", 4, str(seed)
        self.weights = torch.randn(3 * 16 * 16, 4, generator=torch.Generator().manual_seed(seed)) / 400

    def __call__(self, images):
        return images.flatten(1).float() @ self.weights + 8

"""


@pytest.fixture
def small_fdr6(change_protocol, tmp_path):
    """The protocol with six random projections, and these by name, as functions to (n, 4) float64 features."""
    code = [FACTORY, *(f"def of_{seed}():\n    return Projection({seed})\n" for seed in range(6))]
    path = tmp_path / "six.py"
    path.write_text("\n".join(code))
    panel = {name: f"{path}:of_{seed}" for seed, name in enumerate(PUBLISHED)}
    change_protocol("fdr6", panel=panel, prepare=None)
    change_protocol("mind6", panel=panel, prepare=None, n_real=30, n_fake=30)
    return {name: load_extractor(each, device="cpu") for name, each in panel.items()}, panel


def test_fdr6_of_a_file_of_moments(small_fdr6, write_images, rng, tmp_path, capsys):
    extractors, panel = small_fdr6
    sides = [rng.integers(0, most, (n, 16, 16, 3), dtype=np.uint8) for n, most in ((30, 256), (40, 200))]
    expected, arrays = {}, {}
    for name, extractor in extractors.items():
        images = (torch.from_numpy(side).permute(0, 3, 1, 2) for side in sides)
        real, fake = (extractor(each).double().numpy() for each in images)
        expected[name] = frechet_distance(real, fake) / PUBLISHED[name]
        mu, sigma = real.mean(axis=0), np.cov(real, rowvar=False)
        arrays[f"{panel[name]}.npz"] = {"mu": mu, "sigma": sigma, "avg_mu": mu, "avg_sigma": sigma}
    path, fakes, page = tmp_path / "stats.pkl", write_images("fake", sides[1]), tmp_path / "page.html"
    path.write_bytes(pickle.dumps(arrays))
    command = ["score", "--protocol", "fdr6", path, fakes, "--device", "cpu", "--html", page]
    assert run([*map(str, command)]) == 0
    shown = capsys.readouterr().out
    assert f"FDr6 {np.mean([*expected.values()]):.4g}"[:9] in shown
    assert "FDr6" in page.read_text()
    assert shown.count("mean and covariance") == 2, "what REAL is, and which metrics compare with it"
    found = score_panel(path, fakes, protocol="fdr6", device="cpu")
    assert found.fdr6.ratios == pytest.approx(expected, rel=1e-6)
    assert found.to_dict()["fdr6"]["mean"] == pytest.approx(np.mean([*expected.values()]), rel=1e-6)
    real = write_images("real", sides[0])
    both = score_panel(
        real, fakes, protocol="fdr6", device="cpu", metrics=["fd", "mind"], reference_statistics=path
    )
    assert f"FDr6 is between {found.fdr6.low:.2f} and {found.fdr6.high:.2f}" in " ".join(shown.split())
    assert both.fdr6 == found.fdr6
    assert not any(both.ratios.values()), "halves of the images do not give intervals for the moments"
    assert all(each["mind"] > 0 for each in both.values())
    own = score_panel(real, fakes, protocol="fdr6", device="cpu", control=False)
    assert own.fdr6.mean == pytest.approx(found.fdr6.mean, rel=1e-6)
    [unmet] = [each.message for each in own["mae"].notices if each.code == "protocol-not-met"]
    assert "published statistics" in unmet
    part = score_panel(path, fakes, extractors={"mae": panel["mae"]}, protocol="fdr6", device="cpu")
    assert part.fdr6 is None
    other = score_panel(real, fakes, extractors=panel, metrics=["fd"], device="cpu", control=False)
    assert (list(other), other.fdr6) == (list(panel), None)


def sliced(real, fake):
    """MIND of equally many rows by its definition: 3 d times the mean of squared differences of sorted projections."""
    d = real.shape[1]
    units = torch.randn(1000, d, generator=torch.Generator().manual_seed(2020)).double()
    units /= units.norm(dim=1, keepdim=True)
    ordered = [np.sort(side @ units.numpy().T, axis=0) for side in (real, fake)]
    return 3 * d * np.square(ordered[0] - ordered[1]).mean()


def test_mind6_has_the_six_distances_to_the_reals(small_fdr6, write_images, rng, capsys):
    """End2End-Diffusion/diffusionbench-evals: mind6 are six values, of which no mean is defined."""
    extractors, _ = small_fdr6
    sides = [rng.integers(0, most, (30, 16, 16, 3), dtype=np.uint8) for most in (256, 200)]
    real, fake = (str(write_images(name, side)) for name, side in zip(("real", "fake"), sides, strict=True))
    found = score_panel(real, fake, protocol="mind6", device="cpu")
    assert list(found) == [*extractors]
    for name, extractor in extractors.items():
        rows = [extractor(torch.from_numpy(side).permute(0, 3, 1, 2)).double().numpy() for side in sides]
        assert [*found[name].metrics] == ["mind"]
        assert found[name]["mind"] == pytest.approx(sliced(*rows), rel=1e-6)
        assert found[name].metrics["mind"].variant is None
        assert not found[name].deviations
    assert (found.fdr6, found.to_dict()["fdr6"]) == (None, None)
    assert run(["score", real, fake, "--protocol", "mind6", "--device", "cpu", "--no-control"]) == 0
    assert capsys.readouterr().out.count("mind") >= 6
    fewer = score_panel(sides[0][:20], sides[1], protocol="mind6", device="cpu", control=False)
    assert "20 real images where mind6 needs 30" in fewer["mae"].deviations


@pytest.mark.parametrize("protocol", ["fdr6", "mind6"])
def test_panels_of_protocols_pin_their_extractors(protocol, rng):
    images = rng.integers(0, 256, (4, 8, 8, 3), dtype=np.uint8)
    with raising(UsageError, "protocol-panel"):
        score(images, images, protocol=protocol)
    with raising(UsageError, "protocol-panel"):
        Evaluator(images, protocol=protocol)
    assert dict(find_protocol(protocol).panel) == {each.name: each.extractor for each in FDR6}
    for other in (
        {"extractors": ["gabor"]},
        {"extractors": ["timm:vit_large_patch16_224.mae"]},
        {"metrics": ["fid"]},
    ):
        with raising(UsageError, "protocol-pinned"):
            score_panel(images, images, protocol=protocol, **other)
