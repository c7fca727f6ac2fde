"""Programs in virtual machines of this process."""

from __future__ import annotations

import errno
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from os import PathLike
from typing import Any, Final, Self

from hartline_host import errors
from hartline_host._library import (
    INTERPRET,
    MAX_DATA,
    TUNE_ALLOCATOR,
    check,
    error_of,
    ffi,
    lib,
)
from hartline_host._values import (
    Handle,
    Output,
    Reset,
    reset_of,
    to_bytes,
    to_descriptor,
    to_milliseconds,
    to_unsigned,
    warnings_of,
)
from hartline_host.template import Template

HostFunction = Callable[[bytes], bytes]
"""A function for a program: gets the input, and returns the output, of at most MAX_DATA bytes.

``OSError`` becomes its error number for the program, any other exception ``EIO``.
"""


class _Buffers(threading.local):
    """A buffer for outputs in each thread."""

    def __init__(self) -> None:
        self.output = ffi.new("char[]", MAX_DATA)
        self.length = ffi.new("size_t *")


_buffers: Final = _Buffers()


class Sandbox(Handle):
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
        super().__init__()
        self._callbacks: list[Any] = []
        self._raised: BaseException | None = None
        # What the options point to.
        words = [ffi.new("char[]", to_bytes(word)) for word in arguments]
        pairs = [f"{name}={value}" for name, value in (environment or {}).items()]
        variables = [ffi.new("char[]", to_bytes(pair)) for pair in pairs]
        word_list, variable_list = ffi.new("char *[]", words), ffi.new("char *[]", variables)
        paths = [
            ffi.new("char[]", to_bytes(path)) if path else ffi.NULL for path in (rootfs, cache)
        ]
        options = ffi.new("struct hartline_options *")
        options.size = ffi.sizeof("struct hartline_options")
        options.arguments, options.argument_count = word_list, len(words)
        options.environment, options.environment_count = variable_list, len(variables)
        options.rootfs, options.cache = paths
        options.ram = to_unsigned(ram, "ram")
        options.start_limit_ms = to_milliseconds(start_limit)
        options.output, options.error = to_descriptor(output), to_descriptor(error)
        options.flags = INTERPRET * interpret | TUNE_ALLOCATOR * tune_allocator
        handle = ffi.new("hartline_sandbox *")
        check(lib.hartline_create(to_bytes(program), options, handle))
        self._start(handle[0], functions)

    @classmethod
    def of(
        cls,
        template: Template,
        *,
        output: Output = None,
        error: Output = None,
        functions: Mapping[str, HostFunction] | None = None,
    ) -> Self:
        """Continue a snapshot of ``--snapshot-at call``, until it waits for a call.

        A reset puts the machine back to where it waits.

        :param template: the snapshot.
        :param output: the program's standard output.
        :param error: its standard error.
        :param functions: functions for the program.
        :raises StartError: it does not wait for calls.
        """
        sandbox = cls.__new__(cls)
        Handle.__init__(sandbox)
        sandbox._callbacks, sandbox._raised = [], None
        handle = ffi.new("hartline_sandbox *")
        descriptors = to_descriptor(output), to_descriptor(error)
        check(lib.hartline_create_from(template._handle, *descriptors, handle))
        sandbox._start(handle[0], functions)
        return sandbox

    def _start(self, handle: int, functions: Mapping[str, HostFunction] | None) -> None:
        """Take what C has created, and start it."""
        self._set(handle)
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
                to_bytes(name),
                ffi.from_buffer(view),
                view.nbytes,
                buffers.output,
                MAX_DATA,
                buffers.length,
                to_milliseconds(limit),
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
        return reset_of(result)

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
        check(lib.hartline_register(self._handle, to_bytes(name), callback, ffi.NULL))
        # The machine may be in an earlier one.
        self._callbacks.append(callback)

    @property
    def warnings(self) -> list[str]:
        """The files of which code is interpreted because it cannot be translated, and why."""
        return warnings_of(lib.hartline_warnings, self._handle)

    def close(self) -> None:
        """End the machine. Calls of other threads fail. Once is enough, and more do nothing."""
        super().close()

    def _end(self, handle: int) -> None:
        lib.hartline_end(handle)
