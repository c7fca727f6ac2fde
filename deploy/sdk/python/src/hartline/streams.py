"""Answers that are read in pieces."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator
from contextlib import aclosing
from dataclasses import replace
from types import TracebackType
from typing import Generic, TypeVar

import httpx

from ._links import AsyncLink, Link
from ._plans import Answer, Decoder, Following, Request, Streaming, check
from ._transport import Outage, failure
from .errors import HartlineError, TransportError

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
    yield from _items(_opened(link, streaming.request), streaming.decoder())


def _opened(link: Link, request: Request) -> httpx.Response:
    response = link.send(request, is_streamed=True)
    try:
        if not response.is_success:
            response.read()
            check(Answer(response.status_code, response.headers, response.content))
    except BaseException as error:
        response.close()
        if isinstance(error, httpx.HTTPError):
            raise failure(error) from error
        raise
    return response


def _items(
    response: httpx.Response, decoder: Decoder[T], outage: Outage | None = None
) -> Generator[T, None, None]:
    try:
        for data in response.iter_bytes():
            if outage is not None:
                outage.end()
            yield from decoder.feed(data)
        yield from decoder.finish()
    except httpx.HTTPError as error:
        raise failure(error) from error
    finally:
        response.close()


class EventStream(Stream[T]):
    """Events, as they happen. A lost connection is opened again.

    ``with`` opens the connection, so that what happens after it is not missed.
    """

    def __init__(self, link: Link, following: Following[T]) -> None:
        self._link = link
        self._following = following
        self._response: httpx.Response | None = None
        self._items = self._follow()

    def __enter__(self) -> EventStream[T]:
        self._open()
        return self

    def close(self) -> None:
        """Close the connection."""
        super().close()
        # Perhaps no item was asked for.
        if self._response is not None:
            self._response.close()

    def _open(self) -> httpx.Response:
        if self._response is None:
            self._response = _opened(self._link, self._following.streaming.request)
        return self._response

    def _follow(self) -> Generator[T, None, None]:
        streaming, outage = self._following.streaming, Outage(self._following.patience)
        response = self._open()
        while True:
            try:
                yield from _items(response, streaming.decoder(), outage)
            except TransportError as error:
                response = _opened_again(self._link, streaming.request, outage, error)
            yield self._following.gap


def _opened_again(
    link: Link, request: Request, outage: Outage, error: HartlineError
) -> httpx.Response:
    while True:
        again = replace(request, pause=outage.pause_after(error))
        try:
            return _opened(link, again)
        except HartlineError as failed:
            error = failed


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
    response = await _opened_async(link, streaming.request)
    async with aclosing(_items_async(response, streaming.decoder())) as items:
        async for item in items:
            yield item


async def _opened_async(link: AsyncLink, request: Request) -> httpx.Response:
    response = await link.send(request, is_streamed=True)
    try:
        if not response.is_success:
            await response.aread()
            check(Answer(response.status_code, response.headers, response.content))
    except BaseException as error:
        await response.aclose()
        if isinstance(error, httpx.HTTPError):
            raise failure(error) from error
        raise
    return response


async def _items_async(
    response: httpx.Response, decoder: Decoder[T], outage: Outage | None = None
) -> AsyncGenerator[T, None]:
    try:
        async for data in response.aiter_bytes():
            if outage is not None:
                outage.end()
            for item in decoder.feed(data):
                yield item
        for item in decoder.finish():
            yield item
    except httpx.HTTPError as error:
        raise failure(error) from error
    finally:
        await response.aclose()


class AsyncEventStream(AsyncStream[T]):
    """Events, as they happen. A lost connection is opened again.

    ``async with`` opens the connection, so that what happens after it is not missed.
    """

    def __init__(self, link: AsyncLink, following: Following[T]) -> None:
        self._link = link
        self._following = following
        self._response: httpx.Response | None = None
        self._items = self._follow()

    async def __aenter__(self) -> AsyncEventStream[T]:
        await self._open()
        return self

    async def close(self) -> None:
        """Close the connection."""
        await super().close()
        # Perhaps no item was asked for.
        if self._response is not None:
            await self._response.aclose()

    async def _open(self) -> httpx.Response:
        if self._response is None:
            self._response = await _opened_async(self._link, self._following.streaming.request)
        return self._response

    async def _follow(self) -> AsyncGenerator[T, None]:
        streaming, outage = self._following.streaming, Outage(self._following.patience)
        response = await self._open()
        while True:
            try:
                async with aclosing(_items_async(response, streaming.decoder(), outage)) as items:
                    async for item in items:
                        yield item
            except TransportError as error:
                response = await _opened_again_async(self._link, streaming.request, outage, error)
            yield self._following.gap


async def _opened_again_async(
    link: AsyncLink, request: Request, outage: Outage, error: HartlineError
) -> httpx.Response:
    while True:
        again = replace(request, pause=outage.pause_after(error))
        try:
            return await _opened_async(link, again)
        except HartlineError as failed:
            error = failed
