"""What both clients need to send requests: settings, forms of requests, and errors."""

from __future__ import annotations

import os
import ssl
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import httpx

from ._plans import Request
from .errors import (
    ApiError,
    ConnectError,
    ConnectionLostError,
    HartlineError,
    RequestTimeoutError,
    ServerError,
    TooManyRequestsError,
    TransportError,
)

DEFAULT_HOST = "unix:///run/hartline/hartlined.sock"
CONNECT_TIMEOUT = 10.0
"""Seconds for a connection and its TLS handshake."""
FIRST_PAUSE = 0.1
"""Seconds between the first two attempts of a request; each further pause is twice as long."""
LONGEST_PAUSE = 5.0
"""The longest pause before a stream is opened again, seconds."""
IDLE = 5.0
"""Seconds after which an idle connection is closed. The daemon closes it after 15 s."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The address of a daemon, and how requests are sent there."""

    host: str
    key: str | None = field(repr=False)
    tenant: str | None
    ca: Path | None
    timeout: float
    retries: int

    @classmethod
    def of(
        cls,
        host: str | None,
        key: str | None,
        tenant: str | None,
        ca: str | os.PathLike[str] | None,
        timeout: float,
        retries: int,
    ) -> Settings:
        """Take settings that are not given from the environment.

        Raises:
            ValueError: A setting has a value that is not allowed.

        """
        found = ca or os.environ.get("HARTLINE_CA")
        settings = cls(
            host or os.environ.get("HARTLINE_HOST") or DEFAULT_HOST,
            key or os.environ.get("HARTLINE_KEY") or None,
            tenant,
            Path(found) if found else None,
            timeout,
            retries,
        )
        if not settings.host.startswith(("unix://", "http://", "https://")):
            rule = "needs the form unix://PATH, http://ADDRESS:PORT or https://NAME:PORT"
            raise ValueError(f"host {settings.host!r}: {rule}")
        if timeout <= 0:
            raise ValueError(f"timeout {timeout}: must be more than 0 seconds")
        if retries < 0:
            raise ValueError(f"retries {retries}: must not be negative")
        return settings

    def for_transport(self) -> dict[str, Any]:
        """Return the arguments of httpx's transports.

        Raises:
            OSError: The file with the trusted certificates cannot be read.

        """
        limits = httpx.Limits(keepalive_expiry=IDLE)
        if self.host.startswith("unix://"):
            return {"uds": self.host.removeprefix("unix://"), "limits": limits, "verify": False}
        if self.host.startswith("http://"):
            return {"limits": limits, "verify": False}
        context = ssl.create_default_context(cafile=self.ca)
        return {"limits": limits, "verify": context}

    def for_client(self) -> dict[str, Any]:
        """Return the arguments of httpx's clients, besides the transport."""
        headers = {"User-Agent": f"hartline-python/{version('hartline')}"}
        if self.key is not None:
            headers["Authorization"] = f"Bearer {self.key}"
        if self.tenant is not None:
            headers["Hartline-Tenant"] = self.tenant
        is_unix = self.host.startswith("unix://")
        return {
            "base_url": "http://hartline" if is_unix else self.host,
            "headers": headers,
            # Proxies of the environment would see the key.
            "trust_env": False,
        }

    def for_request(
        self, request: Request, content: Iterator[bytes] | AsyncIterator[bytes] | None
    ) -> dict[str, Any]:
        """Return the arguments of a request, with the chunks of its upload."""
        headers = dict(request.headers)
        if request.upload is not None:
            headers["Content-Type"] = "application/octet-stream"
            length = request.upload.length
            if length is not None:
                headers["Content-Length"] = str(length)
        return {
            "method": request.method,
            "url": request.path,
            "json": request.json,
            "content": content,
            "headers": headers,
            "timeout": self.time_limits(request.delay),
        }

    def time_limits(self, delay: float | None) -> httpx.Timeout:
        """Return the limits for a request whose answer may be delayed."""
        silence = None if delay is None else self.timeout + delay
        connect = min(CONNECT_TIMEOUT, self.timeout)
        # The daemon reads a body no faster than a machine takes it.
        write = self.timeout if silence is None else silence
        return httpx.Timeout(connect=connect, read=silence, write=write, pool=None)


class Attempts:
    """Decides whether a request is sent again after a failure."""

    def __init__(self, request: Request, retries: int) -> None:
        self._request = request
        self._left = retries
        self._pause = FIRST_PAUSE

    def pause_after(self, error: httpx.HTTPError) -> float:
        """Return the seconds to wait before the next attempt.

        Raises:
            TransportError: There is no next attempt.

        """
        failed = failure(error)
        upload = self._request.upload
        # An open file is read only once.
        can_send = upload is None or upload.is_repeatable
        is_safe = isinstance(failed, ConnectError) or (
            isinstance(failed, ConnectionLostError) and self._request.is_repeatable
        )
        if self._left == 0 or not can_send or not is_safe or _is_tls(error):
            raise failed from error
        self._left -= 1
        pause, self._pause = self._pause, 2 * self._pause
        return pause


class Outage:
    """Decides whether a stream that was lost is opened again."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._deadline: float | None = None
        self._pause = FIRST_PAUSE

    def end(self) -> None:
        """Note that the daemon has sent something. A later failure is a new outage."""
        self._deadline = None
        self._pause = FIRST_PAUSE

    def pause_after(self, error: HartlineError) -> float:
        """Return the seconds to wait before the next attempt.

        Raises:
            HartlineError: There is no next attempt.

        """
        now = time.monotonic()
        if self._deadline is None:
            self._deadline = now + self._patience
        # A proxy in front of a daemon that restarts answers with 502 or 503.
        is_temporary = isinstance(error, TransportError | ServerError | TooManyRequestsError)
        if not is_temporary or now >= self._deadline:
            raise error
        asked = error.retry_after if isinstance(error, ApiError) else None
        pause = max(self._pause, asked or 0.0)
        self._pause = min(2 * self._pause, LONGEST_PAUSE)
        return min(pause, self._deadline - now)


def failure(error: httpx.HTTPError) -> TransportError:
    """Return this package's error for one of httpx."""
    text = str(error) or type(error).__name__
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
        return ConnectError(f"no connection to the daemon: {text}")
    if isinstance(error, httpx.TimeoutException):
        return RequestTimeoutError(f"the daemon does not answer: {text}")
    if isinstance(error, httpx.NetworkError | httpx.RemoteProtocolError):
        return ConnectionLostError(f"the connection to the daemon broke: {text}")
    return TransportError(f"the request cannot be sent: {text}")


def _is_tls(error: BaseException | None) -> bool:
    """Return whether a certificate, or the protocol, is the reason. Both stay the same."""
    while error is not None:
        if isinstance(error, ssl.SSLError):
            return True
        error = error.__cause__ or error.__context__
    return False
