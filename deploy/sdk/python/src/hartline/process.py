"""Commands in running machines, with streams in both directions."""

from __future__ import annotations

from .channel import AsyncChannel, Channel
from .models import ExecEnd, ExecResult
from .operations.exec import collected, resize_json
from .spec import Terminal


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
        pieces = self._exchange(stdin)
        return collected(pieces, self._ended())


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
        pieces = await self._exchange(stdin)
        return collected(pieces, self._ended())
