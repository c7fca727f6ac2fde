"""Programs in virtual machines of this process."""

from __future__ import annotations

import atexit
import errno
import math
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from os import PathLike
from types import TracebackType
from typing import Any, Final, Protocol, Self

from hartline_host import errors
from hartline_host._library import (
    INTERPRET,
    MAX_DATA,
    NO_LIMIT,
    TUNE_ALLOCATOR,
    check,
    error_of,
    ffi,
    lib,
)

HostFunction = Callable[[bytes], bytes]
"""A function for a program: gets the input, and returns the output, of at most MAX_DATA bytes.

``OSError`` becomes its error number for the program, any other exception ``EIO``.
"""


class _File(Protocol):
    def fileno(self) -> int: ...


Output = int | _File | None
"""Where output goes: a descriptor, a file, or None, which discards it."""


@dataclass(frozen=True, slots=True)
class Reset:
    """What a reset did."""

    pages: int
    """Pages of 4 KiB that were put back."""
    seconds: float
    """The time of the machine's thread."""
    tables_changed: bool
    """Whether page tables of the guest had changed."""


class _Buffers(threading.local):
    """A buffer for outputs in each thread."""

    def __init__(self) -> None:
        self.output = ffi.new("char[]", MAX_DATA)
        self.length = ffi.new("size_t *")


_buffers: Final = _Buffers()
_open: Final[weakref.WeakSet[Sandbox]] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """End all machines: their threads must not call Python when it has ended."""
    for sandbox in list(_open):
        sandbox.close()


class Sandbox:
    """A riscv64 program in a virtual machine, whose exported functions are called.

    The machine starts with the constructor, and ends with :meth:`close` or at the end of ``with``.
    Any thread may use it; calls and resets of several threads follow one another. Other threads run
    during a call.
    """

    def __init__(
        self,
        program: str | PathLike[str],
        *,
        arguments: Iterable[str] = (),
        environment: Mapping[str, str] | None = None,
        rootfs: str | PathLike[str] | None = None,
        cache: str | PathLike[str] | None = None,
        ram: int = 0,
        start_limit: float | None = 60.0,
        output: Output = None,
        error: Output = None,
        interpret: bool = False,
        tune_allocator: bool = False,
        functions: Mapping[str, HostFunction] | None = None,
    ) -> None:
        """Load and start a program, until it waits for its first call.

        :param program: its path, or with ``rootfs`` a path inside.
        :param arguments: those after its name.
        :param environment: all its variables: none are inherited.
        :param rootfs: a directory, tar file or EROFS image; without one, the program is the only
            file.
        :param cache: the directory of translations; without one, that of ``hartline run``.
        :param ram: bytes; 0: 2 GiB.
        :param start_limit: seconds until it waits for its first call; None: no limit.
        :param output: its standard output.
        :param error: its standard error.
        :param interpret: all code is interpreted. This is slow, and needs no cache.
        :param tune_allocator: ``malloc`` gets settings with which translating takes less time.
        :param functions: functions for the program, which it may call when it starts.
        :raises LoadError: the program cannot be loaded or translated.
        :raises StartError: it does not wait for calls.
        """
        self._handle = 0
        self._process = os.getpid()
        self._callbacks: list[Any] = []
        self._raised: BaseException | None = None
        # What the options point to.
        words = [ffi.new("char[]", _bytes(word)) for word in arguments]
        pairs = [f"{name}={value}" for name, value in (environment or {}).items()]
        variables = [ffi.new("char[]", _bytes(pair)) for pair in pairs]
        word_list, variable_list = ffi.new("char *[]", words), ffi.new("char *[]", variables)
        paths = [ffi.new("char[]", _bytes(path)) if path else ffi.NULL for path in (rootfs, cache)]
        options = ffi.new("struct hartline_options *")
        options.size = ffi.sizeof("struct hartline_options")
        options.arguments, options.argument_count = word_list, len(words)
        options.environment, options.environment_count = variable_list, len(variables)
        options.rootfs, options.cache = paths
        options.ram = _unsigned(ram, "ram")
        options.start_limit_ms = _milliseconds(start_limit)
        options.output, options.error = _descriptor(output), _descriptor(error)
        options.flags = INTERPRET * interpret | TUNE_ALLOCATOR * tune_allocator
        handle = ffi.new("hartline_sandbox *")
        check(lib.hartline_create(_bytes(program), options, handle))
        self._handle = handle[0]
        _open.add(self)
        try:
            for name, function in (functions or {}).items():
                self.register(name, function)
            check(lib.hartline_start(self._handle))
        except BaseException:
            self.close()
            raise

    def call(
        self,
        name: str,
        data: bytes | bytearray | memoryview = b"",
        *,
        limit: float | None = None,
    ) -> bytes:
        """Call a function of the program.

        :param name: its name, of at most 64 bytes.
        :param data: the input, of at most ``MAX_DATA`` bytes.
        :param limit: the longest time, in seconds, after earlier calls of other threads have ended.
            Python handles signals, also Ctrl-C, after the call.
        :raises FunctionError: it returned an error.
        :raises LateError: it did not return in time.
        :raises ProgramEndedError: the program ended or crashed.
        :raises PoisonedError: an earlier call failed.
        """
        buffers = _buffers
        with memoryview(data) as view:
            status = lib.hartline_call(
                self._handle,
                _bytes(name),
                ffi.from_buffer(view),
                view.nbytes,
                buffers.output,
                MAX_DATA,
                buffers.length,
                _milliseconds(limit),
            )
        if status != lib.HARTLINE_OK:
            failure = error_of(status)
            cause, self._raised = self._raised, None
            if isinstance(failure, errors.FunctionError) and cause is not None:
                raise failure from cause
            raise failure
        output: bytes = ffi.unpack(buffers.output, buffers.length[0])
        return output

    def reset(self) -> Reset:
        """Put the machine back into the state before the first call.

        This also helps after :class:`LateError`, :class:`ProgramEndedError` and
        :class:`PoisonedError`.

        :raises LostError: it cannot be used any more.
        """
        result = ffi.new("struct hartline_reset_result *")
        check(lib.hartline_reset(self._handle, result))
        return Reset(result.pages, result.time_ns / 1e9, bool(result.tables_changed))

    def register(self, name: str, function: HostFunction) -> None:
        """Give the program a function, in place of an earlier one with this name.

        A thread of the machine calls it. It cannot use the sandbox.
        """
        itself = weakref.ref(self)

        def call(_user: Any, data: Any, length: int, output: Any, room: int) -> int:
            try:
                result = function(bytes(ffi.buffer(data, length)))
                # Also of other objects with bytes.
                with memoryview(result) as view:
                    if view.nbytes > room:
                        return -errno.E2BIG
                    ffi.memmove(output, view, view.nbytes)
                    return view.nbytes
            except BaseException as raised:
                sandbox = itself()
                if sandbox is not None:
                    sandbox._raised = raised
                number = raised.errno if isinstance(raised, OSError) else None
                return -(number or errno.EIO)

        callback = ffi.callback("hartline_host_function", call, error=-errno.EIO)
        check(lib.hartline_register(self._handle, _bytes(name), callback, ffi.NULL))
        # The machine may be in an earlier one.
        self._callbacks.append(callback)

    @property
    def warnings(self) -> list[str]:
        """The files of which code is interpreted because it cannot be translated, and why."""
        room = 1 << 16
        text, length = ffi.new("char[]", room), ffi.new("size_t *")
        check(lib.hartline_warnings(self._handle, text, room, length))
        lines: str = ffi.unpack(text, length[0]).decode(errors="replace")
        return lines.splitlines()

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._handle == 0

    def close(self) -> None:
        """End the machine. Calls of other threads fail. Once is enough, and more do nothing."""
        handle, self._handle = self._handle, 0
        _open.discard(self)
        # In a child of the process, the machine is not there.
        if handle and os.getpid() == self._process:
            lib.hartline_end(handle)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_handle", 0):
            self.close()


def _bytes(text: str | PathLike[str]) -> bytes:
    """Encode a text for C."""
    encoded = os.fsencode(text)
    if b"\0" in encoded:
        raise errors.ArgumentError("a text has a character 0")
    return encoded


def _unsigned(number: int, what: str) -> int:
    if not 0 <= number < NO_LIMIT:
        raise errors.ArgumentError(f"{what}: {number}: must be at least 0")
    return number


def _milliseconds(seconds: float | None) -> int:
    """Convert a limit for C: at least 1 ms."""
    if seconds is None:
        return NO_LIMIT
    if not seconds > 0:
        raise errors.ArgumentError(f"a limit of {seconds} s: must be more than 0")
    return NO_LIMIT if math.isinf(seconds) else min(math.ceil(seconds * 1000), NO_LIMIT - 1)


def _descriptor(output: Output) -> int:
    if output is None:
        return -1
    if isinstance(output, int):
        return _unsigned(output, "output")
    return output.fileno()
