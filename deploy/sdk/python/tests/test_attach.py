"""Standard streams of the programs of machines."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from daemon import Daemon, until

from hartline import (
    Client,
    ConflictError,
    ConnectionLostError,
    ExecRefusedError,
    ForbiddenError,
    HartlineError,
    NotFoundError,
    Piece,
    Process,
    ProtocolError,
    Spec,
    Terminal,
)
from hartline.operations.attach import item_of

SCRIPT = "echo ready; while read line; do echo got $line; echo e >&2; done; exit 4"
LONG = 1 << 20


def test_attach(api: Client, tools: str, unique: str) -> None:
    spec = Spec(tools, path="/bin/sh", args=("-c", SCRIPT), interactive=True)
    made = api.machines.create(spec, name=unique, start=True)
    until(lambda: api.machines.get(unique).state == "running")
    with api.machines.attach(unique, logs=True, stdin=True) as program:
        assert next(program) == Piece("stdout", b"ready\n")
        # Both clients have the output.
        with api.machines.attach(unique) as other:
            program.write(b"one\n")
            for client in (program, other):
                found = {"stdout": b"", "stderr": b""}
                while found != {"stdout": b"got one\n", "stderr": b"e\n"}:
                    piece = next(client)
                    found[piece.stream] += piece.data
    assert api.machines.get(unique).state == "running"
    with api.machines.attach(made.id, stdin=True) as program:
        program.write(b"two\n")
        program.close_stdin()
        output = b"".join(piece.data for piece in program if piece.stream == "stdout")
        assert output == b"got two\n"
        ended = program.wait()
        assert (ended.id, ended.state, ended.exit_code) == (made.id, "exited", 4)
        assert program.end == ended == api.machines.get(unique)
    # The output of a machine that has ended is one with its end.
    with api.machines.attach(unique, logs=True) as program:
        output = b"".join(piece.data for piece in program if piece.stream == "stdout")
        assert output == b"ready\ngot one\ngot two\n"
        assert program.wait() == ended
    with pytest.raises(ConflictError) as state, api.machines.attach(unique):
        pass
    assert state.value.code == "wrong-state"


def test_long_output(api: Client, service: str, unique: str) -> None:
    api.machines.create(Spec(service, args=("gush", "1")), name=unique, start=True)
    with api.machines.attach(unique, logs=True) as program:
        assert sum(len(piece.data) for piece in program) == LONG
        assert program.wait().exit_code == 0
    spec = Spec(service, args=("copy",), interactive=True)
    api.machines.create(spec, name=f"{unique}-copy", start=True)
    until(lambda: api.machines.get(f"{unique}-copy").state == "running")
    with api.machines.attach(f"{unique}-copy", logs=True, stdin=True) as program:
        received = 0
        for start in range(0, LONG, LONG // 4):
            program.write(bytes(LONG // 4))
            while received < start + LONG // 4:
                received += len(next(program).data)
        program.close_stdin()
        assert list(program) == []
        assert program.wait().exit_code == 0


def test_machine_that_is_killed(api: Client, service: str, unique: str) -> None:
    api.machines.create(Spec(service, args=("tick",)), name=unique, start=True)
    until(lambda: api.machines.get(unique).state == "running")
    with api.machines.attach(unique) as program:
        assert next(program).data.startswith(b"tick\n")
        api.machines.kill(unique)
        assert program.wait().exit_code == 128 + 9


def test_refused_attachments(
    connect: Callable[..., Client], daemon: Daemon, root: Client, unique: str
) -> None:
    root.machines.create(Spec("service", args=("idle",)), name=unique, start=True)
    until(lambda: root.machines.get(unique).state == "running")
    client = connect(daemon.tls, key=daemon.make_key("read"), ca=daemon.ca)
    with pytest.raises(NotFoundError), client.machines.attach("no-such-machine"):
        pass
    with pytest.raises(ForbiddenError), client.machines.attach(unique, stdin=True):
        pass
    with (
        pytest.raises(ConflictError) as silent,
        connect(daemon.host).machines.attach(unique, stdin=True),
    ):
        pass
    assert silent.value.code == "not-interactive"
    with pytest.raises(HartlineError, match="not open"):
        client.machines.attach(unique).write(b"x")
    with client.machines.attach(unique) as program:
        program.write(b"x")
        with pytest.raises(ExecRefusedError, match="input=true"):
            next(program)
    root.machines.kill(unique)


@pytest.mark.parametrize("place", ["unix", "tls"])
def test_output_that_comes_with_the_answer(place: str, daemon: Daemon, root: Client) -> None:
    """Output may be in the buffer that has the head of the answer."""
    run = root.machines.create(Spec("service"), start=True)
    root.machines.wait(run.id)
    host = daemon.tls if place == "tls" else daemon.host
    with Client(host, key=daemon.make_key("read"), ca=daemon.ca) as client:
        for _ in range(20):
            with client.machines.attach(run.id, logs=True) as program:
                assert b"".join(piece.data for piece in program) == b"hello, world\n"
                assert program.wait().exit_code == 0


def test_attachment_that_another_thread_closes(daemon: Daemon, root_box: str) -> None:
    with Client(daemon.host) as client, client.machines.attach(root_box) as program:
        closer = threading.Timer(0.1, program.close)
        closer.start()
        with pytest.raises(ConnectionLostError):
            program.wait()
        closer.join()


def test_messages_of_other_forms() -> None:
    assert item_of(b"\x01abc") == Piece("stdout", b"abc")
    for message in (b"", b"\x03abc", "", "{}", "[]"):
        with pytest.raises(ProtocolError):
            item_of(message)


def test_terminal(api: Client, tools: str, unique: str) -> None:
    until_resized = "until test \"$(stty size)\" = '30 40'; do sleep 0.1; done"
    script = f"stty size; echo on; {until_resized}; stty size; cat"
    spec = Spec(
        tools,
        path="/bin/sh",
        args=("-c", script),
        interactive=True,
        terminal=Terminal(rows=10, columns=20),
    )
    made = api.machines.create(spec, name=unique, start=True)
    assert made.spec.terminal == Terminal(rows=10, columns=20)
    until(lambda: api.machines.get(unique).state == "running")
    with api.machines.attach(unique, logs=True, stdin=True) as program:
        seen = b""
        while not seen.endswith(b"10 20\r\non\r\n"):
            seen += next(program).data
        program.resize(Terminal(rows=30, columns=40))
        program.write(b"line\r")
        while b"30 40\r\n" not in seen or seen.count(b"line\r\n") < 2:
            seen += next(program).data
        program.write(b"\x04")
        assert program.wait().exit_code == 0


def test_debug(api: Client, service: str, unique: str) -> None:
    api.machines.create(Spec(service, args=("idle",)), name=unique, start=True)
    until(lambda: api.machines.get(unique).state == "running")
    with api.machines.debug(unique) as debugger:
        debugger.write(b"$?#3f")
        assert answer(debugger).startswith(b"T")
        # There is one at a time.
        with api.machines.debug(unique) as other:
            assert list(other) == []
            assert other.wait().message == "debugger: another one is connected"
        debugger.write(b"+$D#44")
        assert answer(debugger) == b"OK"
    api.machines.kill(unique)
    until(lambda: api.machines.get(unique).state == "exited")
    with pytest.raises(ConflictError) as state, api.machines.debug(unique):
        pass
    assert state.value.code == "wrong-state"
    with pytest.raises(NotFoundError), api.machines.debug("nobody"):
        pass


def answer(debugger: Process) -> bytes:
    """Return the next packet."""
    received = b""
    while not received[:-2].endswith(b"#"):
        received += next(debugger).data
    return received[received.index(b"$") + 1 : -3]
