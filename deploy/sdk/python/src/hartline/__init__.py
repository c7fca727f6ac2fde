"""A client of hartlined, which runs Linux/riscv64 programs in virtual machines.

:class:`Client` is for ordinary programs, :class:`AsyncClient` for programs with an event loop. Both
have the same operations.
"""

from .aio import AsyncClient
from .client import Client
from .errors import (
    ApiError,
    AuthenticationError,
    ConflictError,
    ConnectError,
    ConnectionLostError,
    ExecRefusedError,
    ForbiddenError,
    HartlineError,
    InvalidRequestError,
    NotFoundError,
    ProgramFailedError,
    ProtocolError,
    RequestTimeoutError,
    RunFailedError,
    ServerError,
    TooLargeError,
    TooManyRequestsError,
    TransportError,
    WaitTimeoutError,
)
from .models import (
    ExecEnd,
    ExecResult,
    Exits,
    Logs,
    Machine,
    Output,
    Piece,
    Program,
    Run,
    RunEntry,
    RunOutcome,
    Snapshot,
    Traffic,
    Version,
    Volume,
)
from .operations._ends import AUTO
from .operations.exec import Terminal
from .process import AsyncProcess, Process
from .spec import Mount, Port, Spec
from .streams import AsyncStream, Stream

__all__ = [
    "AUTO",
    "ApiError",
    "AsyncClient",
    "AsyncProcess",
    "AsyncStream",
    "AuthenticationError",
    "Client",
    "ConflictError",
    "ConnectError",
    "ConnectionLostError",
    "ExecEnd",
    "ExecRefusedError",
    "ExecResult",
    "Exits",
    "ForbiddenError",
    "HartlineError",
    "InvalidRequestError",
    "Logs",
    "Machine",
    "Mount",
    "NotFoundError",
    "Output",
    "Piece",
    "Port",
    "Process",
    "Program",
    "ProgramFailedError",
    "ProtocolError",
    "RequestTimeoutError",
    "Run",
    "RunEntry",
    "RunFailedError",
    "RunOutcome",
    "ServerError",
    "Snapshot",
    "Spec",
    "Stream",
    "Terminal",
    "TooLargeError",
    "TooManyRequestsError",
    "Traffic",
    "TransportError",
    "Version",
    "Volume",
    "WaitTimeoutError",
]
