"""Debuggers of machines."""

from __future__ import annotations

from typing import Literal

from .._plans import Session, query, segment
from ..models import ExecEnd
from .exec import item_of


def debug(machine: str, *, lost: Literal["continue", "stop"] = "continue") -> Session[ExecEnd]:
    """Debug the program of a running machine.

    The program stops at once. What is written is what GDB sends in its remote serial protocol; the
    output of ``stdout`` is what the machine answers.

    Args:
        machine: Its id, a unique begin of the id, or its name.
        lost: What the program does when the connection breaks: it goes on without breakpoints, or
            stays stopped until a debugger connects again.

    Returns:
        The connection, a context manager that connects. Its end has a message if another debugger
        is connected, or the machine has ended.

    Raises:
        NotFoundError: The tenant has no such machine.
        ConflictError: The machine does not run (``wrong-state``).
        ForbiddenError: The key's scope is not sufficient.
        HartlineError: There is no answer, or another error.

    """
    return Session(query(f"/v1/machines/{segment(machine)}/debug", lost=lost), item_of)
