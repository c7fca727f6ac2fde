"""Outputs of machines and kept runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from .._plans import Plan, Request, Streaming, check, get, query, segment
from ..errors import ProtocolError
from ..models import Logs

Output = Literal["stdout", "stderr"]
"""One of a program's outputs."""


def _part(
    kind: str,
    name: str,
    stream: Output,
    tail: int | None,
    since: str | None,
    offset: int | None,
    timestamps: bool,
    follow: bool = False,
) -> Request:
    path = query(
        f"/v1/{kind}/{segment(name)}/logs",
        stream=stream,
        tail=tail,
        since=since,
        offset=offset,
        timestamps=timestamps or None,
        follow=follow or None,
    )
    # The program may be silent for any time.
    return get(path, delay=None if follow else 0.0)


def _read(request: Request) -> Plan[Logs]:
    answer = check((yield request))
    start = answer.headers.get("hartline-log-start", "")
    if not start.isdecimal():
        raise ProtocolError(f"the daemon's answer has no position of a log: {start!r}")
    return Logs(int(start), answer.body)


def of_machine(
    machine: str,
    *,
    stream: Output = "stdout",
    tail: int | None = None,
    since: str | None = None,
    offset: int | None = None,
    timestamps: bool = False,
) -> Plan[Logs]:
    """Return the output of a machine's program, as far as the daemon keeps it.

    Args:
        machine: Its id, a unique begin of the id, or its name.
        stream: The output.
        tail: Only this number of last lines.
        since: Only output since this time: a time of RFC 3339, seconds since 1970, or a duration
            before now such as ``10m`` or ``1h30m``.
        offset: Position of the first byte in the output.
        timestamps: Begin each line with the time of its first byte.

    Raises:
        NotFoundError: The tenant has no such machine.
        ConflictError: The output has no times (``no-timestamps``).
        HartlineError: There is no answer, or another error.

    """
    return _read(_part("machines", machine, stream, tail, since, offset, timestamps))


def of_run(
    run: str,
    *,
    stream: Output = "stdout",
    tail: int | None = None,
    since: str | None = None,
    offset: int | None = None,
    timestamps: bool = False,
) -> Plan[Logs]:
    """Return the output of a kept run's program, as far as the daemon keeps it.

    Args:
        run: Its id, or a unique begin of the id.
        stream: The output.
        tail: Only this number of last lines.
        since: Only output since this time: a time of RFC 3339, seconds since 1970, or a duration
            before now such as ``10m`` or ``1h30m``.
        offset: Position of the first byte in the output.
        timestamps: Begin each line with the time of its first byte.

    Raises:
        NotFoundError: The tenant has no such run.
        ConflictError: The output has no times (``no-timestamps``).
        HartlineError: There is no answer, or another error.

    """
    return _read(_part("runs", run, stream, tail, since, offset, timestamps))


def follow_machine(
    machine: str,
    *,
    stream: Output = "stdout",
    tail: int | None = None,
    since: str | None = None,
    offset: int | None = None,
    timestamps: bool = False,
) -> Streaming[bytes]:
    """Follow the output of a machine's program until the machine ends.

    Args:
        machine: Its id, a unique begin of the id, or its name.
        stream: The output.
        tail: Begin with this number of last lines.
        since: Begin with the output since this time: a time of RFC 3339, seconds since 1970, or a
            duration before now such as ``10m`` or ``1h30m``.
        offset: Begin at this position in the output.
        timestamps: Begin each line with the time of its first byte.

    Returns:
        A stream of pieces, as the program writes them. A piece may end in the middle of a line.

    Raises:
        As :meth:`logs`; also ConnectionLostError: the daemon went away. The machine goes on.

    """
    part = _part("machines", machine, stream, tail, since, offset, timestamps, follow=True)
    return Streaming(part, Pieces)


def follow_run(
    run: str,
    *,
    stream: Output = "stdout",
    tail: int | None = None,
    since: str | None = None,
    offset: int | None = None,
    timestamps: bool = False,
) -> Streaming[bytes]:
    """Follow the output of a kept run's program until the run ends.

    Args:
        run: Its id, or a unique begin of the id.
        stream: The output.
        tail: Begin with this number of last lines.
        since: Begin with the output since this time: a time of RFC 3339, seconds since 1970, or a
            duration before now such as ``10m`` or ``1h30m``.
        offset: Begin at this position in the output.
        timestamps: Begin each line with the time of its first byte.

    Returns:
        A stream of pieces, as the program writes them. A piece may end in the middle of a line.

    Raises:
        As :meth:`logs`; also ConnectionLostError: the daemon went away. The run goes on.

    """
    part = _part("runs", run, stream, tail, since, offset, timestamps, follow=True)
    return Streaming(part, Pieces)


class Pieces:
    """Passes bytes on."""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Return the bytes."""
        return iter((data,))

    def finish(self) -> Iterator[bytes]:
        """Return nothing: there is no rest."""
        return iter(())
