"""Defects of other packages, each shown twice: that the installed version has it, and that genpr does not.

A test whose first half fails tells that a peer was repaired, not that genpr is wrong: take that half out.
Not shown, since it would take weights, a GPU or minutes: prdc's index matrix of 20 GB at 50,000 rows, torch-fidelity's
distances that are computed on the CPU whatever the device, clean-fid's unseeded KID.
"""

from __future__ import annotations

import zipfile

import numpy as np
import oracle
import pytest
import torch
from PIL import Image

import genpr
from genpr.features.cache import FeatureCache
from genpr.features.custom import extractor_info, wrap_extractor
from genpr.features.embed import embed_source
from genpr.images.source import open_source
from genpr.metrics.manifold import manifold_metrics, precision_recall

METRICS = ("precision", "recall", "density", "coverage")


def _prdc(real, fake, k):
    prdc = pytest.importorskip("prdc")
    values = prdc.compute_prdc(real, fake, nearest_k=k)
    return tuple(float(values[name]) for name in METRICS)


def _torch_fidelity(real, fake, k=3):
    metric_prc = pytest.importorskip("torch_fidelity.metric_prc")
    options = {"prc_neighborhood": k, "prc_batch_size": 1000, "save_cpu_ram": False, "verbose": False}
    values = metric_prc.prc_features_to_metric(torch.from_numpy(fake), torch.from_numpy(real), **options)
    return values["precision"], values["recall"]


def _piq(real, fake, k):
    pr = pytest.importorskip("piq.pr")
    return tuple(
        map(float, pr.PR(nearest_k=k).compute_metric(torch.from_numpy(real), torch.from_numpy(fake)))
    )


# Balls ------------------------------------------------------------------------------------------------------------


def test_piq_compares_recall_with_the_radii_of_the_reals_too():
    # Reals 0, 2, 4, 6 have radius 2 at k = 1, the fakes 8, 8.5, 9 have 0.5. The real 6 is 2 from the fake 8: on
    # the sphere of the real ball, far outside every fake ball.
    real = np.array([[0.0], [2], [4], [6]], dtype=np.float32)
    fake = np.array([[8.0], [8.5], [9]], dtype=np.float32)
    assert _piq(real, fake, 1)[1] == 0.25
    assert precision_recall(real, fake, k=1).recall == 0


def test_prdc_loses_points_on_the_sphere():
    same = np.full((20, 4), 2.5)
    sixfold = np.repeat(np.arange(10.0)[:, None], 6, axis=0)  # all radii are 0
    for features, density in ((same, 20 / 5), (sixfold, 6 / 5)):
        assert _prdc(features, features, 5) == (0, 0, 0, 0)
        assert manifold_metrics(features, features, k=5) == (1, 1, density, 1)


def test_prdc_needs_one_row_more_than_the_definition(rng):
    real, fake = rng.normal(size=(2, 6, 3))
    with pytest.raises((IndexError, ValueError)):
        _prdc(real, fake, 5)
    assert manifold_metrics(real, fake, k=5, ties="strict") == oracle.manifold_metrics(
        real.astype(np.float32), fake.astype(np.float32), 5, "strict"
    )


def _off_center(rng):
    """Distances of about 1 at a distance of 2,000 from the origin."""
    return tuple((250 + 0.1 * rng.normal(size=(n, 64))).astype(np.float32) for n in (300, 280))


@pytest.mark.parametrize("peer", ["torch-fidelity", "piq"])
def test_float32_products_lose_what_is_far_from_the_origin(peer, rng):
    real, fake = _off_center(rng)
    exact = oracle.manifold_metrics(real, fake, 3)[:2]
    theirs = {"torch-fidelity": _torch_fidelity, "piq": _piq}[peer](real, fake, 3)
    assert max(abs(one - other) for one, other in zip(theirs, exact, strict=True)) > 0.05
    assert precision_recall(real, fake, k=3) == exact


def test_products_of_float32_move_a_copy_off_its_sphere(rng):
    # Every fake is a real's nearest neighbor, bit for bit, so it lies on that sphere: inside, as balls are closed.
    # torch-fidelity computes the distance twice, in products of different shapes.
    real = rng.normal(3, 1, (400, 96)).astype(np.float32)
    nearest = oracle.sq_distances(real, real)
    np.fill_diagonal(nearest, np.inf)
    index = np.unique(nearest.argmin(axis=1))
    fake = real[index]
    metric_prc = pytest.importorskip("torch_fidelity.metric_prc")
    x, y = torch.from_numpy(real), torch.from_numpy(fake)
    itself = metric_prc.calc_cdist_full(x, x).diagonal()
    across = metric_prc.calc_cdist_full(x, y)[torch.from_numpy(index), torch.arange(len(index))]
    assert (itself > 1e-4).any(), "a row is at a distance from itself"
    assert (across > 1e-4).any(), "and from its copy"
    assert precision_recall(real, fake, k=1).precision == 1


@pytest.mark.parametrize("k", [3, 5])
def test_a_k_that_counts_the_row_itself_is_another_k(k, rng):
    # FLD takes the k-th of all distances, its own 0 among them: its "k = 5" is everybody's k = 4.
    real, fake = rng.normal(size=(2, 300, 16)).astype(np.float32)
    x, y = torch.from_numpy(real).double(), torch.from_numpy(fake).double()
    radii = torch.cdist(x, x).topk(k, largest=False).values[:, -1]
    counting_itself = float((torch.cdist(y, x) < radii).any(dim=1).double().mean())
    assert precision_recall(real, fake, k=k).precision > counting_itself + 0.03
    assert precision_recall(real, fake, k=k - 1).precision == pytest.approx(counting_itself, abs=1e-12)
    assert precision_recall(real, fake, k=k).precision == oracle.manifold_metrics(real, fake, k)[0]


def test_precision_and_recall_are_not_swapped(rng):
    # torch-fidelity gave them out swapped before 0.4.0, and a fork in wide use does so still.
    real, dropped, noise = (
        rng.normal(0, 3, (400, 8)),
        0.1 * rng.normal(size=(400, 8)),
        30 * rng.normal(size=(400, 8)),
    )
    real, dropped, noise = (features.astype(np.float32) for features in (real, dropped, noise))
    for score in (_torch_fidelity, precision_recall):
        assert tuple(score(real, dropped)) == (1, 0)
        precision, recall = score(real, noise)
        assert precision < 0.05
        assert recall > 0.95


# Files and caches --------------------------------------------------------------------------------------------------


@pytest.fixture
def mixed_folder(tmp_path, rng):
    """Ten small PNGs: four with upper-case extensions, three in a folder within, and not all of one size."""
    folder = tmp_path / "mixed"
    (folder / "within").mkdir(parents=True)
    names = (
        [f"{i}.png" for i in range(3)]
        + [f"{i}.PNG" for i in range(3, 7)]
        + [f"within/{i}.png" for i in range(3)]
    )
    for index, name in enumerate(names):
        pixels = rng.integers(0, 256, (20 + index % 2, 20, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / name)
    return folder


class _Mean(torch.nn.Module):
    """A network in the interface of pytorch-fid."""

    def forward(self, batch):
        return [batch.mean(dim=(2, 3), keepdim=True)]


def test_pytorch_fid_misses_upper_case_extensions_and_folders_and_stops_at_mixed_sizes(
    mixed_folder, monkeypatch
):
    fid_score = pytest.importorskip("pytorch_fid.fid_score")
    options = {"batch_size": 2, "dims": 3, "device": "cpu", "num_workers": 0}
    with pytest.raises(RuntimeError, match="stack expects each tensor to be equal size"):
        fid_score.compute_statistics_of_path(str(mixed_folder), _Mean(), **options)
    (mixed_folder / "1.png").unlink()  # the one of another size among those that it sees
    seen = []
    monkeypatch.setattr(
        fid_score, "get_activations", lambda names, *_args: seen.extend(names) or np.zeros((2, 3))
    )
    fid_score.compute_statistics_of_path(str(mixed_folder), _Mean(), **options)
    assert sorted(path.name for path in seen) == ["0.png", "2.png"]

    extractor = genpr.load_extractor("gabor", device="cpu")
    assert genpr.embed(mixed_folder, extractor).shape == (9, extractor.dim)
    result = genpr.score(mixed_folder, mixed_folder, extractor="gabor", device="cpu", k=3)
    assert (result["precision"], result["recall"]) == (1, 1)


def test_clean_fid_takes_images_from_a_zip_in_the_order_of_a_set(tmp_path):
    # That order changes from run to run; with a limit on their number, another run scores other images.
    fid = pytest.importorskip("cleanfid.fid")
    path = tmp_path / "images.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for gray in range(40):
            Image.new("RGB", (16, 16), (gray, gray, gray)).save(tmp_path / "one.png")
            archive.write(tmp_path / "one.png", f"{gray:02d}.png")
    features = fid.get_folder_features(
        str(path),
        model=lambda batch: batch.mean(dim=(1, 2, 3))[:, None],
        num_workers=0,
        device=torch.device("cpu"),
        custom_fn_resize=lambda image: image,
        verbose=False,
    )
    grays = features[:, 0].round().astype(int).tolist()
    assert sorted(grays) == list(range(40))
    assert grays != sorted(grays)

    names = [item.name for item in open_source(path)]
    assert names == sorted(names)
    assert len(names) == 40


class _Scaled(torch.nn.Module):
    """A network whose only weight is a factor."""

    dim, cache_key = 3, "scaled"

    def __init__(self, factor):
        super().__init__()
        self.factor = torch.nn.Parameter(torch.tensor(float(factor)))

    def forward(self, images):
        return self.factor.detach() * images.float().mean(dim=(2, 3))


def _extractor(factor):
    """That network for torch-fidelity."""
    base = pytest.importorskip("torch_fidelity.feature_extractor_base")

    class Extractor(base.FeatureExtractorBase):
        def __init__(self):
            super().__init__("scaled", ["pool"])
            self.network = _Scaled(factor)

        @staticmethod
        def get_provided_features_list():
            return ("pool",)

        def forward(self, images):
            return (self.network(images),)

    return Extractor()


def test_torch_fidelity_reads_features_of_other_weights_from_its_cache(
    tmp_path, write_images, rng, monkeypatch
):
    utils = pytest.importorskip("torch_fidelity.utils")
    folder = write_images("images", rng.integers(0, 256, (5, 16, 16, 3), dtype=np.uint8))
    options = {
        "input1": str(folder),
        "input1_cache_name": "images",
        "cache_root": str(tmp_path / "theirs"),
        "cuda": False,
        "verbose": False,
        "save_cpu_ram": True,  # loads images without processes
    }
    one, two = (
        utils.extract_featuresdict_from_input_id_cached(1, _extractor(factor), **options)["pool"]
        for factor in (1, 2)
    )
    assert torch.equal(one, two), "the second network was never run"

    one, two = (
        embed_source(
            open_source(folder),
            wrap_extractor(network),
            cache=FeatureCache(tmp_path / "ours", extractor_info(network), "cpu"),
        ).features
        for network in (_Scaled(1), _Scaled(2))
    )
    assert torch.equal(2 * one, two)


def test_torch_fidelity_cannot_draw_from_a_conditional_generator():
    # It asks numpy for `np.int`, which numpy removed in 1.24.
    utils = pytest.importorskip("torch_fidelity.utils")
    wrapper = pytest.importorskip("torch_fidelity.generative_model_modulewrapper")
    generator = wrapper.GenerativeModelModuleWrapper(torch.nn.Identity(), 4, "normal", 10)
    extractor = _extractor(1)
    with pytest.raises(AttributeError, match=r"np\.int"):
        utils.get_featuresdict_from_generative_model(generator, extractor, 4, 2, False, 0, False)


class _Seeing(torch.nn.Module):
    num_features = 3

    def forward(self, images):
        self.images = images
        return torch.zeros(len(images), 3)


@pytest.mark.filterwarnings("ignore:Metric `Kernel Inception Distance` will save:UserWarning")
def test_torchmetrics_darkens_images_that_it_is_given_as_floats():
    # It cuts off 255 x, so that pixels that came back from [-1, 1] lose a gray level. genpr asks for uint8 instead.
    kid = pytest.importorskip("torchmetrics.image.kid")
    gray = torch.arange(256, dtype=torch.uint8)
    back = (gray.float() / 127.5 - 1 + 1) / 2
    pixels = back.expand(1, 3, 1, 256)
    assert (pixels * 255).round().byte().equal(gray.expand(1, 3, 1, 256))
    metric = kid.KernelInceptionDistance(feature=_Seeing(), subset_size=2, normalize=True)
    metric.used_custom_model = False  # treat it as the network that comes with the package
    metric.update(pixels, real=True)
    assert (metric.inception.images[0, 0, 0] != gray).sum() > 30

    with pytest.raises(genpr.GenprError, match="uint8"):
        genpr.embed(pixels, genpr.load_extractor("gabor", device="cpu"))
