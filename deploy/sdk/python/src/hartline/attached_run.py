"""Runs with open streams in both directions."""

from __future__ import annotations

from .channel import AsyncChannel, Channel
from .models import RunOutcome
from .operations.runs import collected


class AttachedRun(Channel[RunOutcome]):
    r"""A run with open streams, for programs without an event loop.

    It is a context manager, and an iterator of its output. One thread may read while others write::

        with client.runs.attached(Spec("sort")) as run:
            run.write(b"two\none\n")
            run.close_stdin()
            for piece in run:
                print(piece.stream, piece.data)
            print(run.wait().exit_code)

    A program that writes stops while nobody reads its output, and then may not read its input:
    :meth:`communicate` does both at once. The end of the context kills the program.
    """

    def communicate(self, stdin: bytes = b"") -> RunOutcome:
        """Write to standard input and close it, and read all output meanwhile.

        Args:
            stdin: The input, of any length.

        Returns:
            The outcome, with the outputs, which are in memory whole.

        Raises:
            ExecRefusedError: The daemon refused the run.
            RunFailedError: There is no outcome.
            ConnectionLostError: The connection broke. The daemon kills the program.

        """
        pieces = self._exchange(stdin)
        return collected(pieces, self._ended())


class AsyncAttachedRun(AsyncChannel[RunOutcome]):
    r"""A run with open streams.

    It is a context manager, and an iterator of its output. One task may read while others write::

        async with client.runs.attached(Spec("sort")) as run:
            await run.write(b"two\none\n")
            await run.close_stdin()
            async for piece in run:
                print(piece.stream, piece.data)
            print((await run.wait()).exit_code)

    A program that writes stops while nobody reads its output, and then may not read its input:
    :meth:`communicate` does both at once. The end of the context kills the program.
    """

    async def communicate(self, stdin: bytes = b"") -> RunOutcome:
        """Write to standard input and close it, and read all output meanwhile.

        Args:
            stdin: The input, of any length.

        Returns:
            The outcome, with the outputs, which are in memory whole.

        Raises:
            ExecRefusedError: The daemon refused the run.
            RunFailedError: There is no outcome.
            ConnectionLostError: The connection broke. The daemon kills the program.

        """
        pieces = await self._exchange(stdin)
        return collected(pieces, self._ended())
