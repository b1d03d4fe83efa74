"""A server of pages that answers this machine alone, and nobody else's pages."""

import errno
import io
import json
import socket
import sys
import time
from collections.abc import Callable, Collection
from typing import Any
from urllib.parse import urlsplit

from werkzeug.exceptions import HTTPException
from werkzeug.serving import BaseWSGIServer, WSGIRequestHandler, make_server
from werkzeug.wrappers import Request, Response

from bertlab import CommandError
from bertlab.api import BertlabError
from bertlab.extend import say

HOST = "127.0.0.1"
FRAMING = "frame-ancestors 'self'"  # no page of another site shows ours inside it
HEADERS = {
    "Content-Security-Policy": FRAMING,
    "X-Frame-Options": "SAMEORIGIN",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}
_LAST_PORT = 65_535
_LARGEST = 1 << 20  # bytes of what is asked
_LARGEST_REQUEST = 4 * _LARGEST  # bytes that are taken off a connection before it is closed
_LONGEST_WAIT = 10  # seconds for the next bytes of a request
_LONGEST_REQUEST = 30  # seconds for all of it


def local_server(
    answer: Callable[[Request], Response], files: Collection[str], port: int
) -> BaseWSGIServer:
    """Return a server of this machine; ``serve_forever()`` starts it.

    Args:
        answer: of a request; a BertlabError or HTTPException that it raises is told as JSON.
        files: paths that another site's page may lead to, as they tell nothing to it.
        port: on this machine; 0: one that is free.

    Raises:
        CommandError: the port is in use or not to be had.
    """
    listening = listen(port)
    hosts: set[str] = set()

    @Request.application
    def guarded(request: Request) -> Response:
        request.max_content_length = _LARGEST
        # another site's page may send its visitor's browser here under a name of its own
        if request.host not in hosts:
            return json_response(
                {"error": f"found host {request.host}, expected this machine's"}, 403
            )
        if request.path not in files and _is_of_other_site(request, hosts):
            return json_response({"error": "found a request of another site's page"}, 403)
        try:
            return answer(request)
        except BertlabError as error:
            return json_response({"error": str(error)}, 400)
        except HTTPException as error:
            return json_response({"error": str(error)}, error.code or 400)

    with listening:
        server = make_server(
            HOST, port, guarded, threaded=True, request_handler=_Handler, fd=listening.fileno()
        )  # which takes a copy of the socket
    hosts |= {f"{name}:{server.port}" for name in (HOST, "localhost")}
    return server


def listen(port: int) -> socket.socket:
    """Return a socket that listens at a port of this machine; 0: one that is free.

    Raises:
        CommandError: the port is in use or not to be had.
    """
    if not 0 <= port <= _LAST_PORT:
        raise CommandError(f"--port: found {port}, expected 1 to {_LAST_PORT}, or 0: a free one")
    try:
        return socket.create_server((HOST, port))
    except OSError as error:
        used = error.errno == errno.EADDRINUSE
        why = "another program uses it" if used else error.strerror
        raise CommandError(
            f"--port: {port} is not to be had: {why}; expected one that is free, as "
            f"--port {port % _LAST_PORT + 1}, or 0"
        ) from None


def serve(server: BaseWSGIServer, shown: str) -> None:
    """Say where a server shows something, and let it run until Ctrl-C."""
    say(f"http://{HOST}:{server.port}/ shows {shown}; Ctrl-C ends it")
    sys.stdout.flush()
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        say("")
    finally:
        server.server_close()


def _is_of_other_site(request: Request, hosts: set[str]) -> bool:
    """Tell whether a page of another site made the browser ask, as browsers say it."""
    if request.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
        return True
    told = (request.headers.get(name) for name in ("Origin", "Referer"))
    return any(urlsplit(address).netloc not in hosts for address in told if address is not None)


class _Request(io.RawIOBase):
    """The bytes of a request; they end after a size and a time, however many follow."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._bytes_left = _LARGEST_REQUEST
        self._end = time.monotonic() + _LONGEST_REQUEST

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        if self._bytes_left <= 0 or time.monotonic() > self._end:
            return 0
        count = self._connection.recv_into(buffer)
        self._bytes_left -= count
        return count


class _Handler(WSGIRequestHandler):
    timeout = _LONGEST_WAIT

    def setup(self) -> None:
        super().setup()
        self.rfile = io.BufferedReader(_Request(self.connection))

    def log(self, type: str, message: str, *args: Any) -> None:  # noqa: ANN401
        """Say nothing of requests."""


def json_response(content: object, status: int = 200) -> Response:
    """Return something as JSON."""
    text = json.dumps(content, ensure_ascii=False)
    return Response(text, status, headers=HEADERS, content_type="application/json")
