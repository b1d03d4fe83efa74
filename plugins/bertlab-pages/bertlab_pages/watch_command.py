"""``bertlab watch``: the page of a run on this machine, which follows the run while it trains."""

import time
from pathlib import Path

from jsonargparse import ArgumentParser
from werkzeug.exceptions import NotFound
from werkzeug.serving import BaseWSGIServer
from werkzeug.wrappers import Request, Response

from bertlab import CheckpointError, nearest
from bertlab.extend import MANIFEST_FILE, RESULTS_FILE, as_mistakes, parse_arguments
from bertlab_pages.local_server import HEADERS, local_server, serve
from bertlab_pages.run_page import run_page

_SILENCE = 600  # seconds without a new line in the logs, after which a run seems to have stopped


def main(command: str, argv: list[str]) -> int:
    """Serve the page until Ctrl-C; return the exit code."""
    given = parse_arguments(make_parser(command), argv)
    directory = Path(given.run)
    if not (directory / MANIFEST_FILE).is_file():
        folder = directory.parent
        beside = [each.name for each in folder.iterdir()] if folder.is_dir() else []
        why = nearest(directory.name, beside)
        if directory.exists():
            why = f" (it has no {MANIFEST_FILE})"
        raise CheckpointError(f"{directory}: no such run{why}")
    serve(new_server(directory, given.port), str(directory))
    return 0


def new_server(directory: Path, port: int) -> BaseWSGIServer:
    """Return a server of the page of a run; no page of another site may have it computed."""
    return local_server(lambda request: answer(directory, request), (), port)


def make_parser(command: str) -> ArgumentParser:
    """Return the parser of the options."""
    parser = ArgumentParser(prog=f"bertlab {command}", exit_on_error=False)
    parser.add_argument("run", type=str, help="directory of a run, which may still go on")
    parser.add_argument("--port", type=int, default=8000, help="on this machine; 0: a free one")
    return parser


def answer(directory: Path, request: Request) -> Response:
    """Return the page, made of what the run has written so far."""
    if (request.method, request.path) != ("GET", "/"):
        raise NotFound
    with as_mistakes():
        page = run_page(directory, _state(directory))
    return Response(page, headers=HEADERS, content_type="text/html; charset=utf-8")


def _state(directory: Path) -> str | None:
    if (directory / RESULTS_FILE).is_file():
        return None
    changed = [log.stat().st_mtime for log in directory.glob("csv/version_*/metrics.csv")]
    return "running" if max(changed, default=0.0) > time.time() - _SILENCE else "not finished"
