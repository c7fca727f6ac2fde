"""Programs: uploads, and their preparation."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from .._plans import Plan, Request, Upload, check, fetch, fetch_all, get, query, result, segment
from ..errors import ProgramFailedError, WaitTimeoutError
from ..models import Program

FIRST_PAUSE = 0.02
"""Seconds between the first two requests for the state of a program."""
LONGEST_PAUSE = 1.0
"""Most seconds between two such requests."""


def push(
    source: str | Path | bytes | BinaryIO,
    *,
    name: str | None = None,
    programs: Sequence[str] = (),
) -> Plan[Program]:
    """Upload a program: an ELF file, or a tar file (also with gzip) of a root file system.

    The daemon prepares the program afterwards: see :meth:`wait_ready`. A second upload of the same
    bytes is the same program, with the new name.

    Args:
        source: Path of the file, its bytes, or a file that is open for reading bytes. Uploads of
            paths and bytes are repeated if the connection breaks.
        name: Name of the program, 1 to 255 bytes, which is also its first argument. The default is
            the file's name; bytes and open files need a name.
        programs: For a root file system: paths of programs to translate ahead of time.

    Returns:
        The program.

    Raises:
        OSError: The file cannot be read.
        TooLargeError: The upload exceeds the daemon's limit, or the tenant's quota.
        ConflictError: The tenant's quota is used up (``storage-quota``).
        HartlineError: There is no answer, or another error.

    """
    body = Upload(Path(source) if isinstance(source, str) else source)
    if name is None:
        if not isinstance(body.source, Path):
            raise ValueError("an upload that is no path needs a name")
        name = body.source.name
    listed = ",".join(programs) or None
    answer = yield Request(
        "POST",
        query("/v1/programs", name=name, programs=listed),
        upload=body,
        is_repeatable=body.is_repeatable,
    )
    return result(Program, answer)


def get_program(program: str) -> Plan[Program]:
    """Return a program.

    Args:
        program: Its id, a unique begin of the id, or its name.

    Raises:
        NotFoundError: The tenant has no such program.
        HartlineError: There is no answer, or another error.

    """
    return fetch(Program, get(f"/v1/programs/{segment(program)}"))


def list_programs(*, page_size: int = 1000) -> Plan[list[Program]]:
    """Return the tenant's programs, by id.

    Args:
        page_size: Entries that one request asks for, 1 to 1000. All pages are requested.

    Raises:
        HartlineError: There is no answer, or another error.

    """
    return fetch_all(Program, query("/v1/programs", limit=page_size))


def delete(program: str) -> Plan[None]:
    """Delete a program.

    Args:
        program: Its id, a unique begin of the id, or its name.

    Raises:
        NotFoundError: The tenant has no such program.
        ConflictError: Machines or snapshots have the program (``program-in-use``).
        HartlineError: There is no answer, or another error.

    """
    check((yield Request("DELETE", f"/v1/programs/{segment(program)}")))


def wait_ready(
    program: str, *, translated: bool = True, timeout: float | None = None
) -> Plan[Program]:
    """Wait until a program is prepared.

    Args:
        program: Its id, a unique begin of the id, or its name.
        translated: Wait for its translation too. Without it, the program can run, more slowly.
        timeout: Most seconds to wait. The default is no limit.

    Returns:
        The program. Its ``message`` says why it is interpreted in parts, if it is.

    Raises:
        ProgramFailedError: The program cannot be prepared.
        WaitTimeoutError: It is not prepared yet.
        NotFoundError: The tenant has no such program.
        HartlineError: There is no answer, or another error.

    """
    request = get(f"/v1/programs/{segment(program)}")
    deadline = None if timeout is None else time.monotonic() + timeout
    wanted = {"ready"} if translated else {"ready", "translating"}
    pause = FIRST_PAUSE
    while True:
        found = result(Program, (yield request))
        if found.state in wanted:
            return found
        if found.state == "failed":
            raise ProgramFailedError(found.id, found.problem, found.message)
        left = LONGEST_PAUSE if deadline is None else deadline - time.monotonic()
        if left <= 0:
            raise WaitTimeoutError(f"program {program} is {found.state} after {timeout} s")
        request = replace(request, pause=min(pause, left))
        pause = min(2 * pause, LONGEST_PAUSE)
