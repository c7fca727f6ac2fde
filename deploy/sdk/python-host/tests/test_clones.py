"""Warm clones of a snapshot of tests/programs/alone/warm.c."""

from __future__ import annotations

import os
import runpy
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hartline_host import (
    CAPTURE,
    ArgumentError,
    Cause,
    ClosedError,
    ForkedError,
    HartlineHostError,
    LoadError,
    LostError,
    Sandbox,
    StartError,
    StreamsError,
    Template,
    WarmClone,
)

# What the program prints if no earlier run has left anything.
FIRST = b"0 0 0 0\n"
LIMIT = 60


def lines(first: int, last: int) -> bytes:
    return b"".join(b"%07d\n" % line for line in range(first, last + 1))


@pytest.fixture
def snapshot() -> Path:
    """Return the snapshot, beside which there are wrong ones."""
    return Path(os.environ["HARTLINE_WARM"])


@pytest.fixture
def clone(snapshot: Path) -> Iterator[WarmClone]:
    with Template(snapshot) as template, WarmClone(template) as clone:
        yield clone


def test_each_run_begins_in_the_state_of_the_snapshot(snapshot: Path) -> None:
    with Template(snapshot) as template:
        clones = [WarmClone(template), WarmClone(template)]
    # The template is freed, and its clones stay.
    assert template.closed
    for number in range(20):
        end = clones[number % 2].run(b"count\ncount\n", limit=LIMIT)
        assert (end.cause, end.code, end.signal, end.message) == (Cause.EXITED, 0, 0, "")
        assert (end.output, end.error) == (FIRST + b"1 1 1 1\n", b"")
        assert end.reset.pages > 1000
        assert end.reset.seconds > 0
    for clone in clones:
        assert clone.warnings == []
        clone.close()


@pytest.mark.parametrize(
    ("data", "cause", "code", "number", "message"),
    [
        (b"exit 0", Cause.EXITED, 0, 0, ""),
        (b"exit 137", Cause.EXITED, 137, 0, ""),
        (b"signal 9", Cause.SIGNALED, 137, signal.SIGKILL, ""),
        (b"crash", Cause.SIGNALED, 139, signal.SIGSEGV, "SIGSEGV: store page fault at 0x40"),
        (b"spin", Cause.TIME_LIMIT, 124, 0, "time limit"),
        (b"sleep 100", Cause.TIME_LIMIT, 124, 0, "time limit"),
    ],
)
def test_ends(
    clone: WarmClone, data: bytes, cause: Cause, code: int, number: int, message: str
) -> None:
    limit = 0.2 if cause is Cause.TIME_LIMIT else LIMIT
    for _ in range(2):
        start = time.monotonic()
        end = clone.run(data, limit=limit)
        assert (end.cause, end.code, end.signal) == (cause, code, number)
        assert message in end.message
        assert (end.message == "") == (message == "")
        assert cause is not Cause.TIME_LIMIT or time.monotonic() - start >= limit
        assert clone.run(b"count\n", limit=LIMIT).output == FIRST


def test_inputs(clone: WarmClone, tmp_path: Path) -> None:
    same: list[bytes | bytearray | memoryview] = [b"text\n"]
    same += [bytearray(b"text\n"), memoryview(b"a text\n")[2:]]
    for data in same:
        assert clone.run(data, limit=LIMIT).output == b"text\n"
    assert clone.run(limit=LIMIT).output == b""
    path = tmp_path / "input"
    path.write_bytes(b"text\n" * 100_000)
    with path.open("rb") as file:
        assert clone.run(file, limit=LIMIT).output == path.read_bytes()
    reader, writer = os.pipe()
    os.write(writer, b"text\n")
    os.close(writer)
    assert clone.run(reader, limit=LIMIT).output == b"text\n"
    # The run does not close it.
    os.close(reader)


def test_captured_output_has_a_limit(clone: WarmClone) -> None:
    data = b"lines 10000\nerrors 1000\n"
    end = clone.run(data, limit=LIMIT)
    assert (end.output, end.error) == (lines(0, 9999), lines(0, 999))
    assert not end.truncated
    end = clone.run(data, limit=LIMIT, output_limit=8000)
    assert (end.output, end.error) == (lines(9000, 9999), lines(0, 999))
    assert (end.output_total, end.error_total, end.truncated) == (80000, 8000, True)
    end = clone.run(b"endless\n", limit=0.3, output_limit=1)
    assert (end.cause, end.output) == (Cause.TIME_LIMIT, b"\n")
    assert end.output_total > 100_000
    end = clone.run(data, limit=LIMIT, error=None)
    assert (end.output, end.error, end.error_total) == (lines(0, 9999), b"", 0)


def test_output_to_files(clone: WarmClone, tmp_path: Path) -> None:
    paths = [tmp_path / "output", tmp_path / "error"]
    with paths[0].open("wb") as output, paths[1].open("wb") as error:
        data = b"lines 3\nerrors 2\nexit 5\n"
        end = clone.run(data, output=output, error=error.fileno(), limit=LIMIT)
    assert (end.code, end.output, end.error, end.truncated) == (5, b"", b"", False)
    assert [path.read_bytes() for path in paths] == [lines(0, 2), lines(0, 1)]
    end = clone.run(data, output=None, error=None, limit=LIMIT)
    assert (end.code, end.output) == (5, b"")


def test_wrong_snapshots(snapshot: Path, tmp_path: Path) -> None:
    with pytest.raises(LoadError, match=r"missing/config\.json.*No such file"):
        Template(tmp_path / "missing")
    with pytest.raises(LoadError, match=r"config\.json"):
        Template(tmp_path)
    with pytest.raises(LoadError, match="damaged: wrong checksum"):
        Template(f"{snapshot}.damaged")
    with pytest.raises(ArgumentError, match="character 0"):
        Template("a\0b")
    with pytest.raises(ArgumentError, match="baseline"):
        Template(snapshot, baseline="fast")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="limit"):
        Template(snapshot, start_limit=0)
    with Template(snapshot, start_limit=0.001) as template, pytest.raises(StartError):
        WarmClone(template)


def test_baselines(snapshot: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    with Template(snapshot, cache=cache, baseline="only") as template, WarmClone(template) as clone:
        assert clone.run(b"count\n", limit=LIMIT).output == FIRST
    assert any(cache.iterdir())


def test_mistakes(clone: WarmClone) -> None:
    for limit in [0, -1, float("nan")]:
        with pytest.raises(ValueError, match="limit"):
            clone.run(limit=limit)
    for output_limit in [0, -1, sys.maxsize]:
        with pytest.raises(ArgumentError, match="output_limit"):
            clone.run(output_limit=output_limit)
    with pytest.raises(ArgumentError, match="descriptor 99999"):
        clone.run(99999)
    with pytest.raises(ArgumentError, match="descriptor -1"):
        clone.run(-1)
    with pytest.raises(ArgumentError, match="descriptor 99999"):
        clone.run(output=99999, error=None)
    with pytest.raises(ArgumentError, match="descriptor"):
        clone.run(output=2**40, error=None)
    with pytest.raises(ArgumentError, match="both buffers, or both descriptors"):
        clone.run(output=CAPTURE, error=2)
    with pytest.raises(TypeError):
        clone.run("text")  # type: ignore[arg-type]
    assert clone.run(b"count\n", limit=LIMIT).output == FIRST


def test_no_descriptors_are_left(snapshot: Path) -> None:
    """The run is refused, and the clone stays."""
    code = (
        "import os, resource, sys, hartline_host as h\n"
        "clone = h.WarmClone(h.Template(sys.argv[1]))\n"
        "clone.run(b'count')\n"
        "used = max(map(int, os.listdir('/proc/self/fd')))\n"
        "many = [os.open('/dev/null', os.O_RDONLY) for _ in range(used)]\n"
        "low, high = resource.getrlimit(resource.RLIMIT_NOFILE)\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (3, high))\n"
        "try:\n"
        "    clone.run(b'count')\n"
        "except h.StreamsError as error:\n"
        "    print(type(error).__name__)\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (low, high))\n"
        "print(clone.run(b'count').output)\n"
    )
    words = [sys.executable, "-c", code, str(snapshot)]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=300)
    assert (done.stdout, done.stderr) == (f"{StreamsError.__name__}\nb'0 0 0 0\\n'\n", "")


def test_the_end(snapshot: Path) -> None:
    with Template(snapshot) as template, WarmClone(template) as clone:
        assert clone.run(b"count\n", limit=LIMIT).output == FIRST
        assert not clone.closed
    assert clone.closed
    clone.close()
    template.close()
    with pytest.raises(ClosedError):
        clone.run()
    with pytest.raises(ClosedError):
        _ = clone.warnings
    with pytest.raises(ClosedError):
        WarmClone(template)


def test_output_that_nobody_reads_costs_the_clone(snapshot: Path) -> None:
    reader, writer = os.pipe()
    with Template(snapshot) as template:
        with WarmClone(template) as clone:
            with pytest.raises(LostError, match="output"):
                clone.run(b"endless\n", output=writer, error=None, limit=0.5)
            with pytest.raises(LostError):
                clone.run(b"count\n", limit=LIMIT)
        with WarmClone(template) as clone:
            assert clone.run(b"count\n", limit=LIMIT).output == FIRST
    os.close(reader)
    os.close(writer)


def test_threads(snapshot: Path) -> None:
    def work(clone: WarmClone, thread: int) -> None:
        for number in range(50):
            text = b"%d %d\n" % (thread, number)
            assert clone.run(b"count\n" + text, limit=LIMIT).output == FIRST + text

    with (
        Template(snapshot) as template,
        ThreadPoolExecutor(4) as pool,
        WarmClone(template) as one,
        WarmClone(template) as other,
    ):
        list(pool.map(work, [one, one, other, other], range(4)))


def test_other_threads_go_on_during_a_run(clone: WarmClone) -> None:
    ticks = 0
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(clone.run, b"spin\n", limit=0.5)
        while not late.done():
            ticks += 1
            time.sleep(0.01)
        assert late.result().cause is Cause.TIME_LIMIT
    assert ticks > 5


def test_closing_ends_runs_of_other_threads(clone: WarmClone) -> None:
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(clone.run, b"spin\n")
        time.sleep(0.1)
        clone.close()
        assert isinstance(run.exception(), LostError)


def test_children_have_no_clones(snapshot: Path) -> None:
    with Template(snapshot) as template, WarmClone(template) as clone:
        assert clone.run(b"count\n", limit=LIMIT).output == FIRST
        child = os.fork()
        if child == 0:
            forked = 0
            try:
                for use in (clone.run, lambda: WarmClone(template)):
                    try:
                        use()
                    except ForkedError:
                        forked += 1
                clone.close()
                with Template(snapshot) as own, WarmClone(own) as other:
                    forked += other.run(b"count\n", limit=LIMIT).output == FIRST
            finally:
                os._exit(forked)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
        assert clone.run(b"count\n", limit=LIMIT).output == FIRST


def used(what: str) -> int:
    """Count the descriptors or threads of this process."""
    return sum(1 for _ in Path("/proc/self", what).iterdir())


def settle(what: str, least: int) -> int:
    """Wait until there are few. Threads that translate end a little later than their machines."""
    deadline = time.monotonic() + 60
    while (now := used(what)) > least and time.monotonic() < deadline:
        time.sleep(0.05)
    return now


def test_many_leave_nothing(snapshot: Path) -> None:
    def make(runs: int) -> None:
        with Template(snapshot) as template, WarmClone(template) as clone:
            for _ in range(runs):
                assert clone.run(b"count\nexit 3\n", limit=LIMIT).code == 3

    make(3)
    # Earlier machines may still be translating, and each one has more threads and descriptors.
    most = {what: used(what) + 20 for what in ["task", "fd"]}
    for number in range(40):
        make(number % 4)
    for what, number in most.items():
        assert settle(what, number) <= number
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def test_processes_end_with_open_clones(snapshot: Path) -> None:
    code = (
        "import sys, threading, hartline_host as h\n"
        "clone = h.WarmClone(h.Template(sys.argv[1]))\n"
        "print(clone.run(b'count').output)\n"
        "busy = h.WarmClone(h.Template(sys.argv[1]))\n"
        "def spin():\n"
        "    try:\n"
        "        busy.run(b'spin')\n"
        "    except (h.LostError, h.ClosedError):\n"
        "        pass\n"
        "threading.Thread(target=spin, daemon=True).start()\n"
    )
    words = [sys.executable, "-c", code, str(snapshot)]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=300)
    assert (done.stdout, done.stderr) == ("b'0 0 0 0\\n'\n", "")


def test_example(snapshot: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(__file__).parent.parent / "examples/clones.py"
    example = runpy.run_path(str(path))
    example["main"](str(snapshot), 3, b"count\nlines 1\nexit 4\n")
    out, err = capsys.readouterr()
    assert out == "0 0 0 0\n0000000\n" * 3
    ready, *runs = err.splitlines()
    assert ready.startswith("ready after ")
    assert [run.split(" after ")[0] for run in runs] == ["exit code 4"] * 3


def test_sandboxes_of_a_snapshot(snapshot: Path) -> None:
    with Template(f"{snapshot}.calls") as template:
        twice = {"twice": lambda data: data * 2}
        sandboxes = [Sandbox.of(template, functions=twice) for _ in range(2)]
    with pytest.raises(HartlineHostError):
        Sandbox.of(template)
    first, second = sandboxes
    for _ in range(20):
        counts = [sandbox.call("count")[0] for sandbox in (first, first, second)]
        assert counts == [1, 2, 1]
        assert second.call("host", b"ab") == b"abab"
        assert first.reset().pages > 0 and second.reset().pages > 0
    for sandbox in sandboxes:
        sandbox.close()
    with Template(snapshot) as template, pytest.raises(StartError):
        Sandbox.of(template)
