"""Tar files of hostile machines. A server that sends them takes the place of the daemon."""

from __future__ import annotations

import contextlib
import tarfile
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from anyio.from_thread import start_blocking_portal
from blocking import blocking

from hartline import ArchiveError, AsyncClient, Client, ConnectionLostError

Extract = Callable[..., list[str]]
BLOCK = tarfile.BLOCKSIZE


class Server(ThreadingHTTPServer):
    """Answers all requests with a body, whose last chunk is missing on request."""

    body = b""
    is_complete = True
    daemon_threads = True


class Handler(BaseHTTPRequestHandler):
    """Sends the server's body."""

    server: Server
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer."""
        # The client refuses the tar file before its end.
        with contextlib.suppress(ConnectionError):
            self._send()

    def _send(self) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        # Without this, the client may send its next request on a connection that is being closed.
        self.send_header("Connection", "close")
        self.end_headers()
        for place in range(0, len(self.server.body), 1000):
            piece = self.server.body[place : place + 1000]
            self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        if self.server.is_complete:
            self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *_: Any) -> None:
        """Write nothing."""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(("127.0.0.1", 0), Handler) as started:
        thread = threading.Thread(target=started.serve_forever, args=(0.05,))
        thread.start()
        yield started
        started.shutdown()
        thread.join()


@pytest.fixture(scope="module", params=["sync", "async"])
def client(request: pytest.FixtureRequest, server: Server) -> Iterator[Client]:
    """Return each client in turn."""
    host = f"http://127.0.0.1:{server.server_port}"
    if request.param == "sync":
        with Client(host, key="a key") as made:
            yield made
        return
    with (
        start_blocking_portal() as portal,
        blocking(portal, AsyncClient(host, key="a key")) as made,
    ):
        yield made


@pytest.fixture
def extract(client: Client, server: Server, tmp_path: Path) -> Extract:
    """Return a function that extracts a tar file."""

    def run(body: bytes, *, is_complete: bool = True, **arguments: bool) -> list[str]:
        server.body, server.is_complete = body, is_complete
        return client.machines.copy_from("box", "/").extract(tmp_path / "in", **arguments)

    return run


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Path]:
    """Return a directory beside the one that is extracted to. It must stay as it is."""
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "file").write_text("as it was")
    before = folder.lstat()
    yield folder
    assert [path.name for path in folder.iterdir()] == ["file"]
    assert (folder / "file").read_text() == "as it was"
    assert (folder / "file").stat().st_nlink == 1
    assert (folder.lstat().st_mtime, folder.lstat().st_mode) == (before.st_mtime, before.st_mode)
    assert {path.name for path in tmp_path.iterdir()} <= {"in", "out"}


def member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "", size: int = 0) -> bytes:
    found = tarfile.TarInfo(name)
    found.type, found.linkname, found.size, found.mode = kind, target, size, 0o6777
    return found.tobuf(tarfile.GNU_FORMAT) + b"x" * size + bytes(-size % BLOCK)


def directory(name: str) -> bytes:
    return member(name, tarfile.DIRTYPE)


def link(name: str, target: str) -> bytes:
    return member(name, tarfile.SYMTYPE, target)


def hard_link(name: str, target: str) -> bytes:
    return member(name, tarfile.LNKTYPE, target)


def checked(header: bytes) -> bytes:
    """Return a header with a right checksum."""
    blank = header[:148] + b" " * 8 + header[156:]
    return blank[:148] + b"%06o\0 " % sum(blank) + blank[156:]


def deceiving() -> bytes:
    """Return links whose resolution exceeds the longest path, so that Python ends it early."""
    packed, place, name = b"", "", "d" * 247
    for letter in "abcdefghijklmnop":
        packed += directory(f"{place}{name}") + link(f"{place}{letter}", name)
        place += f"{name}/"
    short = "/".join("abcdefghijklmnop")
    packed += link(f"{short}/{'l' * 254}", "../" * 16)
    packed += link("escape", f"{short}/{'l' * 254}/../out")
    return packed + member("escape/file", size=4)


HOSTILE = {
    "parent": member("../out/file"),
    "parent in the middle": member("a/../../out/file"),
    "absolute": member("/tmp/out"),
    "link to the parent": link("l", "..") + member("l/out/file"),
    "absolute link": link("l", "/tmp"),
    "link inside": directory("d") + link("l", "d") + member("l/file"),
    "link to a later link": link("a", "b/../..") + directory("b") + member("a/out/file"),
    "long links": deceiving(),
    "hard link": hard_link("l", "../out/file") + member("l", size=4),
    "hard link to a link": member("f") + link("l", "f") + hard_link("h", "l") + member("h"),
    "hard link below a link": directory("d") + link("l", "d") + hard_link("h", "l/f"),
    "directory and then a link": directory("d") + link("d", "../out"),
    "link and then a directory": link("d", ".") + directory("d"),
    "device": member("d", tarfile.CHRTYPE),
    "FIFO": member("f", tarfile.FIFOTYPE),
    "long name": member("n", tarfile.GNUTYPE_LONGNAME, size=70_000) + member("f"),
    "names of names": member("n", tarfile.GNUTYPE_LONGNAME, size=1) * 2000,
    "sparse": member("s", tarfile.GNUTYPE_SPARSE),
    "pax": member("p", tarfile.XHDTYPE, size=8) + member("f"),
    "damaged": member("f") + b"x" * BLOCK,
    "negative size": checked(b"f".ljust(124, b"\0") + b"\xff" * 12 + bytes(376)),
    "time": checked(b"f".ljust(136, b"\0") + b"\x80" + b"\x7f" * 11 + bytes(364)),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_tar_files(extract: Extract, outside: Path, name: str) -> None:
    with pytest.raises(ArchiveError):
        extract(HOSTILE[name] + bytes(2 * BLOCK))


def test_tar_file_that_ends_early(extract: Extract, outside: Path) -> None:
    for length in (100, BLOCK, 1000):
        with pytest.raises(ArchiveError):
            extract(member("f", size=1000)[:length])


def test_refused_members_are_skipped(extract: Extract, outside: Path, tmp_path: Path) -> None:
    packed = (
        member("device", tarfile.BLKTYPE)
        + member("fifo", tarfile.FIFOTYPE)
        + link("absolute", "/etc/passwd")
        + link("out", "../out/file")
        + link("in", "file")
        + member("file", size=700)
    )
    skipped = extract(packed + bytes(2 * BLOCK), skip_refused=True)
    assert skipped == ["device", "fifo", "absolute", "out"]
    assert {path.name for path in (tmp_path / "in").iterdir()} == {"in", "file"}
    # No set-ID bits, and no write access for others.
    assert (tmp_path / "in/file").stat().st_mode & 0o7777 == 0o755
    with pytest.raises(ArchiveError):
        extract(member("../out/file"), skip_refused=True)


def test_existing_files(extract: Extract, outside: Path, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "link").symlink_to(outside)
    (folder / "file").symlink_to(outside / "file")
    (folder / "hard").write_text("old")
    (folder / "same").hardlink_to(folder / "hard")
    with pytest.raises(ArchiveError, match="not a directory"):
        extract(member("link/file"))
    with pytest.raises(ArchiveError, match="only one of both"):
        extract(directory("link"))
    extract(member("file", size=3) + member("hard", size=3) + bytes(2 * BLOCK))
    assert (folder / "file").read_text() == "xxx"
    assert not (folder / "file").is_symlink()
    assert ((folder / "hard").read_text(), (folder / "same").read_text()) == ("xxx", "old")


@pytest.mark.parametrize("length", [0, 100, BLOCK, 1000, 100_000, 201_728])
def test_incomplete_answers(extract: Extract, outside: Path, length: int) -> None:
    whole = member("f", size=200_000) + bytes(2 * BLOCK)
    assert len(whole) == 201_728
    with pytest.raises(ConnectionLostError):
        extract(whole[:length], is_complete=False)
    extract(whole)


def test_directory_that_cannot_be_made(extract: Extract, tmp_path: Path) -> None:
    (tmp_path / "in").write_text("a file")
    with pytest.raises(OSError, match="exists"):
        extract(member("f", size=1 << 20) + bytes(2 * BLOCK))
