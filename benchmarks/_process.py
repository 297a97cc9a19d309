"""Run every case in its own process, so that tools share no memory, threads or caches."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from _cases import Case, Measurement

_SCRIPT = Path(__file__).with_name("bench_manifold.py")
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class CaseFailedError(Exception):
    """The process of a case failed; the message states the reason."""


def measure_in_process(case: Case, *, timeout: float | None) -> Measurement:
    """Run one case.

    Raises:
        CaseFailedError: It crashed, was killed, or took longer than `timeout` seconds.
    """
    answer = _call("case", json.dumps(asdict(case)), threads=case.threads, timeout=timeout)
    return Measurement(**json.loads(answer))


def gemm_in_process(*, device: str, threads: int) -> float:
    """The float32 matrix product rate, in GFLOP/s.

    Raises:
        CaseFailedError: It could not be measured.
    """
    return float(json.loads(_call("gemm", device, threads=threads, timeout=600)))


def pin_to_cores(threads: int) -> None:
    """Restrict this process to a number of cores, whatever thread pools its libraries open."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])


def call_script(
    script: Path,
    command: str,
    argument: str,
    *,
    options: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    timeout: float | None,
) -> str:
    """Run `script command argument FILE options` in its own process, and return the content of FILE.

    Raises:
        CaseFailedError: It crashed, was killed, or took longer than `timeout` seconds.
    """
    with tempfile.TemporaryDirectory(prefix="genpr-bench-") as folder:
        answer = Path(folder) / "answer.json"
        arguments = [sys.executable, str(script), command, argument, str(answer), *options]
        try:
            done = subprocess.run(
                arguments, env=environment, capture_output=True, text=True, timeout=timeout, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise CaseFailedError(f"stopped after {error.timeout / 60:.0f} minutes") from error
        if done.returncode != 0:
            raise CaseFailedError(_why(done))
        return answer.read_text()


def _call(command: str, argument: str, *, threads: int, timeout: float | None) -> str:
    environment = {**os.environ, **dict.fromkeys(_THREAD_VARIABLES, str(threads))}
    options = ["--threads", str(threads)]
    return call_script(_SCRIPT, command, argument, options=options, environment=environment, timeout=timeout)


def _why(done: subprocess.CompletedProcess[str]) -> str:
    if done.returncode == -signal.SIGKILL:
        return "killed by the system, probably for memory"
    lines = done.stderr.strip().splitlines() or ["no message"]
    return f"exit code {done.returncode}: {lines[-1]}"
