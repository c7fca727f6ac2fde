"""Streams of programs in both directions, over WebSockets."""

from __future__ import annotations

import select
import threading
from collections.abc import AsyncIterator, Iterator
from types import TracebackType
from typing import Generic, Self, TypeVar

import anyio
from anyio import to_thread

from ._links import Link
from ._plans import Session
from ._transport import Settings
from ._websocket import Want, WebSocket
from .errors import ConnectionLostError, HartlineError, ProtocolError
from .models import Piece

E = TypeVar("E")

CHUNK = 32 << 10
"""Bytes of standard input in a message. The daemon accepts 64 KiB or more."""


class _Base(Generic[E]):
    """What both kinds of channels have in common: everything but waiting."""

    def __init__(self, settings: Settings, session: Session[E]) -> None:
        self._settings = settings
        self._session = session
        self._link: Link | None = None
        self._socket: WebSocket | None = None
        self.end: E | None = None
        """The end, once the output was read to its end."""

    def _connect(self) -> None:
        self._link = Link(self._settings)
        self._socket = WebSocket(self._link, self._session.path, self._session.delay)
        if self._session.first is not None:
            self._socket.queue(self._session.first)

    def _disconnect(self) -> None:
        if self._socket is not None:
            self._socket.close()
        if self._link is not None:
            self._link.close()

    def _open(self) -> WebSocket:
        if self._socket is None:
            raise HartlineError("the streams are not open: use them as a context manager")
        return self._socket

    def _take(self, message: str | bytes) -> Piece | None:
        """Return a message's output. ``None``: the program has ended."""
        item = self._session.item(message)
        if isinstance(item, Piece):
            return item
        self.end = item
        return None

    def _ended(self) -> E:
        if self.end is None:
            raise ProtocolError("the output ended before the program")
        return self.end


def _chunks(data: bytes) -> Iterator[bytes]:
    for start in range(0, len(data), CHUNK):
        yield data[start : start + CHUNK]


class Channel(_Base[E]):
    """Streams of a program, for programs without an event loop.

    It is a context manager, and an iterator of output. One thread may read while others write.
    """

    def __enter__(self) -> Self:
        try:
            self._connect()
            self._flush()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection, which does not end the program."""
        self._disconnect()

    def _wait(self, want: Want) -> None:
        poll = select.poll()
        poll.register(self._open().socket, select.POLLIN if want is Want.READ else select.POLLOUT)
        poll.poll()

    def _flush(self) -> None:
        while (want := self._open().flush()) is not None:
            self._wait(want)

    def write(self, data: bytes) -> None:
        """Write to the program's standard input. This waits until the program reads.

        Raises:
            ConnectionLostError: The program has ended, or the connection broke.

        """
        for chunk in _chunks(data):
            self._open().queue(chunk)
            self._flush()

    def close_stdin(self) -> None:
        """Close the program's standard input. On a command's terminal this does nothing.

        Raises:
            ConnectionLostError: The program has ended, or the connection broke.

        """
        self._open().queue(b"")
        self._flush()

    def __iter__(self) -> Iterator[Piece]:
        return self

    def __next__(self) -> Piece:
        if self.end is not None:
            raise StopIteration
        while isinstance(message := self._open().receive(), Want):
            self._wait(message)
        piece = self._take(message)
        if piece is None:
            raise StopIteration
        return piece

    def wait(self) -> E:
        """Read the rest of the output, and drop it. Result: the end of the program.

        Raises:
            ExecRefusedError: The daemon refused a message.
            ConnectionLostError: The connection broke, which does not end the program.

        """
        for _ in self:
            pass
        return self._ended()

    def _exchange(self, stdin: bytes) -> list[Piece]:
        """Write to standard input and close it, and read all output meanwhile."""
        self._open()
        writer = threading.Thread(target=self._feed, args=(stdin,), daemon=True)
        writer.start()
        try:
            return list(self)
        finally:
            # The writer may wait for a program that does not read.
            self.close()
            writer.join()

    def _feed(self, stdin: bytes) -> None:
        try:
            self.write(stdin)
            self.close_stdin()
        except ConnectionLostError:
            # The program need not read its input. The reader finds out why the connection ended.
            return


class AsyncChannel(_Base[E]):
    """Streams of a program.

    It is a context manager, and an iterator of output. One task may read while others write.
    """

    def __init__(self, settings: Settings, session: Session[E]) -> None:
        super().__init__(settings, session)
        # One task at a time may wait until the socket takes bytes.
        self._writers = anyio.Lock()

    async def __aenter__(self) -> Self:
        try:
            await to_thread.run_sync(self._connect)
            await self._flush()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection, which does not end the program."""
        if self._socket is not None and self._socket.socket.fileno() >= 0:
            anyio.notify_closing(self._socket.socket)
        self._disconnect()

    async def _wait(self, want: Want) -> None:
        ready = anyio.wait_readable if want is Want.READ else anyio.wait_writable
        try:
            await ready(self._open().socket)
        except anyio.ClosedResourceError as error:
            raise ConnectionLostError("the streams were closed") from error

    async def _flush(self) -> None:
        async with self._writers:
            while (want := self._open().flush()) is not None:
                await self._wait(want)

    async def write(self, data: bytes) -> None:
        """Write to the program's standard input. This waits until the program reads.

        Raises:
            ConnectionLostError: The program has ended, or the connection broke.

        """
        for chunk in _chunks(data):
            self._open().queue(chunk)
            await self._flush()

    async def close_stdin(self) -> None:
        """Close the program's standard input. On a command's terminal this does nothing.

        Raises:
            ConnectionLostError: The program has ended, or the connection broke.

        """
        self._open().queue(b"")
        await self._flush()

    def __aiter__(self) -> AsyncIterator[Piece]:
        return self

    async def __anext__(self) -> Piece:
        if self.end is not None:
            raise StopAsyncIteration
        while isinstance(message := self._open().receive(), Want):
            await self._wait(message)
        piece = self._take(message)
        if piece is None:
            raise StopAsyncIteration
        return piece

    async def wait(self) -> E:
        """Read the rest of the output, and drop it. Result: the end of the program.

        Raises:
            ExecRefusedError: The daemon refused a message.
            ConnectionLostError: The connection broke, which does not end the program.

        """
        async for _ in self:
            pass
        return self._ended()

    async def _exchange(self, stdin: bytes) -> list[Piece]:
        """Write to standard input and close it, and read all output meanwhile."""
        self._open()
        pieces: list[Piece] = []
        failed: HartlineError | None = None
        async with anyio.create_task_group() as group:
            group.start_soon(self._feed, stdin)
            # An error that leaves the group would be in an exception group.
            try:
                async for piece in self:
                    pieces.append(piece)
            except HartlineError as error:
                failed = error
            # The writer may wait for a program that does not read.
            group.cancel_scope.cancel()
        if failed is not None:
            raise failed
        return pieces

    async def _feed(self, stdin: bytes) -> None:
        try:
            await self.write(stdin)
            await self.close_stdin()
        except ConnectionLostError:
            # The program need not read its input. The reader finds out why the connection ended.
            return
