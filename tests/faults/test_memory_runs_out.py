"""Memory that runs out, on a GPU or a CPU, at any step: less at a time, then the CPU, then one line; never other counts."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys

import numpy as np
import pytest
import torch

import genpr
from genpr.conditional import align, copies
from genpr.errors import ResourceError
from genpr.evaluation import modes, reference
from genpr.evaluation import per_class as class_scoring
from genpr.features import source_features as embedding
from genpr.features.custom import wrap_extractor
from genpr.features.embed import embed_source, forward_pass
from genpr.features.options import EmbedOptions
from genpr.images.source import open_source
from genpr.neighbors.engine import Engine, Tiles
from genpr.neighbors.index import ViewSearch
from genpr.notices import collect_notices
from genpr.runtime import is_out_of_memory


class Colors:
    """Mean colors, and the color that a text names."""

    name, dim = "colors", 3

    def __call__(self, images):
        return images.float().mean((2, 3))

    def encode_text(self, texts):
        known = {"red": [1.0, 0, 0], "blue": [0, 0, 1.0]}
        return torch.tensor([known[text] for text in texts])


CPU_WORDS = "[enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes. Error code 12 (Cannot allocate memory)"
ERRORS = {
    "cuda": torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
    "cublas": RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    "driver": RuntimeError("CUDA error: out of memory"),
    "cpu": RuntimeError(CPU_WORDS),
    "c++": RuntimeError("std::bad_alloc"),
    "python": MemoryError(),
}
OPTIONS = {"extractor": "pixels", "control": False, "intervals": False, "k": 3, "cache": False}


class Hungry:
    """Channel means, for as many images at once as `most`."""

    name, dim = "hungry", 3

    def __init__(self, most, error, *, thread_safe=False):
        self.most, self.error, self.thread_safe = most, error, thread_safe
        self.sizes = []

    def __call__(self, images):
        self.sizes.append(len(images))
        if len(images) > self.most:
            raise self.error
        return images.float().mean((2, 3))


@pytest.fixture
def images(write_images, rng):
    return write_images("images", rng.integers(0, 256, (50, 8, 8, 3), dtype=np.uint8))


@pytest.fixture
def sides(write_images, rng):
    return [
        write_images(name, rng.integers(0, 256, (40, 8, 8, 3), dtype=np.uint8)) for name in ("real", "fake")
    ]


@pytest.mark.parametrize(
    "make", [lambda: torch.empty(2**50), lambda: np.empty(2**50)], ids=["torch", "numpy"]
)
def test_what_libraries_raise_of_this_machine_is_known(make):
    with pytest.raises((RuntimeError, MemoryError)) as caught:
        make()
    assert is_out_of_memory(caught.value)


@pytest.mark.parametrize("name", ERRORS)
@pytest.mark.parametrize("thread_safe", [False, True])
def test_batches_are_halved_whatever_says_that_memory_ran_out(images, monkeypatch, name, thread_safe):
    monkeypatch.setattr("genpr.features.embed.usable_cores", lambda: 4)
    extractor = Hungry(3, ERRORS[name], thread_safe=thread_safe)
    with collect_notices() as told:
        found = embed_source(open_source(images), wrap_extractor(extractor), batch_size=16)
    plain = embed_source(open_source(images), wrap_extractor(Hungry(99, None)), batch_size=2)
    assert torch.equal(found.features, plain.features)
    assert {2} <= set(extractor.sizes) <= {16, 8, 4, 2}
    (notice,) = told
    assert (notice.code, notice.message) == (
        "oom-smaller-batches",
        "cpu had little memory: batches of 2, not 16 images",
    )


def test_a_batch_that_another_thread_halves_meanwhile_is_finished_as_it_began(rng):
    pixels = [torch.from_numpy(each) for each in rng.integers(0, 256, (11, 3, 4, 4), dtype=np.uint8)]

    class Halved(Hungry):
        def __call__(self, images):
            forward.batch_size = 2
            return super().__call__(images)

    extractor = Halved(99, None)
    with forward_pass(extractor, 8) as forward:
        found = forward(pixels)
    assert extractor.sizes == [8, 8]
    assert torch.equal(found, torch.stack(pixels).float().mean((2, 3)))


def test_too_little_for_one_image_is_said_in_one_line(images):
    with pytest.raises(
        ResourceError, match=r"no memory left for one image of \(8, 8\) pixels; free it"
    ) as caught:
        embed_source(open_source(images), wrap_extractor(Hungry(0, ERRORS["cpu"])), batch_size=4)
    assert caught.value.code == "oom"


def counts(result):
    return {name: metric.value for name, metric in result.metrics.items()}


def test_a_search_that_runs_out_of_memory_at_any_step_counts_the_same(rng, monkeypatch):
    real, fake = rng.normal(size=(2, 300, 6)).astype(np.float32)
    plain = genpr.score(real, fake, control=False, intervals=False, device="cpu")
    whole, steps = ViewSearch.above, 0

    def failing(at):
        def above(self, lowest, columns, chunk):
            nonlocal steps
            steps += len(chunk) > 1  # what cannot be less is an error
            if steps == at and len(chunk) > 1:
                raise ERRORS["cuda" if at % 2 else "cpu"]
            return whole(self, lowest, columns, chunk)

        return above

    for at in range(1, 100):
        steps = 0
        monkeypatch.setattr(ViewSearch, "above", failing(at))
        found = genpr.score(real, fake, control=False, intervals=False, device="cpu")
        assert counts(found) == counts(plain)
        told = [item.code for item in found.notices]
        if steps < at:
            break
        assert told.count("oom-smaller-tiles") == 1
    assert at > 3, "several steps were tried"
    assert "oom-smaller-tiles" not in told


@pytest.mark.parametrize("most", [300, 5000])
def test_tiles_that_cannot_be_had_are_made_smaller(rng, monkeypatch, most):
    real, fake = rng.normal(size=(2, 300, 6)).astype(np.float32)
    plain = genpr.score(real, fake, control=False, intervals=False, device="cpu")
    whole = Tiles.allocate

    def allocate(rows, columns, device):
        if rows * columns > most:
            raise ERRORS["cpu"]
        return whole(rows, columns, device)

    monkeypatch.setattr(Tiles, "allocate", allocate)
    tiles = Engine().tiles(8, torch.device("cpu"))
    assert tiles.rows * tiles.columns <= most
    found = genpr.score(real, fake, control=False, intervals=False, device="cpu")
    assert counts(found) == counts(plain)
    assert "oom-smaller-tiles" in {item.code for item in found.notices}


@pytest.fixture
def full_gpu(monkeypatch):
    """A GPU that "auto" chooses, and that has no memory for some of the work."""

    def fill(*works):
        refused = []

        def check(embedder, work):
            if embedder.device.type == "cuda" and work in works:
                refused.append(work)
                raise ERRORS["cuda"]

        resolve = embedding.resolve_device
        gpu = {"auto": torch.device("cuda"), "cuda": torch.device("cuda")}
        monkeypatch.setattr(embedding, "resolve_device", lambda on: gpu.get(on) or resolve(on))
        embed, load = embedding.Embedder.embed, embedding.load_joint

        def checked_embed(self, **given):
            check(self, f"embed {given['role']}")
            return embed(self, **given)

        class Fitted(reference.FittedMetrics):
            def __init__(self, plan, real, embedder, **rest):
                check(embedder, "fit")
                self.where = embedder
                super().__init__(plan, real, _on_cpu(embedder), **rest)

            def score(self, fake, given):
                check(self.where, "score")
                return super().score(fake, given)

        monkeypatch.setattr(embedding.Embedder, "embed", checked_embed)
        monkeypatch.setattr(reference, "FittedMetrics", Fitted)
        monkeypatch.setattr(
            embedding, "load_joint", lambda names, device, **rest: load(names, device="cpu", **rest)
        )
        return refused

    def _on_cpu(embedder):
        return embedding.Embedder(EmbedOptions(device="cpu", progress=embedder.options.progress))

    return fill


@pytest.mark.parametrize("work", ["embed real", "embed fake", "fit", "score"])
def test_where_a_gpu_has_too_little_memory_the_cpu_goes_on(sides, full_gpu, work):
    plain = genpr.score(*sides, device="cpu", **OPTIONS)
    refused = full_gpu(work)
    evaluator = genpr.Evaluator(sides[0], device="auto", **OPTIONS)
    found, again = evaluator.score(sides[1]), evaluator.score(sides[1])
    assert counts(found) == counts(again) == counts(plain)
    for result in (found, again):
        (notice,) = (item for item in result.notices if item.code == "oom-cpu")
        what = f"for {work.split()[1]} images" if work.startswith("embed") else "for the metrics"
        assert notice.message == f"cuda had too little memory {what}; the CPU did it instead"
    assert refused == [work] * (2 if work == "embed fake" else 1), "what moved to the CPU stays there"
    assert "oom-cpu" not in {item.code for item in plain.notices}


def refusing_gpus(where, name, monkeypatch, *, device):
    """Replace a function by one that has no memory on a GPU; returns the devices it was asked for."""
    function, asked = getattr(where, name), []

    def refuses(*arguments, **options):
        chosen = device(arguments, options)
        asked.append(chosen.type)
        if chosen.type == "cuda":
            raise ERRORS["cuda"]
        return function(*arguments, **options)

    monkeypatch.setattr(where, name, refuses)
    return asked


def moved(notices):
    return [item.message for item in notices if item.code == "oom-cpu"]


def test_modes_go_on_on_the_cpu(full_gpu, monkeypatch, rng):
    sides = rng.integers(0, 256, (2, 60, 8, 8, 3), dtype=np.uint8)
    options = {"extractor": "pixels", "k": 3, "cache": False}
    plain = genpr.find_modes(*sides, device="cpu", **options)
    full_gpu()
    asked = refusing_gpus(modes, "modes_of", monkeypatch, device=lambda _, options: options["device"])
    found = genpr.find_modes(*sides, device="auto", **options)
    assert asked == ["cuda", "cpu"]
    assert found.to_dict()["missed"] == plain.to_dict()["missed"]
    assert moved(found.notices) == ["cuda had too little memory for the modes; the CPU did it instead"]
    assert moved(plain.notices) == []


def test_classes_go_on_on_the_cpu(sides, full_gpu, monkeypatch):
    labels = {"real_labels": [0, 1] * 20, "fake_labels": [0, 1] * 20, "min_per_class": 5}
    plain = genpr.Evaluator(sides[0], device="cpu", **OPTIONS).score_classes(sides[1], **labels)
    full_gpu()
    device = lambda _, options: options["device"]  # noqa: E731
    asked = refusing_gpus(class_scoring, "FittedNeighbors", monkeypatch, device=device)
    found = genpr.Evaluator(sides[0], device="auto", **OPTIONS).score_classes(sides[1], **labels)
    assert asked == ["cuda", "cpu", "cpu"]
    assert [each.metrics for each in found.classes] == [each.metrics for each in plain.classes]
    assert moved(found.overall.notices) == [
        "cuda had too little memory for the classes; the CPU did it instead"
    ]


def test_alignment_goes_on_on_the_cpu(full_gpu, monkeypatch, rng):
    pixels = np.stack(
        [np.full((8, 8, 3), [255 * (n % 2), 0, 255 * (1 - n % 2)], np.uint8) for n in range(40)]
    )
    prompts, options = (
        ["red" if n % 2 else "blue" for n in range(40)],
        {"extractor": Colors(), "copies_of": pixels},
    )
    plain = genpr.align(pixels, prompts, device="cpu", **options)
    full_gpu()
    of_option = lambda _, options: options["device"]  # noqa: E731
    ranked = refusing_gpus(align, "rank_pools", monkeypatch, device=of_option)
    copied = refusing_gpus(copies, "copy_detection", monkeypatch, device=of_option)
    found = genpr.align(pixels, prompts, device="auto", **options)
    assert set(ranked) == set(copied) == {"cuda", "cpu"}
    assert {name: each.value for name, each in found.metrics.items()} == {
        name: each.value for name, each in plain.metrics.items()
    }
    assert moved(found.notices) == [
        f"cuda had too little memory for {what}; the CPU did it instead" for what in ("the ranking", "copies")
    ]


def test_who_insists_on_a_gpu_gets_an_error(sides, full_gpu):
    full_gpu("embed real")
    with pytest.raises(torch.OutOfMemoryError):
        genpr.score(*sides, device="cuda", **OPTIONS)


def test_images_that_come_once_are_not_embedded_twice(sides, full_gpu, rng):
    full_gpu("embed fake")
    once = iter([rng.integers(0, 256, (40, 8, 8, 3), dtype=np.uint8)])
    with pytest.raises(torch.OutOfMemoryError):
        genpr.score(sides[0], once, device="auto", **OPTIONS)


HUNGRY = """
import torch

class Net(torch.nn.Module):
    dim = 3

    def forward(self, images):  # 32 MiB for each
        return torch.nn.functional.interpolate(images.float(), (1672, 1672)).mean((2, 3))
"""


@pytest.mark.slow
def test_a_process_that_may_not_have_more_memory_scores_the_same(sides, tmp_path):
    (tmp_path / "hungry.py").write_text(HUNGRY)
    options = ("--extractor", "hungry.py:Net", "--device", "cpu", "--no-control", "--no-cache", "--json")

    def score(batch_size, most=None):
        def limit():
            resource.setrlimit(resource.RLIMIT_AS, (most, most))

        done = subprocess.run(
            [sys.executable, "-m", "genpr", "score", *map(str, sides), *options, "--batch-size", batch_size],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
            preexec_fn=None if most is None else limit,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
        return done.returncode, json.loads(done.stdout)

    _, plain = score("8")
    code, found = score("64", most=5 * 2**30)
    assert code == 0, found
    assert {name: value["value"] for name, value in found["metrics"].items()} == {
        name: value["value"] for name, value in plain["metrics"].items()
    }
    assert "oom-smaller-batches" in {item["code"] for item in found["notices"]}
    code, none = score("4", most=1500 * 2**20)
    assert (code, none["error"]["code"]) == (4, "oom")
