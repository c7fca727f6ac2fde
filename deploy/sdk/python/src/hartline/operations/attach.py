"""Standard streams of the programs of machines."""

from __future__ import annotations

from .._decode import decode
from .._plans import Session, parse, query, segment
from ..models import Machine, Piece
from .exec import piece_of

STARTING = 30.0
"""Seconds that the daemon waits for a machine that is about to start."""


def attach(machine: str, *, logs: bool = False, stdin: bool = False) -> Session[Machine]:
    """Attach to the standard streams of a machine's program.

    Several clients may be attached. The end of the connection does not end the machine.

    Args:
        machine: Its id, a unique begin of the id, or its name.
        logs: Begin with the earlier output, as far as the daemon keeps it. Then the machine may
            also have ended.
        stdin: Write to the program too, which needs a key of the scope ``write`` and an interactive
            machine. The daemon ends the connection if the client writes without this.

    Returns:
        The streams, a context manager that connects.

    Raises:
        NotFoundError: The tenant has no such machine.
        ConflictError: The machine does not run (``wrong-state``), or has no standard input
            (``not-interactive``).
        ForbiddenError: The key's scope is not sufficient.
        HartlineError: There is no answer, or another error.

    """
    path = query(f"/v1/machines/{segment(machine)}/attach", logs=logs or None, input=stdin or None)
    return Session(path, item_of, delay=STARTING if stdin else 0.0)


def item_of(message: str | bytes) -> Piece | Machine:
    """Return what a message of the daemon is: output, or the machine that has ended.

    Raises:
        ProtocolError: The message has another form.

    """
    if isinstance(message, str):
        return decode(Machine, parse(message.encode()), "Machine")
    return piece_of(message)
