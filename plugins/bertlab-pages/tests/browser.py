"""What a browser makes of a page: text that is cut off, covered or hardly to be read.

Chromium, headless and without the network, shows the page in three widths and two colours; a
script beside it measures. A machine without Chromium skips the tests.
"""

import functools
import html
import json
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

WIDTHS = (390, 768, 1280)
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

MEASURE = (Path(__file__).parent / "measure.js").read_text("utf-8")


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def _served(folder: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def chromium() -> str:
    """Return the browser, or skip the test."""
    found = next(filter(None, map(shutil.which, _NAMES)), None)
    if found is None:
        pytest.skip("Chromium is not installed")
    return found


def complaints(page: str, folder: Path, wait: int = 0) -> list[str]:
    """Return what is wrong with a page in three widths, light and dark.

    Args:
        page: HTML.
        folder: to write to.
        wait: milliseconds after the page was loaded.
    """
    (folder / "page.html").write_text(page, "utf-8")
    (folder / "frames.html").write_text(frames("page.html", wait), "utf-8")
    with _served(folder) as address:
        return measured(f"{address}/frames.html", folder)


def frames(address: str, wait: int) -> str:
    """Return a page that shows another of its own server in frames, and measures it."""
    shown = "".join(
        f'<iframe name="{width} {colour}" src="{address}" '
        f'style="border: 0; width: {width}px; height: 900px; color-scheme: {colour}"></iframe>'
        for width in WIDTHS
        for colour in ("light", "dark")
    )
    script = MEASURE.replace("WAIT", str(wait))
    return f'<!doctype html><pre id="found"></pre>{shown}<script>{script}</script>'


def measured(address: str, folder: Path) -> list[str]:
    """Return what the page of :func:`frames` has found; the browser's files go to a folder."""
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]
    options += [f"--user-data-dir={folder / 'profile'}", "--virtual-time-budget=9000"]
    options += ["--disable-background-networking", "--no-first-run"]
    done = subprocess.run(
        [chromium(), *options, address],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    found = re.search(r'<pre id="found">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found is not None, done.stderr[-2000:]
    assert found[1], done.stderr[-2000:]
    complained: list[str] = json.loads(html.unescape(found[1]))
    return complained
