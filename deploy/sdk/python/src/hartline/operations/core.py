"""Core dumps of machines."""

from __future__ import annotations

from .._plans import Streaming, get, segment
from .logs import Pieces


def core(machine: str) -> Streaming[bytes]:
    """Return the core dump of a machine that was made with ``core_limit``.

    Args:
        machine: Its id, a unique begin of the id, or its name.

    Returns:
        A stream of the pieces of an ELF file: the first core dump of the last start that left one.

    Raises:
        NotFoundError: The tenant has no such machine, or the machine has no core dump.
        ForbiddenError: The key's scope is not ``write``.
        HartlineError: There is no answer, or another error.

    """
    return Streaming(get(f"/v1/machines/{segment(machine)}/core"), Pieces)
