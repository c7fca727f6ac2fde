"""Commands in running machines."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from .._decode import decode
from .._plans import Plan, Request, Session, fetch, parse, segment
from ..errors import ProtocolError
from ..models import ExecEnd, ExecResult, Output, Piece
from ..spec import Terminal
from ._ends import as_text


def command_json(
    command: Sequence[str],
    env: Mapping[str, str] | None,
    user: str | None,
    workdir: str | None,
    terminal: Terminal | None,
) -> dict[str, object]:
    """Return a command as requests have it.

    Raises:
        TypeError: The command is one text instead of a sequence of texts.

    """
    if isinstance(command, str):
        raise TypeError(f"command is the text {command!r}: it must be a sequence of texts")
    body: dict[str, object] = {"command": list(command)}
    if env:
        body["env"] = dict(env)
    if user is not None:
        body["user"] = user
    if workdir is not None:
        body["workdir"] = workdir
    if terminal is not None:
        body["terminal"] = size_json(terminal)
    return body


def size_json(terminal: Terminal) -> dict[str, int]:
    """Return the size of a terminal as requests have it."""
    return {"rows": terminal.rows, "columns": terminal.columns}


def resize_json(terminal: Terminal) -> str:
    """Return the message that changes the size of a terminal."""
    return json.dumps({"resize": size_json(terminal)})


def path(machine: str) -> str:
    """Return the path of commands in a machine."""
    return f"/v1/machines/{segment(machine)}/exec"


def run(
    machine: str,
    command: Sequence[str],
    *,
    stdin: str | bytes = "",
    env: Mapping[str, str] | None = None,
    user: str | None = None,
    workdir: str | None = None,
    terminal: Terminal | None = None,
    patience: float | None = None,
) -> Plan[ExecResult]:
    r"""Run a command in a running machine, and wait for its end.

    If the connection breaks, the command's streams close. The call is not repeated.

    Args:
        machine: Its id, a unique begin of the id, or its name.
        command: The program and its arguments. A name without a slash is looked for in the
            directories of ``PATH``.
        stdin: Standard input, UTF-8. The whole request has at most 256 KiB.
        env: Environment variables, besides those of the machine.
        user: User and group as numbers, ``UID`` or ``UID:GID``. The default is the machine's.
        workdir: Working directory. The default is the machine's.
        terminal: Run the command on a terminal of this size. Then all output is standard output,
            and the end of standard input is the character control-D (``"\x04"``).
        patience: Seconds that the command may take, besides the client's time-out. The default is
            no limit.

    Returns:
        The exit code, and the newest MiB of each output. :meth:`exec_stream` has no such limit.

    Raises:
        NotFoundError: The tenant has no such machine.
        ConflictError: The machine does not run (``wrong-state``).
        InvalidRequestError: A field is not valid.
        HartlineError: There is no answer, or another error.

    """
    body = command_json(command, env, user, workdir, terminal)
    if stdin:
        body["stdin"] = as_text(stdin)
    return fetch(ExecResult, Request("POST", path(machine), json=body, delay=patience))


def stream(
    machine: str,
    command: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    user: str | None = None,
    workdir: str | None = None,
    terminal: Terminal | None = None,
) -> Session[ExecEnd]:
    r"""Run a command in a running machine, with open streams in both directions.

    Args:
        machine: Its id, a unique begin of the id, or its name.
        command: The program and its arguments. A name without a slash is looked for in the
            directories of ``PATH``.
        env: Environment variables, besides those of the machine.
        user: User and group as numbers, ``UID`` or ``UID:GID``. The default is the machine's.
        workdir: Working directory. The default is the machine's.
        terminal: Run the command on a terminal of this size. Then all output is standard output,
            and the end of standard input is the character control-D (``b"\x04"``).

    Returns:
        The process, a context manager. Its begin starts the command, and its end closes the
        command's streams.

    Raises:
        NotFoundError: The tenant has no such machine.
        ExecRefusedError: The machine does not run, or a field is not valid.
        HartlineError: There is no answer, or another error.

    """
    first = json.dumps(command_json(command, env, user, workdir, terminal))
    return Session(path(machine), item_of, first)


def item_of(message: str | bytes) -> Piece | ExecEnd:
    """Return what a message of the daemon is: output, or the end of the command.

    Raises:
        ProtocolError: The message has another form.

    """
    if isinstance(message, str):
        return decode(ExecEnd, parse(message.encode()), "ExecEnd")
    return piece_of(message)


def piece_of(message: bytes) -> Piece:
    """Return the output in a message of the daemon.

    Raises:
        ProtocolError: The message has another form.

    """
    match message[:1]:
        case b"\x01":
            return Piece("stdout", message[1:])
        case b"\x02":
            return Piece("stderr", message[1:])
        case other:
            raise ProtocolError(f"the daemon sent output of the stream {other!r}")


def collected(pieces: Sequence[Piece], end: ExecEnd) -> ExecResult:
    """Return the result of a command whose outputs were received whole."""
    stdout, stderr = outputs_of(pieces)
    return ExecResult(end.exit_code, end.message, stdout, stderr)


def outputs_of(pieces: Sequence[Piece]) -> tuple[Output, Output]:
    """Return the whole standard output and standard error of a program."""

    def whole(stream: str) -> Output:
        return Output(b"".join(piece.data for piece in pieces if piece.stream == stream))

    return whole("stdout"), whole("stderr")
