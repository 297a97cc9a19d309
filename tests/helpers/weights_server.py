"""A local web server that serves one weights file, correctly or not, and records its requests."""

import hashlib
import io
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from genpr.features.weights import WeightsFile, weights_folder

CONTENT = bytes(range(256)) * 8192  # 2 MiB: several pieces


@dataclass
class Server:
    url: str
    answer: bytes = CONTENT
    status: int = 200
    announced: int | None = None
    delay: float = 0.0
    pause: float = 0.0  # between two halves of the answer
    headers: dict[str, str] = field(default_factory=dict)  # in place of the length
    redirects: dict[str, tuple[str, dict[str, str]]] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)

    def entry(self, content: bytes = CONTENT, **other) -> WeightsFile:
        facts = {
            "name": "tiny.pth",
            "url": f"{self.url}/tiny.pth",
            "size": len(content),
            "sha256": hashlib.sha256(content).hexdigest(),
            "license": "Apache-2.0",
        }
        return WeightsFile(**{**facts, **other})


@contextmanager
def serving() -> Iterator[Server]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            facts.requests.append(self.path)
            time.sleep(facts.delay)
            if self.path in facts.redirects:
                target, headers = facts.redirects[self.path]
                self.answer(302, {"Location": target, "Content-Length": "0", **headers}, b"")
                return
            length = {"Content-Length": str(facts.announced or len(facts.answer))}
            self.answer(facts.status, facts.headers or length, facts.answer)

        def answer(self, status, headers, body):
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            try:
                self.wfile.write(body[: len(body) // 2])
                time.sleep(facts.pause)
                self.wfile.write(body[len(body) // 2 :])
            except OSError:  # the client has seen enough
                self.close_connection = True

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        facts = Server(f"http://127.0.0.1:{http.server_address[1]}")
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield facts
        http.shutdown()
        thread.join()


def use_own_folders(tmp_path, monkeypatch):
    """Use private caches and settings; only connections to the server above are allowed."""
    monkeypatch.setenv("GENPR_CACHE", str(tmp_path / "genpr"))
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "huggingface"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    for name in ("GENPR_OFFLINE", "HF_HUB_OFFLINE", "HF_HUB_CACHE"):
        monkeypatch.delenv(name, raising=False)


def put(path: Path, content: bytes = CONTENT) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def left_behind() -> list[str]:
    return sorted(path.name for path in weights_folder().rglob("*") if path.suffix != ".lock")


def checkpoint(value: float = 1.0, *, old: bool = False) -> bytes:
    """A small file as torch.save writes it; `old` as before torch 1.6, like torchvision's VGG-16."""
    import torch

    buffer = io.BytesIO()
    tensors = {"weight": torch.full((64, 64), value)}
    torch.save(tensors, buffer, _use_new_zipfile_serialization=not old)
    return buffer.getvalue()
