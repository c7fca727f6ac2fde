"""The library, with the declarations of its header."""

from __future__ import annotations

import errno
import re
from pathlib import Path
from typing import Any, Final

from cffi import FFI

from hartline_host import errors

_FOLDER: Final = Path(__file__).parent


def _declarations(header: str) -> str:
    """Extract the declarations of a header: cffi has no preprocessor."""
    header = re.sub(r"/\*.*?\*/", "", header, flags=re.DOTALL)
    header = re.sub(r"#ifdef __cplusplus.*?#endif", "", header, flags=re.DOTALL)
    header = header.replace("\\\n", " ")
    return "\n".join(line for line in header.splitlines() if not line.startswith("#"))


def _number(header: str, name: str) -> int:
    """Read the value of a macro that is a decimal number."""
    found = re.search(rf"^#define {name} (\d+)u?$", header, flags=re.MULTILINE)
    if found is None:
        raise errors.BugError(f"{name} is not in the header")
    return int(found[1])


_HEADER: Final = (_FOLDER / "hartline_host.h").read_text(encoding="utf-8")

ffi: Final[Any] = FFI()
ffi.cdef(_declarations(_HEADER))
lib: Final[Any] = ffi.dlopen(str(_FOLDER / "libhartline.so.0"))

MAX_DATA: Final = _number(_HEADER, "HARTLINE_HOST_MAX_DATA")
"""Longest input and longest output of a function, bytes."""
INTERPRET: Final = _number(_HEADER, "HARTLINE_INTERPRET")
TUNE_ALLOCATOR: Final = _number(_HEADER, "HARTLINE_TUNE_ALLOCATOR")
NO_LIMIT: Final = 2**64 - 1

if lib.hartline_interface() != _number(_HEADER, "HARTLINE_INTERFACE"):
    raise errors.BugError("libhartline.so.0 does not fit its header")

_KINDS: Final[dict[int, type[errors.HartlineHostError]]] = {
    lib.HARTLINE_ARGUMENT: errors.ArgumentError,
    lib.HARTLINE_NO_SANDBOX: errors.ClosedError,
    lib.HARTLINE_STATE: errors.StateError,
    lib.HARTLINE_LOAD: errors.LoadError,
    lib.HARTLINE_START: errors.StartError,
    lib.HARTLINE_LATE: errors.LateError,
    lib.HARTLINE_ENDED: errors.ProgramEndedError,
    lib.HARTLINE_POISONED: errors.PoisonedError,
    lib.HARTLINE_NESTED: errors.NestedError,
    lib.HARTLINE_WAITING: errors.WaitingError,
    lib.HARTLINE_LOST: errors.LostError,
    lib.HARTLINE_FORKED: errors.ForkedError,
    lib.HARTLINE_NO_TEMPLATE: errors.ClosedError,
    lib.HARTLINE_NO_CLONE: errors.ClosedError,
    lib.HARTLINE_STREAMS: errors.StreamsError,
}


def error_of(status: int) -> errors.HartlineHostError:
    """Make the exception for a status, with the last error of this thread."""
    text = ffi.string(lib.hartline_last_error()).decode(errors="replace")
    if status == lib.HARTLINE_FUNCTION:
        return errors.FunctionError(text, lib.hartline_last_errno() or errno.EIO)
    return _KINDS.get(status, errors.BugError)(text)


def check(status: int) -> None:
    """Raise the exception for a status, unless all is well."""
    if status != lib.HARTLINE_OK:
        raise error_of(status)


def version() -> str:
    """Return the version of the library."""
    text: str = ffi.string(lib.hartline_version()).decode()
    return text
