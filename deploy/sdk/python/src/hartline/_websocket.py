"""A WebSocket (RFC 6455) on a socket that does not block.

Both kinds of channels use it. They differ only in how they wait for the socket. It does not use
the streams of an event loop, because these close for reading when a write fails: the end of a
command that does not read its input would be lost.
"""

from __future__ import annotations

import base64
import contextlib
import enum
import hashlib
import secrets
import socket
import ssl
import threading
from typing import Any, Generic, TypeVar

import httpcore
import httpx
from wsproto import ConnectionType
from wsproto.connection import Connection
from wsproto.events import BytesMessage, CloseConnection, Event, Ping, TextMessage
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

from ._links import Link
from ._plans import Answer, Request, check
from .errors import ConnectionLostError, ExecRefusedError, ProtocolError

M = TypeVar("M", str, bytes)

CHUNK = 64 << 10
"""Most bytes that are read or written at a time."""
LONGEST_MESSAGE = 16 << 20
"""Most bytes of a message of the daemon, which sends at most 64 KiB of output in one."""
REFUSED = 1008
"""The status with which the daemon closes a connection because of a message."""
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class Want(enum.Enum):
    """What the socket must be ready for before an operation can continue."""

    READ = "read"
    WRITE = "write"


class WebSocket:
    """An open connection. Threads may share it, and no method waits."""

    def __init__(self, link: Link, path: str, delay: float) -> None:
        """Send the request for the connection. This is the only part that waits.

        Args:
            link: Where to send it.
            path: Path and query.
            delay: Seconds by which the daemon may delay its answer.

        Raises:
            HartlineError: The daemon refuses, or there is no answer.

        """
        key = base64.b64encode(secrets.token_bytes(16))
        self._response = link.send(_handshake(path, key, delay), is_streamed=True)
        try:
            _check_handshake(self._response, key)
            stream = self._response.extensions["network_stream"]
            self._protocol = Connection(ConnectionType.CLIENT)
            self._protocol_receive(_early(stream))
            self.socket: socket.socket = stream.get_extra_info("socket")
            self.socket.setblocking(False)
        except BaseException:
            self._response.close()
            raise
        self._lock = threading.Lock()
        self._unsent = bytearray()
        self._is_closed = False
        self._text = _Parts("")
        self._data = _Parts(b"")

    def close(self) -> None:
        """Close the connection. A thread that waits for the socket wakes up."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            # It fails if the daemon has closed the connection.
            with contextlib.suppress(OSError):
                self.socket.shutdown(socket.SHUT_RDWR)
            self._response.close()

    def queue(self, message: str | bytes) -> None:
        """Queue a message, which :meth:`flush` sends."""
        event = TextMessage(message) if isinstance(message, str) else BytesMessage(message)
        with self._lock:
            self._queue(event)

    def _queue(self, event: Event) -> None:
        try:
            self._unsent += self._protocol.send(event)
        except LocalProtocolError as error:
            raise _lost(error) from error

    def flush(self) -> Want | None:
        """Send what is queued. Result: what to wait for, if something is left."""
        with self._lock:
            return self._flush()

    def _flush(self) -> Want | None:
        while self._unsent:
            self._check_open()
            try:
                del self._unsent[: self.socket.send(self._unsent[:CHUNK])]
            except (BlockingIOError, ssl.SSLWantWriteError):
                return Want.WRITE
            except ssl.SSLWantReadError:
                return Want.READ
            except OSError as error:
                raise _lost(error) from error
        return None

    def receive(self) -> str | bytes | Want:
        """Return the next message, or what to wait for."""
        with self._lock:
            while True:
                for event in self._protocol.events():
                    message = self._take(event)
                    if message is not None:
                        return message
                self._check_open()
                try:
                    data = self.socket.recv(CHUNK)
                except (BlockingIOError, ssl.SSLWantReadError):
                    return Want.READ
                except ssl.SSLWantWriteError:
                    return Want.WRITE
                except OSError as error:
                    raise _lost(error) from error
                self._protocol_receive(data or None)

    def _protocol_receive(self, data: bytes | None) -> None:
        try:
            self._protocol.receive_data(data)
        except (LocalProtocolError, RemoteProtocolError) as error:
            raise _lost(error) from error

    def _take(self, event: Event) -> str | bytes | None:
        """Return the message that ends with an event, if one does."""
        if isinstance(event, TextMessage):
            return self._text.add(event.data, event.message_finished)
        if isinstance(event, BytesMessage):
            return self._data.add(bytes(event.data), event.message_finished)
        if isinstance(event, CloseConnection):
            if event.code == REFUSED:
                raise ExecRefusedError(event.reason or "the daemon gave no reason")
            raise ConnectionLostError(f"the connection of the streams ended ({event.code})")
        if isinstance(event, Ping):
            self._queue(event.response())
            # What cannot be sent now is sent before the next message.
            self._flush()
        return None

    def _check_open(self) -> None:
        if self._is_closed:
            raise ConnectionLostError("the streams were closed")


class _Parts(Generic[M]):
    """A message that comes in parts."""

    def __init__(self, empty: M) -> None:
        self._so_far: M = empty
        self._empty: M = empty

    def add(self, part: M, is_last: bool) -> M | None:
        """Return the message, if this is its last part."""
        self._so_far += part
        if len(self._so_far) > LONGEST_MESSAGE:
            raise ProtocolError(f"a message of the daemon exceeds {LONGEST_MESSAGE} bytes")
        if not is_last:
            return None
        whole, self._so_far = self._so_far, self._empty
        return whole


def _lost(error: Exception) -> ConnectionLostError:
    return ConnectionLostError(f"the connection of the streams broke: {error}")


def _early(stream: Any) -> bytes:
    """Return the bytes that came with the head of the answer.

    They are in httpx's stream, which tells only by a read whether there are any. An error is not
    lost: the socket has it too.
    """
    try:
        early: bytes = stream.read(LONGEST_MESSAGE, timeout=0)
    except httpcore.ReadError:
        return b""
    return early


def _handshake(path: str, key: bytes, delay: float) -> Request:
    headers = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Key": key.decode(),
        "Sec-WebSocket-Version": "13",
    }
    # A command starts with the first message.
    return Request("GET", path, headers=headers, delay=delay, is_repeatable=True)


def _check_handshake(response: httpx.Response, key: bytes) -> None:
    if response.status_code != httpx.codes.SWITCHING_PROTOCOLS:
        check(Answer(response.status_code, response.headers, response.read()))
        raise ProtocolError(f"the answer is no WebSocket, but has status {response.status_code}")
    digest = hashlib.sha1(key + _GUID, usedforsecurity=False).digest()
    if response.headers.get("sec-websocket-accept", "") != base64.b64encode(digest).decode():
        raise ProtocolError("the daemon's answer has a wrong Sec-WebSocket-Accept")
