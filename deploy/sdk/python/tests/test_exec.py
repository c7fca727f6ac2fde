"""Commands in running machines."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from daemon import Daemon, until

from hartline import (
    Client,
    ConflictError,
    ConnectionLostError,
    ExecRefusedError,
    HartlineError,
    InvalidRequestError,
    NotFoundError,
    Piece,
    ProtocolError,
    Spec,
    Terminal,
)
from hartline.operations.exec import item_of

LONG = 5 << 20


@pytest.fixture(scope="session")
def box(api: Client, tools: str) -> Iterator[str]:
    """Return the name of a machine that sleeps."""
    spec = Spec(tools, path="/bin/sleep", args=("100000",), env={"OF": "machine"}, workdir="/bin")
    api.machines.create(spec, name="box", start=True)
    until(lambda: api.machines.get("box").state == "running")
    yield "box"
    api.machines.kill("box")


def test_exec(api: Client, box: str) -> None:
    both = api.machines.exec(box, ["sh", "-c", "echo out; echo err >&2; exit 7"])
    assert (both.exit_code, both.message) == (7, "")
    assert (both.stdout.text, both.stderr.text) == ("out\n", "err\n")
    script = "id -u; id -g; pwd; echo $OF $BOTH"
    placed = api.machines.exec(
        box, ["sh", "-c", script], user="1000:7", workdir="/tmp", env={"BOTH": "exec"}
    )
    assert placed.stdout.text == "1000\n7\n/tmp\nmachine exec\n"
    assert api.machines.exec(box, ["cat"], stdin="typed\n").stdout.text == "typed\n"
    assert api.machines.exec(box, ["cat"], stdin=b"typed\n").stdout.text == "typed\n"
    sized = api.machines.exec(box, ["stty", "size"], terminal=Terminal(rows=10, columns=20))
    assert sized.stdout.text == "10 20\r\n"
    missing = api.machines.exec(box, ["nothing"])
    assert (missing.exit_code, missing.message) == (127, "nothing: not found")
    long = api.machines.exec(box, ["head", "-c", str(3 << 20), "/dev/zero"])
    assert (len(long.stdout.data), long.stdout.missing) == (1 << 20, 2 << 20)


def test_refused_commands(api: Client, box: str, service: str, unique: str) -> None:
    with pytest.raises(InvalidRequestError) as field:
        api.machines.exec(box, ["cat"], workdir="tmp")
    assert field.value.field == "workdir"
    with pytest.raises(TypeError, match="sequence of texts"):
        api.machines.exec(box, "cat")
    api.machines.create(Spec(service), name=unique)
    with pytest.raises(ConflictError) as state:
        api.machines.exec(unique, ["cat"])
    assert state.value.code == "wrong-state"
    with pytest.raises(NotFoundError):
        api.machines.exec("no-such-machine", ["cat"])
    with pytest.raises(NotFoundError), api.machines.exec_stream("no-such-machine", ["cat"]):
        pass
    wrong_user = api.machines.exec_stream(box, ["cat"], user="root")
    with wrong_user as process, pytest.raises(ExecRefusedError, match="UID"):
        process.wait()
    wrong_state = api.machines.exec_stream(unique, ["cat"])
    with wrong_state as process, pytest.raises(ExecRefusedError, match="created"):
        process.communicate()
    with api.machines.exec_stream(box, ["cat"]) as process:
        process.resize(Terminal())
        with pytest.raises(ExecRefusedError, match="no terminal"):
            process.wait()
    with pytest.raises(HartlineError, match="not open"):
        api.machines.exec_stream(box, ["cat"]).write(b"x")


def test_streams_in_both_directions(api: Client, box: str) -> None:
    script = "while read line; do echo got $line; echo e >&2; done; exit 4"
    with api.machines.exec_stream(box, ["sh", "-c", script]) as process:
        for word in (b"one", b"two"):
            process.write(word + b"\n")
            found = {"stdout": b"", "stderr": b""}
            while found != {"stdout": b"got " + word + b"\n", "stderr": b"e\n"}:
                piece = next(process)
                found[piece.stream] += piece.data
        assert process.end is None
        process.close_stdin()
        assert list(process) == []
        assert process.end is not None
        assert process.end.exit_code == 4
        assert process.wait() == process.end


def test_long_streams(api: Client, box: str) -> None:
    data = bytes(range(256)) * (LONG // 256)
    with api.machines.exec_stream(box, ["cat"]) as process:
        result = process.communicate(data)
    assert (result.exit_code, result.stdout.data == data) == (0, True)
    # A command that does not read its input.
    with api.machines.exec_stream(box, ["sh", "-c", "exit 3"]) as process:
        assert process.communicate(data).exit_code == 3


@pytest.mark.parametrize("place", ["unix", "tls"])
def test_a_thread_reads_while_another_one_writes(place: str, daemon: Daemon, root_box: str) -> None:
    data = bytes(LONG)
    host = daemon.tls if place == "tls" else daemon.host
    with (
        Client(host, key=daemon.make_key("write"), ca=daemon.ca) as client,
        client.machines.exec_stream(root_box, ["cat"]) as process,
    ):

        def feed() -> None:
            process.write(data)
            process.close_stdin()

        writer = threading.Thread(target=feed)
        writer.start()
        received = sum(len(piece.data) for piece in process)
        writer.join()
    assert received == LONG


def test_process_that_another_thread_closes(daemon: Daemon, root_box: str) -> None:
    with (
        Client(daemon.host) as client,
        client.machines.exec_stream(root_box, ["sleep", "1000"]) as process,
    ):
        closer = threading.Timer(0.1, process.close)
        closer.start()
        with pytest.raises(ConnectionLostError):
            process.wait()
        closer.join()


def test_terminals(api: Client, box: str) -> None:
    with api.machines.exec_stream(box, ["sh"], terminal=Terminal(rows=7, columns=9)) as process:
        process.resize(Terminal(rows=50, columns=132))
        process.write(b"stty size; exit 6\n")
        output = b"".join(piece.data for piece in process)
        assert b"50 132\r\n" in output
        assert process.wait().exit_code == 6


def test_machine_that_is_killed(api: Client, tools: str, unique: str) -> None:
    api.machines.create(Spec(tools, path="/bin/sleep", args=("100000",)), name=unique, start=True)
    until(lambda: api.machines.get(unique).state == "running")
    with api.machines.exec_stream(unique, ["sh", "-c", "echo begun; sleep 1000"]) as process:
        assert next(process) == Piece("stdout", b"begun\n")
        api.machines.kill(unique)
        assert process.wait().exit_code == 137
        with pytest.raises(ConnectionLostError):
            while True:
                process.write(b"x")


def test_messages_of_other_forms() -> None:
    assert item_of(b"\x02abc") == Piece("stderr", b"abc")
    for message in (b"", b"\x03abc", "", "{}", "[]"):
        with pytest.raises(ProtocolError):
            item_of(message)
