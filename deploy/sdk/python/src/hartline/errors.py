"""Exceptions of this package. All of them are :class:`HartlineError`."""

from __future__ import annotations


class HartlineError(Exception):
    """An operation failed."""


class ApiError(HartlineError):
    """The daemon refused the request, or failed (RFC 9457 problem details)."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        field: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        where = f"{field}: " if field else ""
        super().__init__(f"{where}{message} ({status} {code})")
        self.status = status
        """The HTTP status."""
        self.code = code
        """The stable code, for example ``name-in-use``; empty if the answer has none."""
        self.message = message
        """The description of this occurrence."""
        self.field = field
        """The field of the request that is wrong, if the daemon names one."""
        self.retry_after = retry_after
        """Seconds after which the daemon suggests to repeat the request, if it does."""


class InvalidRequestError(ApiError):
    """The request is malformed, or a field has a value that is not allowed (400, 422)."""


class AuthenticationError(ApiError):
    """The request has no valid API key (401)."""


class ForbiddenError(ApiError):
    """The key's scope is not sufficient, or a quota does not allow the request (403).

    ``code`` is ``forbidden``, ``quota`` or ``host-too-small``.
    """


class NotFoundError(ApiError):
    """The tenant has no such object (404)."""


class ConflictError(ApiError):
    """The state does not allow the request: ``wrong-state``, ``name-in-use`` and others (409)."""


class TooLargeError(ApiError):
    """The body is too large (413)."""


class TooManyRequestsError(ApiError):
    """There are too many requests, connections, idempotency keys, or waiting machines (429)."""


class ServerError(ApiError):
    """The daemon failed, has no room, or does not accept requests at present (5xx)."""


class TransportError(HartlineError):
    """There is no complete answer."""


class ConnectError(TransportError):
    """The daemon cannot be reached. It has not received the request."""


class ConnectionLostError(TransportError):
    """The connection broke. The daemon may have done what the request asks for."""


class RequestTimeoutError(TransportError, TimeoutError):
    """The daemon was silent for too long. It may have done what the request asks for."""


class ProtocolError(HartlineError):
    """The answer is not what the API describes."""


class WaitTimeoutError(HartlineError, TimeoutError):
    """The state that a call waits for was not reached in time. The object continues."""


class ProgramFailedError(HartlineError):
    """A program cannot be prepared."""

    def __init__(self, program: str, problem: str, message: str) -> None:
        super().__init__(f"program {program}: {message} ({problem})")
        self.program = program
        """Id of the program."""
        self.problem = problem
        """The stable code, for example ``bad-upload``."""
        self.message = message
        """The reason."""


class ArchiveError(HartlineError):
    """The tar file that a machine made is damaged, or has a member that is refused."""


class RunFailedError(HartlineError):
    """The daemon could not finish a run whose outputs it streamed."""


class ExecRefusedError(HartlineError):
    """The daemon refused a command, or a message, on open streams of a machine."""
