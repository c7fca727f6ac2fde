"""The two transports: they send requests and execute plans."""

from __future__ import annotations

import time
from collections.abc import AsyncIterable, AsyncIterator
from typing import TypeVar

import anyio
import httpx
from anyio import to_thread

from ._plans import Answer, Plan, Request, Upload
from ._transport import Attempts, Settings

T = TypeVar("T")


class Link:
    """Sends requests to a daemon, and executes plans."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        transport = httpx.HTTPTransport(**settings.for_transport())
        self._http = httpx.Client(transport=transport, **settings.for_client())

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def execute(self, plan: Plan[T]) -> T:
        """Send the requests of a plan. Result: that of the plan."""
        try:
            request = next(plan)
            while True:
                response = self.send(request)
                answer = Answer(response.status_code, response.headers, response.content)
                request = plan.send(answer)
        except StopIteration as end:
            result: T = end.value
            return result

    def send(self, request: Request, *, is_streamed: bool = False) -> httpx.Response:
        """Send a request, and repeat it if that is safe after a failure."""
        attempts = Attempts(request, self.settings.retries)
        pause = request.pause
        while True:
            if pause > 0:
                time.sleep(pause)
            content = None if request.upload is None else request.upload.chunks()
            arguments = self.settings.for_request(request, content)
            try:
                return self._http.send(self._http.build_request(**arguments), stream=is_streamed)
            except httpx.HTTPError as error:
                pause = attempts.pause_after(error)


class AsyncLink:
    """Sends requests to a daemon, and executes plans."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        transport = httpx.AsyncHTTPTransport(**settings.for_transport())
        self._http = httpx.AsyncClient(transport=transport, **settings.for_client())

    async def close(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    async def execute(self, plan: Plan[T]) -> T:
        """Send the requests of a plan. Result: that of the plan."""
        try:
            request = next(plan)
            while True:
                response = await self.send(request)
                answer = Answer(response.status_code, response.headers, response.content)
                request = plan.send(answer)
        except StopIteration as end:
            result: T = end.value
            return result

    async def send(self, request: Request, *, is_streamed: bool = False) -> httpx.Response:
        """Send a request, and repeat it if that is safe after a failure."""
        attempts = Attempts(request, self.settings.retries)
        pause = request.pause
        while True:
            if pause > 0:
                await anyio.sleep(pause)
            content = None if request.upload is None else _chunks(request.upload)
            arguments = self.settings.for_request(request, content)
            try:
                return await self._http.send(
                    self._http.build_request(**arguments), stream=is_streamed
                )
            except httpx.HTTPError as error:
                pause = attempts.pause_after(error)


async def _chunks(upload: Upload) -> AsyncIterator[bytes]:
    """Read an upload. This happens in a thread, because files block."""
    if isinstance(upload.source, AsyncIterable):
        async for piece in upload.source:
            yield piece
        return
    chunks = upload.chunks()
    while (chunk := await to_thread.run_sync(next, chunks, None)) is not None:
        yield chunk
