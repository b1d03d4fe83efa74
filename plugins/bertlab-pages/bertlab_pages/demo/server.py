"""What the demo's page asks for, and what it gets."""

import json
from importlib import resources
from threading import Lock

from werkzeug.exceptions import NotFound
from werkzeug.serving import BaseWSGIServer
from werkzeug.wrappers import Request, Response

from bertlab import CommandError
from bertlab_pages.demo.model_view import ModelView
from bertlab_pages.local_server import FRAMING, HEADERS, json_response, local_server

FILES = {"/": "page.html", "/page.js": "page.js", "/page.css": "page.css"}
_TYPES = {"html": "text/html", "js": "text/javascript", "css": "text/css"}
# what the page may load: its own files, and the page of attention maps, which has a policy itself
_POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; frame-src "


def new_server(view: ModelView, port: int) -> BaseWSGIServer:
    """Return a server of the page of a model; arguments and errors as `local_server` has them."""
    computing = Lock()  # one request computes at a time; the others wait, and may be read meanwhile
    return local_server(lambda request: answer(view, request, computing), FILES, port)


def answer(view: ModelView, request: Request, computing: Lock) -> Response:
    """Return a file of the page, or what the page asks of a model."""
    route = request.method, request.path
    if request.method == "GET" and request.path in FILES:
        return _file(FILES[request.path])
    if route == ("GET", "/model"):
        return json_response(view.describe())
    if route == ("GET", "/attention"):
        texts = _texts(request.args.to_dict())
        with computing:
            page = view.attention(texts)
        return Response(page, headers=HEADERS, content_type="text/html; charset=utf-8")
    asks = {
        "/predict": view.predict,
        "/layers": view.layers if view.has_layers else None,
        "/compare": view.compare if view.compares else None,
    }
    ask = asks.get(request.path)
    # is_json: a form of another site cannot send that type
    if request.method == "POST" and ask is not None and request.is_json:
        texts = _texts(_read_json(request.get_data()))
        with computing:
            return json_response(ask(texts))
    raise NotFound


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
    policy = {"Content-Security-Policy": f"{_POLICY}'self'; {FRAMING}"}
    kind = _TYPES[name.rpartition(".")[2]]
    return Response(content, headers=HEADERS | policy, content_type=f"{kind}; charset=utf-8")
