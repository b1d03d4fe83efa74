"""The demo: it says what the model says, answers this machine alone, and shows texts as texts."""

import contextlib
import json
import socket
import subprocess
import threading
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from werkzeug.wrappers import Request, Response

from bertlab import export_model, load
from bertlab.errors import CommandError, DataError
from bertlab_pages import local_server
from bertlab_pages.demo import server
from bertlab_pages.demo.model_view import ModelView, name_of
from bertlab_pages.demo.server import new_server
from bertlab_pages.local_server import HOST
from browser import chromium, complaints, frames, measured
from tests.checkpoints.test_fine_tuned import POLARITY, TAGS, write_run
from tests.conftest import Command

TEXT = "Return the [MASK] of the [MASK]."
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def view(tiny_run: Path) -> ModelView:
    return ModelView(load(tiny_run), "runs/tiny")


class Asking:
    """A client of a server, which runs in a thread."""

    def __init__(self, port: int) -> None:
        self.port = port

    def __call__(
        self, method: str, path: str, content: object = None, headers: dict[str, str] | None = None
    ) -> tuple[int, Any, dict[str, str]]:
        connection = HTTPConnection(HOST, self.port, timeout=60)
        body = content if isinstance(content, str | bytes | None) else json.dumps(content)
        connection.request(method, path, body, JSON if headers is None else headers)
        answer = connection.getresponse()
        text = answer.read().decode()
        kind = answer.headers.get_content_type()
        found = json.loads(text) if kind == "application/json" else text
        return answer.status, found, dict(answer.headers)


@pytest.fixture(scope="module")
def ask(view: ModelView) -> Iterator[Asking]:
    started = new_server(view, 0)
    thread = threading.Thread(target=started.serve_forever)
    thread.start()
    yield Asking(started.port)
    started.shutdown()
    thread.join()
    started.server_close()


@pytest.mark.slow
def test_a_language_model_says_what_predict_says(view: ModelView) -> None:
    said = view.describe()
    assert [field["name"] for field in said["fields"]] == ["text", "text_pair"]
    assert (said["predicts"], said["has_layers"], said["has_attention"]) == (True, True, True)
    assert view.predict({"text": TEXT, "text_pair": " "}) == view.model.predict(TEXT)[0]
    pair = view.predict({"text": "Open it.", "text_pair": "Then read."})
    assert pair == view.model.predict(("Open it.", "Then read."))[0]


@pytest.mark.slow
def test_the_last_layer_predicts_what_the_model_predicts(view: ModelView) -> None:
    layers = view.layers({"text": TEXT})["layers"]
    assert len(layers) == view.model.encoder.num_hidden_layers + 1
    fillers = view.model.predict(TEXT)[0]["fillers"]
    for found, expected in zip(layers[-1], fillers, strict=True):
        assert [each["token"] for each in found] == [each["token"] for each in expected[:3]]
        shares = [each["probability"] for each in expected[:3]]
        assert [each["probability"] for each in found] == pytest.approx(shares, abs=1e-5)
    assert view.layers({"text": "no mask"})["layers"][0] == []


HEADS: list[tuple[dict[str, Any], Any, dict[str, str], Any]] = [
    ({"name": "single_sentence"}, POLARITY, {"text": "w1 w2"}, "w1 w2"),
    (
        {"name": "sentence_pair"}, POLARITY,
        {"text_a": "w1 w2", "text_b": "w3"}, ("w1 w2", "w3"),
    ),
    ({"name": "tagging"}, TAGS, {"words": "w1 w2, w3"}, {"words": ["w1", "w2", ",", "w3"]}),
    (
        {"name": "span"}, None,
        {"question": "w1", "context": "w2 w3 w4"}, {"question": "w1", "context": "w2 w3 w4"},
    ),
    (
        {"name": "multiple_choice"}, None,
        {"context": "w1", "choices": "w2\n\nw3 w4\n"},
        {"context": "w1", "choices": ["w2", "w3 w4"]},
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("head", "labels", "typed", "given"), HEADS, ids=lambda each: str(each)[:30]
)
def test_a_head_has_a_field_for_each_column(
    head: dict[str, Any], labels: Any, typed: dict[str, str], given: Any, tmp_path: Path
) -> None:
    write_run(tmp_path / "run.ckpt", head, labels)
    view = ModelView(load(tmp_path / "run.ckpt"))
    said = view.describe()
    assert [field["name"] for field in said["fields"]] == list(typed)
    assert not said["has_layers"]
    expected = view.model.predict(given)[0]
    if "tags" in expected:  # the page shows them beside their words
        expected["words"] = given["words"]
    assert view.predict(typed) == expected
    with pytest.raises(DataError, match=f"{next(iter(typed))}: found nothing, expected a text"):
        view.predict({})


def test_the_page_and_what_it_asks(ask: Asking, view: ModelView) -> None:
    status, page, headers = ask("GET", "/")
    assert status == 200
    assert '<script src="page.js">' in page
    policy = headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'")
    assert ask("GET", "/page.js")[0] == ask("GET", "/page.css")[0] == 200
    assert ask("GET", "/model")[1] == view.describe()
    status, found, _ = ask("POST", "/predict", {"text": TEXT})
    assert (status, found) == (200, view.predict({"text": TEXT}))
    assert ask("POST", "/layers", {"text": TEXT})[1] == view.layers({"text": TEXT})
    status, maps, _ = ask("GET", "/attention?" + urlencode({"text": "Open <b>it</b>."}))
    assert status == 200
    assert "<b>it" not in maps


@pytest.mark.parametrize(
    ("method", "path", "content", "headers", "status"),
    [
        ("GET", "/model", None, {"Host": "evil.example"}, 403),  # a name that leads here
        ("POST", "/predict", {"text": TEXT}, {"Host": "evil.example", **JSON}, 403),
        ("POST", "/predict", '{"text": "a"}', {"Content-Type": "text/plain"}, 404),  # a form
        ("POST", "/predict", {"text": ""}, None, 400),
        ("POST", "/predict", {"text": 3}, None, 400),
        ("POST", "/predict", [], None, 400),
        ("POST", "/predict", "{", None, 400),
        ("POST", "/predict", {"text": "a" * (1 << 20)}, None, 413),
        ("POST", "/predict", "[" * 200_000, None, 400),
        ("POST", "/predict", b"\xff\xfe", None, 400),
        ("POST", "/predict", '{"text": "\\ud800"}', None, 400),
        ("POST", "/predict", '{"text": NaN}', None, 400),
        ("POST", "/predict", "1" * 10_000, None, 400),
        ("GET", "/attention?text=w", None, {"Sec-Fetch-Site": "cross-site"}, 403),
        ("GET", "/attention?text=w", None, {"Referer": "https://evil.example/"}, 403),
        ("POST", "/predict", {"text": TEXT}, {"Origin": "https://evil.example", **JSON}, 403),
        ("POST", "/model", {}, None, 404),
        ("GET", "/../pyproject.toml", None, None, 404),
        ("GET", "/attention?" + urlencode({"text": "w " * 100}), None, None, 400),
    ],
)  # fmt: skip
def test_what_is_not_answered(
    method: str,
    path: str,
    content: object,
    headers: dict[str, str] | None,
    status: int,
    ask: Asking,
) -> None:
    found, answer, _ = ask(method, path, content, headers)
    assert found == status
    assert answer["error"]
    assert ask("GET", "/model")[0] == 200  # it goes on


def test_idle_connections_stop_nobody(ask: Asking) -> None:
    with contextlib.ExitStack() as idle:
        for sent in (b"", b"GET / HT", b"POST /predict HTTP/1.1\r\nContent-Length: 9\r\n\r\n{"):
            connection = socket.create_connection((HOST, ask.port))
            idle.enter_context(connection)
            connection.sendall(sent)
        assert ask("GET", "/model")[0] == 200


def test_a_connection_that_sends_no_more_is_closed(
    ask: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_server._Handler, "timeout", 0.1)
    with socket.create_connection((HOST, ask.port), timeout=60) as connection:
        connection.sendall(b"GET / HT")
        assert connection.recv(1) == b""


def test_a_body_without_end_is_closed(ask: Asking) -> None:
    head = f"POST /predict HTTP/1.1\r\nHost: {HOST}:{ask.port}\r\nContent-Length: 9999999999\r\n"
    with socket.create_connection((HOST, ask.port), timeout=60) as connection:
        connection.sendall(f"{head}Content-Type: application/json\r\n\r\n".encode())
        with pytest.raises(ConnectionError):
            connection.sendall(b"a" * (64 << 20))


def test_no_other_site_shows_the_page_in_a_frame(ask: Asking) -> None:
    for path in ("/", "/attention?text=w"):
        headers = ask("GET", path)[2]
        assert "frame-ancestors 'self'" in headers["Content-Security-Policy"]
        assert headers["X-Frame-Options"] == "SAMEORIGIN"


def test_a_port_that_is_in_use(ask: Asking, view: ModelView) -> None:
    with pytest.raises(CommandError, match=f"--port: {ask.port} is not to be had"):
        new_server(view, ask.port)
    with pytest.raises(CommandError, match="--port: found 99999999, expected 1 to 65535"):
        new_server(view, 99_999_999)


def test_a_model_that_is_not_there(tmp_path: Path, bertlab: Command) -> None:
    code, _, error = bertlab("demo", tmp_path / "none")
    assert code == 2
    assert "none: no such" in error


@pytest.fixture(scope="module")
def encoder_alone(tiny_run: Path, tmp_path_factory: pytest.TempPathFactory) -> ModelView:
    folder = tmp_path_factory.mktemp("encoder") / "vectors"
    export_model(tiny_run, folder, form="sentence-transformers")
    return ModelView(load(folder))


def test_an_encoder_alone_finds_the_nearest_texts(encoder_alone: ModelView) -> None:
    said = encoder_alone.describe()
    assert (said["compares"], said["predicts"], said["title"]) == (True, False, "vectors")
    typed = {"text": "Open the file.", "texts": "x = [1]\n\nOpen the file.\n"}
    first, second = encoder_alone.compare(typed)["neighbours"]
    assert first == {"text": "Open the file.", "similarity": pytest.approx(1.0)}
    assert second["text"] == "x = [1]"
    assert second["similarity"] < 1
    with pytest.raises(DataError, match="texts: found none"):
        encoder_alone.compare({"text": "a", "texts": " \n"})
    with pytest.raises(DataError, match="at most 100"):
        encoder_alone.compare({"text": "a", "texts": "b\n" * 101})
    assert "<table" in encoder_alone.attention(typed) or "small" in encoder_alone.attention(typed)


@pytest.mark.first_slow
@pytest.mark.parametrize("which", ["view", "encoder_alone"])
def test_nothing_of_the_page_is_cut_off(
    which: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    view: ModelView = request.getfixturevalue(which)
    lock = threading.Lock()

    def answer(asked: Request) -> Response:
        if asked.path == "/frames.html":
            return Response(frames("/", 3000), content_type="text/html")
        return server.answer(view, asked, lock)

    chromium()
    started = local_server.local_server(answer, ("/frames.html", *server.FILES), 0)
    thread = threading.Thread(target=started.serve_forever)
    thread.start()
    try:
        assert measured(f"http://{HOST}:{started.port}/frames.html", tmp_path) == []
    finally:
        started.shutdown()
        thread.join()
        started.server_close()


@pytest.mark.slow
def test_nothing_of_the_maps_is_cut_off(view: ModelView, tmp_path: Path) -> None:
    assert complaints(view.attention({"text": TEXT * 3}), tmp_path, 500) == []


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("runs/my/checkpoints/last.ckpt", "my"),
        ("runs/my/", "my"),
        ("google/x", "x"),
        ("a.ckpt", "a.ckpt"),
    ],
)
def test_a_model_is_called_as_people_call_it(source: str, name: str) -> None:
    assert name_of(source) == name


@pytest.mark.slow
def test_a_browser_shows_the_prediction(ask: Asking, view: ModelView) -> None:
    command = [chromium(), "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]
    command += ["--virtual-time-budget=10000", f"http://{HOST}:{ask.port}/"]
    page = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    tokens = view.model.predict("Return the [MASK] of the list.")[0]["fillers"][0]
    assert all(f"<span>{each['token']}</span><meter" in page for each in tokens)
    assert 'id="error" role="alert"></p>' in page
