"""The daemon, tenants, and statistics of machines."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from daemon import Daemon, until

from hartline import (
    AuthenticationError,
    Client,
    ConnectError,
    Exits,
    ForbiddenError,
    Identity,
    Mount,
    NotFoundError,
    ServerError,
    Spec,
)
from hartline._plans import Answer
from hartline.operations import system

Connect = Callable[..., Client]


def test_statistics_of_a_machine(api: Client, service: str, unique: str) -> None:
    api.volumes.create(unique, size=1 << 20)
    spec = Spec(service, args=("idle",), volumes=(Mount(unique, "/data"),))
    api.machines.create(spec, name=unique)
    made = api.machines.stats(unique)
    assert (made.cpu_ms, made.memory, made.exits, made.run_ms) == (None, None, None, None)
    api.machines.start(unique)
    until(lambda: api.machines.get(unique).state == "running")
    running = api.machines.stats(unique)
    assert running.cpu_ms is not None
    assert running.memory is not None
    assert running.memory > 1 << 20
    assert (running.boot_ms, running.run_ms, running.network) == (None, None, None)
    until(lambda: calls(api, unique) > 0)
    api.machines.kill(unique)
    api.machines.wait(unique)
    api.machines.delete(unique)

    put = Spec(service, args=("put", "/data/file", "kept"), volumes=(Mount(unique, "/data"),))
    api.machines.create(put, name=f"{unique}-put", start=True)
    api.machines.wait(f"{unique}-put")
    ended = api.machines.stats(f"{unique}-put")
    assert (ended.cpu_ms, ended.memory) == (None, None)
    assert ended.run_ms is not None
    assert ended.run_ms > 0
    assert isinstance(ended.exits, Exits)
    assert ended.volume_requests is not None
    assert ended.volume_requests > 0
    if ended.kvm_exits is not None:
        assert ended.kvm_reasons is not None
        assert ended.exits_per_operation is not None
    api.machines.delete(f"{unique}-put")
    api.volumes.delete(unique)
    with pytest.raises(NotFoundError, match="no such machine"):
        api.machines.stats(unique)


def calls(api: Client, machine: str) -> int:
    """Return the number of a machine's host calls."""
    exits = api.machines.stats(machine).exits
    return 0 if exits is None else exits.calls


def test_own_tenant(connect: Connect, daemon: Daemon, unique: str) -> None:
    daemon.make_tenant(unique, max_machines=3, max_storage=64 << 20)
    key = daemon.make_key("read", unique)
    own = connect(daemon.tls, key=key, ca=daemon.ca)
    tenant = own.tenants.get(unique)
    assert (tenant.name, tenant.quota.max_machines, tenant.quota.weight) == (unique, 3, 100)
    assert tenant.created_ms > 0
    uses = {use.resource: use for use in own.tenants.usage(unique)}
    assert (uses["memory"].unit, uses["memory"].used) == ("bytes", 0)
    assert uses["memory"].limit == tenant.quota.max_memory
    assert (uses["storage"].used, uses["storage"].limit) == (0, 64 << 20)
    assert (uses["translation"].unit, uses["translation"].limit) == ("milliseconds", None)
    connect(daemon.host, tenant=unique).volumes.create("data", size=1 << 20)
    uses = {use.resource: use for use in own.tenants.usage(unique)}
    assert uses["storage"].used >= 1 << 20
    for refused in (own.tenants.get, own.tenants.usage):
        with pytest.raises(ForbiddenError):
            refused("default")
    with pytest.raises(NotFoundError, match="no such tenant"):
        connect(daemon.host).tenants.usage("unknown")


def test_daemon(connect: Connect, daemon: Daemon) -> None:
    root = connect(daemon.host)
    root.system.check_health()
    ready = root.system.readiness()
    assert (ready.ready, ready.storage_available, ready.storage) == (True, True, "")
    assert ready.limits_enforced == (ready.limits == "")
    assert "# TYPE hartline_" in root.system.metrics()
    assert root.system.metrics().endswith("# EOF\n")
    nobody = connect(daemon.tls, ca=daemon.ca)
    nobody.system.check_health()
    for refused in (nobody.system.readiness, nobody.system.metrics):
        with pytest.raises(AuthenticationError):
            refused()
    with pytest.raises(ForbiddenError):
        connect(daemon.tls, key=daemon.make_key("write"), ca=daemon.ca).system.metrics()
    with pytest.raises(ConnectError):
        connect("unix:///nothing", retries=0).system.check_health()


def test_identity_and_history(connect: Connect, daemon: Daemon, unique: str) -> None:
    daemon.make_tenant(unique)
    own = connect(daemon.tls, key=daemon.make_key("read", unique), ca=daemon.ca)
    assert own.system.identity() == Identity(unique, "read")
    root = connect(daemon.host)
    assert root.system.identity().scope == "admin"
    until(lambda: root.system.history() != [])
    last = root.system.history()[-1]
    assert last.span_ms > 0
    assert last.requests > 0
    assert root.system.history(after_ms=last.time_ms + 3_600_000) == []
    until(lambda: sum(sample.requests for sample in own.system.history()) > 0)
    (first, *_) = root.system.history(tenant=unique)
    assert (first.running, first.memory, first.ended) == (0, 0, 0)
    with pytest.raises(ForbiddenError):
        own.system.history(tenant="default")
    with pytest.raises(NotFoundError, match="no such tenant"):
        root.system.history(tenant="unknown")


def answered(kind: str, body: object) -> object:
    plan = system.readiness()
    assert next(plan).path == "/readyz"
    with pytest.raises(StopIteration) as end:
        plan.send(Answer(503, {"content-type": kind}, json.dumps(body).encode()))
    return end.value.value


def test_daemon_that_is_not_ready() -> None:
    body: dict[str, object] = {"ready": False, "vmms_ready": 0, "limits_enforced": True}
    body |= {"limits": "", "core_scheduling": True, "cores": "", "networks_available": True}
    body |= {"networks": "", "storage_available": False, "storage": "the disk is full"}
    found = answered("application/json", body)
    assert "the disk is full" in repr(found)
    with pytest.raises(ServerError):
        answered("application/problem+json", {"code": "stopping", "detail": "it stops"})
