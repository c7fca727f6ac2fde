"""Tar files with the files of machines, as they arrive."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import anyio
from anyio import to_thread

from ._tar import Pieces, Source, unpack
from .errors import ConnectionLostError
from .streams import AsyncStream, Stream


class Archive(Stream[bytes]):
    """The bytes of a tar file (GNU format). It is complete if the iteration ends.

    The machine makes it: do not trust it. :meth:`extract` unpacks it::

        client.machines.copy_from("web-1", "/var/log").extract("logs")
    """

    def extract(
        self, directory: str | os.PathLike[str], *, skip_refused: bool = False
    ) -> list[str]:
        """Unpack the tar file below a directory, and close the connection.

        Nothing is written elsewhere, whatever the machine sends: no member is written through a
        link. Files get the owner of this process, their modification times, and their permissions
        without set-ID bits and without write access for others; their owner can read and write
        them. Existing directories stay,
        and other existing files are replaced by new files. If the call fails, the files before the
        failure stay, and the last one may be incomplete.

        Args:
            directory: The directory. If it is missing, it is made, but not the one above it.
            skip_refused: Leave out devices, FIFOs and links that lead out of the directory,
                instead of failing.

        Returns:
            The names of the members that were left out.

        Raises:
            ArchiveError: The tar file is damaged, or has a member that is refused.
            OSError: A file cannot be written.
            HartlineError: As :meth:`hartline.client.Machines.copy_from`.

        """
        with self:
            return unpack(Pieces(self._items), Path(directory), skip_refused=skip_refused)


class AsyncArchive(AsyncStream[bytes]):
    """The bytes of a tar file (GNU format). It is complete if the iteration ends.

    The machine makes it: do not trust it. :meth:`extract` unpacks it::

        await client.machines.copy_from("web-1", "/var/log").extract("logs")
    """

    async def extract(
        self, directory: str | os.PathLike[str], *, skip_refused: bool = False
    ) -> list[str]:
        """Unpack the tar file below a directory in a thread, and close the connection.

        The arguments, the result and the errors are those of :meth:`Archive.extract`. A
        cancellation ends the thread.
        """
        pipe = _Pipe()
        with ThreadPoolExecutor(1, "hartline-extract") as pool:
            unpacked = pool.submit(_unpack, pipe, Path(directory), skip_refused)
            try:
                async with self:
                    async for data in self._items:
                        await to_thread.run_sync(pipe.write, data)
                    pipe.is_complete = True
            except BrokenPipeError:
                # The thread has ended: its error is the result.
                pass
            finally:
                pipe.close()
                with anyio.CancelScope(shield=True):
                    await to_thread.run_sync(wait, [unpacked])
        return unpacked.result()


class _Pipe:
    """Gives the bytes of a tar file to a thread."""

    def __init__(self) -> None:
        reader, writer = os.pipe()
        self.reader = open(reader, "rb", buffering=0)  # noqa: PTH123, SIM115
        self._writer = open(writer, "wb", buffering=0)  # noqa: PTH123, SIM115
        self.is_complete = False
        """Whether the end of the pipe is the end of the tar file."""

    def write(self, data: bytes) -> None:
        """Write all bytes.

        Raises:
            BrokenPipeError: The thread reads no more.

        """
        rest = memoryview(data)
        while rest:
            rest = rest[self._writer.write(rest) :]

    def close(self) -> None:
        """Close the end for writing."""
        self._writer.close()

    def read(self, size: int, /) -> bytes:
        """Return at most this number of bytes, and none at the end.

        Raises:
            ConnectionLostError: The tar file is incomplete.

        """
        data = self.reader.read(size)
        if not data and not self.is_complete:
            raise ConnectionLostError("the copy has ended before its end")
        return data


def _unpack(pipe: _Pipe, directory: Path, skip_refused: bool) -> list[str]:
    source: Source = pipe
    with pipe.reader:
        return unpack(source, directory, skip_refused=skip_refused)
