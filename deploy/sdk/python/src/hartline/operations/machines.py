"""Machines: programs with resources, which are started, stopped and inspected."""

from __future__ import annotations

from .._plans import Plan, Request, check, fetch, fetch_all, get, segment
from ..models import Machine, NetworkLimits, Stats
from ..spec import Spec, to_json
from ._ends import AUTO, Auto, filtered, idempotent, wait_for_end


def _path(machine: str) -> str:
    return f"/v1/machines/{segment(machine)}"


def _act(machine: str, action: str) -> Plan[Machine]:
    return fetch(Machine, Request("POST", f"{_path(machine)}/{action}"))


def create(
    spec: Spec,
    *,
    name: str | None = None,
    start: bool = False,
    idempotency_key: str | Auto | None = AUTO,
) -> Plan[Machine]:
    """Create a machine, and start it on request.

    Args:
        spec: The program, or the snapshot.
        name: Name of the machine: 1 to 63 letters, digits, ``_``, ``.`` and ``-``. It has a
            character that is no digit of ids (0 to 9, a to f), and begins with a letter, a digit or
            ``_``.
        start: Start the machine too.
        idempotency_key: A text of 1 to 255 bytes with which a repeated call makes no second
            machine. The default is a new key for each call, so that the client can repeat it if the
            connection breaks. A tenant has at most 100,000 keys, which the daemon keeps for a day
            at least: ``None`` sends none, and the call is not repeated.

    Returns:
        The machine.

    Raises:
        ConflictError: The name is in use (``name-in-use``), the key was used for another request
            (``idempotency-conflict``), or another conflict.
        ForbiddenError: The tenant's quota or the host has no room for it.
        TooManyRequestsError: Too many machines wait.
        HartlineError: There is no answer, or another error.

    """
    body = to_json(spec) | {"start": start}
    if name is not None:
        body["name"] = name
    return fetch(Machine, idempotent(Request("POST", "/v1/machines", json=body), idempotency_key))


def get_machine(machine: str) -> Plan[Machine]:
    """Return a machine.

    Args:
        machine: Its id, a unique begin of the id, or its name.

    Raises:
        NotFoundError: The tenant has no such machine.
        HartlineError: There is no answer, or another error.

    """
    return fetch(Machine, get(_path(machine)))


def list_machines(
    *,
    state: str | None = None,
    label: tuple[str, str] | None = None,
    program: str | None = None,
    page_size: int = 1000,
) -> Plan[list[Machine]]:
    """Return the tenant's machines, by id.

    Args:
        state: Only machines in this state.
        label: Only machines with this label: its name and value.
        program: Only machines of this program: its id, a unique begin of the id, or its name.
        page_size: Entries that one request asks for, 1 to 1000. All pages are requested.

    Raises:
        HartlineError: There is no answer, or another error.

    """
    return fetch_all(Machine, filtered("/v1/machines", page_size, state, label, program))


def delete(machine: str) -> Plan[None]:
    """Delete a machine that is not active, with its output.

    Args:
        machine: Its id, a unique begin of the id, or its name.

    Raises:
        NotFoundError: The tenant has no such machine.
        ConflictError: The machine is active (``wrong-state``).
        HartlineError: There is no answer, or another error.

    """
    check((yield Request("DELETE", _path(machine))))


def start(machine: str) -> Plan[Machine]:
    """Start a machine, or restart one that has ended.

    Args:
        machine: Its id, a unique begin of the id, or its name.

    Returns:
        The machine, which may still wait.

    Raises:
        NotFoundError: The tenant has no such machine.
        ConflictError: The machine is active (``wrong-state``), or another conflict.
        ForbiddenError: The tenant's quota or the host has no room for it.
        TooManyRequestsError: Too many machines wait.
        HartlineError: There is no answer, or another error.

    """
    return _act(machine, "start")


def stop(machine: str) -> Plan[Machine]:
    """Send ``SIGTERM`` to a machine's program. The daemon kills it two seconds later.

    Args:
        machine: Its id, a unique begin of the id, or its name.

    Returns:
        The machine, which may not have ended yet: see :meth:`wait`.

    Raises:
        NotFoundError: The tenant has no such machine.
        ConflictError: The machine is not active (``wrong-state``).
        HartlineError: There is no answer, or another error.

    """
    return _act(machine, "stop")


def kill(machine: str) -> Plan[Machine]:
    """Kill a machine.

    Args:
        machine: Its id, a unique begin of the id, or its name.

    Returns:
        The machine, which may not have ended yet: see :meth:`wait`.

    Raises:
        NotFoundError: The tenant has no such machine.
        ConflictError: The machine is not active (``wrong-state``).
        HartlineError: There is no answer, or another error.

    """
    return _act(machine, "kill")


def pause(machine: str) -> Plan[Machine]:
    """Pause a running machine: it gets no CPU time.

    Args:
        machine: Its id, a unique begin of the id, or its name.

    Raises:
        NotFoundError: The tenant has no such machine.
        ConflictError: The machine does not run (``wrong-state``).
        HartlineError: There is no answer, or another error.

    """
    return _act(machine, "pause")


def resume(machine: str) -> Plan[Machine]:
    """Resume a paused machine.

    Args:
        machine: Its id, a unique begin of the id, or its name.

    Raises:
        NotFoundError: The tenant has no such machine.
        ConflictError: The machine is not paused (``wrong-state``).
        HartlineError: There is no answer, or another error.

    """
    return _act(machine, "resume")


def suspend(machine: str) -> Plan[Machine]:
    """Suspend a running machine: its memory is on the disk until it is started, and then goes on.

    Args:
        machine: Its id, a unique begin of the id, or its name.

    Raises:
        NotFoundError: The tenant has no such machine.
        ConflictError: The machine does not run (``wrong-state``), or cannot be suspended. It goes
            on.
        HartlineError: There is no answer, or another error.

    """
    return _act(machine, "suspend")


def wait(machine: str, *, timeout: float | None = None) -> Plan[Machine]:
    """Wait until a machine has ended.

    A machine that waits for a restart, or is suspended, has not ended.

    A machine that was never started is returned at once.

    Args:
        machine: Its id, a unique begin of the id, or its name.
        timeout: Most seconds to wait. The default is no limit.

    Returns:
        The machine.

    Raises:
        WaitTimeoutError: The machine has not ended yet. It continues.
        NotFoundError: The tenant has no such machine.
        HartlineError: There is no answer, or another error.

    """
    return wait_for_end(Machine, f"{_path(machine)}/wait", f"machine {machine}", timeout)


def stats(machine: str) -> Plan[Stats]:
    """Return the resources that a machine uses, or has used if it has ended.

    Args:
        machine: Its id, a unique begin of the id, or its name.

    Raises:
        NotFoundError: The tenant has no such machine.
        HartlineError: There is no answer, or another error.

    """
    return fetch(Stats, get(f"{_path(machine)}/stats"))


def limit_network(machine: str, *, bandwidth: int = 0, packets: int = 0) -> Plan[NetworkLimits]:
    """Replace the limits of a running machine's network interface, until it ends.

    This needs a key of the scope ``admin``: the limits are the operator's.

    Args:
        machine: Its id, a unique begin of the id, or its name.
        bandwidth: Most bytes per second in each direction. 0: no limit.
        packets: Most packets per second in each direction. 0: no limit.

    Returns:
        The limits in force.

    Raises:
        NotFoundError: The tenant has no such machine.
        ConflictError: The machine does not run (``wrong-state``), or has no network interface
            (``no-network``).
        ForbiddenError: The key has another scope.
        HartlineError: There is no answer, or another error.

    """
    body = {"bandwidth": bandwidth, "packets": packets}
    path = f"{_path(machine)}/network-limits"
    return fetch(NetworkLimits, Request("PUT", path, json=body, is_repeatable=True))
