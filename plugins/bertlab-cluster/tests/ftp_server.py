"""An FTP server for tests, on this machine: it shows the files of a folder to anybody."""

import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Handler(socketserver.StreamRequestHandler):
    """What is needed to list a folder and to read a file from a byte on."""

    def handle(self) -> None:
        self.answer("220 here")
        self.start = 0
        for line in self.rfile:
            command, _, argument = line.decode().strip().partition(" ")
            getattr(self, f"do_{command.lower()}", self.refuse)(argument)

    def answer(self, text: str) -> None:
        self.wfile.write(f"{text}\r\n".encode())

    def refuse(self, _: str) -> None:
        self.answer("502 not here")

    def accept(self, _: str) -> None:
        self.answer("230 well")

    do_user = do_type = do_abor = accept

    def do_epsv(self, _: str) -> None:
        self.refuse("")

    def do_pasv(self, _: str) -> None:
        self.waiting = socket.create_server(("127.0.0.1", 0))
        high, low = divmod(self.waiting.getsockname()[1], 256)
        self.answer(f"227 (127,0,0,1,{high},{low})")

    def do_rest(self, argument: str) -> None:
        self.start = int(argument)
        self.answer("350 from there")

    def do_mlsd(self, argument: str) -> None:
        folder = self.place(argument)
        rows = []
        for each in folder.iterdir() if folder.is_dir() else ():
            kind = "dir" if each.is_dir() else "file"
            time = each.stat().st_mtime_ns
            rows.append(f"type={kind};size={each.stat().st_size};modify={time}; {each.name}\r\n")
        self.send("".join(rows).encode())

    def do_retr(self, argument: str) -> None:
        self.send(self.place(argument).read_bytes()[self.start :])
        self.start = 0

    def place(self, argument: str) -> Path:
        shown: Path = self.server.shown  # type: ignore[attr-defined]
        return shown / argument.lstrip("/")

    def send(self, content: bytes) -> None:
        self.answer("150 it comes")
        connection, _ = self.waiting.accept()
        with self.waiting, connection:
            connection.sendall(content)
        self.answer("226 all")


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Whoever reads only the start of a file breaks off."""


@contextmanager
def serving_ftp(folder: Path) -> Iterator[str]:
    """Yield the address of a server that shows a folder."""
    with Server(("127.0.0.1", 0), Handler) as server:
        server.shown = folder  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"ftp://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
