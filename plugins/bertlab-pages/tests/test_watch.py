"""``bertlab watch`` serves the page of a run to this machine."""

import http.client
import shutil
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

from bertlab_pages.watch_command import new_server
from tests.conftest import Command


@pytest.fixture
def port(tiny_run: Path, tmp_path: Path) -> Iterator[int]:
    shutil.copytree(tiny_run, tmp_path / "run")
    server = new_server(tmp_path / "run", 0)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server.port
    server.shutdown()
    server.server_close()


def ask(port: int, path: str = "/", **headers: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    told = {"Host": f"127.0.0.1:{port}", **headers}
    connection.request("GET", path, headers={n.replace("_", "-"): told[n] for n in told})
    found = connection.getresponse()
    return found.status, found.read().decode()


@pytest.mark.slow
@pytest.mark.usefixtures("drawn")
def test_the_page_follows_the_run(port: int, tmp_path: Path) -> None:
    status, page = ask(port)
    assert status == 200
    assert 'http-equiv="refresh"' not in page
    (tmp_path / "run" / "results.json").unlink()
    (log,) = tmp_path.glob("run/csv/version_*/metrics.csv")
    log.touch()  # the shared run may have been trained long ago
    assert "running: step 6" in ask(port)[1]
    (tmp_path / "run" / "manifest.json").write_text("[", "utf-8")
    status, page = ask(port)
    assert status == 400
    assert "manifest.json" in page


@pytest.mark.slow
def test_nothing_else_is_served(port: int) -> None:
    for path in ("/config.yaml", "/../run/config.yaml", "/%2e%2e/etc/passwd", "/run.html"):
        assert ask(port, path)[0] == 404
    assert ask(port, Host="evil.example")[0] == 403


@pytest.mark.slow
def test_no_page_of_another_site_has_it_computed(port: int) -> None:
    assert ask(port, Sec_Fetch_Site="cross-site")[0] == 403
    assert ask(port, Referer="http://evil.example/")[0] == 403
    assert ask(port, Sec_Fetch_Site="same-origin")[0] == 200  # as the page loads itself again


def test_what_is_no_run(bertlab: Command, tmp_path: Path) -> None:
    code, _, error = bertlab("watch", tmp_path)
    assert code == 2
    assert "no such run" in error
