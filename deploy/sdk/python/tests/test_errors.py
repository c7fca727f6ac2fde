"""Refused requests, limits, and connections that fail."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from breaking import BreakingProxy
from daemon import Daemon, make_certificate, until

from hartline import (
    AuthenticationError,
    Client,
    ConflictError,
    ConnectError,
    ConnectionLostError,
    ForbiddenError,
    HartlineError,
    MachineEvent,
    Missed,
    NotFoundError,
    RequestTimeoutError,
    SnapshotEvent,
    Spec,
    TooManyRequestsError,
)
from hartline._transport import Settings

Connect = Callable[..., Client]


def test_keys(connect: Connect, daemon: Daemon) -> None:
    wrong = connect(daemon.tls, key="wrong", ca=daemon.ca)
    with pytest.raises(AuthenticationError) as refused:
        wrong.machines.list()
    assert (refused.value.status, refused.value.code) == (401, "unauthorized")
    assert wrong.system.version().version
    with pytest.raises(AuthenticationError):
        connect(daemon.tls, ca=daemon.ca).programs.list()
    reader = connect(daemon.tls, key=daemon.make_key("read"), ca=daemon.ca)
    reader.machines.list()
    with pytest.raises(ForbiddenError) as scope:
        reader.programs.push(b"x", name="x")
    assert (scope.value.status, scope.value.code) == (403, "forbidden")
    # Tracebacks do not show it.
    assert "secret" not in repr(Settings.of(None, "secret", None, None, 1, 0))
    with pytest.raises(AuthenticationError):
        next(wrong.runs.stream(Spec("anything")))


def test_settings_of_the_environment(
    connect: Connect, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HARTLINE_HOST", daemon.tls)
    monkeypatch.setenv("HARTLINE_CA", str(daemon.ca))
    monkeypatch.setenv("HARTLINE_KEY", daemon.make_key("read"))
    # A proxy of the environment is not used.
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    assert connect("").volumes.list() == []
    for host in ("127.0.0.1:80", "ftp://a:1"):
        with pytest.raises(ValueError, match="needs the form unix://PATH"):
            connect(host)
    with pytest.raises(ValueError, match="must be more than 0 seconds"):
        connect(daemon.host, timeout=0)
    with pytest.raises(ValueError, match="must not be negative"):
        connect(daemon.host, retries=-1)


def test_tenants(connect: Connect, daemon: Daemon) -> None:
    daemon.make_tenant("own")
    own = connect(daemon.host, tenant="own")
    own.volumes.create("data", size=1 << 20)
    with pytest.raises(NotFoundError):
        connect(daemon.host).volumes.get("data")
    own.volumes.delete("data")
    with pytest.raises(NotFoundError, match="no such tenant"):
        connect(daemon.host, tenant="unknown").volumes.list()


def test_certificates(connect: Connect, daemon: Daemon, tmp_path: Path) -> None:
    other, _ = make_certificate(tmp_path)
    started = time.monotonic()
    with pytest.raises(ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
        connect(daemon.tls, ca=other, retries=20).system.version()
    # It is not repeated: with 20 repetitions this would take a day.
    assert time.monotonic() - started < 3600
    with pytest.raises(FileNotFoundError):
        connect(daemon.tls, ca=tmp_path / "nothing")
    plain = daemon.tls.replace("https", "http")
    with pytest.raises(HartlineError):
        connect(plain, retries=0).system.version()


def test_quota(connect: Connect, daemon: Daemon, service_file: Path, unique: str) -> None:
    daemon.make_tenant(unique, max_storage=256 << 20, max_memory=128 << 20, max_queued=1)
    small = connect(daemon.host, tenant=unique)
    small.programs.push(service_file, name="service")
    small.programs.wait_ready("service")
    with pytest.raises(ConflictError) as storage:
        small.volumes.create("data", size=257 << 20)
    assert storage.value.code == "storage-quota"
    with pytest.raises(ForbiddenError) as memory:
        small.runs.run(Spec("service", memory=256 << 20))
    assert (memory.value.status, memory.value.code) == (403, "quota")
    spec = Spec("service", args=("idle",), memory=128 << 20)
    small.machines.create(spec, name="only", start=True)
    until(lambda: small.machines.get("only").state == "running")
    assert small.machines.create(spec, name="waits", start=True).state == "queued"
    with pytest.raises(TooManyRequestsError) as queue:
        small.machines.create(spec, start=True)
    assert (queue.value.code, queue.value.retry_after) == ("queue-full", 1.0)
    for name in ("waits", "only"):
        small.machines.kill(name)
        small.machines.wait(name)


def test_no_daemon(connect: Connect, tmp_path: Path) -> None:
    client = connect(f"unix://{tmp_path}/nothing")
    started = time.monotonic()
    with pytest.raises(ConnectError, match="no connection to the daemon"):
        client.machines.list()
    # Two repetitions, after 0.1 s and 0.2 s.
    assert time.monotonic() - started >= 0.3
    with pytest.raises(ConnectError):
        next(client.runs.stream(Spec("x")))


def test_daemon_that_is_silent(connect: Connect, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "silent"))
        listener.listen()
        client = connect(f"unix://{tmp_path}/silent", timeout=0.2)
        with pytest.raises(RequestTimeoutError):
            client.machines.list()
        with pytest.raises(TimeoutError):
            client.machines.wait("x", timeout=0)


def test_creations_are_repeated_safely(
    connect: Connect, daemon: Daemon, root: Client, unique: str, tmp_path: Path
) -> None:
    spec = Spec("service", labels={"test": unique})
    # The daemon makes the machine, and its answer is lost twice.
    with BreakingProxy(tmp_path / "first", daemon.socket, breaks=2) as proxy:
        machine = connect(proxy.host).machines.create(spec, start=True)
        assert proxy.answers == 3
    assert [found.id for found in root.machines.list(label=("test", unique))] == [machine.id]
    with BreakingProxy(tmp_path / "second", daemon.socket, breaks=2) as proxy:
        run = connect(proxy.host).runs.submit(spec)
        assert proxy.answers == 3
    assert [found.id for found in root.runs.list(label=("test", unique))] == [run.id]


def test_other_requests_are_not_repeated(
    connect: Connect, daemon: Daemon, root: Client, unique: str, tmp_path: Path
) -> None:
    spec = Spec("service", labels={"test": unique})
    with BreakingProxy(tmp_path / "proxy", daemon.socket, breaks=3) as proxy:
        client = connect(proxy.host)
        with pytest.raises(ConnectionLostError, match="broke"):
            client.machines.create(spec, idempotency_key=None)
        with pytest.raises(ConnectionLostError):
            client.runs.run(spec)
        with pytest.raises(ConnectionLostError):
            client.machines.create(spec, name=unique, idempotency_key=None)
        assert proxy.answers == 3
        # A repeated start would be refused.
        assert client.machines.start(unique).name == unique
    assert len(root.machines.list(label=("test", unique))) == 2


def test_repetitions_have_a_limit(connect: Connect, daemon: Daemon, tmp_path: Path) -> None:
    with BreakingProxy(tmp_path / "proxy", daemon.socket, breaks=100) as proxy:
        with pytest.raises(ConnectionLostError):
            connect(proxy.host, retries=3).machines.list()
        assert proxy.answers == 4


def test_uploads_are_repeated_if_they_can_be_read_again(
    connect: Connect, daemon: Daemon, service_file: Path, tmp_path: Path
) -> None:
    with BreakingProxy(tmp_path / "first", daemon.socket, breaks=2) as proxy:
        pushed = connect(proxy.host).programs.push(service_file, name="service")
        assert (pushed.name, proxy.answers) == ("service", 3)
    with (
        BreakingProxy(tmp_path / "second", daemon.socket, breaks=1) as proxy,
        service_file.open("rb") as file,
    ):
        with pytest.raises(ConnectionLostError):
            connect(proxy.host).programs.push(file, name="service")
        assert proxy.answers == 1


def test_daemon_that_goes_away(
    connect: Connect, service_file: Path, tools_tar: bytes, tmp_path: Path
) -> None:
    daemon = Daemon("pool = 1", "translation_timeout_s = 1")
    try:
        client = connect(daemon.tls, key=daemon.make_key("write"), ca=daemon.ca, retries=0)
        client.programs.push(service_file, name="service")
        client.programs.push(tools_tar, name="tools")
        client.programs.wait_ready("service", translated=False)
        client.programs.wait_ready("tools", translated=False)
        tick = Spec("service", args=("tick",))
        client.machines.create(tick, name="tick", start=True)
        sleep = Spec("tools", path="/bin/sleep", args=("1000",))
        client.machines.create(sleep, name="box", start=True)
        until(lambda: client.machines.get("box").state == "running")
        run = client.runs.stream(tick)
        log = client.machines.follow("tick")
        (tmp_path / "zeros").write_bytes(bytes(20_000_000))
        client.machines.copy_to("box", "/tmp", tmp_path / "zeros")
        copy = client.machines.copy_from("box", "/tmp/zeros")
        with (
            client.machines.exec_stream("box", ["cat"]) as process,
            connect(daemon.host).events.follow() as events,
        ):
            process.write(b"typed")
            for stream in (run, log, process, copy):
                assert next(stream)
            daemon.kill()
            for stream in (run, log, process, copy):
                with pytest.raises(ConnectionLostError):
                    for _ in stream:
                        pass
            until(lambda: _is_gone(client))
            daemon.end_processes()
            daemon.start()
            assert next(events) == Missed(None)
            machine = connect(daemon.host).machines.create(Spec("service"))
            found = next(event for event in events if _is_of(event, machine.id))
            assert isinstance(found, MachineEvent)
            assert found.state == "created"
    finally:
        daemon.close()


def _is_of(event: MachineEvent | SnapshotEvent | Missed, machine: str) -> bool:
    return isinstance(event, MachineEvent) and event.machine == machine


def _is_gone(client: Client) -> bool:
    try:
        client.machines.list()
    except ConnectError:
        return True
    except ConnectionLostError:
        # The service is ending.
        return False
    return False
