"""Files of running machines."""

from __future__ import annotations

import hashlib
import io
import os
import socket
import tarfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from anyio.from_thread import start_blocking_portal
from blocking import blocking
from breaking import BreakingProxy
from daemon import Daemon, until

from hartline import (
    AsyncClient,
    Client,
    ConflictError,
    ConnectionLostError,
    ForbiddenError,
    InvalidRequestError,
    NotFoundError,
    Spec,
    TooLargeError,
)
from hartline._tar import Tree

Connect = Callable[..., Client]
TIME = 1_600_000_000
LARGE = 20_000_000
"""Length of large files, bytes: more than all buffers."""
COPIES = 32
"""Most copies in a machine at a time."""


@pytest.fixture(scope="session")
def box(api: Client, tools: str) -> Iterator[str]:
    """Return the name of a machine that sleeps, with room for files."""
    spec = Spec(tools, path="/bin/sleep", args=("100000",), memory=256 << 20)
    api.machines.create(spec, name="files", start=True)
    until(lambda: api.machines.get("files").state == "running")
    yield "files"
    api.machines.kill("files")


def make_tree(top: Path) -> None:
    long = "n" * 150
    (top / "deep" / long).mkdir(parents=True)
    (top / "empty").mkdir()
    for name, data, mode in (
        ("plain", b"plain\n", 0o644),
        ("program", b"#!", 0o755),
        ("nothing", b"", 0o600),
        ("a name\n\u4e2d", b"x" * 512, 0o604),
        (f"deep/{long}/{long}", b"long" * 1000, 0o640),
    ):
        (top / name).write_bytes(data)
        (top / name).chmod(mode)
    (top / "link").symlink_to("plain")
    (top / "long link").symlink_to("empty/" * 20)
    (top / "hard").hardlink_to(top / "plain")
    for path in sorted(top.rglob("*"), reverse=True):
        os.utime(path, (TIME, TIME), follow_symlinks=False)


def listing(top: Path) -> dict[str, object]:
    """Return type and mode of all files, with times, links and contents."""
    found: dict[str, object] = {}
    for path in top.rglob("*"):
        status = path.lstat()
        if path.is_symlink():
            found[str(path.relative_to(top))] = path.readlink()
        elif path.is_dir():
            found[str(path.relative_to(top))] = (status.st_mode, status.st_mtime)
        else:
            content = (status.st_mode, status.st_mtime, status.st_nlink, path.read_bytes())
            found[str(path.relative_to(top))] = content
    return found


def tar_of(name: str, data: bytes, owner: int = 0) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        member = tarfile.TarInfo(name)
        member.size, member.uid, member.gid = len(data), owner, owner
        tar.addfile(member, io.BytesIO(data))
    return packed.getvalue()


def read(api: Client, box: str, path: str) -> str:
    result = api.machines.exec(box, ["cat", path])
    assert result.exit_code == 0
    return result.stdout.text


def members(packed: bytes) -> list[tarfile.TarInfo]:
    return tarfile.open(fileobj=io.BytesIO(packed)).getmembers()


def test_trees_both_ways(api: Client, box: str, tmp_path: Path, unique: str) -> None:
    tree = tmp_path / unique
    make_tree(tree)
    api.machines.copy_to(box, "/tmp", tree)
    assert read(api, box, f"/tmp/{unique}/link") == "plain\n"
    assert api.machines.copy_from(box, f"/tmp/{unique}").extract(tmp_path / "out") == []
    assert listing(tmp_path / "out" / unique) == listing(tree)
    # The contents only, and once more over what exists.
    for _ in range(2):
        api.machines.copy_to(box, f"/tmp/{unique}/empty", f"{tree}/.")
        api.machines.copy_from(box, f"/tmp/{unique}/empty/.").extract(str(tmp_path / "again"))
    again, whole = listing(tmp_path / "again"), listing(tree)
    assert again.keys() == whole.keys()
    # Existing directories of the machine keep their own times.
    folders = {name for name in whole if (tree / name).is_dir()}
    assert all(again[name] == whole[name] for name in whole.keys() - folders)
    with api.machines.copy_from(box, f"/tmp/{unique}/link", follow=True) as archive:
        assert [(member.name, member.size) for member in members(b"".join(archive))] == [
            ("link", 6)
        ]


def test_contents_of_all_kinds(api: Client, box: str, tmp_path: Path, unique: str) -> None:
    packed = tar_of(unique, b"bytes")
    (tmp_path / unique).write_text("path")
    for content, expected in (
        (packed, "bytes"),
        (io.BytesIO(packed.replace(b"bytes", b"files")), "files"),
        ((packed[place : place + 100] for place in range(0, len(packed), 100)), "bytes"),
        (str(tmp_path / unique), "path"),
    ):
        api.machines.copy_to(box, "/tmp", content)
        assert read(api, box, f"/tmp/{unique}") == expected
    with api.machines.copy_from(box, f"/tmp/{unique}") as archive:
        api.machines.copy_to(box, "/bin", archive)
    assert read(api, box, f"/bin/{unique}") == "path"
    for owners in (False, True):
        api.machines.copy_to(box, "/tmp", tar_of(unique, b"", 7), owners=owners)
        with api.machines.copy_from(box, f"/tmp/{unique}") as archive:
            (member,) = members(b"".join(archive))
            assert (member.uid, member.gid) == ((7, 7) if owners else (0, 0))


def test_large_files(api: Client, box: str, tmp_path: Path, unique: str) -> None:
    data = os.urandom(LARGE)
    (tmp_path / unique).write_bytes(data)
    api.machines.copy_to(box, "/tmp", tmp_path / unique)
    api.machines.copy_from(box, f"/tmp/{unique}").extract(tmp_path / "out")
    copy = (tmp_path / "out" / unique).read_bytes()
    assert hashlib.sha256(copy).digest() == hashlib.sha256(data).digest()
    # The machine's files are in its memory.
    api.machines.exec(box, ["sh", "-c", f">/tmp/{unique}"])


def test_local_files(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tmp_path / "link").symlink_to("tree")
    (tree / "file").write_bytes(bytes(200_000))
    with socket.socket(socket.AF_UNIX) as unix:
        unix.bind(str(tree / "socket"))
    for path, names in (
        (tree, ["tree", "tree/file"]),
        (f"{tree}/", ["tree", "tree/file"]),
        (f"{tree}/.", [".", "./file"]),
        (tmp_path / "link", ["link"]),
        (f"{tmp_path}/link/", ["link", "link/file"]),
    ):
        assert [member.name for member in members(b"".join(Tree(path).chunks()))] == names
    chunks = Tree(tree / "file").chunks()
    sizes = [len(next(chunks)) for _ in range(2)]
    assert sizes == [512, 64 << 10]
    os.truncate(tree / "file", 100_000)
    with pytest.raises(OSError, match="became shorter"):
        list(chunks)


def test_asynchronous_content(daemon: Daemon, root_box: str) -> None:
    async def content() -> AsyncIterator[bytes]:
        yield b""

    with Client(daemon.host) as client, pytest.raises(TypeError, match="only AsyncClient"):
        client.machines.copy_to(root_box, "/tmp", content())


def test_types(api: Client, box: str) -> None:
    for path, follow, expected in (
        ("/bin/busybox", False, "file"),
        ("/bin/sh", False, "link"),
        ("/bin/sh", True, "file"),
        ("/tmp/", False, "directory"),
        ("/dev/null", False, "other"),
    ):
        assert api.machines.file_type(box, path, follow=follow) == expected


def test_refused_copies(
    api: Client, box: str, service: str, unique: str, tmp_path: Path, daemon: Daemon
) -> None:
    machines = api.machines
    api.machines.create(Spec(service), name=unique)
    requests: list[Callable[[str, str], object]] = [
        machines.file_type,
        lambda machine, path: next(machines.copy_from(machine, path)),
        lambda machine, path: machines.copy_from(machine, path).extract(tmp_path),
        lambda machine, path: machines.copy_to(machine, path, tar_of("x", b"")),
    ]
    for send in requests:
        with pytest.raises(NotFoundError, match="no such machine"):
            send("no-such-machine", "/tmp")
        with pytest.raises(NotFoundError, match="file"):
            send(box, "/tmp/nothing")
        with pytest.raises(ConflictError) as state:
            send(unique, "/tmp")
        assert state.value.code == "wrong-state"
        with pytest.raises(InvalidRequestError):
            send(box, "tmp")
    with pytest.raises(ConflictError) as failed:
        next(machines.copy_from(box, "/proc/version"))
    assert failed.value.code == "copy-failed"
    with pytest.raises(InvalidRequestError, match="not a tar file"):
        machines.copy_to(box, "/tmp", b"x" * 1024)
    with pytest.raises(FileNotFoundError):
        machines.copy_to(box, "/tmp", tmp_path / "nothing")
    with pytest.raises(ValueError, match="of the iterator"):
        machines.copy_to(box, "/tmp", broken())
    assert list(tmp_path.iterdir()) == []


def broken() -> Iterator[bytes]:
    yield tar_of("x", b"")[:512]
    raise ValueError("of the iterator")


def test_keys(connect: Connect, daemon: Daemon, root_box: str) -> None:
    reader = connect(daemon.tls, key=daemon.make_key("read"), ca=daemon.ca)
    with pytest.raises(ForbiddenError):
        reader.machines.file_type(root_box, "/bin")
    with pytest.raises(ForbiddenError):
        next(reader.machines.copy_from(root_box, "/bin"))


def test_limits(api: Client, box: str, tmp_path: Path, unique: str) -> None:
    with pytest.raises(TooLargeError) as size:
        api.machines.copy_to(box, "/tmp", iter([tar_of(unique, bytes(33 << 20))]))
    assert size.value.code == "copy-limit"
    for number in range(101):
        (tmp_path / str(number)).touch()
    with pytest.raises(TooLargeError, match="copy_max_files"):
        api.machines.copy_to(box, "/tmp", tmp_path)
    api.machines.copy_to(box, "/tmp", tar_of("half", bytes(17 << 20)))
    script = f"cat /tmp/half /tmp/half >/tmp/{unique}"
    assert api.machines.exec(box, ["sh", "-c", script]).exit_code == 0
    # The limit is reached after the begin of the answer.
    with pytest.raises(ConnectionLostError):
        for _ in api.machines.copy_from(box, f"/tmp/{unique}"):
            pass
    with pytest.raises(ConnectionLostError):
        api.machines.copy_from(box, f"/tmp/{unique}").extract(tmp_path / "out")


def test_copies_that_are_not_read_to_the_end(api: Client, box: str, unique: str) -> None:
    api.machines.copy_to(box, "/tmp", tar_of(unique, bytes(LARGE)))

    def has_begun() -> bool:
        try:
            with api.machines.copy_from(box, f"/tmp/{unique}") as archive:
                return bool(next(archive))
        except ConflictError:
            # The machine has not ended the earlier copies yet.
            return False

    for _ in range(COPIES + 8):
        until(has_begun)


@pytest.fixture(scope="module")
def impatient(tools_tar: bytes) -> Iterator[Daemon]:
    """Return a daemon that waits a second for clients, with a machine that has a large file."""
    daemon = Daemon("pool = 1", "translation_timeout_s = 1", "idle_timeout_s = 1")
    try:
        with Client(daemon.host) as client:
            client.programs.push(tools_tar, name="tools")
            client.programs.wait_ready("tools", translated=False)
            sleep = Spec("tools", path="/bin/sleep", args=("100000",), memory=128 << 20)
            client.machines.create(sleep, name="box", start=True)
            until(lambda: client.machines.get("box").state == "running")
            client.machines.copy_to("box", "/tmp", tar_of("zeros", bytes(LARGE)))
        yield daemon
    finally:
        daemon.close()


def test_clients_that_stop_reading(impatient: Daemon) -> None:
    key = impatient.make_key("write")
    with (
        start_blocking_portal() as portal,
        Client(impatient.host) as first,
        blocking(portal, AsyncClient(impatient.tls, key=key, ca=impatient.ca)) as second,
    ):
        streams = [client.machines.copy_from("box", "/tmp/zeros") for client in (first, second)]
        for stream in streams:
            assert next(stream)
        # Longer than `idle_timeout_s`.
        time.sleep(2)
        for stream in streams:
            with pytest.raises(ConnectionLostError):
                for _ in stream:
                    pass
        assert first.machines.file_type("box", "/tmp/zeros") == "file"


def test_copies_are_not_repeated(
    connect: Connect, daemon: Daemon, root: Client, root_box: str, unique: str, tmp_path: Path
) -> None:
    with BreakingProxy(tmp_path / "proxy", daemon.socket, breaks=3) as proxy:
        machines = connect(proxy.host).machines
        with pytest.raises(ConnectionLostError):
            machines.copy_to(root_box, "/tmp", tar_of(unique, b"once"))
        with pytest.raises(ConnectionLostError):
            next(machines.copy_from(root_box, "/bin/busybox"))
        assert proxy.answers == 2
        # A type can be asked for again.
        assert machines.file_type(root_box, f"/tmp/{unique}") == "file"
        assert proxy.answers == 4
