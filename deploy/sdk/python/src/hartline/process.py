"""Commands in running machines, with streams in both directions."""

from __future__ import annotations

import threading

import anyio

from .channel import AsyncChannel, Channel
from .errors import ConnectionLostError, HartlineError
from .models import ExecEnd, ExecResult, Piece
from .operations.exec import Terminal, collected, resize_json


class Process(Channel[ExecEnd]):
    r"""A command in a machine, for programs without an event loop.

    It is a context manager, and an iterator of its output. One thread may read while others write::

        with client.machines.exec_stream("web-1", ["sh"]) as process:
            process.write(b"echo hello\n")
            process.close_stdin()
            for piece in process:
                print(piece.stream, piece.data)
            print(process.wait().exit_code)

    A command that writes stops while nobody reads its output, and then may not read its input:
    :meth:`communicate` does both at once. The end of the context closes the command's streams. The
    command goes on until it notices.
    """

    def resize(self, terminal: Terminal) -> None:
        """Change the size of the command's terminal.

        Raises:
            ConnectionLostError: The command has ended, or the connection broke.

        """
        self._open().queue(resize_json(terminal))
        self._flush()

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


class AsyncProcess(AsyncChannel[ExecEnd]):
    r"""A command in a machine.

    It is a context manager, and an iterator of its output. One task may read while others write::

        async with client.machines.exec_stream("web-1", ["sh"]) as process:
            await process.write(b"echo hello\n")
            await process.close_stdin()
            async for piece in process:
                print(piece.stream, piece.data)
            print((await process.wait()).exit_code)

    A command that writes stops while nobody reads its output, and then may not read its input:
    :meth:`communicate` does both at once. The end of the context closes the command's streams. The
    command goes on until it notices.
    """

    async def resize(self, terminal: Terminal) -> None:
        """Change the size of the command's terminal.

        Raises:
            ConnectionLostError: The command has ended, or the connection broke.

        """
        self._open().queue(resize_json(terminal))
        await self._flush()

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
