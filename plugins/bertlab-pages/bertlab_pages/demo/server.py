"""The server of the page: it answers this machine alone, and nobody else's pages."""

import io
import json
import socket
import time
from importlib import resources
from threading import Lock
from typing import Any
from urllib.parse import urlsplit

from werkzeug.exceptions import HTTPException, NotFound
from werkzeug.serving import BaseWSGIServer, WSGIRequestHandler, make_server
from werkzeug.wrappers import Request, Response

from bertlab import CommandError
from bertlab.api import BertlabError
from bertlab_pages.demo.model_view import ModelView

HOST = "127.0.0.1"
_LAST_PORT = 65_535
_LARGEST = 1 << 20  # bytes of what is asked
_FILES = {"/": "page.html", "/page.js": "page.js", "/page.css": "page.css"}
_TYPES = {"html": "text/html", "js": "text/javascript", "css": "text/css"}
# what the page may load: its own files, and the page of attention maps, which has a policy itself
_POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; frame-src "
_FRAMING = "frame-ancestors 'self'"  # no page of another site shows ours inside it
_HEADERS = {
    "Content-Security-Policy": _FRAMING,
    "X-Frame-Options": "SAMEORIGIN",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}
_LARGEST_REQUEST = 4 * _LARGEST  # bytes that are taken off a connection before it is closed
_LONGEST_WAIT = 10  # seconds for the next bytes of a request
_LONGEST_REQUEST = 30  # seconds for all of it


def new_server(view: ModelView, port: int) -> BaseWSGIServer:
    """Return a server of the page; ``serve_forever()`` starts it.

    Args:
        view: of the model.
        port: on this machine; 0: one that is free.

    Raises:
        CommandError: the port is in use or not to be had.
    """
    if not 0 <= port <= _LAST_PORT:
        raise CommandError(f"--port: found {port}, expected 1 to {_LAST_PORT}, or 0: a free one")
    hosts: set[str] = set()
    computing = Lock()  # one request computes at a time; the others wait, and may be read meanwhile

    @Request.application
    def answer(request: Request) -> Response:
        request.max_content_length = _LARGEST
        # another site's page may send its visitor's browser here under a name of its own
        if request.host not in hosts:
            return _json({"error": f"found host {request.host}, expected this machine's"}, 403)
        if request.path not in _FILES and _is_of_other_site(request, hosts):
            return _json({"error": "found a request of another site's page"}, 403)
        try:
            return _answer(view, request, computing)
        except BertlabError as error:
            return _json({"error": str(error)}, 400)
        except HTTPException as error:
            return _json({"error": str(error)}, error.code or 400)

    try:
        with socket.create_server((HOST, port)) as listening:
            server = make_server(
                HOST, port, answer, threaded=True, request_handler=_Handler, fd=listening.fileno()
            )  # which takes a copy of the socket
    except OSError as error:
        raise CommandError(
            f"--port: {port} is not to be had ({error}); expected one that is free, or 0"
        ) from None
    hosts |= {f"{name}:{server.port}" for name in (HOST, "localhost")}
    return server


def _answer(view: ModelView, request: Request, computing: Lock) -> Response:
    route = request.method, request.path
    if request.method == "GET" and request.path in _FILES:
        return _file(_FILES[request.path])
    if route == ("GET", "/model"):
        return _json(view.describe())
    if route == ("GET", "/attention"):
        texts = _texts(request.args.to_dict())
        with computing:
            page = view.attention(texts)
        return Response(page, headers=_HEADERS, content_type="text/html; charset=utf-8")
    ask = {"/predict": view.predict, "/layers": view.layers if view.has_layers else None}.get(
        request.path
    )
    # is_json: a form of another site cannot send that type
    if request.method == "POST" and ask is not None and request.is_json:
        texts = _texts(_read_json(request.get_data()))
        with computing:
            return _json(ask(texts))
    raise NotFound


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


def _read_json(content: bytes) -> object:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):  # also what is no UTF-8, or nested beyond all measure
        raise CommandError("found something else than JSON") from None


def _texts(given: object) -> dict[str, str]:
    if not isinstance(given, dict) or not all(isinstance(each, str) for each in given.values()):
        raise CommandError("found something else than texts by field")
    if any("\ud800" <= character <= "\udfff" for text in given.values() for character in text):
        raise CommandError("found half a character (a lone surrogate), expected text")
    return given


def _file(name: str) -> Response:
    content = resources.files("bertlab_pages.demo").joinpath("templates", name).read_text("utf-8")
    policy = {"Content-Security-Policy": f"{_POLICY}'self'; {_FRAMING}"}
    kind = _TYPES[name.rpartition(".")[2]]
    return Response(content, headers=_HEADERS | policy, content_type=f"{kind}; charset=utf-8")


def _json(content: object, status: int = 200) -> Response:
    text = json.dumps(content, ensure_ascii=False)
    return Response(text, status, headers=_HEADERS, content_type="application/json")
