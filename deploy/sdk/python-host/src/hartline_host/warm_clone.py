"""Machines in the state of a snapshot."""

from __future__ import annotations

import enum
import sys
from dataclasses import dataclass
from typing import Any, Final

from hartline_host import errors
from hartline_host._library import check, ffi, lib
from hartline_host._values import (
    File,
    Handle,
    Output,
    Reset,
    reset_of,
    to_descriptor,
    to_milliseconds,
    warnings_of,
)
from hartline_host.template import Template

Bytes = bytes | bytearray | memoryview
"""Bytes for a program."""


class Capture(enum.Enum):
    """The type of :data:`CAPTURE`."""

    CAPTURE = enum.auto()


CAPTURE: Final = Capture.CAPTURE
"""The output of a run is in :attr:`RunEnd.output` or :attr:`RunEnd.error`."""


class Cause(enum.Enum):
    """What ended the program of a run."""

    EXITED = lib.HARTLINE_EXITED
    """The program itself."""
    SIGNALED = lib.HARTLINE_SIGNALED
    """A signal."""
    TIME_LIMIT = lib.HARTLINE_TIME_LIMIT
    """The limit of the run. Output may be lost."""
    FAILED = lib.HARTLINE_FAILED
    """The program could not run to its end, for example for want of memory."""


@dataclass(frozen=True, slots=True)
class RunEnd:
    """How a run ended."""

    cause: Cause
    """What ended the program."""
    code: int
    """The exit code, as of ``hartline run``.

    That of the program, 128 and the number of the signal, 124 after the time limit, or 125 if it
    failed.
    """
    signal: int
    """The signal that ended the program, or 0."""
    message: str
    """Why the program did not end by itself.

    Empty if it did, or if a signal ended it that is no error, for example ``SIGKILL``.
    """
    output: bytes
    """The newest bytes of its standard output, if it is captured."""
    error: bytes
    """The newest bytes of its standard error, if it is captured."""
    output_total: int
    """The length of all its standard output, if it is captured."""
    error_total: int
    """The length of all its standard error, if it is captured."""
    reset: Reset
    """The reset after the run."""

    @property
    def truncated(self) -> bool:
        """Whether captured output was longer than the limit: the oldest bytes are lost."""
        return self.output_total > len(self.output) or self.error_total > len(self.error)


class WarmClone(Handle):
    """A machine in the state of a snapshot.

    A run continues the program to its end. After it, the machine is in the state of the snapshot
    again, and the next run finds nothing of it. Any thread may use it: runs of several threads
    follow one another. Other threads of Python go on during a run. The machine ends with
    :meth:`close` or at the end of ``with``.
    """

    def __init__(self, template: Template) -> None:
        """Start a machine, and wait until it is ready for runs.

        :raises StartError: it cannot be started.
        """
        super().__init__()
        handle = ffi.new("hartline_clone *")
        check(lib.hartline_clone_start(template._handle, handle))
        self._set(handle[0])

    def run(
        self,
        data: Bytes | int | File = b"",
        *,
        output: Output | Capture = CAPTURE,
        error: Output | Capture = CAPTURE,
        limit: float | None = None,
        output_limit: int = 16 << 20,
    ) -> RunEnd:
        """Continue the program to its end, and reset the machine.

        :param data: its standard input: bytes, a file or a descriptor.
        :param output: its standard output: ``CAPTURE``, a file, a descriptor, or None, which
            discards it. A file gets all output, without a limit.
        :param error: its standard error, as ``output``. If one of them is captured, the other one
            is captured or discarded.
        :param limit: the longest time, in seconds, after earlier runs of other threads have ended.
            Python handles signals, also Ctrl-C, after the run.
        :param output_limit: the most bytes that are captured of each output, at least 1. Of longer
            output the newest bytes are kept, and :attr:`RunEnd.truncated` is set.
        :raises LostError: the machine cannot be used any more: another clone helps.
        """
        if not 0 < output_limit < sys.maxsize:
            raise errors.ArgumentError(f"output_limit: {output_limit}: must be at least 1")
        run, end = ffi.new("struct hartline_run *"), ffi.new("struct hartline_run_end *")
        run.size = ffi.sizeof("struct hartline_run")
        run.input_file, data = _input(data)
        run.output_file, run.output_room, out = _output(output, output_limit)
        run.error_file, run.error_room, err = _output(error, output_limit)
        run.output, run.error = out, err
        with memoryview(data) as view, ffi.from_buffer(view) as source:
            run.input, run.input_length = source, view.nbytes
            check(lib.hartline_clone_run(self._handle, run, end, to_milliseconds(limit)))
        return _end_of(end, out, err)

    @property
    def warnings(self) -> list[str]:
        """The files of which code is interpreted because it cannot be translated, and why."""
        return warnings_of(lib.hartline_clone_warnings, self._handle)

    def close(self) -> None:
        """End the machine. Runs of other threads fail. Once is enough, and more do nothing."""
        super().close()

    def _end(self, handle: int) -> None:
        lib.hartline_clone_end(handle)


# Room that is not used needs no memory.
_allocate: Final[Any] = ffi.new_allocator(should_clear_after_alloc=False)


def _input(data: Bytes | int | File) -> tuple[int, Bytes]:
    """Return the descriptor and the bytes of an input: one of them is none."""
    if isinstance(data, bytes | bytearray | memoryview):
        return -1, data
    return to_descriptor(data), b""


def _output(output: Output | Capture, limit: int) -> tuple[int, int, Any]:
    """Return the descriptor, room and buffer of an output: one of them is none."""
    if isinstance(output, Capture):
        return -1, limit, _allocate("char[]", limit)
    return to_descriptor(output), 0, ffi.NULL


def _end_of(end: Any, output: Any, error: Any) -> RunEnd:
    """Convert a ``struct hartline_run_end``, with the outputs in these buffers."""
    message: str = ffi.string(lib.hartline_last_message()).decode(errors="replace")
    return RunEnd(
        cause=Cause(end.cause),
        code=end.code,
        signal=end.signal,
        message=message,
        output=ffi.buffer(output, end.output_length)[:] if output else b"",
        error=ffi.buffer(error, end.error_length)[:] if error else b"",
        output_total=end.output_total,
        error_total=end.error_total,
        reset=reset_of(end.reset),
    )
