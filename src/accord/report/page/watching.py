"""A page that follows runs: served on this machine alone, read-only, told of changes by server-sent events.

One thread looks at the runs' folders every second and makes the page's values anew when a file of theirs changed; every
open page waits for it. Nothing can be asked of the server but the page and its events, and nothing is written.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from accord.errors import ConfigError, DataError
from accord.report.page.contents import contents
from accord.report.page.document import document, embedded

LOOPBACK = "127.0.0.1"
PAUSE = 1.0  # seconds between two looks
HEARTBEAT = 15.0  # seconds after which an idle page is told that somebody is still there
FILES = ("metrics.jsonl", "summary.json", "timings.jsonl")


class Watched:
    """The runs below some folders, and what there is to show of them now."""

    def __init__(self, places: Iterable[Path | str]) -> None:
        self.places = [Path(place) for place in places]
        self.ended = threading.Event()
        self._changed = threading.Condition()
        self._seen: Sequence[tuple[str, int, int]] = ()
        self._version, self._values = 0, contents(self.places, live=True)
        self._seen = self._look()

    def _look(self) -> list[tuple[str, int, int]]:
        """Names, sizes and times of everything a page is made of."""
        found = []
        for place in self.places:
            for name in FILES:
                for path in place.rglob(name):
                    try:
                        stat = path.stat()
                    except OSError:
                        continue
                    found.append((str(path), stat.st_size, stat.st_mtime_ns))
        return sorted(found)

    def follow(self) -> None:
        """Until it is ended: look, and tell those who wait."""
        while not self.ended.wait(PAUSE):
            seen = self._look()
            if seen == self._seen:
                continue
            try:
                values = contents(self.places, live=True)
            except DataError:  # a line is being written: the next look finds it whole
                continue
            with self._changed:
                self._seen, self._values, self._version = seen, values, self._version + 1
                self._changed.notify_all()

    def end(self) -> None:
        """Nobody waits any longer."""
        self.ended.set()
        with self._changed:
            self._changed.notify_all()

    def page(self) -> str:
        """As it is now."""
        with self._changed:
            return document(self._values)

    def news(self, known: int) -> tuple[int, str]:
        """The values after version `known`, waited for; nothing but a sign of life after a while."""
        with self._changed:
            self._changed.wait_for(lambda: self._version > known or self.ended.is_set(), HEARTBEAT)
            return (self._version, embedded(self._values)) if self._version > known else (known, "")

    @property
    def version(self) -> int:
        """Of the values."""
        with self._changed:
            return self._version


class Handler(BaseHTTPRequestHandler):
    """`/` is the page, `/events` what changes; there is nothing else."""

    watched: Watched  # of the class made for a server
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "Accord", ""

    def do_GET(self) -> None:
        """Answer one request."""
        host = (self.headers.get("Host") or "").rpartition(":")[0]
        if host not in (LOOPBACK, "localhost"):  # a page of somebody else's that points its own name at this machine
            self.send_error(403)
        elif self.path == "/":
            self._send(self.watched.page().encode(), "text/html; charset=utf-8")
        elif self.path == "/events":
            self._tell()
        else:
            self.send_error(404)

    def _send(self, body: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(body)

    def _tell(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Cache-Control", "no-store")
        self.send_header("Connection", "close")
        self.end_headers()
        known = -1
        try:
            while not self.watched.ended.is_set():
                known, text = self.watched.news(known)
                self.wfile.write(f"data: {text}\n\n".encode() if text else b": still here\n\n")
                self.wfile.flush()
            self.wfile.write(b"event: over\ndata: \n\n")
        except (BrokenPipeError, ConnectionResetError):
            pass  # the page was closed
        self.close_connection = True

    def log_message(self, format: str, *arguments: object) -> None:
        """Nobody reads it."""


def serve(places: Iterable[Path | str], port: int, ready: Callable[[str], None]) -> None:
    """Serve until interrupted; `ready` is told the address."""
    watched = Watched(places)
    try:
        server = ThreadingHTTPServer((LOOPBACK, port), type("Bound", (Handler,), {"watched": watched}))
    except OSError as error:
        raise ConfigError(f"port {port} cannot be had: {error.strerror or error}. Choose another --port.") from error
    server.daemon_threads = True
    follower = threading.Thread(target=watched.follow, daemon=True)
    follower.start()
    ready(f"http://{LOOPBACK}:{server.server_address[1]}/")
    try:
        server.serve_forever(poll_interval=0.2)
    finally:
        watched.end()
        server.server_close()
        follower.join(timeout=5)
