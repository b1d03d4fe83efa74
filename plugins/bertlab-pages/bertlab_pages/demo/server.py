"""The server of the page: it answers this machine alone, and nobody else's pages."""

import json
import socket
from importlib import resources
from typing import Any

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
_HEADERS = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}


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

    @Request.application
    def answer(request: Request) -> Response:
        request.max_content_length = _LARGEST
        # another site's page may send its visitor's browser here under a name of its own
        if request.host not in hosts:
            return _json({"error": f"found host {request.host}, expected this machine's"}, 403)
        try:
            return _answer(view, request)
        except BertlabError as error:
            return _json({"error": str(error)}, 400)
        except HTTPException as error:
            return _json({"error": str(error)}, error.code or 400)

    try:
        with socket.create_server((HOST, port)) as listening:
            server = make_server(
                HOST, port, answer, request_handler=_Quiet, fd=listening.fileno()
            )  # which takes a copy of the socket
    except OSError as error:
        raise CommandError(
            f"--port: {port} is not to be had ({error}); expected one that is free, or 0"
        ) from None
    hosts |= {f"{name}:{server.port}" for name in (HOST, "localhost")}
    return server


def _answer(view: ModelView, request: Request) -> Response:
    route = request.method, request.path
    if request.method == "GET" and request.path in _FILES:
        return _file(_FILES[request.path])
    if route == ("GET", "/model"):
        return _json(view.describe())
    if route == ("GET", "/attention"):
        page = view.attention(request.args.to_dict())
        return Response(page, headers=_HEADERS, content_type="text/html; charset=utf-8")
    ask = {"/predict": view.predict, "/layers": view.layers}.get(request.path)
    # is_json: a form of another site cannot send that type
    if request.method == "POST" and ask is not None and request.is_json:
        return _json(ask(_texts(request.get_json())))
    raise NotFound


class _Quiet(WSGIRequestHandler):
    def log(self, type: str, message: str, *args: Any) -> None:  # noqa: ANN401
        """Say nothing of requests."""


def _texts(given: object) -> dict[str, str]:
    if not isinstance(given, dict) or not all(isinstance(each, str) for each in given.values()):
        raise CommandError("found something else than texts by field")
    return given


def _file(name: str) -> Response:
    content = resources.files("bertlab_pages.demo").joinpath("templates", name).read_text("utf-8")
    policy = {"Content-Security-Policy": f"{_POLICY}'self'"}
    kind = _TYPES[name.rpartition(".")[2]]
    return Response(content, headers=_HEADERS | policy, content_type=f"{kind}; charset=utf-8")


def _json(content: object, status: int = 200) -> Response:
    text = json.dumps(content, ensure_ascii=False)
    return Response(text, status, headers=_HEADERS, content_type="application/json")
