"""Two ranks: `python gloo_worker.py PORT OUT.json OUT.json` prints their exit codes; errors go to OUT.err.

They are forked after the imports, which take most of the time.
"""

import datetime
import gc
import json
import logging
import os
import sys
import time
import traceback
import warnings
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import torch
import torch.distributed as dist
from training_images import OPTIONS, images

import genpr
from genpr.errors import GenprError

# torchmetrics without its metrics, whose imports take most of the time.
light = ModuleType("torchmetrics")
light.__path__ = find_spec("torchmetrics").submodule_search_locations
sys.modules["torchmetrics"] = light
light._logger = logging.getLogger("torchmetrics")
light.Metric = import_module("torchmetrics.utilities.checks").Metric
ours = import_module("genpr.integrations.torchmetrics")

warnings.simplefilter("error")


def scored(rank, shards, **options):
    """Metric and values of rank `rank`, which has the rows `shards[rank]` of reals and fakes."""
    metric = ours.PrecisionRecallDensityCoverage(**{**OPTIONS, **options}, sync_timeout=60)
    for role, rows in zip((True, False), shards[rank], strict=True):
        for part in rows.split(64) if len(rows) else ():
            metric.update(images()[0 if role else 1][part], real=role)
    return metric, {name: value.item() for name, value in metric.compute().items()}


def error_of(action):
    """Code and message of the error, and seconds until it was raised."""
    started = time.monotonic()
    try:
        action()
    except GenprError as error:
        return {"code": error.code, "message": str(error), "seconds": time.monotonic() - started}
    return None


def metric_scenario(rank):
    """Values of various shards; then collective operations that fail."""
    real, fake = (torch.arange(len(part)) for part in images())
    nothing = torch.arange(0)
    found = {}
    contiguous = [(real[:45], fake[:13]), (real[45:], fake[13:])]
    metric, found["contiguous"] = scored(rank, contiguous, intervals=True)
    found["rows_after"] = [sum(map(len, rows)) for rows in (metric.real_rows, metric.fake_rows)]
    metric.compute_with_cache, metric._computed = False, None
    found["again"] = {name: value.item() for name, value in metric.compute().items()}
    found["interleaved"] = scored(rank, [(real[0::2], nothing), (real[1::2], fake.flip(0))])[1]
    with genpr.all_ranks(device="cpu"):
        found["all_ranks"] = scored(rank, contiguous)[1]
    found["distances"] = scored(rank, contiguous, metrics=["fd", "kd"])[1]
    evaluator = genpr.Evaluator(images()[0], **OPTIONS, control=False)
    given = ours.PrecisionRecallDensityCoverage(evaluator, sync_timeout=60)
    given.update(images()[1][contiguous[rank][1]], real=False)
    found["given_real"] = {name: value.item() for name, value in given.compute().items()}
    own = [(real[:45], fake[:30]), (real[45:], fake[30:])]
    found["own_shard"] = scored(rank, own, sync_on_compute=False)[1]

    metric._sync_timeout = 1.0
    dist.barrier()
    found["missing_rank"] = error_of(metric.compute) if rank == 0 else None
    dist.barrier()
    metric._sync_timeout = 60.0
    found["after_error"] = {name: value.item() for name, value in metric.compute().items()}

    few = ours.PrecisionRecallDensityCoverage(**OPTIONS, sync_timeout=60)
    few.update(images()[0][:1], real=True)
    few.update(images()[1][:2], real=False)
    found["too_few"] = error_of(few.compute)
    found["rows_after_error"] = sum(map(len, few.real_rows))

    found["other_k"] = error_of(lambda: scored(rank, contiguous, k=3 + rank))
    found["other_extractor"] = error_of(lambda: scored(rank, contiguous, extractor=("gabor", "pixels")[rank]))
    return found


def main(rank, port, out):
    """Run the scenario and write its results."""
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    dist.init_process_group("gloo", rank=rank, world_size=2, timeout=datetime.timedelta(seconds=60))
    Path(out).write_text(json.dumps(metric_scenario(rank)))
    dist.barrier()
    dist.destroy_process_group()


def rank_of(rank, port, out):
    """Run one rank in a forked process; its process id."""
    child = os.fork()
    if child:
        return child
    os.dup2(os.open(Path(out).with_suffix(".err"), os.O_WRONLY | os.O_CREAT), sys.stderr.fileno())
    code = 1
    try:
        main(rank, port, out)
        code = 0
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    gc.freeze()  # forks neither traverse nor copy imported objects
    ranks = [rank_of(rank, sys.argv[1], out) for rank, out in enumerate(sys.argv[2:])]
    print(json.dumps([os.waitstatus_to_exitcode(os.waitpid(each, 0)[1]) for each in ranks]))
