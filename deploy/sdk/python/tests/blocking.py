"""The asynchronous client with the methods of the synchronous one, so that a test serves both."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator
from typing import Any, cast

from anyio.from_thread import BlockingPortal

from hartline import AsyncClient, Client

ACTIVE = (
    "hartline.aio",
    "hartline.archives",
    "hartline.attached_run",
    "hartline.attachment",
    "hartline.process",
    "hartline.streams",
)
"""Modules with asynchronous classes."""


def blocking(portal: BlockingPortal, client: AsyncClient) -> Client:
    """Return a client whose calls run in the event loop of a portal."""
    return cast("Client", _Blocking(portal, client))


class _Blocking:
    def __init__(self, portal: BlockingPortal, inner: Any) -> None:
        self._portal = portal
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not callable(found):
            return self._wrap(found)
        return functools.partial(self._call, found)

    def _call(self, method: Any, *args: Any, **kwargs: Any) -> Any:
        async def call() -> Any:
            result = method(*args, **kwargs)
            return await result if inspect.isawaitable(result) else result

        return self._wrap(self._portal.call(call))

    def _wrap(self, value: Any) -> Any:
        """Wrap what has asynchronous methods. Other values are results."""
        is_active = type(value).__module__ in ACTIVE
        return _Blocking(self._portal, value) if is_active else value

    def __iter__(self) -> Iterator[Any]:
        iterator = self._inner.__aiter__()
        while True:
            try:
                yield self._portal.call(iterator.__anext__)
            except StopAsyncIteration:
                return

    def __next__(self) -> Any:
        return self._portal.call(self._inner.__anext__)

    def __enter__(self) -> Any:
        return self._wrap(self._portal.call(self._inner.__aenter__))

    def __exit__(self, *error: object) -> None:
        self._portal.call(self._inner.__aexit__, *error)
