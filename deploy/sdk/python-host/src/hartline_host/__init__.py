"""Linux/riscv64 programs in virtual machines of this process, which are reset after each use.

A program exports functions with ``hartline.h``. A :class:`Sandbox` runs it in a virtual machine of
its own, calls the functions, and puts the machine back into the state before the first call.

A :class:`Template` is a snapshot of any program, and a :class:`WarmClone` a machine that continues
it, again and again from the same state.
"""

from hartline_host._library import MAX_DATA, version
from hartline_host._values import Output, Reset
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
    StreamsError,
    WaitingError,
)
from hartline_host.sandbox import HostFunction, Sandbox
from hartline_host.template import Baseline, Template
from hartline_host.warm_clone import CAPTURE, Capture, Cause, RunEnd, WarmClone

__all__ = [
    "CAPTURE",
    "MAX_DATA",
    "ArgumentError",
    "Baseline",
    "BugError",
    "Capture",
    "Cause",
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
    "RunEnd",
    "Sandbox",
    "StartError",
    "StateError",
    "StreamsError",
    "Template",
    "WaitingError",
    "WarmClone",
    "version",
]
