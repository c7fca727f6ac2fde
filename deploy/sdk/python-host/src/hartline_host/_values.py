"""Values of Python for C, and resources that C knows by number."""

from __future__ import annotations

import atexit
import math
import os
import weakref
from abc import ABC, abstractmethod
from dataclasses import dataclass
from os import PathLike
from types import TracebackType
from typing import Any, Final, Protocol, Self

from hartline_host import errors
from hartline_host._library import NO_LIMIT, check, ffi


class File(Protocol):
    """An object with a descriptor."""

    def fileno(self) -> int:
        """Return the descriptor."""


Output = int | File | None
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


def reset_of(result: Any) -> Reset:
    """Convert a ``struct hartline_reset_result``."""
    return Reset(result.pages, result.time_ns / 1e9, bool(result.tables_changed))


_open: Final[weakref.WeakSet[Handle]] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """End all machines: their threads must not call Python when it has ended."""
    for handle in list(_open):
        handle.close()


class Handle(ABC):
    """A sandbox, template or clone, which C knows by number. It can be used in ``with``."""

    def __init__(self) -> None:
        self._handle = 0
        self._process = os.getpid()

    def _set(self, handle: int) -> None:
        """Take a number, which :meth:`close` ends."""
        self._handle = handle
        _open.add(self)

    @abstractmethod
    def _end(self, handle: int) -> None:
        """End what C knows by this number."""

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._handle == 0

    def close(self) -> None:
        """End it. Once is enough, and more do nothing."""
        handle, self._handle = self._handle, 0
        _open.discard(self)
        # In a child of the process, it is not there.
        if handle and os.getpid() == self._process:
            self._end(handle)

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


def warnings_of(function: Any, handle: int) -> list[str]:
    """Get the lines of ``hartline_warnings`` or a function like it."""
    room = 1 << 16
    text, length = ffi.new("char[]", room), ffi.new("size_t *")
    check(function(handle, text, room, length))
    lines: str = ffi.unpack(text, length[0]).decode(errors="replace")
    return lines.splitlines()


def to_bytes(text: str | PathLike[str]) -> bytes:
    """Encode a text for C."""
    encoded = os.fsencode(text)
    if b"\0" in encoded:
        raise errors.ArgumentError("a text has a character 0")
    return encoded


def to_unsigned(number: int, what: str) -> int:
    """Check a number for C."""
    if not 0 <= number < NO_LIMIT:
        raise errors.ArgumentError(f"{what}: {number}: must be at least 0")
    return number


def to_milliseconds(seconds: float | None) -> int:
    """Convert a limit for C: at least 1 ms."""
    if seconds is None:
        return NO_LIMIT
    if not seconds > 0:
        raise errors.ArgumentError(f"a limit of {seconds} s: must be more than 0")
    return NO_LIMIT if math.isinf(seconds) else min(math.ceil(seconds * 1000), NO_LIMIT - 1)


def to_descriptor(file: Output) -> int:
    """Return the descriptor of a file; -1: None."""
    if file is None:
        return -1
    number = file if isinstance(file, int) else _fileno(file)
    if not 0 <= number <= _MAX_DESCRIPTOR:
        raise errors.ArgumentError(f"descriptor {number}: there is no such one")
    return number


_MAX_DESCRIPTOR: Final = 2**31 - 1


def _fileno(file: File) -> int:
    try:
        return file.fileno()
    except AttributeError:
        raise TypeError(f"a descriptor or a file is needed, not {type(file).__name__}") from None
