"""Out of memory on a GPU or CPU at any step: smaller steps, then the CPU, then an error; counts never change."""

import numpy as np
import pytest
import torch
from public_calls import PUBLIC
from raising import raising

import genpr
from genpr.errors import ResourceError
from genpr.features.custom import wrap_extractor
from genpr.features.embed import embed_source
from genpr.images.source import open_source
from genpr.neighbors import engine
from genpr.neighbors.engine import Engine, Tiles
from genpr.notices import collect_notices

CPU_WORDS = "[enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes. Error code 12 (Cannot allocate memory)"
ERRORS = {
    "cuda": torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
    "cublas": RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    "driver": RuntimeError("CUDA error: out of memory"),
    "cpu": RuntimeError(CPU_WORDS),
    "c++": RuntimeError("std::bad_alloc"),
    "python": MemoryError(),
}
LIBRARIES = (
    *("CUBLAS_STATUS_NOT_INITIALIZED", "CUDNN_STATUS_INTERNAL_ERROR", "CUDNN_STATUS_NOT_INITIALIZED"),
    *("CUDNN_STATUS_ALLOC_FAILED", "CUDA_ERROR_OUT_OF_MEMORY", "CUFFT_ALLOC_FAILED", "CUFFT_INTERNAL_ERROR"),
    *("CUSOLVER_STATUS_INTERNAL_ERROR, when calling `cusolverDnCreate(handle)`", "unable to find an engine"),
)
ERRORS |= {text: RuntimeError(f"error: {text}") for text in LIBRARIES}
OPTIONS = {"extractor": "pixels", "control": False, "intervals": False, "k": 3, "cache": False}


class LimitedExtractor:
    """Channel means that fail for more than `most` images at once."""

    name, dim = "hungry", 3

    def __init__(self, most, error, *, thread_safe=False):
        self.most, self.error, self.thread_safe = most, error, thread_safe
        self.sizes = []

    def __call__(self, images):
        self.sizes.append(len(images))
        if len(images) > self.most:
            raise self.error
        return images.float().mean((2, 3))


@pytest.mark.parametrize(("name", "thread_safe"), [*((name, False) for name in ERRORS), ("cpu", True)])
def test_batches_are_halved_on_any_out_of_memory_error(sides, monkeypatch, name, thread_safe):
    monkeypatch.setattr("genpr.features.embed.usable_cores", lambda: 4)
    extractor = LimitedExtractor(3, ERRORS[name], thread_safe=thread_safe)
    with collect_notices() as reported:
        (found,) = embed_source(open_source(sides[0]), [(wrap_extractor(extractor), None)], batch_size=16)
    (plain,) = embed_source(
        open_source(sides[0]), [(wrap_extractor(LimitedExtractor(99, None)), None)], batch_size=2
    )
    assert torch.equal(found.features, plain.features)
    assert {2} <= set(extractor.sizes) <= {16, 8, 4, 2}
    (notice,) = reported
    assert (notice.code, notice.message) == (
        "oom-smaller-batches",
        "cpu was low on memory; the batch size was reduced from 16 to 2",
    )


def test_too_little_memory_for_one_image_is_an_error(sides):
    with raising(ResourceError, "oom", r"out of memory for one image of \(8, 8\) pixels"):
        embed_source(
            open_source(sides[0]), [(wrap_extractor(LimitedExtractor(0, ERRORS["cpu"])), None)], batch_size=4
        )


def counts(result):
    return {name: metric.value for name, metric in result.metrics.items()}


def scored(real, fake):
    return genpr.score(real, fake, control=False, intervals=False, device="cpu")


def test_search_that_runs_out_of_memory_at_any_step_gives_the_same_counts(rng, monkeypatch):
    real, fake = rng.normal(size=(2, 120, 6)).astype(np.float32)
    plain = scored(real, fake)
    whole, steps = Tiles.products, 0

    def failing(at):
        def products(self, left, right):
            nonlocal steps
            steps += 1
            if steps == at:
                raise ERRORS["cuda" if at % 2 else "cpu"]
            return whole(self, left, right)

        return products

    for at in range(1, 100):
        steps = 0
        monkeypatch.setattr(Tiles, "products", failing(at))
        found = scored(real, fake)
        assert counts(found) == counts(plain)
        reported = [item.code for item in found.notices]
        if steps < at:
            break
        assert reported.count("oom-smaller-tiles") == 1
    assert at > 3, "several steps were tried"
    assert "oom-smaller-tiles" not in reported


def test_tiles_are_reduced_if_memory_is_insufficient(rng, monkeypatch):
    most = 300
    real, fake = rng.normal(size=(2, 90, 6)).astype(np.float32)
    plain = scored(real, fake)
    whole = engine.Tiles

    def allocate(rows, columns, *memory):
        if rows * columns > most:
            raise ERRORS["cpu"]
        return whole(rows, columns, *memory)

    monkeypatch.setattr(engine, "Tiles", allocate)
    for is_whole in (False, True):
        tiles = Engine().tiles(8, torch.device("cpu"), 90, 90, whole=is_whole)
        assert tiles.rows * tiles.columns <= most
    found = scored(real, fake)
    assert counts(found) == counts(plain)
    assert "oom-smaller-tiles" in {item.code for item in found.notices}


@pytest.fixture
def full_gpu(gpu):
    """Fill the memory of the GPU."""
    if gpu is None:
        pytest.skip("a real GPU has more memory than these features need")
    genpr.precision_recall(np.eye(5), np.eye(5), k=1, device="cuda")  # the GPU is tried before
    return lambda: setattr(gpu, "limit", 0)


@pytest.mark.gpu
@pytest.mark.parametrize("is_late", [False, True])
@pytest.mark.parametrize("has_features", [False, True])
def test_auto_device_falls_back_to_the_cpu(sides, full_gpu, is_late, has_features):
    given = np.random.default_rng(0).normal(size=(2, 200, 9)).astype(np.float32) if has_features else sides
    options = {**OPTIONS, "extractor": None} if has_features else OPTIONS
    plain = genpr.score(*given, device="cpu", **options)
    if not is_late:
        full_gpu()
    evaluator = genpr.Evaluator(given[0], device="auto", **options)
    if is_late:
        assert counts(evaluator.score(given[1])) == counts(plain)
        full_gpu()
    for result in [evaluator.score(given[1]) for _ in range(2)]:
        assert counts(result) == counts(plain)
        reported = [item.message for item in result.notices if item.code == "oom-cpu"]
        what = "for the metrics" if has_features else f"for {'fake' if is_late else 'real'} images"
        assert f"cuda ran out of memory {what}; the CPU was used instead" in reported


@pytest.mark.gpu
def test_evaluator_is_fitted_again_after_a_fallback_without_memory(full_gpu, monkeypatch):
    given = np.random.default_rng(0).normal(size=(2, 200, 9)).astype(np.float32)
    options = {**OPTIONS, "extractor": None}
    evaluator = genpr.Evaluator(given[0], device="auto", **options)
    full_gpu()
    with monkeypatch.context() as patch, raising(ResourceError, "oom"):
        patch.setattr("genpr.evaluation.reference.NeighborMetrics", lambda *_, **__: list(range(2**60)))
        evaluator.score(given[1])
    assert counts(evaluator.score(given[1])) == counts(genpr.score(*given, device="cpu", **options))


@pytest.mark.gpu
@pytest.mark.parametrize("name", sorted({*PUBLIC} - {"callback", "generator", "torchmetrics"}))
def test_public_functions_raise_the_same_error_on_a_full_gpu(gpu, tmp_path, name):
    if gpu is None:
        pytest.skip("a real GPU cannot be filled alone")
    gpu.limit = 2000
    with raising(ResourceError, "oom"):
        PUBLIC[name]({"device": "cuda"}, tmp_path)


@pytest.mark.gpu
def test_each_network_of_a_panel_falls_back_to_the_cpu(sides, full_gpu):
    options = {"extractors": ["pixels", "gabor"], "metrics": ["precision"], "k": 3, "cache": False}
    plain = genpr.score_panel(*sides, device="cpu", **options)
    full_gpu()
    panel = genpr.score_panel(*sides, device="auto", **options)
    for name, result in panel.items():
        assert counts(result) == counts(plain[name])
        assert "oom-cpu" in {item.code for item in result.notices}
