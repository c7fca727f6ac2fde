"""State changes of machines and snapshots, as server-sent events."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .._decode import decode
from .._plans import Following, Streaming, get, parse
from ..errors import ConnectionLostError, ProtocolError
from ..models import MachineEvent, Missed, SnapshotEvent

HEARTBEAT = 15.0
"""Seconds after which the daemon sends a comment if there is no event."""
LONGEST = 64 << 10
"""Most bytes of a line, and of an event's data. The daemon's events have about 100 bytes."""


def follow(*, reconnect_for: float = 60.0) -> Following[MachineEvent | SnapshotEvent | Missed]:
    """Follow the state changes of all machines, runs and snapshots of the tenant.

    The deletion of a snapshot has an event, the deletion of a machine has none.
    The events begin when the connection is open, which the stream's ``with`` waits for. A list of
    the machines that is requested after that misses nothing::

        with client.events.follow() as events:
            states = {machine.id: machine.state for machine in client.machines.list()}
            for event in events:
                if isinstance(event, MachineEvent):
                    states[event.machine] = event.state
                elif isinstance(event, Missed):
                    states = {machine.id: machine.state for machine in client.machines.list()}

    The daemon keeps no events, and they have no ids. So all events are lost that happen while there
    is no connection. If it is lost, or the daemon sends neither events nor heartbeats, the stream
    connects again. Then it has an item :class:`Missed` without a count, before the events that
    follow. If the client reads so slowly that it is 4096 events behind, the oldest ones are lost,
    and :class:`Missed` has their number. The events have no filters.

    Args:
        reconnect_for: Seconds for which a lost connection is tried again, with pauses of 0.1 s to
            5 s. 0: the stream ends with the first failure.

    Returns:
        A stream that does not end by itself.

    Raises:
        AuthenticationError: There is no valid key, also after a connection was lost.
        ConnectionLostError: The connection broke, or the daemon ended it.
        RequestTimeoutError: The daemon sent nothing for 15 s more than the client's time-out.
        HartlineError: There is no answer, or another error.
        ValueError: ``reconnect_for`` is negative.

    """
    if reconnect_for < 0:
        raise ValueError(f"reconnect_for {reconnect_for}: must not be negative")
    request = get("/v1/events", delay=HEARTBEAT)
    return Following(Streaming(request, _Events), Missed(None), reconnect_for)


class _Events:
    """Decodes server-sent events. Lines end with LF or CR LF; the daemon sends no others."""

    def __init__(self) -> None:
        self._rest = b""
        self._name = b""
        self._data: bytes | None = None

    def feed(self, data: bytes) -> Iterator[MachineEvent | SnapshotEvent | Missed]:
        *lines, self._rest = (self._rest + data).split(b"\n")
        _check_length(self._rest)
        for line in lines:
            item = self._take(line.removesuffix(b"\r"))
            if item is not None:
                yield item

    def finish(self) -> Iterator[MachineEvent | SnapshotEvent | Missed]:
        raise ConnectionLostError("the daemon ended the events")

    def _take(self, line: bytes) -> MachineEvent | SnapshotEvent | Missed | None:
        """Return the event that ends with a line, if one does."""
        if not line:
            name, data = self._name, self._data
            self._name, self._data = b"", None
            return None if data is None else _item(name, data)
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"event":
            self._name = value
        elif field == b"data":
            self._data = value if self._data is None else self._data + b"\n" + value
            _check_length(self._data)
        # Comments, which are heartbeats, have an empty name. Other fields have no meaning here.
        return None


def _item(name: bytes, data: bytes) -> MachineEvent | SnapshotEvent | Missed | None:
    if name == b"machine":
        return decode(MachineEvent, parse(data), "MachineEvent")
    if name == b"snapshot":
        return decode(SnapshotEvent, parse(data), "SnapshotEvent")
    if name == b"missed":
        if re.fullmatch(rb"[0-9]{1,20}", data) is None:
            raise ProtocolError(f"the daemon's number of lost events is {data[:80]!r}")
        return Missed(int(data))
    # A later daemon may have more kinds of events.
    return None


def _check_length(data: bytes) -> None:
    if len(data) > LONGEST:
        raise ProtocolError(f"an event of the daemon exceeds {LONGEST} bytes")
