"""The stream of state changes."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from breaking import BreakingProxy
from daemon import Daemon

from hartline import (
    AuthenticationError,
    Client,
    ConnectError,
    ConnectionLostError,
    MachineEvent,
    Missed,
    ProtocolError,
    RequestTimeoutError,
    ServerError,
    SnapshotEvent,
    Spec,
    TransportError,
)
from hartline._transport import Outage
from hartline.operations import events as operations

Connect = Callable[..., Client]
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
EVENT = b'event: machine\ndata: {"machine":"ab","state":"running","time_ms":5}\n\n'
RUNNING = MachineEvent("ab", "running", 5)


def test_events(api: Client, root: Client, service: str) -> None:
    with api.events.follow() as events:
        root.machines.create(Spec("service"), start=True)
        machine = api.machines.create(Spec(service, args=("exit",)))
        api.machines.start(machine.id)
        found: list[MachineEvent] = []
        while not found or found[-1].state != "exited":
            event = next(events)
            assert isinstance(event, MachineEvent)
            found.append(event)
    ended = api.machines.get(machine.id)
    # The events of another tenant are not among them.
    assert {event.machine for event in found} == {machine.id}
    assert [event.state for event in found] == [
        "created", "queued", "starting", "running", "exited",
    ]  # fmt: skip
    times = [event.time_ms for event in found]
    assert times == sorted(times)
    assert ended.created_ms <= times[0]


def test_events_after_a_lost_connection(
    connect: Connect, daemon: Daemon, root: Client, tmp_path: Path
) -> None:
    spec = Spec("service")
    with BreakingProxy(tmp_path / "proxy", daemon.socket, breaks=0) as proxy:
        client = connect(proxy.host)
        with client.events.follow() as events, client.events.follow(reconnect_for=0) as once:
            for _ in range(2):
                proxy.cut()
                # What happens now is lost.
                lost = root.machines.create(spec, start=True).id
                root.machines.wait(lost)
                assert next(events) == Missed(None)
                machine = root.machines.create(spec, start=True).id
                states = []
                while "exited" not in states:
                    event = next(events)
                    assert isinstance(event, MachineEvent)
                    # The end of the other machine may come late.
                    if event.machine == machine:
                        states.append(event.state)
                assert states == ["queued", "starting", "running", "exited"]
            with pytest.raises(ConnectionLostError):
                next(once)
        closed = client.events.follow(reconnect_for=0.3)
        last = client.events.follow(reconnect_for=0.3)
        with last:
            closed.__enter__()
            closed.close()
            with pytest.raises(StopIteration):
                next(iter(closed))
            (tmp_path / "proxy").unlink()
            proxy.cut()
            started = time.monotonic()
            with pytest.raises(ConnectError):
                next(last)
            assert time.monotonic() - started >= 0.3


def test_refused_events(connect: Connect, daemon: Daemon) -> None:
    client = connect(daemon.tls, key="wrong", ca=daemon.ca)
    with pytest.raises(AuthenticationError):
        next(client.events.follow())
    with pytest.raises(AuthenticationError), client.events.follow():
        pass
    with pytest.raises(ValueError, match="must not be negative"):
        client.events.follow(reconnect_for=-1)


@contextmanager
def answering(path: Path, *answers: list[bytes]) -> Iterator[str]:
    """Serve connections in turn, with a pause after each part of an answer."""
    stop = threading.Event()

    def serve() -> None:
        for parts in answers:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            with client:
                client.recv(1 << 16)
                for part in parts:
                    if part:
                        client.sendall(part)
                    stop.wait(0.05)
        stop.wait()

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"unix://{path}"
        finally:
            stop.set()
            # The thread may wait in `accept`, which this ends.
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def test_daemon_that_ends_or_is_silent(
    connect: Connect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = [HEAD, b":\n\n", EVENT]
    silent = [HEAD] + 200 * [b""]
    with answering(tmp_path / "socket", ends, silent) as host:
        events = connect(host).events.follow(reconnect_for=0)
        assert next(events) == RUNNING
        with pytest.raises(ConnectionLostError, match="ended the events"):
            next(events)
        # A heartbeat may come so late, besides the client's time-out.
        monkeypatch.setattr(operations, "HEARTBEAT", 0.3)
        events = connect(host, timeout=0.2).events.follow(reconnect_for=0)
        started = time.monotonic()
        with pytest.raises(RequestTimeoutError):
            next(events)
        assert time.monotonic() - started >= 0.5


def test_daemon_that_restarts(connect: Connect, tmp_path: Path) -> None:
    busy = b"HTTP/1.1 503 x\r\nRetry-After: 0\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
    refused = busy.replace(b"503", b"401")
    with answering(
        tmp_path / "socket", [HEAD, EVENT], [b""], [busy], [HEAD, EVENT], [refused]
    ) as host:
        events = connect(host, retries=0).events.follow()
        items = [next(events) for _ in range(3)]
        assert items == [RUNNING, Missed(None), RUNNING]
        # No later attempt would succeed.
        with pytest.raises(AuthenticationError):
            next(events)


def test_outages() -> None:
    outage = Outage(1000)
    lost = ConnectionLostError("lost")
    pauses = [outage.pause_after(lost) for _ in range(8)]
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5, 5]
    outage.end()
    assert outage.pause_after(lost) == 0.1
    assert outage.pause_after(ServerError(503, "", "", retry_after=7)) == 7
    assert Outage(1e-3).pause_after(lost) == pytest.approx(1e-3)
    with pytest.raises(TransportError):
        Outage(0).pause_after(lost)
    with pytest.raises(AuthenticationError):
        outage.pause_after(AuthenticationError(401, "", ""))


def decoded(*parts: bytes) -> list[MachineEvent | SnapshotEvent | Missed]:
    decoder = operations.follow().streaming.decoder()
    return [item for part in parts for item in decoder.feed(part)]


def test_decoding() -> None:
    lines = b": comment\n\nid: 7\nretry: 1\nevent: new\ndata: x\n\ndata\n\n" + EVENT
    whole = lines + EVENT.replace(b"\n", b"\r\n") + b"event:missed\ndata:12\n\n" + EVENT[:-1]
    expected = [RUNNING, RUNNING, Missed(12)]
    assert decoded(whole) == expected
    assert decoded(*(bytes([byte]) for byte in whole)) == expected
    snapshot = b'{"snapshot":"cd","name":null,"machine":"ab",'
    snapshot += b'"state":"failed","reason":"x","time_ms":5}'
    failed = SnapshotEvent("cd", None, "ab", "failed", "x", 5)
    assert decoded(b"event: snapshot\ndata: " + snapshot + b"\n\n") == [failed]
    # The data may be in several lines.
    assert decoded(EVENT.replace(b",", b",\ndata: ")) == [RUNNING]


@pytest.mark.parametrize(
    "answer",
    [
        b"event: machine\ndata: {}\n\n",
        b"event: machine\ndata: \xff\n\n",
        b"event: machine\ndata\n\n",
        b"event: missed\ndata: -1\n\n",
        b"event: missed\ndata: " + b"9" * 5000 + b"\n\n",
        b"x" * (65 << 10),
        b"data: 1234567\n" * (9 << 10),
    ],
)
def test_wrong_events(answer: bytes) -> None:
    with pytest.raises(ProtocolError):
        decoded(answer)
