"""One file from a web server, whole or not at all."""

from __future__ import annotations

from email.message import Message
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import IO
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from genpr import __version__
from genpr.features.weights.known import Progress

_PIECE_BYTES = 2**20
_BUSY = {408, 425, 429, 500, 502, 503, 504}  # what a server answers that may be well again in a moment
_LONGEST = 2**40  # where the length of a file is unknown


class DownloadError(Exception):
    """The file did not arrive.

    Args:
        reason: Why.
        may_pass: Whether it may arrive a little later.
    """

    def __init__(self, reason: str, *, may_pass: bool = False) -> None:
        super().__init__(reason)
        self.may_pass = may_pass


def download(url: str, path: Path, *, size: int | None, progress: Progress | None, timeout_s: float) -> int:
    """Stream `url` into `path`, and return how many bytes came.

    Args:
        url: Where the file is.
        path: Where to write it.
        size: Its length, if that is known; at most one byte more is read, since a wrong answer must not fill
            the disk.
        progress: Called as the download proceeds.
        timeout_s: To connect, and between two pieces.

    Raises:
        DownloadError: No answer, an error instead of the file, or a connection that broke.
    """
    request = Request(url, headers={"User-Agent": f"genpr/{__version__}"})
    try:
        with (
            build_opener(SafeRedirects).open(request, timeout=timeout_s) as response,
            path.open("wb") as file,
        ):
            length: int | None = response.length
            expected = size if size is not None else length
            if expected is None and not response.chunked:
                raise DownloadError("the server does not say how long the file is, so it may come cut short")
            received = _copy(response, file, expected=expected, progress=progress)
    except (OSError, HTTPException) as error:
        reason: object = error
        if isinstance(error, HTTPError):
            error.close()  # it is also the server's answer, and holds the connection
        elif isinstance(error, URLError):
            reason = error.reason
        raise DownloadError(" ".join(str(reason).split()), may_pass=_may_pass(error, reason)) from error
    if length is not None and received < min(length, _LONGEST if size is None else size):
        text = f"the connection broke after {received:,} of {length:,} bytes"
        raise DownloadError(text, may_pass=True)
    return received


def _may_pass(error: Exception, reason: object) -> bool:
    """Whether a server is busy or a connection broke; not of a file that is not there, a wrong address, or a full disk."""
    if isinstance(error, HTTPError):
        return error.code in _BUSY
    return isinstance(reason, TimeoutError | ConnectionResetError | ConnectionAbortedError | HTTPException)


def _copy(response: HTTPResponse, file: IO[bytes], *, expected: int | None, progress: Progress | None) -> int:
    received, limit = 0, _LONGEST if expected is None else expected + 1
    while piece := response.read(min(_PIECE_BYTES, limit - received)):
        file.write(piece)
        received += len(piece)
        if progress is not None:
            progress(received, expected or 0)
    return received


class SafeRedirects(HTTPRedirectHandler):
    """Follows redirects, though never from a protected to an open connection."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> Request | None:
        """As the library does, or refuse."""
        if req.type == "https" and urlsplit(newurl).scheme != "https":
            fp.close()
            raise URLError(f"it was redirected from a protected connection to {newurl}")
        return super().redirect_request(req, fp, code, msg, headers, newurl)  # type: ignore[arg-type]
