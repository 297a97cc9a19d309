"""Runs jobs on several ranks: `python rank_worker.py JOBS.json`, a few at once; each is forked after the imports.

A job has a `size`, a `port`, a `kind`, and `out`, the prefix of its files: every rank writes OUT.RANK.out and OUT.RANK.err,
and a "python" or "metric" job OUT.RANK.json. OUT.done holds the exit codes of all ranks.
"""

import datetime
import gc
import json
import os
import signal
import sys
import time
import traceback
import warnings
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from types import SimpleNamespace

# Some imports are for the forks, each of which would repeat them.
import numpy as np
import scipy.special  # noqa: F401
import torch
import torch.distributed as dist

import genpr
import genpr.__main__
import genpr.cli.features
import genpr.cli.ranks
import genpr.cli.score
import genpr.features.networks.weight_free
import genpr.metrics.manifold
import genpr.report.files
import genpr.report.score_page
import genpr.report.score_tables
from genpr import distributed, runtime
from genpr.distributed import current_communicator
from genpr.errors import BadImagesError
from genpr.evaluation.evaluator import Evaluator
from genpr.features import embed
from genpr.neighbors import engine, resample

with suppress(ImportError):
    import faiss  # noqa: F401
with suppress(ImportError):  # of older versions of torch
    import torch._weights_only_unpickler
    import torch.utils.serialization

sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))
import light_torchmetrics  # noqa: F401
from training_images import OPTIONS, images

from genpr.integrations.torchmetrics import PrecisionRecallDensityCoverage

warnings.simplefilter("error")
BLOCK = 16  # images, instead of 2,048
TOGETHER = 4  # jobs, since ranks mostly wait for each other


def small_pieces():
    """Divide a few hundred rows into many pieces of work, and a few dozen images into several blocks."""
    engine.CPU = replace(
        engine.CPU,
        narrow_tile=(24, 40),
        wide_tile=(24, 40),
        min_block_rows=16,
        blocks=1000,
        min_pairs=64,
        min_held=256,
        held_per_row=1,
        verified=64,
    )
    resample._LISTED = 64
    embed.BLOCK = BLOCK


def features(name):
    """Real and fake features of different lengths."""
    rng = np.random.default_rng(7)
    real, fake = rng.normal(size=(131, 12)), rng.normal(0.2, 1.0, size=(100, 12))
    if name == "off-center":
        real, fake = 5 + 0.05 * real, 5 + 0.05 * fake
    elif name == "integers":
        real, fake = (np.floor(2.2 * side[:, :5]) + 9 for side in (real, fake))
    elif name == "mixed":  # rows with ties, and rows whose distances are rounded
        real, fake = (
            np.where(np.arange(len(side))[:, None] % 2, 5 + 0.05 * side, np.floor(2 * side))
            for side in (real, fake)
        )
    elif name == "copies":
        real, fake = real[rng.integers(0, 20, 131)], np.concatenate([real[:60], fake[:40] + 1e-7])
    elif name == "few":
        real, fake = real[:5], fake[:4]
    return real.astype(np.float32), fake.astype(np.float32)


def without_times(result):
    """A result as a dictionary with replicates and without times."""
    record = result.to_dict()
    for each in (record, record["real"], record["fake"]):
        each.pop("seconds", None)
    return record | {"replicates": {name: value.replicates for name, value in result.metrics.items()}}


def rows_of(side):
    """Values of single images as lists, with all bits."""
    values = {name: getattr(side, name, None) for name in dir(side) if not name.startswith("_")}
    return {
        name: value.tolist() for name, value in values.items() if isinstance(value, np.ndarray | torch.Tensor)
    }


def scored(name, metrics):
    """Result and per-image values of one pair of sets."""
    real, fake = features(name)
    evidence = Evaluator(real, metrics=metrics, device="cpu").evidence(fake)
    return without_times(evidence.result) | {"fake": rows_of(evidence.fake), "real": rows_of(evidence.real)}


def scores(_folder):
    """Metrics of neighbors, for features with and without ties."""
    metrics = ["precision", "recall", "density", "coverage", "realism", "fd"]
    few = genpr.score(*features("few"), metrics=["precision", "recall"], device="cpu", control=False)
    return {"mixed": scored("mixed", metrics), "few": without_times(few), "classes": scored_classes("mixed")}


def scored_classes(name):
    """Scores of two classes, with distances, which the first rank computes."""
    real, fake = features(name)
    labels = {
        f"{role}_labels": [*"ab"] * (len(rows) // 2) + ["a"] * (len(rows) % 2)
        for role, rows in (("real", real), ("fake", fake))
    }
    evaluator = Evaluator(
        real, metrics=["precision", "recall", "fd", "kd", "mind"], device="cpu", control=False
    )
    return evaluator.score_classes(fake, **labels).to_dict()["per_class"]


def every_score(_folder):
    """All metrics, for features with large offsets, ties or copies."""
    return {name: scored(name, "all") for name in ("off-center", "integers", "copies")}


def embedded(folder):
    """Scores, errors and features of images."""
    options = {
        "device": "cpu",
        "batch_size": 6,
        "cache_dir": folder / f"cache-{current_communicator().size}",
    }
    sides, bad = (folder / "real", folder / "fake"), {"on_bad": "skip", "max_bad": 0.5}
    metrics = ["precision", "recall", "density", "coverage"]
    panel = genpr.score_panel(*sides, extractors=["gabor", "pixels"], metrics=metrics, **bad, **options)
    options["extractor"] = "pixels"
    few = {"metrics": ["precision"], "control": False}
    again = genpr.score(*sides, **bad, **options, **few)
    try:
        genpr.score(*sides, **options, **few)
    except BadImagesError as error:
        named = [[str(error), each.code, each.path] for each in error.bad]
    pixels = np.random.default_rng(0).integers(0, 256, (40, 16, 16, 3), dtype=np.uint8)
    batches = iter([pixels[:17], pixels[17:24], pixels[24:]])
    gabor = genpr.load_extractor("gabor", device="cpu")
    rows = genpr.embed(batches, gabor, batch_size=6)
    few = genpr.embed(pixels[:3], gabor, batch_size=6)
    return {
        "scored": [*map(without_times, panel.values())],
        "again": {name: value.value for name, value in again.metrics.items()},
        "cached": [again.real.n_cached, again.fake.n_cached, again.real.n_embedded],
        "bad": named,
        "rows": rows.tolist(),
        "few": few.tolist(),
    }


def is_exchanged(dtype):
    """Whether gathered rows are those that the other ranks have: 0, 40 and 80, or 30, 40 and 50."""
    communicator, right = current_communicator(), []
    for first, more in ((0, 40), (30, 10)):
        rows = [(torch.arange(3 * (first + more * rank)) % 5).view(-1, 3).to(dtype) for rank in range(3)]
        found = communicator.all_gather(rows[communicator.rank])
        right += [torch.equal(*pair) for pair in zip(found, rows, strict=True)]
    return all(right)


def exchanged(_folder):
    """The result of each collective operation."""
    distributed._CHUNK = 64  # bytes
    communicator = current_communicator()
    mine = torch.arange(communicator.rank, dtype=torch.float64).repeat(2, 1).T  # no rows on rank 0
    whole = torch.zeros(2 * communicator.size - 1, 3, dtype=torch.int32)
    owners = [(row % communicator.size, whole[row]) for row in range(len(whole))]
    for owner, part in owners:
        part += (owner + 1) * (owner == communicator.rank)
    communicator.broadcast_parts(owners)
    called = []
    with torch.device("meta"):  # the default of a user
        objects = communicator.all_gather_object({"name": "\udcff", "rank": communicator.rank})
    return {
        "gathered": [part.tolist() for part in communicator.all_gather(mine)],
        "types": [is_exchanged(dtype) for dtype in (torch.bool, torch.int64, torch.float16, torch.uint8)],
        "filled": whole.tolist(),
        "total": communicator.all_reduce_sum(torch.tensor([communicator.rank, 1])).tolist(),
        "objects": objects,
        "from_rank0": communicator.broadcast_from_rank0(lambda: called.append(1) or [communicator.rank, 0.1]),
        "is_called": bool(called) == communicator.is_rank_zero,
        "share": list(islice(communicator.share(range(100)), 3)),
        "cores": torch.get_num_threads(),
        "shares_of_memory": runtime.machine_shares["memory"],
    }


def out_of_sync(_folder):
    """The error code where ranks call different operations."""
    communicator = current_communicator()
    try:
        if communicator.rank:
            communicator.all_reduce_sum(torch.zeros(2, dtype=torch.int64))
        else:
            communicator.all_gather(torch.zeros(2))
    except genpr.ResourceError as error:
        return error.code
    return None


def failing(_folder):
    """Rank 1 raises an error that contains its device, and the other rank waits for it."""
    if current_communicator().rank == 1:
        raise genpr.ResourceError(str(runtime.resolve_device()), code="oom")
    current_communicator().finish()


class Means(torch.nn.Module):
    """An extractor: means of colors, times a factor that is no weight."""

    dim = 3

    def __init__(self, factor, weight=1.0):
        super().__init__()
        self.factor, self.weight = factor, torch.nn.Parameter(torch.tensor(weight))

    def forward(self, images):
        return images.float().mean(dim=(2, 3)) * self.factor


def differing(folder):
    """For each way in which the last rank differs: code, exit code and message of the error."""
    communicator = current_communicator()
    is_last = communicator.rank == communicator.size - 1
    pixels = np.random.default_rng(0).integers(0, 256, (2, 40, 16, 16, 3), dtype=np.uint8)
    changed = pixels[1].copy()
    changed[17, 3, 4] ^= 1
    black_first = np.concatenate([np.zeros((1, 16, 16, 3), np.uint8), pixels[1]])
    fakes = changed if is_last else pixels[1]
    real, fake = features("off-center")
    options = {"device": "cpu", "intervals": False, "control": False, "metrics": ["precision"]}
    other = {"k": np.int64(4), "seed": 1, "ties": "strict", "metrics": ["recall"], "protocol": "prdc"}
    other |= {"extractor": "gabor", "intervals": True, "control": True, "batch_size": 8, "max_images": 30}
    other |= {"prepare": "resize:8", "held_out": pixels[0]}
    with distributed.single_process():
        alone = genpr.KNNManifold.fit(real, k=3 + is_last, device="cpu")
        equal = genpr.KNNManifold.fit(real, k=3, device="cpu")

    def score(fakes=pixels[1], **more):
        return genpr.score(pixels[0], fakes, **{"extractor": "pixels", **options, **more})

    def balls(rows=fake, **more):
        return genpr.manifold_metrics(real, rows, device="cpu", **more)

    cases = {name: partial(score, **({name: value} if is_last else {})) for name, value in other.items()}
    cases |= {
        "[17]": partial(score, fakes),
        "images 48 to 63": lambda: score(iter([pixels[1], fakes])),
        "number of images": lambda: score(iter([fakes[: 40 - is_last]])),
        "weights_sha256": partial(score, extractor=Means(1, 1.0 + is_last)),
        "Means returns other features": partial(score, black_first, extractor=Means(1 + is_last)),
        "extractor 1": lambda: genpr.embed(
            pixels[0], genpr.load_extractor(["pixels", "gabor"][is_last], device="cpu")
        ),
        "features": lambda: genpr.score(real, fake[::-1] if is_last else fake, **options),
        "k: 5 and 6": partial(balls, k=5 + is_last),
        "k: 3 and 4": lambda: alone.count(fake),
        "queries": lambda: equal.realism(fake + is_last),
    }
    found = {}
    for name, case in cases.items():
        try:
            found[name] = str(case())
        except genpr.GenprError as error:
            found[name] = [error.code, error.exit_code, str(error)]
    return found


def of_metric(rank, shards, **options):
    """Metric and values of rank `rank`, which has the rows `shards[rank]` of reals and fakes."""
    metric = PrecisionRecallDensityCoverage(**{**OPTIONS, **options}, sync_timeout=60)
    for role, rows in zip((True, False), shards[rank], strict=True):
        for part in rows.split(64) if len(rows) else ():
            metric.update(images()[0 if role else 1][part], real=role)
    return metric, values_of(metric)


def values_of(metric):
    return {name: value.item() for name, value in metric.compute().items()}


def error_of(action):
    """Code and message of the error, and seconds until it was raised."""
    started = time.monotonic()
    try:
        action()
    except genpr.GenprError as error:
        return {"code": error.code, "message": str(error), "seconds": time.monotonic() - started}
    return None


def metric_of_two_ranks(rank):
    """Values of the metric of torchmetrics for various shards; then collective operations that fail."""
    real, fake = (torch.arange(len(part)) for part in images())
    nothing, found = torch.arange(0), {}
    contiguous = [(real[:45], fake[:13]), (real[45:], fake[13:])]
    metric, found["contiguous"] = of_metric(rank, contiguous, intervals=True)
    found["rows_after"] = [sum(map(len, rows)) for rows in (metric.real_rows, metric.fake_rows)]
    metric.compute_with_cache, metric._computed = False, None
    found["again"] = values_of(metric)
    found["interleaved"] = of_metric(rank, [(real[0::2], nothing), (real[1::2], fake.flip(0))])[1]
    with genpr.all_ranks(device="cpu"):
        found["all_ranks"] = of_metric(rank, contiguous)[1]
    found["distances"] = of_metric(rank, contiguous, metrics=["fd", "kd"])[1]
    given = PrecisionRecallDensityCoverage(Evaluator(images()[0], **OPTIONS, control=False), sync_timeout=60)
    given.update(images()[1][contiguous[rank][1]], real=False)
    found["given_real"] = values_of(given)
    own = [(real[:45], fake[:30]), (real[45:], fake[30:])]
    found["own_shard"] = of_metric(rank, own, sync_on_compute=False)[1]

    metric._sync_timeout = 1.0
    dist.barrier()
    found["missing_rank"] = error_of(metric.compute) if rank == 0 else None
    dist.barrier()
    metric._sync_timeout = 60.0
    found["after_error"] = values_of(metric)

    few = PrecisionRecallDensityCoverage(**OPTIONS, sync_timeout=60)
    few.update(images()[0][:1], real=True)
    few.update(images()[1][:2], real=False)
    found["too_few"] = error_of(few.compute)
    found["rows_after_error"] = sum(map(len, few.real_rows))

    found["other_k"] = error_of(lambda: of_metric(rank, contiguous, k=3 + rank))
    found["other_extractor"] = error_of(
        lambda: of_metric(rank, contiguous, extractor=("gabor", "pixels")[rank])
    )
    return found


PYTHON = {
    each.__name__: each
    for each in (scores, every_score, embedded, exchanged, out_of_sync, failing, differing)
}


def see_gpus(uuids, rank):
    """Let this process see one GPU, which it cannot use."""
    runtime._problems[0] = None
    torch.cuda.is_available, torch.cuda.device_count, torch.cuda.current_device = (
        lambda: True,
        lambda: 1,
        lambda: 0,
    )
    torch.cuda.set_device = lambda _: None
    torch.cuda.get_device_properties = lambda _: SimpleNamespace(uuid=uuids[rank])


def break_rank(how, rank):
    """Let one rank fail or print while it embeds."""
    before = embed.ExtractorRun.store

    def store(*given):
        before(*given)
        if int(os.environ.get("RANK", "0")) == rank:
            if how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if how == "interrupt":
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(20)  # a signal may arrive later, in another thread
            raise genpr.ResourceError("no memory left", code="oom")

    embed.ExtractorRun.store = store


def run(job, rank):
    """One rank of a job; its exit code."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job of a shell ignores it
    folder = Path(job["folder"])
    if job["kind"] == "metric":
        torch.set_num_threads(1)
        dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
        Path(f"{job['out']}.{rank}.json").write_text(json.dumps(metric_of_two_ranks(rank)))
        dist.barrier()
        dist.destroy_process_group()
        return
    small_pieces()
    if "break" in job:
        break_rank(*job["break"])
    if "gpus" in job:
        see_gpus(job["gpus"], rank)
    if job["kind"] == "cli":
        from genpr.__main__ import main

        sys.argv = ["genpr", *job["args"], *job.get("more", {}).get(str(rank), [])]
        main()
    dist.is_nccl_available = lambda: False
    try:
        with genpr.all_ranks(device=job.get("devices", {}).get(str(rank), "auto")) as communicator:
            assert communicator.size == job["size"]
            found = PYTHON[job["name"]](folder)
    except genpr.GenprError as error:
        found = [error.code, str(error)]
    assert current_communicator().is_single_process
    Path(f"{job['out']}.{rank}.json").write_text(json.dumps(found, sort_keys=True, default=str))


def in_fork(job, rank):
    """Run one rank in a forked process; its process id."""
    child = os.fork()
    if child:
        return child
    for number, kind in ((1, "out"), (2, "err")):
        os.dup2(os.open(f"{job['out']}.{rank}.{kind}", os.O_WRONLY | os.O_CREAT), number)
    if job["size"] > 1:
        address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(job["port"])}
        os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(job["size"]), "LOCAL_RANK": str(rank), **address}
    code = 0
    try:
        run(job, rank)
    except SystemExit as done:
        code = done.code or 0
    except BaseException:  # noqa: BLE001 - a fork must never return to the loop of its parent
        traceback.print_exc()
        code = 99
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def main():
    gc.freeze()  # forks neither traverse nor copy imported objects
    jobs = json.loads(Path(sys.argv[1]).read_text())
    for first in range(0, len(jobs), TOGETHER):
        started = time.monotonic()
        some = [
            (job, [in_fork(job, rank) for rank in range(job["size"])])
            for job in jobs[first : first + TOGETHER]
        ]
        for job, children in some:
            codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
            done = {"codes": codes, "seconds": time.monotonic() - started}
            Path(f"{job['out']}.done").write_text(json.dumps(done))


if __name__ == "__main__":
    main()
