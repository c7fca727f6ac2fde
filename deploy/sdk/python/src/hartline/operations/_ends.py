"""Parts that runs and machines share."""

from __future__ import annotations

import enum
import math
import time
import uuid
from dataclasses import replace
from typing import Final, Literal, TypeVar

from .._plans import Plan, Request, get, query, result
from ..errors import WaitTimeoutError
from ..models import Machine, Run

Ending = TypeVar("Ending", Run, Machine)

LONGEST_WAIT = 60
"""Seconds that one request waits for the end of a run or machine."""


class Auto(enum.Enum):
    """The type of :data:`AUTO`."""

    AUTO = "auto"


AUTO: Final[Literal[Auto.AUTO]] = Auto.AUTO
"""A new idempotency key for each call."""


def idempotent(request: Request, key: str | Auto | None) -> Request:
    """Return a request for something new. With a key, it can be repeated."""
    if key is None:
        return request
    text = uuid.uuid4().hex if isinstance(key, Auto) else key
    headers = {**request.headers, "Idempotency-Key": text}
    return replace(request, headers=headers, is_repeatable=True)


def filtered(
    path: str,
    page_size: int,
    state: str | None,
    label: tuple[str, str] | None,
    program: str | None,
) -> str:
    """Return the path of a list with filters."""
    pair = None if label is None else "=".join(label)
    return query(path, limit=page_size, state=state, label=pair, program=program)


def wait_for_end(kind: type[Ending], path: str, what: str, timeout: float | None) -> Plan[Ending]:
    """Wait until a run or machine has ended: the path answers at its end, or after ``seconds``."""
    deadline = None if timeout is None else time.monotonic() + timeout
    while True:
        left = LONGEST_WAIT if deadline is None else max(0.0, deadline - time.monotonic())
        seconds = min(LONGEST_WAIT, math.ceil(left))
        found = result(kind, (yield get(query(path, seconds=seconds), delay=seconds)))
        if not found.is_active and found.state != "suspended":
            return found
        if deadline is not None and time.monotonic() >= deadline:
            raise WaitTimeoutError(f"{what} is {found.state} after {timeout} s")


def as_text(stdin: str | bytes) -> str:
    """Return standard input as JSON has it.

    Raises:
        ValueError: The bytes are not UTF-8, which the API cannot express.

    """
    if isinstance(stdin, str):
        return stdin
    try:
        return stdin.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"standard input of a request must be UTF-8: {error}") from error
