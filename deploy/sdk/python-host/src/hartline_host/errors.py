"""Exceptions of this package. All of them are :class:`HartlineHostError`."""

from __future__ import annotations

import os


class HartlineHostError(Exception):
    """An operation failed."""


class ArgumentError(HartlineHostError, ValueError):
    """An argument is wrong. Nothing was done."""


class ClosedError(HartlineHostError):
    """The sandbox, template or clone was closed."""


class StateError(HartlineHostError):
    """The sandbox was started before, or was not."""


class LoadError(HartlineHostError):
    """The program or snapshot cannot be loaded or translated."""


class StartError(HartlineHostError):
    """The machine cannot be started, or the program does not wait for calls."""


class FunctionError(HartlineHostError):
    """The function returned an error number. ``ENOENT``: or the program exports no such function.

    If a function of the host has raised an exception during the call, ``__cause__`` is that
    exception.
    """

    def __init__(self, message: str, errno: int) -> None:
        super().__init__(message)
        self.errno = errno
        """The error number of Linux."""

    @property
    def strerror(self) -> str:
        """The text of the error number."""
        return os.strerror(self.errno)


class LateError(HartlineHostError, TimeoutError):
    """There was no answer in time: reset the sandbox."""


class ProgramEndedError(HartlineHostError):
    """The program has ended or crashed: reset the sandbox."""


class PoisonedError(HartlineHostError):
    """An earlier call failed: reset the sandbox first."""


class NestedError(HartlineHostError):
    """A function of the host calls or resets the sandbox that has called it."""


class WaitingError(HartlineHostError):
    """A function of the host has not returned for 10 s. The reset follows when it does."""


class LostError(HartlineHostError):
    """The machine cannot be used any more: close the sandbox."""


class ForkedError(HartlineHostError):
    """The sandbox, template or clone is in another process, of which this one is a fork."""


class StreamsError(HartlineHostError):
    """The host has no descriptors or memory left for the streams of a run."""


class BugError(HartlineHostError):
    """The library has panicked, or does not fit this package."""
