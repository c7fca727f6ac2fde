"""Files of running machines, which the machine's kernel reads and writes with root's rights."""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable
from pathlib import Path
from typing import BinaryIO, Literal, cast, get_args

from .._plans import Plan, Request, Streaming, Upload, check, get, query, result, segment
from .._tar import Tree
from ..errors import ConflictError, NotFoundError, ProtocolError
from ..models import Machine
from .logs import Pieces

FileType = Literal["file", "directory", "link", "other"]
"""The type of a file. Devices, FIFOs and sockets are ``other``."""
PATIENCE = 30.0
"""Seconds that the daemon waits for a machine that is silent (``idle_timeout_s``)."""
NOT_FOUND = 404
CONFLICT = 409


def _machine(machine: str) -> str:
    return f"/v1/machines/{segment(machine)}"


def _source(machine: str, path: str, follow: bool) -> str:
    return query(f"{_machine(machine)}/files", path=path, follow=follow or None)


def file_type(machine: str, path: str, *, follow: bool = False) -> Plan[FileType]:
    """Return the type of a file in a running machine.

    The daemon's answer has no text if it fails. The client then asks for the machine, to tell a
    missing file from a missing machine. Other errors have an empty ``code``.

    Args:
        machine: Its id, a unique begin of the id, or its name.
        path: Absolute path in the machine, at most 4095 bytes. With ``/`` at its end, it must be a
            directory.
        follow: The type of the file that a symbolic link leads to.

    Raises:
        NotFoundError: The tenant has no such machine, or the machine has no such file.
        ConflictError: The machine does not run (``wrong-state``), or refuses.
        ForbiddenError: The key's scope is not ``write``.
        HartlineError: There is no answer, or another error.

    """
    request = Request("HEAD", _source(machine, path, follow), delay=PATIENCE, is_repeatable=True)
    answer = yield request
    if answer.status in (NOT_FOUND, CONFLICT):
        state = result(Machine, (yield get(_machine(machine)))).state
        if answer.status == NOT_FOUND:
            raise NotFoundError(NOT_FOUND, "not-found", f"there is no file {path!r}")
        if state != "running":
            raise ConflictError(CONFLICT, "wrong-state", f"the machine is {state}")
    kind = check(answer).headers.get("hartline-file-type", "")
    if kind not in get_args(FileType):
        raise ProtocolError(f"the daemon's answer has no type of a file: {kind!r}")
    return cast("FileType", kind)


def copy_from(machine: str, path: str, *, follow: bool = False) -> Streaming[bytes]:
    """Copy a file, or a directory and everything in it, from a running machine.

    The names in the tar file begin with the last component of the path. If that is not a name, for
    example in ``/srv/.``, they begin with ``./``. If the connection breaks, the copy is not
    repeated.

    Args:
        machine: Its id, a unique begin of the id, or its name.
        path: Absolute path in the machine, at most 4095 bytes. With ``/`` at its end, it must be a
            directory.
        follow: Copy the file that a symbolic link leads to instead of the link. Links in a
            directory are copied in any case.

    Returns:
        A stream of the bytes of a tar file, as they arrive. It is complete, or the iteration
        raises. ``extract`` unpacks it.

    Raises:
        NotFoundError: The tenant has no such machine, or the machine has no such file.
        ConflictError: The machine does not run (``wrong-state``), refuses (``copy-failed``), or was
            silent for too long (``copy-timeout``).
        TooLargeError: The copy exceeds the daemon's limits (``copy-limit``).
        ForbiddenError: The key's scope is not ``write``.
        ConnectionLostError: The copy failed after its begin, also for the reasons above. The
            daemon breaks the connection then, also if the client reads nothing for too long.
        HartlineError: There is no answer, or another error.

    """
    return Streaming(Request("GET", _source(machine, path, follow), delay=PATIENCE), Pieces)


def copy_to(
    machine: str,
    path: str,
    content: str | Path | bytes | BinaryIO | Iterable[bytes] | AsyncIterable[bytes],
    *,
    owners: bool = False,
) -> Plan[None]:
    """Copy files to a directory of a running machine.

    Existing directories keep their attributes. Other existing files are replaced by new files. No
    member of a tar file leaves the directory. If the copy fails, the files before the failure stay.
    It is not repeated if the connection breaks.

    Args:
        machine: Its id, a unique begin of the id, or its name.
        path: Absolute path of a directory in the machine, at most 4095 bytes.
        content: A local path, or a tar file (ustar, pax or GNU). A local file or directory gets its
            own name below the directory of the machine. ``/.`` at the end of a text means the
            contents of the directory. Links are copied as links, and sockets are left out. A tar
            file is the bytes, a file that is open for reading bytes, or an iterator of bytes, for
            example the result of :meth:`copy_from`; :class:`hartline.AsyncClient` accepts
            asynchronous iterators too, and uses other iterators and files in threads.
        owners: Give the files the owners in the tar file, or those of the local files, by number.
            Otherwise root owns them.

    Raises:
        OSError: A local file cannot be read, or became shorter.
        NotFoundError: The tenant has no such machine, or the machine has no such directory.
        InvalidRequestError: The content is not a tar file.
        ConflictError: The machine does not run (``wrong-state``), refuses (``copy-failed``), or was
            silent for too long (``copy-timeout``).
        TooLargeError: The copy exceeds the daemon's limits (``copy-limit``).
        ForbiddenError: The key's scope is not ``write``.
        HartlineError: There is no answer, or another error.

    """
    target = query(f"{_machine(machine)}/files", path=path, owners=owners or None)
    upload = Upload(Tree(content) if isinstance(content, str | Path) else content)
    check((yield Request("PUT", target, upload=upload, delay=PATIENCE)))
