"""Snapshots of machines. :meth:`hartline.Spec.continuing` describes what continues them."""

from __future__ import annotations

from .._plans import Plan, Request, check, fetch, fetch_all, get, query, segment
from ..models import Snapshot

LONGEST_CAPTURE = 120.0
"""Seconds that the daemon may take for a snapshot: 20 s until the program is at a safepoint, and
the time to write the machine's memory to the disk."""


def create(machine: str, *, name: str | None = None) -> Plan[Snapshot]:
    """Make a snapshot of a running machine, which goes on.

    The machine has one vCPU and no volumes, and no commands run in it.

    Args:
        machine: Its id, a unique begin of the id, or its name.
        name: Name of the snapshot. The rules are those of machines.

    Raises:
        NotFoundError: The tenant has no such machine.
        ConflictError: The machine cannot have a snapshot (``no-snapshot``, ``snapshot-refused``,
            ``wrong-state``), the name is in use (``name-in-use``), or another conflict.
        HartlineError: There is no answer, or another error.

    """
    body = {} if name is None else {"name": name}
    path = f"/v1/machines/{segment(machine)}/snapshots"
    return fetch(Snapshot, Request("POST", path, json=body, delay=LONGEST_CAPTURE))


def get_snapshot(snapshot: str) -> Plan[Snapshot]:
    """Return a snapshot.

    Args:
        snapshot: Its id, a unique begin of the id, or its name.

    Raises:
        NotFoundError: The tenant has no such snapshot.
        HartlineError: There is no answer, or another error.

    """
    return fetch(Snapshot, get(f"/v1/snapshots/{segment(snapshot)}"))


def list_snapshots(*, page_size: int = 1000) -> Plan[list[Snapshot]]:
    """Return the tenant's snapshots, by id.

    Args:
        page_size: Entries that one request asks for, 1 to 1000. All pages are requested.

    Raises:
        HartlineError: There is no answer, or another error.

    """
    return fetch_all(Snapshot, query("/v1/snapshots", limit=page_size))


def delete(snapshot: str) -> Plan[None]:
    """Delete a snapshot.

    Args:
        snapshot: Its id, a unique begin of the id, or its name.

    Raises:
        NotFoundError: The tenant has no such snapshot.
        ConflictError: Machines or kept runs continue it (``snapshot-in-use``).
        HartlineError: There is no answer, or another error.

    """
    check((yield Request("DELETE", f"/v1/snapshots/{segment(snapshot)}")))
