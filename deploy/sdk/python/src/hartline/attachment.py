"""Standard streams of the programs of machines."""

from __future__ import annotations

from .channel import AsyncChannel, Channel
from .models import Machine
from .operations.exec import resize_json
from .spec import Terminal


class Attachment(Channel[Machine]):
    r"""The standard streams of a machine's program, for programs without an event loop.

    It is a context manager, and an iterator of the output, which ends with the machine. One thread
    may read while others write::

        with client.machines.attach("game", stdin=True) as program:
            program.write(b"north\n")
            for piece in program:
                print(piece.stream, piece.data)
            print(program.wait().exit_code)

    The end of the context does not end the machine, nor its standard input.
    """

    def resize(self, terminal: Terminal) -> None:
        """Change the size of the program's terminal.

        Raises:
            ConnectionLostError: The machine has ended, or the connection broke.

        """
        self._open().queue(resize_json(terminal))
        self._flush()


class AsyncAttachment(AsyncChannel[Machine]):
    r"""The standard streams of a machine's program.

    It is a context manager, and an iterator of the output, which ends with the machine. One task
    may read while others write::

        async with client.machines.attach("game", stdin=True) as program:
            await program.write(b"north\n")
            async for piece in program:
                print(piece.stream, piece.data)
            print((await program.wait()).exit_code)

    The end of the context does not end the machine, nor its standard input.
    """

    async def resize(self, terminal: Terminal) -> None:
        """Change the size of the program's terminal.

        Raises:
            ConnectionLostError: The machine has ended, or the connection broke.

        """
        self._open().queue(resize_json(terminal))
        await self._flush()
