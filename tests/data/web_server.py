"""A web server for tests, on this machine: it shows a folder, and can be slow or break off."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class Handler(SimpleHTTPRequestHandler):
    """Shows a folder; ``/silent`` never answers, ``/broken`` ends in the middle, ``/500`` fails."""

    def do_GET(self) -> None:
        if self.path == "/silent":
            self.server.ending.wait(30)  # type: ignore[attr-defined]
        elif self.path == "/500":
            self.send_error(500)
        elif self.path == "/broken.txt":
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b"Half a text.\n")
        else:
            super().do_GET()

    do_HEAD = do_GET  # noqa: N815

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """Yield the address of a server that shows a folder."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder))) as server:
        server.ending = threading.Event()  # type: ignore[attr-defined]
        # whoever reads only the start of a file breaks off
        server.handle_error = lambda *_: None  # type: ignore[method-assign]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.ending.set()  # type: ignore[attr-defined]
            server.shutdown()
            thread.join()
