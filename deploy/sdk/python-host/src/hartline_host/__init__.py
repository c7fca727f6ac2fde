"""Functions of Linux/riscv64 programs, called in virtual machines of this process.

A program exports functions with ``hartline.h``. A :class:`Sandbox` runs it in a virtual machine of
its own, calls the functions, and puts the machine back into the state before the first call.
"""

from hartline_host._library import MAX_DATA, version
from hartline_host.errors import (
    ArgumentError,
    BugError,
    ClosedError,
    ForkedError,
    FunctionError,
    HartlineHostError,
    LateError,
    LoadError,
    LostError,
    NestedError,
    PoisonedError,
    ProgramEndedError,
    StartError,
    StateError,
    WaitingError,
)
from hartline_host.sandbox import HostFunction, Output, Reset, Sandbox

__all__ = [
    "MAX_DATA",
    "ArgumentError",
    "BugError",
    "ClosedError",
    "ForkedError",
    "FunctionError",
    "HartlineHostError",
    "HostFunction",
    "LateError",
    "LoadError",
    "LostError",
    "NestedError",
    "Output",
    "PoisonedError",
    "ProgramEndedError",
    "Reset",
    "Sandbox",
    "StartError",
    "StateError",
    "WaitingError",
    "version",
]
