"""The downloader against a local server that resumes, breaks off, lies and refuses."""

from __future__ import annotations

import gzip
import hashlib
import io
import re
import struct
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from accord.data.files import download
from accord.data.files.download import Remote, fetch
from accord.data.files.idx import MNIST_FILES
from accord.data.public import cifar, emnist_letters, fashion_mnist, load_dataset, mnist
from accord.errors import DataError

BODY = np.random.default_rng(0).integers(0, 256, 300_000).astype(np.uint8).tobytes()
MD5 = hashlib.md5(BODY).hexdigest()


class Server:
    """Files by path, what was asked for, and the misbehaviour ordered for the next requests of a path."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {"/file.bin": BODY}
        self.asked: list[tuple[str, str | None]] = []
        self.orders: dict[str, list[str]] = {}
        self.ranges = True
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_args: object) -> None:
                pass

            def do_GET(self) -> None:
                wanted = self.headers.get("Range")
                outer.asked.append((self.path, wanted))
                orders = outer.orders.get(self.path) or []
                order = orders.pop(0) if orders else "serve"
                if self.path not in outer.files:
                    self.send_error(404)
                elif order == "busy":
                    self.send_error(503)
                else:
                    time.sleep(0.3 if order == "slow" else 0)
                    self.answer(outer.files[self.path], wanted, order)

            def answer(self, body: bytes, wanted: str | None, order: str) -> None:
                start = int(re.fullmatch(r"bytes=(\d+)-", wanted)[1]) if wanted and outer.ranges else 0
                if start >= len(body) and wanted and outer.ranges:
                    self.send_response(416)
                    self.send_header("Content-Range", f"bytes */{len(body)}")
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                self.send_response(206 if wanted and outer.ranges else 200)
                if wanted and outer.ranges:
                    first = 0 if order == "wrong range" else start
                    self.send_header("Content-Range", f"bytes {first}-{len(body) - 1}/{len(body)}")
                if order != "no length":
                    self.send_header("Content-Length", str(len(body) - start))
                self.end_headers()
                data = body[start:]
                self.wfile.write(data[: len(data) // 2] if order == "break" else data)

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.http.server_port}"

    def remote(self, path: str = "/file.bin", md5: str = MD5) -> Remote:
        return Remote("file.bin", (self.address + path,), md5)


@pytest.fixture
def server(monkeypatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "*")
    server = Server()
    thread = threading.Thread(target=server.http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield server
    server.http.shutdown()
    server.http.server_close()
    thread.join()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_download_reports_progress_and_leaves_one_file(server, tmp_path):
    seen: list[tuple[str, int, int]] = []
    path = fetch(server.remote(), tmp_path / "deep" / "er", lambda *args: seen.append(args))
    assert path == tmp_path / "deep" / "er" / "file.bin"
    assert path.read_bytes() == BODY
    assert names(path.parent) == ["file.bin"]
    assert seen[-1] == ("file.bin", len(BODY), len(BODY))
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)
    assert {total for _, _, total in seen} == {len(BODY)}


def test_a_file_that_is_there_is_not_asked_for_again(server, tmp_path):
    fetch(server.remote(), tmp_path)
    fetch(server.remote(), tmp_path)
    assert len(server.asked) == 1


def test_an_old_part_is_continued(server, tmp_path):
    (tmp_path / "file.bin.part").write_bytes(BODY[:123_456])
    assert fetch(server.remote(), tmp_path).read_bytes() == BODY
    assert server.asked == [("/file.bin", "bytes=123456-")]


def test_broken_transfers_go_on_where_they_stopped(server, tmp_path):
    server.orders["/file.bin"] = ["break", "break", "busy"]
    assert fetch(server.remote(), tmp_path, pause=0).read_bytes() == BODY
    # half of the file, then half of the rest, then a refusal, then all
    assert server.asked == [
        ("/file.bin", None),
        ("/file.bin", "bytes=150000-"),
        ("/file.bin", "bytes=225000-"),
        ("/file.bin", "bytes=225000-"),
    ]


def test_after_too_many_breaks_the_part_stays_for_the_next_run(server, tmp_path):
    server.orders["/file.bin"] = ["break", "break"]
    with pytest.raises(DataError, match="broke off after 225000 of 300000 bytes"):
        fetch(server.remote(), tmp_path, attempts=2, pause=0)
    assert names(tmp_path) == ["file.bin.part"]
    assert fetch(server.remote(), tmp_path).read_bytes() == BODY
    assert server.asked[-1] == ("/file.bin", "bytes=225000-")


def test_a_progress_callback_may_stop_it_and_the_part_stays(server, tmp_path):
    def stop(_name: str, done: int, _total: int) -> None:
        if done > 100_000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch(server.remote(), tmp_path, stop)
    assert names(tmp_path) == ["file.bin.part"]
    assert fetch(server.remote(), tmp_path).read_bytes() == BODY
    assert server.asked[-1][1] is not None


def test_servers_without_ranges_start_anew(server, tmp_path):
    server.ranges = False
    (tmp_path / "file.bin.part").write_bytes(BODY[:1000])
    assert fetch(server.remote(), tmp_path).read_bytes() == BODY
    assert len(server.asked) == 1


def test_servers_that_send_another_range_than_asked_for(server, tmp_path):
    server.orders["/file.bin"] = ["wrong range"]
    (tmp_path / "file.bin.part").write_bytes(BODY[:1000])
    assert fetch(server.remote(), tmp_path, pause=0).read_bytes() == BODY
    assert server.asked[-1] == ("/file.bin", None)


def test_servers_that_do_not_say_the_length(server, tmp_path):
    server.orders["/file.bin"] = ["no length"]
    seen: list[int] = []
    fetch(server.remote(), tmp_path, lambda _name, _done, total: seen.append(total))
    assert set(seen) == {0}


def test_a_whole_part_needs_no_more_bytes(server, tmp_path):
    (tmp_path / "file.bin.part").write_bytes(BODY)
    assert fetch(server.remote(), tmp_path).read_bytes() == BODY
    assert server.asked == [("/file.bin", "bytes=300000-")], "the answer says that this is all"


@pytest.mark.parametrize("old", [b"another version" * 100, bytes(400_000), bytes(300_000), bytes([BODY[0] ^ 1])])
def test_a_part_of_another_version_is_thrown_away(server, tmp_path, old):
    (tmp_path / "file.bin.part").write_bytes(old)
    assert fetch(server.remote(), tmp_path, pause=0).read_bytes() == BODY
    assert names(tmp_path) == ["file.bin"]
    assert server.asked == [("/file.bin", f"bytes={len(old)}-"), ("/file.bin", None)]


def test_an_empty_part_is_no_earlier_version(server, tmp_path):
    """What came whole and is wrong is not asked for again."""
    (tmp_path / "file.bin.part").write_bytes(b"")
    with pytest.raises(DataError, match="wrong contents"):
        fetch(server.remote(md5="0" * 32), tmp_path)
    assert server.asked == [("/file.bin", None)]


def test_wrong_contents_are_deleted_and_explained(server, tmp_path):
    server.files["/file.bin"] = b"<html>please log in</html>"
    with pytest.raises(DataError, match=r"wrong contents, deleted: 26 bytes with MD5 .* for .*login page"):
        fetch(server.remote(), tmp_path)
    assert names(tmp_path) == []
    assert len(server.asked) == 1


def test_the_next_address_is_tried(server, tmp_path):
    server.files["/bad"] = b"bad"
    urls = tuple(server.address + path for path in ("/missing", "/bad", "/file.bin", "/unused"))
    assert fetch(Remote("file.bin", urls, MD5), tmp_path).read_bytes() == BODY
    assert [path for path, _ in server.asked] == ["/missing", "/bad", "/file.bin"]


def test_all_addresses_fail_and_all_reasons_are_given(server, tmp_path):
    urls = (f"{server.address}/missing", "http://127.0.0.1:9/refused", "file:///etc/passwd")
    with pytest.raises(DataError) as error:
        fetch(Remote("file.bin", urls, MD5), tmp_path, timeout=5)
    text = str(error.value)
    assert "/missing: the server answered 404" in text
    assert "/refused: no connection" in text
    assert "passwd: only http and https" in text
    assert names(tmp_path) == []


def test_a_file_that_never_ends_is_refused(server, tmp_path, monkeypatch):
    monkeypatch.setattr("accord.data.files.download.MAX_BYTES", 299_999)
    with pytest.raises(DataError, match="does not end"):
        fetch(server.remote(), tmp_path / "short")
    monkeypatch.setattr("accord.data.files.download.MAX_BYTES", 300_000)
    assert fetch(server.remote(), tmp_path / "just").read_bytes() == BODY


def test_folders_that_cannot_be_written(server, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DataError, match=r"cannot write into .*ACCORD_DATA"):
        fetch(server.remote(), tmp_path / "file" / "below")


def test_two_at_once_download_it_once(server, tmp_path):
    # locks belong to open files, so two threads exclude each other as two processes do
    server.orders["/file.bin"] = ["slow"]
    with ThreadPoolExecutor(2) as pool:
        paths = list(pool.map(lambda _: fetch(server.remote(), tmp_path), range(2)))
    assert [path.read_bytes() for path in paths] == [BODY, BODY]
    assert len(server.asked) == 1
    assert names(tmp_path) == ["file.bin"]


def test_load_dataset_downloads_what_is_missing_into_the_first_folder(server, tmp_path, monkeypatch):
    monkeypatch.delenv("ACCORD_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    remotes = []
    for name in MNIST_FILES:
        shape = (10, 28, 28) if "images" in name else (10,)
        body = struct.pack(f">BBBB{len(shape)}I", 0, 0, 8, len(shape), *shape) + bytes(int(np.prod(shape)))
        packed = gzip.compress(body)
        server.files[f"/{name}.gz"] = packed
        remotes.append(Remote(f"{name}.gz", (f"{server.address}/{name}.gz",), hashlib.md5(packed).hexdigest()))
    collection = mnist.COLLECTION
    monkeypatch.setattr(
        mnist,
        "COLLECTION",
        type(collection)("mnist", collection.files, tuple(remotes), folders=("MNIST/raw",)),
    )
    seen: list[str] = []
    data = load_dataset("mnist", tmp_path / "data", progress=lambda name, *_: seen.append(name))
    assert len(data.train) == 10
    assert names(tmp_path / "data" / "mnist") == sorted(f"{name}.gz" for name in collection.files)
    assert set(seen) == set(names(tmp_path / "data" / "mnist"))
    (tmp_path / "data" / "mnist" / "t10k-labels-idx1-ubyte.gz").unlink()
    asked = len(server.asked)
    load_dataset("mnist", tmp_path / "data")
    assert [path for path, _ in server.asked[asked:]] == ["/t10k-labels-idx1-ubyte.gz"]

    load_dataset("mnist")  # no folder given: the user's cache
    assert len(names(tmp_path / "cache" / "accord" / "mnist")) == 4

    del server.files["/train-labels-idx1-ubyte.gz"]
    (tmp_path / "cache" / "accord" / "mnist" / "train-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(DataError) as error:
        load_dataset("mnist", tmp_path / "other")
    text = str(error.value)
    assert "the download failed" in text
    assert "404" in text
    assert f"Put into {tmp_path / 'other' / 'mnist'}:" in text
    assert "train-labels-idx1-ubyte.gz  from http" in text


@pytest.mark.parametrize(("code", "asked"), [(408, 3), (429, 3), (500, 3), (503, 3), (403, 1), (409, 1), (499, 1)])
def test_answers_that_are_worth_another_try(tmp_path, monkeypatch, code, asked):
    seen: list[str] = []
    pauses: list[float] = []

    def refuse(request, timeout):
        seen.append(f"{request.full_url} {timeout}")
        raise urllib.error.HTTPError(request.full_url, code, "no", Message(), io.BytesIO())

    monkeypatch.setattr(urllib.request, "urlopen", refuse)
    monkeypatch.setattr(time, "sleep", pauses.append)
    with pytest.raises(DataError, match=f"the server answered {code} no"):
        fetch(Remote("a", ("https://example.org/a",), ""), tmp_path, attempts=3, pause=2.0, timeout=7.0)
    assert seen == ["https://example.org/a 7.0"] * asked
    assert pauses == [2.0, 4.0][: asked - 1]


def test_published_checksums_are_well_formed():
    for collection in (
        *(mnist.COLLECTION, fashion_mnist.COLLECTION, emnist_letters.COLLECTION),
        *(cifar.CIFAR10, cifar.CIFAR100),
    ):
        for remote in collection.remotes:
            assert re.fullmatch("[0-9a-f]{32}", remote.md5)
            assert all(url.endswith(remote.name) for url in remote.urls)


class Body(io.BytesIO):
    """A server's answer without a server."""

    def __init__(self, body: bytes, status: int, **headers: str) -> None:
        super().__init__(body)
        self.status = status
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


@pytest.mark.parametrize(
    ("status", "headers", "body", "file", "total"),
    [
        (200, {"Content_Length": "5"}, b"abcde", b"abcde", 5),  # the part is not gone on with
        (200, {}, b"abcde", b"abcde", 0),
        (206, {"Content_Length": "2", "Content_Range": "bytes 3-4/5"}, b"de", b"xyzde", 5),
        (206, {"Content_Range": "bytes 3-4/5"}, b"de", b"xyzde", 5),
        (206, {"Content_Range": "bytes 3-4/*"}, b"de", b"xyzde", 0),
    ],
)
def test_what_an_answer_says_of_its_length(
    status: int, headers: dict[str, str], body: bytes, file: bytes, total: int, tmp_path: Path
) -> None:
    """Three bytes are there already; 0: how long it is is not known."""
    part = tmp_path / "part"
    part.write_bytes(b"xyz")
    seen: list[tuple[str, int, int]] = []
    download._store(Body(body, status, **headers), part, 3, "a", lambda *told: seen.append(told))  # type: ignore[arg-type]
    assert part.read_bytes() == file
    assert seen == [("a", 5, total)]


@pytest.mark.parametrize("told", ["bytes 2-4/5", "bytes 4-4/5", "bytes", ""])
def test_another_part_than_asked_for_is_thrown_away(told: str, tmp_path: Path) -> None:
    part = tmp_path / "part"
    part.write_bytes(b"xyz")
    with pytest.raises(download._InterruptedError, match="another part of the file"):
        download._store(Body(b"de", 206, Content_Range=told), part, 3, "a", None)  # type: ignore[arg-type]
    assert not part.exists()


def test_an_answer_that_breaks_off_is_noticed(tmp_path: Path) -> None:
    part = tmp_path / "part"
    with pytest.raises(download._InterruptedError, match="after 4 of 5 bytes"):
        download._store(Body(b"abcd", 200, Content_Length="5"), part, 0, "a", None)  # type: ignore[arg-type]
    assert part.read_bytes() == b"abcd", "to be gone on with"
