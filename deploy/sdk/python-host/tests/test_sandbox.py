"""Sandboxes, with the functions of tests/programs/alone/calls.c."""

from __future__ import annotations

import errno
import gc
import os
import runpy
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import hartline_host
from hartline_host import (
    MAX_DATA,
    ArgumentError,
    ClosedError,
    ForkedError,
    FunctionError,
    HartlineHostError,
    LateError,
    LoadError,
    NestedError,
    PoisonedError,
    ProgramEndedError,
    Sandbox,
    StartError,
)


def count(sandbox: Sandbox) -> int:
    return int.from_bytes(sandbox.call("count", limit=60), "little")


def test_calls_and_resets(sandbox: Sandbox) -> None:
    assert sandbox.call("echo", b"text") == b"text"
    assert sandbox.call("echo") == b""
    assert sandbox.call("echo", bytearray(b"x" * MAX_DATA), limit=60) == b"x" * MAX_DATA
    assert sandbox.call("echo", memoryview(b"abcd")[1:3]) == b"bc"
    assert (count(sandbox), count(sandbox)) == (1, 2)
    reset = sandbox.reset()
    assert reset.pages > 0
    assert reset.seconds > 0
    assert count(sandbox) == 1
    assert sandbox.warnings == []
    assert hartline_host.version()


def test_two_in_one_process(program: Path) -> None:
    with Sandbox(program) as one, Sandbox(program, interpret=True) as other:
        assert (count(one), count(one), count(other)) == (1, 2, 1)
        one.reset()
        assert (count(one), count(other)) == (1, 2)


def test_failures_of_the_program(sandbox: Sandbox) -> None:
    with pytest.raises(FunctionError) as failed:
        sandbox.call("fail")
    assert failed.value.errno == errno.EDOM
    assert failed.value.strerror == os.strerror(errno.EDOM)
    with pytest.raises(FunctionError) as failed:
        sandbox.call("no such function")
    assert failed.value.errno == errno.ENOENT
    with pytest.raises(LateError) as late:
        sandbox.call("spin", limit=0.05)
    assert isinstance(late.value, TimeoutError)
    with pytest.raises(PoisonedError):
        count(sandbox)
    sandbox.reset()
    with pytest.raises(ProgramEndedError):
        sandbox.call("crash")
    with pytest.raises(ProgramEndedError):
        count(sandbox)
    sandbox.reset()
    with pytest.raises(ProgramEndedError, match="code 7"):
        sandbox.call("end", b"\7")
    sandbox.reset()
    assert count(sandbox) == 1


def test_functions_of_the_host(program: Path) -> None:
    seen: list[tuple[bytes, int]] = []

    def twice(data: bytes) -> bytes:
        seen.append((data, threading.get_ident()))
        return data * 2

    with Sandbox(program, functions={"twice": twice}) as sandbox:
        assert sandbox.call("host", b"ab") == b"abab"
        assert seen[0][0] == b"ab"
        assert seen[0][1] != threading.get_ident()

        def fails(data: bytes) -> bytes:
            raise KeyError(data)

        sandbox.register("twice", fails)
        with pytest.raises(FunctionError) as failed:
            sandbox.call("host", b"ab")
        assert failed.value.errno == errno.EIO
        assert isinstance(failed.value.__cause__, KeyError)

        def refuses(data: bytes) -> bytes:
            raise PermissionError(errno.EPERM, "no")

        sandbox.register("twice", refuses)
        with pytest.raises(FunctionError) as failed:
            sandbox.call("host")
        assert failed.value.errno == errno.EPERM
        sandbox.register("twice", lambda _: b"x" * (MAX_DATA + 1))
        with pytest.raises(FunctionError) as failed:
            sandbox.call("host")
        assert failed.value.errno == errno.E2BIG
        assert failed.value.__cause__ is None
        sandbox.register("twice", lambda _: "text")  # type: ignore[arg-type, return-value]
        with pytest.raises(FunctionError) as failed:
            sandbox.call("host")
        assert isinstance(failed.value.__cause__, TypeError)
        with pytest.raises(FunctionError) as failed:
            sandbox.call("unknown")
        assert failed.value.errno == errno.ENOENT

        nested: list[BaseException] = []

        def calls_back(_: bytes) -> bytes:
            for use in (lambda: sandbox.call("count"), sandbox.reset):
                try:
                    use()
                except HartlineHostError as error:
                    nested.append(error)
            return b""

        sandbox.register("twice", calls_back)
        assert sandbox.call("host") == b""
        assert [type(error) for error in nested] == [NestedError, NestedError]
        assert count(sandbox) == 1


def test_functions_stay_while_they_are_used(program: Path) -> None:
    with Sandbox(program) as sandbox:
        for number in range(20):
            sandbox.register("twice", lambda _, number=number: bytes([number]))  # type: ignore[misc]
            gc.collect()
            assert sandbox.call("host") == bytes([number])


def test_mistakes(program: Path, sandbox: Sandbox, tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="no such file"):
        Sandbox(tmp_path / "no such file")
    with pytest.raises(LoadError):
        Sandbox(sys.executable)
    with pytest.raises(LoadError):
        Sandbox("/program", rootfs=tmp_path)
    with pytest.raises(ArgumentError, match="4096 bytes of RAM"):
        Sandbox(program, ram=4096)
    with pytest.raises(ArgumentError):
        Sandbox(program, ram=-1)
    with pytest.raises(ArgumentError, match="99999"):
        Sandbox(program, output=99999)
    with pytest.raises(ArgumentError):
        Sandbox(program, arguments=["a\0b"])
    for name in ["", "n" * 65, "a\0b"]:
        with pytest.raises(ArgumentError):
            sandbox.call(name)
        with pytest.raises(ArgumentError):
            sandbox.register(name, bytes)
    with pytest.raises(ArgumentError, match="65473"):
        sandbox.call("echo", b"x" * (MAX_DATA + 1))
    for limit in [0, -1, float("nan")]:
        with pytest.raises(ValueError, match="limit"):
            sandbox.call("echo", limit=limit)
    with pytest.raises(TypeError):
        sandbox.call("echo", "text")  # type: ignore[arg-type]
    assert count(sandbox) == 1


def test_programs_that_export_nothing() -> None:
    with pytest.raises(StartError, match="it has ended"):
        Sandbox(os.environ["HARTLINE_BUSYBOX"], arguments=["true"])


def test_the_end(program: Path) -> None:
    with Sandbox(program) as sandbox:
        assert count(sandbox) == 1
        assert not sandbox.closed
    assert sandbox.closed
    sandbox.close()
    for use in (lambda: sandbox.call("count"), sandbox.reset, lambda: sandbox.warnings):
        with pytest.raises(ClosedError):
            use()
    with pytest.raises(ClosedError):
        sandbox.register("twice", bytes)


def test_output(program: Path, tmp_path: Path) -> None:
    path = tmp_path / "output"
    with path.open("wb") as file, Sandbox(program, output=file) as sandbox:
        sandbox.call("say", b"said\n")
    assert path.read_text() == "ready\nsaid\n"


def test_threads(program: Path) -> None:
    def work(sandbox: Sandbox, thread: int) -> None:
        for number in range(200):
            data = f"{thread} {number}".encode()
            assert sandbox.call("echo", data, limit=60) == data
            if number % 50 == 0:
                sandbox.reset()

    with Sandbox(program) as one, Sandbox(program) as other, ThreadPoolExecutor(4) as pool:
        list(pool.map(work, [one, one, other, other], range(4)))


def test_other_threads_run_during_a_call(sandbox: Sandbox) -> None:
    ticks = 0
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(sandbox.call, "spin", limit=0.5)
        while not late.done():
            ticks += 1
            time.sleep(0.01)
        assert isinstance(late.exception(), LateError)
    assert ticks > 5
    sandbox.reset()
    assert count(sandbox) == 1


def test_closing_ends_calls_of_other_threads(program: Path) -> None:
    sandbox = Sandbox(program)
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(sandbox.call, "spin")
        time.sleep(0.1)
        sandbox.close()
        assert isinstance(call.exception(), ProgramEndedError)


def test_children_have_no_machines(sandbox: Sandbox) -> None:
    assert count(sandbox) == 1
    child = os.fork()
    if child == 0:
        try:
            sandbox.call("count")
        except ForkedError:
            os._exit(7)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert count(sandbox) == 2


def test_processes_end_with_open_sandboxes(program: Path) -> None:
    code = (
        "import sys, hartline_host\n"
        "s = hartline_host.Sandbox(sys.argv[1], functions={'twice': lambda d: d * 2})\n"
        "print(s.call('host', b'ab'))\n"
    )
    words = [sys.executable, "-c", code, str(program)]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=300)
    assert (done.stdout, done.stderr) == ("b'abab'\n", "")


def test_example(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(__file__).parent.parent / "examples/shout.py"
    example = runpy.run_path(str(path))
    example["main"](str(program), "echo", "text", 500)
    first, reset, calls, resets = capsys.readouterr().out.splitlines()
    assert first == "text"
    assert reset.startswith("reset: ")
    assert calls.startswith("call: p50 ")
    assert resets.startswith("call and reset: p50 ")
    print(calls, resets, sep="\n")
