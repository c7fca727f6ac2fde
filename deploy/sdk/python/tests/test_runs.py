"""Runs, synchronous and asynchronous."""

from __future__ import annotations

import pytest

from hartline import (
    Client,
    ConflictError,
    ExecRefusedError,
    InvalidRequestError,
    NotFoundError,
    Piece,
    RunOutcome,
    Spec,
    TooLargeError,
    WaitTimeoutError,
)


def test_run(api: Client, service: str) -> None:
    outcome = api.runs.run(Spec(service))
    assert (outcome.exit_code, outcome.message) == (0, "")
    assert outcome.stdout.text == "hello, world\n"
    assert (outcome.stderr.data, outcome.stdout.truncated) == (b"", False)
    assert outcome.boot_ms > 0
    assert outcome.run_ms > 0
    assert outcome.exits.calls > 0
    assert api.runs.run(Spec(service, args=("exit",))).exit_code == 7
    assert api.runs.run(Spec(service, args=("fault",))).exit_code == 128 + 11


def test_run_with_input_and_environment(api: Client, service: str) -> None:
    copied = api.runs.run(Spec(service, args=("copy",)), stdin="gr\u00fc\u00df\n")
    assert copied.stdout.text == "gr\u00fc\u00df\n"
    copied = api.runs.run(Spec(service, args=("copy",)), stdin=b"bytes\x00")
    assert copied.stdout.data == b"bytes\x00"
    shown = api.runs.run(Spec(service, args=("environment",), env={"A": "1"}, hostname="other"))
    assert {"A=1", "HOSTNAME=other"} <= set(shown.stdout.text.split("\n"))
    assert api.runs.run(Spec(service, args=("bytes",))).stdout.data == b"\xff\xfe"
    with pytest.raises(ValueError, match="must be UTF-8"):
        api.runs.run(Spec(service), stdin=b"\xff")
    with pytest.raises(TypeError, match="sequence of texts"):
        Spec(service, args="text")


def test_run_in_a_root_file_system(api: Client, tools: str) -> None:
    script = "pwd; id -u; echo error >&2; exit 3"
    spec = Spec(tools, path="/bin/sh", args=("-c", script), workdir="/bin", user="1000:7")
    outcome = api.runs.run(spec)
    assert (outcome.exit_code, outcome.stdout.text) == (3, "/bin\n1000\n")
    assert outcome.stderr.text == "error\n"


def test_time_limit(api: Client, service: str) -> None:
    outcome = api.runs.run(Spec(service, args=("idle",), timeout_ms=50))
    assert outcome.exit_code == 124
    assert outcome.message != ""


def test_outputs_of_any_length(api: Client, service: str) -> None:
    spec = Spec(service, args=("gush", "17"))
    outcome = api.runs.run(spec)
    assert len(outcome.stdout.data) + outcome.stdout.missing == 17 << 20
    assert outcome.stdout.truncated
    pieces, last = [], None
    with api.runs.stream(spec) as stream:
        for item in stream:
            assert last is None
            if isinstance(item, Piece):
                assert item.stream == "stdout"
                pieces.append(item.data)
            else:
                last = item
    assert isinstance(last, RunOutcome)
    assert sum(map(len, pieces)) + last.stdout.missing == 17 << 20
    assert (last.exit_code, last.stdout.data) == (0, b"")


def test_stream_of_both_outputs(api: Client, tools: str) -> None:
    script = "read line; echo got $line; echo error >&2; exit 5"
    spec = Spec(tools, path="/bin/sh", args=("-c", script))
    *pieces, last = api.runs.stream(spec, stdin="this\n")
    assert isinstance(last, RunOutcome)
    assert last.exit_code == 5
    found: dict[str, bytes] = {"stdout": b"", "stderr": b""}
    for piece in pieces:
        assert isinstance(piece, Piece)
        found[piece.stream] += piece.data
    assert found == {"stdout": b"got this\n", "stderr": b"error\n"}


def test_stream_that_is_closed(api: Client, service: str) -> None:
    with api.runs.stream(Spec(service, args=("tick",))) as stream:
        first = next(stream)
        assert isinstance(first, Piece)
        assert first.data.startswith(b"tick\n")
    with pytest.raises(NotFoundError):
        next(api.runs.stream(Spec("no-such-program")))


def test_asynchronous_run(api: Client, service: str, unique: str) -> None:
    spec = Spec(service, args=("copy",), labels={"test": unique})
    submitted = api.runs.submit(spec, stdin="kept\n")
    ended = api.runs.wait(submitted.id)
    assert ended.state == "exited"
    assert not ended.is_active
    assert ended.outcome is not None
    assert ended.outcome.stdout.text == "kept\n"
    assert api.runs.get(submitted.id[:20]) == ended
    (listed,) = api.runs.list(label=("test", unique))
    assert (listed.id, listed.exit_code, listed.spec.args) == (submitted.id, 0, ("copy",))
    assert api.runs.list(label=("test", unique), state="running") == []
    api.runs.delete(submitted.id)
    with pytest.raises(NotFoundError, match="no such run"):
        api.runs.get(submitted.id)


def test_asynchronous_run_that_goes_on(api: Client, service: str, unique: str) -> None:
    spec = Spec(service, args=("idle",), labels={"test": unique})
    runs = [api.runs.submit(spec) for _ in range(3)]
    with pytest.raises(WaitTimeoutError, match=r"after 0\.05 s"):
        api.runs.wait(runs[0].id, timeout=0.05)
    listed = api.runs.list(label=("test", unique), program=service, page_size=1)
    assert [run.id for run in listed] == sorted(run.id for run in runs)
    for run in runs:
        api.runs.delete(run.id)
    assert api.runs.list(label=("test", unique)) == []


def test_idempotency_of_runs(api: Client, service: str, unique: str) -> None:
    spec = Spec(service, labels={"test": unique})
    first = api.runs.submit(spec, idempotency_key=unique)
    assert api.runs.submit(spec, idempotency_key=unique).id == first.id
    assert api.runs.submit(spec).id != first.id
    assert api.runs.submit(spec, idempotency_key=None).id != first.id
    kept = api.runs.run(spec, idempotency_key=f"{unique}-kept")
    assert api.runs.run(spec, idempotency_key=f"{unique}-kept") == kept
    assert len(api.runs.list(label=("test", unique))) == 4
    with pytest.raises(ConflictError) as conflict:
        api.runs.submit(Spec(service, args=("exit",)), idempotency_key=unique)
    assert conflict.value.code == "idempotency-conflict"


def test_refused_runs(api: Client, service: str) -> None:
    with pytest.raises(InvalidRequestError) as field:
        api.runs.run(Spec(service, cpus=65))
    assert (field.value.status, field.value.code) == (422, "invalid-field")
    assert field.value.field == "cpus"
    assert str(field.value).startswith("cpus: must be from 1 to")
    with pytest.raises(InvalidRequestError, match="131072"):
        api.runs.run(Spec(service), stdin="x" * (129 << 10))
    with pytest.raises(TooLargeError):
        api.runs.run(Spec(service), stdin="x" * (257 << 10))
    with pytest.raises(ConflictError) as restart:
        api.runs.submit(Spec(service, restart="always"))
    assert restart.value.code == "no-restart"


LONG = 20 << 20
"""Bytes that exceed what the daemon keeps of an output."""


def test_open_streams(api: Client, service: str) -> None:
    data = bytes(range(256)) * (LONG // 256)
    with api.runs.attached(Spec(service, args=("copy",))) as run:
        outcome = run.communicate(data)
    assert (outcome.exit_code, outcome.stdout.data == data) == (0, True)
    assert (outcome.stdout.missing, outcome.stderr.data) == (0, b"")
    with api.runs.attached(Spec(service, args=("copy",))) as run:
        run.write(b"one\xff")
        assert next(run).data == b"one\xff"
        run.close_stdin()
        assert run.wait().exit_code == 0
    with (
        api.runs.attached(Spec("no-such-program")) as run,
        pytest.raises(ExecRefusedError, match="no such program"),
    ):
        run.wait()
    with (
        api.runs.attached(Spec(service, cpus=0)) as run,
        pytest.raises(ExecRefusedError, match="cpus"),
    ):
        run.communicate()
