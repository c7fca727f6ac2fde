"""Runs: a program is executed once."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal

from .._decode import decode
from .._plans import Plan, Request, Session, Streaming, check, fetch, fetch_all, get, parse, segment
from ..errors import ConnectionLostError, ProtocolError, RunFailedError
from ..models import Output, Piece, Run, RunEntry, RunOutcome
from ..spec import Spec, to_json
from ._ends import AUTO, Auto, as_text, filtered, idempotent, wait_for_end
from .exec import outputs_of, piece_of

LONGEST_LINE = 16 << 20
"""Most bytes of a line of a streamed answer. The daemon's pieces have at most 64 KiB."""


def _request(spec: Spec, stdin: str | bytes, **options: object) -> Request:
    body = to_json(spec) | options
    if stdin:
        body["stdin"] = as_text(stdin)
    return Request("POST", "/v1/runs", json=body)


def run(
    spec: Spec,
    *,
    stdin: str | bytes = "",
    patience: float | None = None,
    idempotency_key: str | None = None,
) -> Plan[RunOutcome]:
    """Run a program, and wait for its end. The daemon keeps nothing of the run.

    If the connection breaks, the daemon kills the program, and the call is not repeated unless it
    has an idempotency key.

    Args:
        spec: The program, or the snapshot. Runs have no restart policy.
        stdin: Standard input, at most 128 KiB, UTF-8. :meth:`attached` has no such limit.
        patience: Seconds that the run may take until its end, waiting included, besides the
            client's time-out. The default is no limit; the spec's time limit applies.
        idempotency_key: A text of 1 to 255 bytes. The daemon keeps the run, and a repeated call
            with the key returns the outcome of the first one.

    Returns:
        The outcome, with the newest 16 MiB of each output. :meth:`stream` has no such limit.

    Raises:
        ConflictError: The program is not prepared (``program-not-ready``), or another conflict.
        ForbiddenError: The tenant's quota or the host has no room for it.
        TooManyRequestsError: Too many runs wait.
        HartlineError: There is no answer, or another error.

    """
    request = replace(_request(spec, stdin), delay=patience)
    return fetch(RunOutcome, idempotent(request, idempotency_key))


def submit(
    spec: Spec,
    *,
    stdin: str | bytes = "",
    idempotency_key: str | Auto | None = AUTO,
) -> Plan[Run]:
    """Start an asynchronous run. It outlives this client and the daemon.

    Args:
        spec: The program, or the snapshot. Runs have no restart policy.
        stdin: Standard input, at most 128 KiB, UTF-8.
        idempotency_key: A text of 1 to 255 bytes with which a repeated call makes no second run.
            The default is a new key for each call, so that the client can repeat it if the
            connection breaks. A tenant has at most 100,000 keys, which the daemon keeps for a day
            at least: ``None`` sends none, and the call is not repeated.

    Returns:
        The run, which may still wait.

    Raises:
        As :meth:`run`; also ConflictError: the key was used for another request
        (``idempotency-conflict``).

    """
    return fetch(Run, idempotent(_request(spec, stdin, wait=False), idempotency_key))


def get_run(run: str) -> Plan[Run]:
    """Return a kept run, with its output if it has ended.

    Args:
        run: Its id, or a unique begin of the id.

    Raises:
        NotFoundError: The tenant has no such run.
        HartlineError: There is no answer, or another error.

    """
    return fetch(Run, get(f"/v1/runs/{segment(run)}"))


def wait(run: str, *, timeout: float | None = None) -> Plan[Run]:
    """Wait until a kept run has ended.

    Args:
        run: Its id, or a unique begin of the id.
        timeout: Most seconds to wait. The default is no limit.

    Returns:
        The run, with its outcome.

    Raises:
        WaitTimeoutError: The run has not ended yet. It continues.
        NotFoundError: The tenant has no such run.
        HartlineError: There is no answer, or another error.

    """
    return wait_for_end(Run, f"/v1/runs/{segment(run)}", f"run {run}", timeout)


def list_runs(
    *,
    state: str | None = None,
    label: tuple[str, str] | None = None,
    program: str | None = None,
    page_size: int = 1000,
) -> Plan[list[RunEntry]]:
    """Return the tenant's kept runs, by id, without their outputs.

    Args:
        state: Only runs in this state.
        label: Only runs with this label: its name and value.
        program: Only runs of this program: its id, a unique begin of the id, or its name.
        page_size: Entries that one request asks for, 1 to 1000. All pages are requested.

    Raises:
        HartlineError: There is no answer, or another error.

    """
    return fetch_all(RunEntry, filtered("/v1/runs", page_size, state, label, program))


def delete(run: str) -> Plan[None]:
    """Delete a kept run. If it has not ended, kill it first.

    Args:
        run: Its id, or a unique begin of the id.

    Raises:
        NotFoundError: The tenant has no such run.
        HartlineError: There is no answer, or another error.

    """
    # The daemon waits up to 10 s for the end.
    check((yield Request("DELETE", f"/v1/runs/{segment(run)}", delay=10)))


def stream(spec: Spec, *, stdin: str | bytes = "") -> Streaming[Piece | RunOutcome]:
    """Run a program, and receive its outputs while it runs.

    The outputs may have any length. If the client reads so slowly that the program writes 16 MiB
    more, the oldest bytes are lost, and the outcome's outputs have ``missing``. If the stream is
    closed before its end, the daemon kills the program.

    Args:
        spec: The program, or the snapshot. Runs have no restart policy.
        stdin: Standard input, at most 128 KiB, UTF-8.

    Returns:
        A stream of pieces. The last item is the outcome, whose outputs have no bytes.

    Raises:
        As :meth:`run`; also RunFailedError: there is no outcome.

    """
    accept = {"Accept": "application/x-ndjson"}
    return Streaming(replace(_request(spec, stdin), headers=accept, delay=None), _Lines)


def attached(spec: Spec) -> Session[RunOutcome]:
    """Run a program with open streams in both directions.

    Standard input and the outputs may have any length, and nothing of them is lost. The daemon
    sends pings: a client that neither reads nor writes for ``idle_timeout_s`` of the daemon's
    configuration is taken for disconnected.

    Args:
        spec: The program, or the snapshot. Runs have no restart policy.

    Returns:
        The run, a context manager. Its begin starts the program, and its end kills the program if
        it has not ended.

    Raises:
        ExecRefusedError: A field is not valid, or the run cannot be started.
        HartlineError: There is no answer, or another error.

    """
    return Session("/v1/runs/attached", item_of, json.dumps(to_json(spec)))


def item_of(message: str | bytes) -> Piece | RunOutcome:
    """Return what a message of the daemon is: output, or the outcome of the run.

    Raises:
        RunFailedError: There is no outcome.
        ProtocolError: The message has another form.

    """
    return _item(message.encode()) if isinstance(message, str) else piece_of(message)


def collected(pieces: Sequence[Piece], outcome: RunOutcome) -> RunOutcome:
    """Return an outcome with outputs that were received whole."""
    stdout, stderr = outputs_of(pieces)
    return replace(outcome, stdout=stdout, stderr=stderr)


class _Lines:
    """Decodes lines of JSON: pieces, and the outcome."""

    def __init__(self) -> None:
        self._rest = b""
        self._has_ended = False

    def feed(self, data: bytes) -> Iterator[Piece | RunOutcome]:
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > LONGEST_LINE:
            raise ProtocolError(f"a line of the daemon's answer exceeds {LONGEST_LINE} bytes")
        for line in lines:
            item = _item(line)
            self._has_ended = self._has_ended or isinstance(item, RunOutcome)
            yield item

    def finish(self) -> Iterator[Piece | RunOutcome]:
        if not self._has_ended:
            raise ConnectionLostError("the answer ended before the run")
        return iter(())


def _item(line: bytes) -> Piece | RunOutcome:
    found = parse(line)
    if not isinstance(found, dict) or len(found) != 1:
        raise ProtocolError(f"a line of the daemon's answer is unknown: {line[:80]!r}")
    ((kind, value),) = found.items()
    if kind == "piece":
        output = Output.from_json(value, "piece")
        return Piece(_stream(value), output.data)
    if kind == "outcome":
        return decode(RunOutcome, value, "outcome")
    if kind == "failed" and isinstance(value, dict):
        raise RunFailedError(str(value.get("message")))
    raise ProtocolError(f"a line of the daemon's answer is unknown: {kind!r}")


def _stream(piece: dict[str, object]) -> Literal["stdout", "stderr"]:
    match piece.get("stream"):
        case "stdout":
            return "stdout"
        case "stderr":
            return "stderr"
        case other:
            raise ProtocolError(f"the daemon's answer has a piece of the output {other!r}")
