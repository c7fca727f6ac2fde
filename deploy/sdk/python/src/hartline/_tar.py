"""Tar files: local files are packed, and files of machines are unpacked below a directory."""

from __future__ import annotations

import io
import stat
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol, Self

from .errors import ArchiveError

CHUNK = 64 << 10
"""Most bytes of a local file that are read at a time."""
LONGEST_NAME = 64 << 10
"""Most bytes of a name in a machine's tar file. Paths of Linux have at most 4095."""
NAMES = (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)
"""Types of members with the long name of the next one."""
KINDS = (
    *NAMES,
    tarfile.REGTYPE,
    tarfile.AREGTYPE,
    tarfile.DIRTYPE,
    tarfile.SYMTYPE,
    tarfile.LNKTYPE,
    tarfile.CHRTYPE,
    tarfile.BLKTYPE,
    tarfile.FIFOTYPE,
)
"""Types of members in the tar files of machines."""


class Tree:
    """A local file, or a directory and everything in it, as a tar file in GNU format."""

    def __init__(self, path: str | Path) -> None:
        """Look for the file.

        Raises:
            OSError: There is no such file.

        """
        text = str(path)
        name = text.rstrip("/").rpartition("/")[2]
        self._name = "." if name in ("", ".", "..") else name
        """The name of the file in the tar file. ``.`` stands for a directory's contents."""
        # A slash follows a link.
        self._path = Path(text).resolve() if text.endswith(("/", "/.")) else Path(text)
        self._path.lstat()

    def chunks(self) -> Iterator[bytes]:
        """Make the tar file. Sockets are left out.

        Raises:
            OSError: A file cannot be read, or has become shorter.

        """
        # It remembers hard links, and has no contents.
        headers = tarfile.open(fileobj=io.BytesIO(), mode="w")  # noqa: SIM115
        waiting = [(self._path, self._name)]
        while waiting:
            path, name = waiting.pop()
            member = headers.gettarinfo(path, name)
            if member is None:
                continue
            yield from _packed(member, path)
            if member.isdir():
                entries = sorted(path.iterdir(), reverse=True)
                waiting.extend((entry, f"{name}/{entry.name}") for entry in entries)
        yield bytes(2 * tarfile.BLOCKSIZE)


def _packed(member: tarfile.TarInfo, path: Path) -> Iterator[bytes]:
    member.mtime = int(member.mtime)
    # Names of this host's users mean nothing in the machine.
    member.uname = member.gname = ""
    yield member.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")
    if not member.isreg():
        return
    left = member.size
    with path.open("rb") as file:
        while left > 0:
            chunk = file.read(min(left, CHUNK))
            if not chunk:
                raise OSError(f"{path}: the file became shorter while it was copied")
            left -= len(chunk)
            yield chunk
    yield bytes(-member.size % tarfile.BLOCKSIZE)


class Source(Protocol):
    """What a tar file is read from."""

    def read(self, size: int, /) -> bytes:
        """Return at most this number of bytes, and none at the end."""
        ...


class Pieces:
    """A source whose bytes arrive in pieces."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = memoryview(b"")

    def read(self, size: int, /) -> bytes:
        """Return at most this number of bytes, and none at the end."""
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return b""
            self._rest = memoryview(piece)
        found, self._rest = self._rest[:size], self._rest[size:]
        return bytes(found)


class _Member(tarfile.TarInfo):
    """A member with limits that ``tarfile`` does not have."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        is_end = not buf.strip(b"\0")
        try:
            found = super().frombuf(buf, encoding, errors)
        except tarfile.HeaderError as error:
            if is_end:
                raise
            # ``tarfile`` would take it for the end.
            raise tarfile.ReadError(f"it has a damaged header: {error}") from error
        if found.type not in KINDS:
            raise tarfile.ReadError(f"it has a member of the unknown type {found.type!r}")
        # ``tarfile`` reads names into memory.
        if found.size < 0 or (found.type in NAMES and found.size > LONGEST_NAME):
            raise tarfile.ReadError(f"it has a member of {found.size} bytes")
        return found


def unpack(source: Source, directory: Path, *, skip_refused: bool) -> list[str]:
    """Unpack the tar file of a machine, which may be hostile, and read the source to its end.

    Besides the filter ``data``, no member is written through a link, whatever the link leads to.
    Versions of Python before June 2025 have a filter that crafted links deceive.

    Returns:
        The names of the members that the filter refused, if they are skipped.

    Raises:
        ArchiveError: The tar file is damaged, or has a member that is refused.
        OSError: A file cannot be written.

    """
    if not hasattr(tarfile, "data_filter"):
        raise ArchiveError("this version of Python cannot unpack it safely: 3.11.4 or later can")
    directory.mkdir(exist_ok=True)
    skipped: list[str] = []

    def admit(member: tarfile.TarInfo, path: str) -> tarfile.TarInfo | None:
        _make_room(directory, member)
        try:
            return tarfile.data_filter(member, path)
        except tarfile.FilterError:
            if not skip_refused:
                raise
            skipped.append(member.name)
            return None

    try:
        with tarfile.open(
            fileobj=source,  # type: ignore[call-overload]
            mode="r|",
            tarinfo=_Member,
            encoding="utf-8",
            errors="surrogateescape",
            errorlevel=2,
        ) as tar:
            tar.extractall(directory, filter=admit)  # noqa: S202 - `admit` checks them
    # Times can be out of range, and names can follow names without an end.
    except (tarfile.TarError, OverflowError, RecursionError) as error:
        raise ArchiveError(f"the machine's tar file is refused: {error}") from error
    while source.read(CHUNK):
        pass
    return skipped


def _make_room(directory: Path, member: tarfile.TarInfo) -> None:
    """Remove the file that a member replaces.

    Raises:
        ArchiveError: The member is not below the directory, or a link leads to it.

    """
    place = _place(directory, member.name)
    kind = _kind(place)
    if member.islnk() and _kind(_place(directory, member.linkname)) != stat.S_IFREG:
        raise ArchiveError(f"{member.name!r} is a link to {member.linkname!r}: no such file")
    if kind is not None and member.isdir() != (kind == stat.S_IFDIR):
        raise ArchiveError(f"{member.name!r} exists, and only one of both is a directory")
    if kind is not None and not member.isdir():
        # A program that has the old file open keeps it.
        place.unlink()


def _place(directory: Path, name: str) -> Path:
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if name.startswith("/") or ".." in parts:
        raise ArchiveError(f"the machine's tar file has the name {name!r}, which is refused")
    place = directory
    for part in parts[:-1]:
        place /= part
        if _kind(place) not in (None, stat.S_IFDIR):
            raise ArchiveError(f"{name!r} is below {place}, which is not a directory")
    return place / parts[-1] if parts else directory


def _kind(path: Path) -> int | None:
    try:
        return stat.S_IFMT(path.lstat().st_mode)
    except FileNotFoundError:
        return None
