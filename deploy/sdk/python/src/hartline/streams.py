"""Answers that are read in pieces."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator
from types import TracebackType
from typing import Generic, TypeVar

import httpx

from ._links import AsyncLink, Link
from ._plans import Answer, Streaming, check
from ._transport import failure

T = TypeVar("T")


class Stream(Generic[T]):
    """Items of an answer, as they arrive. The request is sent when the first item is asked for.

    Use it as a context manager, which closes the connection, or iterate to the end::

        with client.machines.follow("web-1") as log:
            for data in log:
                ...
    """

    def __init__(self, link: Link, streaming: Streaming[T]) -> None:
        self._items = _read(link, streaming)

    def __iter__(self) -> Iterator[T]:
        return self._items

    def __next__(self) -> T:
        return next(self._items)

    def __enter__(self) -> Stream[T]:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._items.close()


def _read(link: Link, streaming: Streaming[T]) -> Generator[T, None, None]:
    decoder = streaming.decoder()
    response = link.send(streaming.request, is_streamed=True)
    try:
        if not response.is_success:
            response.read()
            check(Answer(response.status_code, response.headers, response.content))
        for data in response.iter_bytes():
            yield from decoder.feed(data)
        yield from decoder.finish()
    except httpx.HTTPError as error:
        raise failure(error) from error
    finally:
        response.close()


class AsyncStream(Generic[T]):
    """Items of an answer, as they arrive. The request is sent when the first item is asked for.

    Use it as a context manager, which closes the connection, or iterate to the end::

        async with client.machines.follow("web-1") as log:
            async for data in log:
                ...
    """

    def __init__(self, link: AsyncLink, streaming: Streaming[T]) -> None:
        self._items = _read_async(link, streaming)

    def __aiter__(self) -> AsyncIterator[T]:
        return self._items

    async def __anext__(self) -> T:
        return await anext(self._items)

    async def __aenter__(self) -> AsyncStream[T]:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection."""
        await self._items.aclose()


async def _read_async(link: AsyncLink, streaming: Streaming[T]) -> AsyncGenerator[T, None]:
    decoder = streaming.decoder()
    response = await link.send(streaming.request, is_streamed=True)
    try:
        if not response.is_success:
            await response.aread()
            check(Answer(response.status_code, response.headers, response.content))
        async for data in response.aiter_bytes():
            for item in decoder.feed(data):
                yield item
        for item in decoder.finish():
            yield item
    except httpx.HTTPError as error:
        raise failure(error) from error
    finally:
        await response.aclose()
