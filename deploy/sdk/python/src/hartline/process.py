"""Commands in running machines, with streams in both directions."""

from __future__ import annotations

import json
import select
import threading
from collections.abc import AsyncIterator, Iterator
from types import TracebackType

import anyio
from anyio import to_thread

from ._links import Link
from ._transport import Settings
from ._websocket import Want, WebSocket
from .errors import ConnectionLostError, HartlineError, ProtocolError
from .models import ExecEnd, ExecResult, Piece
from .operations.exec import Session, Terminal, collected, item_of, resize_json

CHUNK = 32 << 10
"""Bytes of standard input in a message. The daemon accepts 256 KiB."""


class _Base:
    """What both kinds of processes have in common: everything but waiting."""

    def __init__(self, settings: Settings, session: Session) -> None:
        self._settings = settings
        self._session = session
        self._link: Link | None = None
        self._socket: WebSocket | None = None
        self.end: ExecEnd | None = None
        """The end of the command, once its output was read to its end."""

    def _connect(self) -> None:
        self._link = Link(self._settings)
        self._socket = WebSocket(self._link, self._session.path)
        self._socket.queue(json.dumps(self._session.command))

    def _disconnect(self) -> None:
        if self._socket is not None:
            self._socket.close()
        if self._link is not None:
            self._link.close()

    def _open(self) -> WebSocket:
        if self._socket is None:
            raise HartlineError("the process is not open: use it as a context manager")
        return self._socket

    def _take(self, message: str | bytes) -> Piece | None:
        """Return a message's output. ``None``: the command has ended."""
        item = item_of(message)
        if isinstance(item, ExecEnd):
            self.end = item
            return None
        return item

    def _ended(self) -> ExecEnd:
        if self.end is None:
            raise ProtocolError("the command's output ended before the command")
        return self.end


def _chunks(data: bytes) -> Iterator[bytes]:
    for start in range(0, len(data), CHUNK):
        yield data[start : start + CHUNK]


class Process(_Base):
    r"""A command in a machine, for programs without an event loop.

    It is a context manager, and an iterator of its output. One thread may read while others write::

        with client.machines.exec_stream("web-1", ["sh"]) as process:
            process.write(b"echo hello\n")
            process.close_stdin()
            for piece in process:
                print(piece.stream, piece.data)
            print(process.wait().exit_code)

    A command that writes stops while nobody reads its output, and then may not read its input:
    :meth:`communicate` does both at once.
    """

    def __enter__(self) -> Process:
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
        """Close the command's streams. The command goes on until it notices."""
        self._disconnect()

    def _wait(self, want: Want) -> None:
        poll = select.poll()
        poll.register(self._open().socket, select.POLLIN if want is Want.READ else select.POLLOUT)
        poll.poll()

    def _flush(self) -> None:
        while (want := self._open().flush()) is not None:
            self._wait(want)

    def write(self, data: bytes) -> None:
        """Write to the command's standard input. This waits until the command reads.

        Raises:
            ConnectionLostError: The command has ended, or the connection broke.

        """
        for chunk in _chunks(data):
            self._open().queue(chunk)
            self._flush()

    def close_stdin(self) -> None:
        """Close the command's standard input. On a terminal this does nothing.

        Raises:
            ConnectionLostError: The command has ended, or the connection broke.

        """
        self._open().queue(b"")
        self._flush()

    def resize(self, terminal: Terminal) -> None:
        """Change the size of the command's terminal.

        Raises:
            ConnectionLostError: The command has ended, or the connection broke.

        """
        self._open().queue(resize_json(terminal))
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

    def wait(self) -> ExecEnd:
        """Read the rest of the output, and drop it. Result: the end of the command.

        Raises:
            ExecRefusedError: The daemon refused the command.
            ConnectionLostError: The connection broke. The command goes on until it notices.

        """
        for _ in self:
            pass
        return self._ended()

    def communicate(self, stdin: bytes = b"") -> ExecResult:
        """Write to standard input and close it, and read all output meanwhile.

        Args:
            stdin: The input, of any length.

        Returns:
            The exit code and the outputs, which are in memory whole.

        Raises:
            ExecRefusedError: The daemon refused the command.
            ConnectionLostError: The connection broke. The command goes on until it notices.

        """
        self._open()
        writer = threading.Thread(target=self._feed, args=(stdin,), daemon=True)
        writer.start()
        try:
            pieces = list(self)
        finally:
            # The writer may wait for a command that does not read.
            self.close()
            writer.join()
        return collected(pieces, self._ended())

    def _feed(self, stdin: bytes) -> None:
        try:
            self.write(stdin)
            self.close_stdin()
        except ConnectionLostError:
            # The command need not read its input. The reader finds out why the connection ended.
            return


class AsyncProcess(_Base):
    r"""A command in a machine.

    It is a context manager, and an iterator of its output. One task may read while others write::

        async with client.machines.exec_stream("web-1", ["sh"]) as process:
            await process.write(b"echo hello\n")
            await process.close_stdin()
            async for piece in process:
                print(piece.stream, piece.data)
            print((await process.wait()).exit_code)

    A command that writes stops while nobody reads its output, and then may not read its input:
    :meth:`communicate` does both at once.
    """

    def __init__(self, settings: Settings, session: Session) -> None:
        super().__init__(settings, session)
        # One task at a time may wait until the socket takes bytes.
        self._writers = anyio.Lock()

    async def __aenter__(self) -> AsyncProcess:
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
        """Close the command's streams. The command goes on until it notices."""
        if self._socket is not None and self._socket.socket.fileno() >= 0:
            anyio.notify_closing(self._socket.socket)
        self._disconnect()

    async def _wait(self, want: Want) -> None:
        ready = anyio.wait_readable if want is Want.READ else anyio.wait_writable
        try:
            await ready(self._open().socket)
        except anyio.ClosedResourceError as error:
            raise ConnectionLostError("the process was closed") from error

    async def _flush(self) -> None:
        async with self._writers:
            while (want := self._open().flush()) is not None:
                await self._wait(want)

    async def write(self, data: bytes) -> None:
        """Write to the command's standard input. This waits until the command reads.

        Raises:
            ConnectionLostError: The command has ended, or the connection broke.

        """
        for chunk in _chunks(data):
            self._open().queue(chunk)
            await self._flush()

    async def close_stdin(self) -> None:
        """Close the command's standard input. On a terminal this does nothing.

        Raises:
            ConnectionLostError: The command has ended, or the connection broke.

        """
        self._open().queue(b"")
        await self._flush()

    async def resize(self, terminal: Terminal) -> None:
        """Change the size of the command's terminal.

        Raises:
            ConnectionLostError: The command has ended, or the connection broke.

        """
        self._open().queue(resize_json(terminal))
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

    async def wait(self) -> ExecEnd:
        """Read the rest of the output, and drop it. Result: the end of the command.

        Raises:
            ExecRefusedError: The daemon refused the command.
            ConnectionLostError: The connection broke. The command goes on until it notices.

        """
        async for _ in self:
            pass
        return self._ended()

    async def communicate(self, stdin: bytes = b"") -> ExecResult:
        """Write to standard input and close it, and read all output meanwhile.

        Args:
            stdin: The input, of any length.

        Returns:
            The exit code and the outputs, which are in memory whole.

        Raises:
            ExecRefusedError: The daemon refused the command.
            ConnectionLostError: The connection broke. The command goes on until it notices.

        """
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
            # The writer may wait for a command that does not read.
            group.cancel_scope.cancel()
        if failed is not None:
            raise failed
        return collected(pieces, self._ended())

    async def _feed(self, stdin: bytes) -> None:
        try:
            await self.write(stdin)
            await self.close_stdin()
        except ConnectionLostError:
            # The command need not read its input. The reader finds out why the connection ended.
            return
