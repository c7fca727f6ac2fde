"""Operations without I/O: requests that they need, and what their answers mean.

A :data:`Plan` is a generator. It yields a :class:`Request`, receives the :class:`Answer`, and
returns the operation's result. A :class:`Streaming` is one request whose answer is read in pieces.
Both clients execute the same plans; they differ only in how they send requests and wait.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterable, Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Generic, Protocol, TypeVar
from urllib.parse import quote

from . import errors
from ._decode import decode
from ._tar import Tree
from .models import Piece

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

CHUNK = 64 << 10
"""Bytes of an upload that are sent at a time."""


@dataclass(frozen=True, slots=True)
class Upload:
    """A body that is read while it is sent."""

    source: Path | Tree | bytes | BinaryIO | Iterable[bytes] | AsyncIterable[bytes]

    @property
    def length(self) -> int | None:
        """The number of bytes, if it is known."""
        if isinstance(self.source, Path):
            return self.source.stat().st_size
        return len(self.source) if isinstance(self.source, bytes) else None

    @property
    def is_repeatable(self) -> bool:
        """Whether it can be read more than once."""
        return isinstance(self.source, Path | Tree | bytes)

    def chunks(self) -> Iterator[bytes]:
        """Read the body from its beginning.

        Raises:
            TypeError: Only an event loop can read it.

        """
        if isinstance(self.source, bytes):
            yield from _parts(self.source)
        elif isinstance(self.source, Path):
            with self.source.open("rb") as file:
                while chunk := file.read(CHUNK):
                    yield chunk
        elif isinstance(self.source, Tree):
            yield from self.source.chunks()
        elif isinstance(self.source, AsyncIterable):
            raise TypeError("only AsyncClient accepts an asynchronous iterator")
        elif (read := getattr(self.source, "read", None)) is not None:
            while chunk := read(CHUNK):
                yield chunk
        else:
            for piece in self.source:
                yield from _parts(piece)


def _parts(data: bytes) -> Iterator[bytes]:
    """Divide bytes: httpx copies the rest of a part after each write."""
    for place in range(0, len(data), CHUNK):
        yield data[place : place + CHUNK]


@dataclass(frozen=True, slots=True)
class Request:
    """A request for either client to send."""

    method: str
    path: str
    """Path and query."""
    json: object = None
    upload: Upload | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    delay: float | None = 0.0
    """Seconds by which the daemon may delay its answer, besides the client's time-out. ``None``: no
    limit."""
    pause: float = 0.0
    """Seconds to wait before the request."""
    is_repeatable: bool = False
    """Whether a repetition changes nothing if the daemon has done the first request."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A complete answer."""

    status: int
    headers: Mapping[str, str]
    """Headers; a lookup ignores the case."""
    body: bytes


Plan = Generator[Request, Answer, T]
"""The requests of an operation, and its result."""


class Decoder(Protocol[T_co]):
    """Items from the bytes of an answer."""

    def feed(self, data: bytes) -> Iterator[T_co]:
        """Return the items that end in these bytes."""
        ...

    def finish(self) -> Iterator[T_co]:
        """Return the items that only the end of the answer ends."""
        ...


@dataclass(frozen=True, slots=True)
class Streaming(Generic[T]):
    """An operation whose answer is read in pieces."""

    request: Request
    decoder: Callable[[], Decoder[T]]


@dataclass(frozen=True, slots=True)
class Following(Generic[T]):
    """An operation whose answer has no end. If it is lost, the request is sent again."""

    streaming: Streaming[T]
    gap: T
    """The item between what was lost and what follows."""
    patience: float
    """Seconds after which requests that fail are not sent again."""


@dataclass(frozen=True, slots=True)
class Session(Generic[T]):
    """An operation whose streams stay open in both directions: a WebSocket."""

    path: str
    item: Callable[[str | bytes], Piece | T]
    """What a message of the daemon is: output, or the end."""
    first: str | None = None
    """The first message to the daemon."""
    delay: float = 0.0
    """Seconds by which the daemon may delay its answer, besides the client's time-out."""


def segment(name: str) -> str:
    """Return a name or id as part of a path.

    Raises:
        ValueError: No object can have this name, and the path would be another one.

    """
    if name in ("", ".", ".."):
        raise ValueError(f"{name!r} is not a name or an id")
    return quote(name, safe="")


def query(path: str, /, **parameters: str | int | bool | None) -> str:
    """Return a path with the parameters that are not ``None``."""
    pairs = []
    for name, value in parameters.items():
        text = str(value).lower() if isinstance(value, bool) else str(value)
        if value is not None:
            pairs.append(f"{name}={quote(text, safe='')}")
    return f"{path}?{'&'.join(pairs)}" if pairs else path


def get(path: str, delay: float | None = 0.0) -> Request:
    """Return a request that changes nothing."""
    return Request("GET", path, delay=delay, is_repeatable=True)


def check(answer: Answer) -> Answer:
    """Return an answer that has a result.

    Raises:
        ApiError: The daemon refused the request, or failed.

    """
    if not 200 <= answer.status < 300:  # noqa: PLR2004
        raise error_of(answer)
    return answer


_ERRORS: Mapping[int, type[errors.ApiError]] = {
    400: errors.InvalidRequestError,
    401: errors.AuthenticationError,
    403: errors.ForbiddenError,
    404: errors.NotFoundError,
    409: errors.ConflictError,
    413: errors.TooLargeError,
    422: errors.InvalidRequestError,
    429: errors.TooManyRequestsError,
}


def error_of(answer: Answer) -> errors.ApiError:
    """Return the error of an answer without a result."""
    server_error = 500
    usual = errors.ServerError if answer.status >= server_error else errors.ApiError
    kind = _ERRORS.get(answer.status, usual)
    try:
        found = json.loads(answer.body)
    except ValueError:
        found = None
    # An answer of another server, for example of a proxy, is no problem of the API.
    problem = found if isinstance(found, dict) else {}

    def text(name: str) -> str | None:
        value = problem.get(name)
        return value if isinstance(value, str) else None

    seconds = answer.headers.get("retry-after", "")
    return kind(
        answer.status,
        text("code") or "",
        text("detail") or "the answer has no description",
        field=text("field"),
        retry_after=float(seconds) if seconds.isdecimal() else None,
    )


def result(kind: type[T], answer: Answer) -> T:
    """Return the object in an answer.

    Raises:
        ApiError: The daemon refused the request, or failed.
        ProtocolError: The answer has another form.

    """
    return decode(kind, parse(check(answer).body), kind.__name__)


def parse(text: bytes) -> Any:
    """Return the value of a JSON text.

    Raises:
        ProtocolError: The text is not JSON.

    """
    try:
        return json.loads(text)
    except ValueError as error:
        raise errors.ProtocolError(f"the daemon's answer is not JSON: {error}") from error


def fetch(kind: type[T], request: Request) -> Plan[T]:
    """Send one request. Result: the object in its answer."""
    answer = yield request
    return result(kind, answer)


def fetch_all(kind: type[T], path: str) -> Plan[list[T]]:
    """Request a list page by page (RFC 8288). Result: the entries of all pages."""
    found: list[T] = []
    while True:
        answer = yield get(path)
        found.extend(result(tuple[kind, ...], answer))  # type: ignore[valid-type]
        following = _next_page(answer.headers.get("link", ""))
        if following is None:
            return found
        if following == path:
            raise errors.ProtocolError(f"the page after {path} is the same page")
        path = following


def _next_page(link: str) -> str | None:
    target, _, parameters = link.partition(">")
    if 'rel="next"' not in parameters:
        return None
    path = target.removeprefix("<")
    # Requests have the API key: they do not leave the daemon.
    if not path.startswith("/v1/"):
        raise errors.ProtocolError(f"the next page is not a path of the API: {path!r}")
    return path
