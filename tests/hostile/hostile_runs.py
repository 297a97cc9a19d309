"""Runs command lines of genpr and measures them: exit code, output, processor time, peak memory, files, forbidden acts.

Importing torch takes seconds, so a server process imports genpr once and forks one child for each command line. Command
lines that depend on how Python starts (environment, working folder) run as `python -m genpr` in a process of their own.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

MOST_SECONDS = 60.0
MOST_BYTES = 3 * 2**29  # 1.5 GB above what the process had before the command line
MOST_LINE_BYTES = 2000
MOST_ERROR_BYTES = 50_000
CODES = {0, 2, 3, 4, 5}
_IDLE_SECONDS = 20.0
_KILL_BYTES = 4 * 2**30  # a run that takes more is ended, to protect the machine


@dataclass
class Line:
    """One command line.

    Attributes:
        args: Behind `genpr`.
        env: Environment variables to set; None removes one.
        stdin: A file that standard input is read from; None for /dev/null.
        folder: The working folder; None for the folder of the case.
        limits: Resource limits by their number in `resource`.
        outputs: Names in the folder of the case that may be written.
        code: The exit codes that are right.
        module: Whether to start `python -m genpr` in a process of its own.
        seconds: Processor time that it may take.
        attempts: How descriptions of forbidden acts begin that are no fault, since they fail.
    """

    args: list[str]
    env: dict[str, str | None] = field(default_factory=dict)
    stdin: str | None = None
    folder: str | None = None
    limits: dict[int, int] = field(default_factory=dict)
    outputs: tuple[str, ...] = ()
    code: tuple[int, ...] = (0, 2, 3, 4, 5)
    module: bool = False
    seconds: float = MOST_SECONDS
    attempts: tuple[str, ...] = ()


@dataclass
class Outcome:
    """What a command line did.

    Attributes:
        code: Its exit code; negative for a signal.
        out: Standard output.
        err: Standard error.
        seconds: Processor time.
        wall: Seconds on the clock.
        grown: Peak resident bytes above those before the command line.
        forbidden: What it must not have done.
    """

    code: int
    out: bytes
    err: bytes
    seconds: float
    wall: float
    grown: int
    forbidden: list[str]


class Runner:
    """Runs command lines, with one server process for those that can share one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._server: subprocess.Popen[str] | None = None
        self._count = 0
        self._baselines: dict[bool, int] = {}

    def run(self, line: Line, place: Path) -> Outcome:
        """Run a command line in the folder of its case."""
        self._count += 1
        paths = {name: str(self._folder / f"{self._count}.{name}") for name in ("out", "err", "acts")}
        order = {**asdict(line), **paths, "place": str(place), "folder": line.folder or str(place)}
        before = _files(place)
        found = _measured(_started(order)) if line.module else self._forked(order)
        acts = Path(paths["acts"])
        forbidden = acts.read_text().splitlines() if acts.exists() else []
        allowed = {"cache", *line.outputs}
        new = {
            name
            for name, stamp in _files(place).items()
            if before.get(name) != stamp and name.split("/")[0] not in allowed
        }
        forbidden += [f"wrote {name!r}" for name in sorted(new)]
        out, err = (Path(paths[name]).read_bytes() for name in ("out", "err"))
        grown = int(found["peak"]) - self._baselines.get(line.module, 0)
        return Outcome(int(found["code"]), out, err, found["seconds"], found["wall"], grown, forbidden)

    def set_baselines(self, line: Line, place: Path) -> None:
        """Take the peak memory of an ordinary command line as what all others are compared with."""
        for module in (False, True):
            self._baselines[module] = 0
            self._baselines[module] = self.run(replace(line, module=module), place).grown

    def _forked(self, order: dict[str, object]) -> dict[str, float]:
        if self._server is None:
            self._server = subprocess.Popen(
                [sys.executable, __file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(json.dumps(order) + "\n")
        self._server.stdin.flush()
        return json.loads(self._server.stdout.readline())

    def close(self) -> None:
        """End the server."""
        if self._server is not None:
            self._server.communicate()
            self._server = None


def faults(line: Line, outcome: Outcome) -> list[str]:
    """What an outcome does not keep of what genpr promises of every command line."""
    found = [f"forbidden: {each}" for each in outcome.forbidden if not each.startswith(line.attempts or "\0")]
    err, lines = outcome.err.decode("utf-8", "replace"), outcome.err.splitlines()
    if outcome.code not in CODES:
        found.append(f"exit code {outcome.code}")
    elif outcome.code not in line.code:
        found.append(f"exit code {outcome.code}, expected {line.code}")
    if "Traceback" in err or "Error in sys.excepthook" in err:
        found.append("traceback")
    errors = [each for each in lines if each.startswith(b"error: ")]
    if len(errors) != (outcome.code not in {0, 5}):
        found.append(f"{len(errors)} error lines")
    longest = max(map(len, lines), default=0)
    if longest > MOST_LINE_BYTES:
        found.append(f"a line of {longest:,} bytes")
    if len(outcome.err) > MOST_ERROR_BYTES:
        found.append(f"{len(outcome.err):,} bytes on standard error")
    if any((ord(c) < 32 and c not in "\n\t\r") or c in "\x7f\u202e\u2028" for c in err):
        found.append("control characters on standard error")
    if "--json" in line.args and outcome.code not in {0, 5}:
        try:
            error = json.loads(outcome.out)["error"]
            if (
                error["exit_code"] != outcome.code
                or len(error["message"].encode("utf-8", "replace")) > MOST_LINE_BYTES
            ):
                found.append("the error object has another exit code, or a long message")
        except (ValueError, KeyError, TypeError):
            found.append(f"no error object: {outcome.out[:80]!r}")
    if outcome.seconds > line.seconds or outcome.wall > 2 * MOST_SECONDS:
        found.append(f"{outcome.seconds:.1f} s of processor time, {outcome.wall:.1f} s")
    if outcome.grown > MOST_BYTES:
        found.append(f"{outcome.grown:,} bytes")
    return found


def _files(place: Path) -> dict[str, tuple[int, int, int]]:
    """Every file below a folder, with what changes where it is written."""
    found: dict[str, tuple[int, int, int]] = {}
    pending = [os.fsencode(place)]
    while pending:
        with (
            suppress(OSError),
            os.scandir(pending.pop()) as entries,
        ):  # a path may be too long to be looked at
            for entry in entries:
                status, is_folder = entry.stat(follow_symlinks=False), entry.is_dir(follow_symlinks=False)
                name = os.fsdecode(os.path.relpath(entry.path, os.fsencode(place)))
                found[name] = (0, 0, 0) if is_folder else (status.st_ino, status.st_size, status.st_mtime_ns)
                if is_folder:
                    pending.append(entry.path)
    return found


def _prepare(order: dict) -> None:
    """Make the present process the one of a command line."""
    os.setsid()
    os.chdir(order["folder"])
    os.environ.pop("GENPR_DEBUG", None)
    os.environ.update(GENPR_OFFLINE="1", GENPR_CACHE=f"{order['place']}/cache")
    for name, value in order["env"].items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environb[os.fsencode(name)] = os.fsencode(value)
    for number, path, flags in (
        (0, order["stdin"] or os.devnull, os.O_RDONLY),
        (1, order["out"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
        (2, order["err"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
    ):
        opened = os.open(path, flags, 0o600)
        os.dup2(opened, number)
        os.close(opened)
    for limit, value in order["limits"].items():
        resource.setrlimit(int(limit), (value, value))


def _started(order: dict) -> int:
    """Start `python -m genpr` and give its process id."""
    pid = os.fork()
    if not pid:
        try:
            _prepare(order)
            os.execv(sys.executable, [sys.executable, "-m", "genpr", *order["args"]])
        finally:
            os._exit(99)
    return pid


def _measured(pid: int) -> dict[str, float]:
    """Wait for a process; one that takes far too much is ended."""
    started, peak = time.monotonic(), 0
    page = resource.getpagesize()
    while True:
        ended, status, usage = os.wait4(pid, os.WNOHANG)
        if ended:
            break
        with suppress(OSError, IndexError):
            peak = max(peak, int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * page)
        waited = time.monotonic() - started
        is_idle = waited > _IDLE_SECONDS and _seconds_of(pid) < waited / 100  # it waits for what never comes
        if is_idle or waited > 2 * MOST_SECONDS or peak > _KILL_BYTES:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.002)
    return {
        "code": os.waitstatus_to_exitcode(status),
        "seconds": usage.ru_utime + usage.ru_stime,
        "wall": time.monotonic() - started,
        "peak": max(peak, usage.ru_maxrss * 1024),
    }


def _seconds_of(pid: int) -> float:
    """Processor time of a process that still runs."""
    with suppress(OSError, IndexError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return float("inf")


def _serve() -> None:
    """Read orders from standard input, run each in a child, and write what was measured."""
    import importlib
    import pkgutil

    import genpr

    for module in pkgutil.walk_packages(genpr.__path__, "genpr."):
        if not module.name.startswith(("genpr.integrations", "genpr.__main__")):
            importlib.import_module(module.name)
    for name in ("pyarrow.parquet", "pyarrow.ipc", "matplotlib.figure", "jinja2", "torchvision"):
        importlib.import_module(name)
    from genpr.__main__ import main

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for text in sys.stdin:
        order = json.loads(text)
        pid = os.fork()
        if not pid:
            code = 98
            try:
                code = _child(order, main)
            finally:
                os._exit(code)
        answers.write(json.dumps(_measured(pid)) + "\n")
        answers.flush()


def _child(order: dict, main: object) -> int:
    import traceback

    from hostile.watched import watched

    acts = os.open(order["acts"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    _prepare(order)
    sys.stdin = open(0, errors="surrogateescape", closefd=False)  # noqa: SIM115 - for the whole process
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", errors="backslashreplace", closefd=False)  # noqa: SIM115
    sys.argv = ["genpr", *order["args"]]
    code = 97
    with watched(Path(order["place"])) as seen:
        try:
            main()
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else 1 if error.code else 0
        except BaseException:  # noqa: BLE001 - whatever it is, the process ends here
            traceback.print_exc()
            code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os.write(acts, "\n".join(each.replace("\n", " ") for each in seen).encode("utf-8", "replace"))
    return code


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    _serve()
