"""The asynchronous client, for asyncio and trio (anyio)."""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

from ._links import AsyncLink
from ._methods import Group, Method
from ._plans import Following, Plan, Session, Streaming
from ._transport import Settings
from .archives import AsyncArchive
from .attached_run import AsyncAttachedRun
from .attachment import AsyncAttachment
from .models import ExecEnd, Machine, RunOutcome
from .operations import attach as streams
from .operations import core as cores
from .operations import debug as debugging
from .operations import (
    deliveries,
    events,
    keys,
    machines,
    programs,
    runs,
    secrets,
    snapshots,
    system,
    tenants,
    volumes,
)
from .operations import exec as commands
from .operations import files as copies
from .operations import logs as outputs
from .process import AsyncProcess
from .streams import AsyncEventStream, AsyncStream

P = ParamSpec("P")
T = TypeVar("T")


def _call(plan: Callable[P, Plan[T]]) -> Method[AsyncLink, P, Coroutine[Any, Any, T]]:
    return Method(AsyncLink.execute, plan, "Coroutine[Any, Any, {}]")


def _stream(streaming: Callable[P, Streaming[T]]) -> Method[AsyncLink, P, AsyncStream[T]]:
    return Method(AsyncStream, streaming, "AsyncStream[{}]")


def _copy(streaming: Callable[P, Streaming[bytes]]) -> Method[AsyncLink, P, AsyncArchive]:
    return Method(AsyncArchive, streaming, "AsyncArchive")


def _follow(following: Callable[P, Following[T]]) -> Method[AsyncLink, P, AsyncEventStream[T]]:
    return Method(AsyncEventStream, following, "AsyncEventStream[{}]")


def _exec(session: Callable[P, Session[ExecEnd]]) -> Method[AsyncLink, P, AsyncProcess]:
    return Method(
        lambda link, session: AsyncProcess(link.settings, session), session, "AsyncProcess"
    )


def _attach(session: Callable[P, Session[Machine]]) -> Method[AsyncLink, P, AsyncAttachment]:
    return Method(
        lambda link, session: AsyncAttachment(link.settings, session), session, "AsyncAttachment"
    )


def _run(session: Callable[P, Session[RunOutcome]]) -> Method[AsyncLink, P, AsyncAttachedRun]:
    return Method(
        lambda link, session: AsyncAttachedRun(link.settings, session), session, "AsyncAttachedRun"
    )


class AsyncPrograms(Group[AsyncLink]):
    """Programs of the tenant."""

    push = _call(programs.push)
    wait_ready = _call(programs.wait_ready)
    get = _call(programs.get_program)
    list = _call(programs.list_programs)
    delete = _call(programs.delete)


class AsyncRuns(Group[AsyncLink]):
    """Runs of the tenant."""

    run = _call(runs.run)
    stream = _stream(runs.stream)
    attached = _run(runs.attached)
    submit = _call(runs.submit)
    wait = _call(runs.wait)
    logs = _call(outputs.of_run)
    follow = _stream(outputs.follow_run)
    get = _call(runs.get_run)
    list = _call(runs.list_runs)
    delete = _call(runs.delete)


class AsyncMachines(Group[AsyncLink]):
    """Machines of the tenant."""

    create = _call(machines.create)
    start = _call(machines.start)
    stop = _call(machines.stop)
    kill = _call(machines.kill)
    pause = _call(machines.pause)
    resume = _call(machines.resume)
    suspend = _call(machines.suspend)
    wait = _call(machines.wait)
    stats = _call(machines.stats)
    limit_network = _call(machines.limit_network)
    logs = _call(outputs.of_machine)
    follow = _stream(outputs.follow_machine)
    exec = _call(commands.run)
    exec_stream = _exec(commands.stream)
    attach = _attach(streams.attach)
    debug = _exec(debugging.debug)
    core = _stream(cores.core)
    file_type = _call(copies.file_type)
    copy_from = _copy(copies.copy_from)
    copy_to = _call(copies.copy_to)
    get = _call(machines.get_machine)
    list = _call(machines.list_machines)
    delete = _call(machines.delete)


class AsyncSnapshots(Group[AsyncLink]):
    """Snapshots of the tenant's machines."""

    create = _call(snapshots.create)
    get = _call(snapshots.get_snapshot)
    list = _call(snapshots.list_snapshots)
    delete = _call(snapshots.delete)


class AsyncEvents(Group[AsyncLink]):
    """State changes of the tenant's machines."""

    follow = _follow(events.follow)


class AsyncVolumes(Group[AsyncLink]):
    """Volumes of the tenant."""

    create = _call(volumes.create)
    get = _call(volumes.get_volume)
    list = _call(volumes.list_volumes)
    delete = _call(volumes.delete)


class AsyncDeliveries(Group[AsyncLink]):
    """Webhooks of the tenant that wait for their receivers."""

    list = _call(deliveries.list_deliveries)


class AsyncSecrets(Group[AsyncLink]):
    """Secrets of the tenant."""

    put = _call(secrets.put)
    list = _call(secrets.list_secrets)
    delete = _call(secrets.delete)


class AsyncTenants(Group[AsyncLink]):
    """Tenants and their quotas."""

    put = _call(tenants.put)
    change = _call(tenants.change)
    get = _call(tenants.get_tenant)
    list = _call(tenants.list_tenants)
    delete = _call(tenants.delete)
    usage = _call(tenants.usage)


class AsyncKeys(Group[AsyncLink]):
    """API keys of tenants."""

    create = _call(keys.create)
    list = _call(keys.list_keys)
    delete = _call(keys.delete)


class AsyncSystem(Group[AsyncLink]):
    """The daemon itself."""

    version = _call(system.version)
    check_health = _call(system.check_health)
    readiness = _call(system.readiness)
    identity = _call(system.identity)
    history = _call(system.history)
    metrics = _call(system.metrics)


class AsyncClient:
    """A connection to a daemon, for programs with an event loop.

    It is a context manager, which closes its connections, and has the operations of
    :class:`hartline.Client`.
    """

    def __init__(
        self,
        host: str | None = None,
        *,
        key: str | None = None,
        tenant: str | None = None,
        ca: str | os.PathLike[str] | None = None,
        timeout: float = 30.0,
        retries: int = 2,
    ) -> None:
        """Prepare connections, with the arguments of :class:`hartline.Client`.

        Raises:
            ValueError: An argument has a value that is not allowed.
            OSError: The file with the trusted certificates cannot be read.

        """
        self._link = AsyncLink(Settings.of(host, key, tenant, ca, timeout, retries))
        self.programs = AsyncPrograms(self._link)
        self.runs = AsyncRuns(self._link)
        self.machines = AsyncMachines(self._link)
        self.snapshots = AsyncSnapshots(self._link)
        self.volumes = AsyncVolumes(self._link)
        self.secrets = AsyncSecrets(self._link)
        self.deliveries = AsyncDeliveries(self._link)
        self.events = AsyncEvents(self._link)
        self.tenants = AsyncTenants(self._link)
        self.keys = AsyncKeys(self._link)
        self.system = AsyncSystem(self._link)

    async def close(self) -> None:
        """Close all connections."""
        await self._link.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()
