"""The synchronous client."""

from __future__ import annotations

import os
from collections.abc import Callable
from types import TracebackType
from typing import ParamSpec, TypeVar

from ._links import Link
from ._methods import Group, Method
from ._plans import Following, Plan, Session, Streaming
from ._transport import Settings
from .archives import Archive
from .attached_run import AttachedRun
from .attachment import Attachment
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
from .process import Process
from .streams import EventStream, Stream

P = ParamSpec("P")
T = TypeVar("T")


def _call(plan: Callable[P, Plan[T]]) -> Method[Link, P, T]:
    return Method(Link.execute, plan)


def _stream(streaming: Callable[P, Streaming[T]]) -> Method[Link, P, Stream[T]]:
    return Method(Stream, streaming, "Stream[{}]")


def _copy(streaming: Callable[P, Streaming[bytes]]) -> Method[Link, P, Archive]:
    return Method(Archive, streaming, "Archive")


def _follow(following: Callable[P, Following[T]]) -> Method[Link, P, EventStream[T]]:
    return Method(EventStream, following, "EventStream[{}]")


def _exec(session: Callable[P, Session[ExecEnd]]) -> Method[Link, P, Process]:
    return Method(lambda link, session: Process(link.settings, session), session, "Process")


def _attach(session: Callable[P, Session[Machine]]) -> Method[Link, P, Attachment]:
    return Method(lambda link, session: Attachment(link.settings, session), session, "Attachment")


def _run(session: Callable[P, Session[RunOutcome]]) -> Method[Link, P, AttachedRun]:
    return Method(lambda link, session: AttachedRun(link.settings, session), session, "AttachedRun")


class Programs(Group[Link]):
    """Programs of the tenant."""

    push = _call(programs.push)
    wait_ready = _call(programs.wait_ready)
    get = _call(programs.get_program)
    list = _call(programs.list_programs)
    delete = _call(programs.delete)


class Runs(Group[Link]):
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


class Machines(Group[Link]):
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


class Snapshots(Group[Link]):
    """Snapshots of the tenant's machines."""

    create = _call(snapshots.create)
    get = _call(snapshots.get_snapshot)
    list = _call(snapshots.list_snapshots)
    delete = _call(snapshots.delete)


class Events(Group[Link]):
    """State changes of the tenant's machines."""

    follow = _follow(events.follow)


class Volumes(Group[Link]):
    """Volumes of the tenant."""

    create = _call(volumes.create)
    get = _call(volumes.get_volume)
    list = _call(volumes.list_volumes)
    delete = _call(volumes.delete)


class Deliveries(Group[Link]):
    """Webhooks of the tenant that wait for their receivers."""

    list = _call(deliveries.list_deliveries)


class Secrets(Group[Link]):
    """Secrets of the tenant."""

    put = _call(secrets.put)
    list = _call(secrets.list_secrets)
    delete = _call(secrets.delete)


class Tenants(Group[Link]):
    """Tenants and their quotas."""

    put = _call(tenants.put)
    change = _call(tenants.change)
    get = _call(tenants.get_tenant)
    list = _call(tenants.list_tenants)
    delete = _call(tenants.delete)
    usage = _call(tenants.usage)


class Keys(Group[Link]):
    """API keys of tenants."""

    create = _call(keys.create)
    list = _call(keys.list_keys)
    delete = _call(keys.delete)


class System(Group[Link]):
    """The daemon itself."""

    version = _call(system.version)
    check_health = _call(system.check_health)
    readiness = _call(system.readiness)
    identity = _call(system.identity)
    history = _call(system.history)
    metrics = _call(system.metrics)


class Client:
    """A connection to a daemon, for programs without an event loop.

    Threads may share it. It is a context manager, which closes its connections. The operations are
    in the attributes ``programs``, ``runs``, ``machines``, ``snapshots``, ``volumes``,
    ``secrets``, ``deliveries``, ``events``, ``tenants``, ``keys``, ``system``.
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
        """Prepare connections. The first request opens one.

        Args:
            host: Address of the daemon: ``unix://PATH``, ``http://ADDRESS:PORT`` or
                ``https://NAME:PORT``. The default is the variable ``HARTLINE_HOST``, or
                ``unix:///run/hartline/hartlined.sock``.
            key: API key. The default is the variable ``HARTLINE_KEY``. Root needs none on the unix
                socket.
            tenant: The tenant to act for, with a key of the scope ``admin``.
            ca: PEM file of the trusted certificates for ``https``. The default is the variable
                ``HARTLINE_CA``, or the system's certificates.
            timeout: Seconds of silence after which a request fails. Calls that wait for something
                add the time that they wait.
            retries: How often a request is repeated if the daemon cannot be reached, or if the
                connection breaks and a repetition is safe.

        Raises:
            ValueError: An argument has a value that is not allowed.
            OSError: The file with the trusted certificates cannot be read.

        """
        self._link = Link(Settings.of(host, key, tenant, ca, timeout, retries))
        self.programs = Programs(self._link)
        self.runs = Runs(self._link)
        self.machines = Machines(self._link)
        self.snapshots = Snapshots(self._link)
        self.volumes = Volumes(self._link)
        self.secrets = Secrets(self._link)
        self.deliveries = Deliveries(self._link)
        self.events = Events(self._link)
        self.tenants = Tenants(self._link)
        self.keys = Keys(self._link)
        self.system = System(self._link)

    def close(self) -> None:
        """Close all connections."""
        self._link.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
