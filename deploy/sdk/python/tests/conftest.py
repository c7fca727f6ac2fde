"""A real daemon, both clients, and guest programs."""

from __future__ import annotations

import io
import itertools
import os
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from anyio.from_thread import start_blocking_portal
from blocking import blocking
from daemon import REPOSITORY, Daemon, program, until

from hartline import AsyncClient, Client, Spec

APPLETS = ["cat", "echo", "env", "head", "id", "kill", "pwd", "sh", "sleep", "stty", "uname"]
NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def daemon() -> Iterator[Daemon]:
    # A translation of the whole busybox would occupy the CPUs. It is interpreted instead.
    started = Daemon(
        "pool = 2",
        "max_upload = 8388608",
        "translation_timeout_s = 1",
        "copy_max_size = 33554432",
        "copy_max_files = 100",
    )
    yield started
    started.close()


@pytest.fixture(scope="session", params=["sync", "async"])
def api(request: pytest.FixtureRequest, daemon: Daemon) -> Iterator[Client]:
    """Each client in turn: one on the unix socket, one on TLS. Each has its own tenant."""
    daemon.make_tenant(request.param)
    if request.param == "sync":
        with Client(daemon.host, tenant="sync") as client:
            yield client
        return
    key = daemon.make_key("write", "async")
    with (
        start_blocking_portal() as portal,
        blocking(portal, AsyncClient(daemon.tls, key=key, ca=daemon.ca)) as client,
    ):
        yield client


@pytest.fixture(scope="session")
def service_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the small program that the daemon's tests use."""
    if "HARTLINE_SERVICE" in os.environ:
        return program("HARTLINE_SERVICE", Path())
    output = tmp_path_factory.mktemp("programs") / "service"
    source = REPOSITORY / "tests/programs/service/service.c"
    flags = ["-O1", "-static", "-nostdlib", "-ffreestanding"]
    subprocess.run(["riscv64-linux-gnu-gcc", *flags, "-o", output, source], check=True)
    return output


@pytest.fixture(scope="session")
def tools_tar() -> bytes:
    """Return a root file system with busybox."""
    busybox = program("HARTLINE_BUSYBOX", REPOSITORY / ".debian/riscv64/usr/bin/busybox")
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        tar.add(busybox, "bin/busybox")
        for applet in APPLETS:
            link = tarfile.TarInfo(f"bin/{applet}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(link)
        folder = tarfile.TarInfo("tmp")
        folder.type, folder.mode = tarfile.DIRTYPE, 0o1777
        tar.addfile(folder)
    return packed.getvalue()


@pytest.fixture(scope="session")
def service(api: Client, service_file: Path) -> str:
    """Return the name of the service program."""
    api.programs.push(service_file, name="service")
    api.programs.wait_ready("service")
    return "service"


@pytest.fixture(scope="session")
def tools(api: Client, tools_tar: bytes) -> str:
    """Return the name of the root file system with busybox."""
    api.programs.push(tools_tar, name="tools")
    api.programs.wait_ready("tools")
    return "tools"


@pytest.fixture(scope="session")
def root(daemon: Daemon, service_file: Path) -> Iterator[Client]:
    """Return a client of root, whose tenant has the service program."""
    with Client(daemon.host) as client:
        client.programs.push(service_file, name="service")
        client.programs.wait_ready("service")
        yield client


@pytest.fixture(scope="session")
def root_box(root: Client, tools_tar: bytes) -> str:
    """Return the name of a machine of root that sleeps."""
    root.programs.push(tools_tar, name="tools")
    root.programs.wait_ready("tools")
    spec = Spec("tools", path="/bin/sleep", args=("100000",))
    root.machines.create(spec, name="root-box", start=True)
    until(lambda: root.machines.get("root-box").state == "running")
    return "root-box"


@pytest.fixture
def unique() -> str:
    """Return a name that no other test uses."""
    return f"test-{next(NUMBERS)}"


@pytest.fixture(params=["sync", "async"])
def connect(request: pytest.FixtureRequest) -> Iterator[Callable[..., Client]]:
    """Return a function that makes clients of each kind in turn."""
    with ExitStack() as stack:
        portal = stack.enter_context(start_blocking_portal())

        def make(host: str, **settings: Any) -> Client:
            if request.param == "sync":
                return stack.enter_context(Client(host, **settings))
            return stack.enter_context(blocking(portal, AsyncClient(host, **settings)))

        yield make
