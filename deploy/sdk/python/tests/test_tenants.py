"""What administrators do: tenants, keys and limits of networks."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from breaking import BreakingProxy
from daemon import Daemon, until

from hartline import (
    AuthenticationError,
    Client,
    ConflictError,
    ConnectionLostError,
    ForbiddenError,
    InvalidRequestError,
    NetworkLimits,
    NotFoundError,
    Spec,
)
from hartline._plans import Answer
from hartline.operations import machines

Connect = Callable[..., Client]


def test_tenants(connect: Connect, daemon: Daemon, unique: str) -> None:
    admin = connect(daemon.tls, key=daemon.make_key("admin"), ca=daemon.ca)
    made = admin.tenants.put(unique, max_machines=3, max_memory=1 << 30, weight=7)
    assert (made.name, made.quota.max_machines, made.quota.weight) == (unique, 3, 7)
    assert admin.tenants.get(unique) == made
    changed = admin.tenants.change(unique, max_machines=5, max_queued=0)
    quota = changed.quota
    assert (quota.max_machines, quota.max_queued, quota.max_memory) == (5, 0, 1 << 30)
    assert quota.weight == 7
    # The limits that are not given are the daemon's again.
    replaced = admin.tenants.put(unique, max_storage=2 << 30, max_inodes=9).quota
    assert (replaced.max_storage, replaced.max_inodes, replaced.weight) == (2 << 30, 9, 100)
    names = [tenant.name for tenant in admin.tenants.list()]
    assert names == sorted(names)
    assert {unique, "default"} <= set(names)
    admin.tenants.delete(unique)
    for missing in (admin.tenants.get, admin.tenants.change, admin.tenants.delete):
        with pytest.raises(NotFoundError, match="no such tenant"):
            missing(unique)


def test_refused_tenants(connect: Connect, daemon: Daemon, unique: str) -> None:
    root = connect(daemon.host)
    with pytest.raises(InvalidRequestError) as name:
        root.tenants.put("No")
    assert name.value.field == "tenant"
    with pytest.raises(InvalidRequestError) as weight:
        root.tenants.put(unique, weight=0)
    assert weight.value.field == "weight"
    with pytest.raises(ConflictError) as default:
        root.tenants.delete("default")
    assert default.value.code == "default-tenant"
    root.tenants.put(unique)
    connect(daemon.host, tenant=unique).volumes.create("data", size=1 << 20)
    with pytest.raises(ConflictError) as used:
        root.tenants.delete(unique)
    assert used.value.code == "tenant-in-use"
    writer = connect(daemon.tls, key=daemon.make_key("write", unique), ca=daemon.ca)
    for refused in (
        writer.tenants.list,
        lambda: writer.tenants.put(unique, weight=9),
        lambda: writer.tenants.change(unique, weight=9),
        lambda: writer.tenants.delete(unique),
        lambda: writer.keys.list(unique),
        lambda: writer.keys.create(unique, scope="admin"),
        lambda: writer.keys.delete(unique, "0"),
    ):
        with pytest.raises(ForbiddenError):
            refused()


def test_keys(connect: Connect, daemon: Daemon, unique: str, tmp_path: Path) -> None:
    root = connect(daemon.host)
    root.tenants.put(unique)
    made = root.keys.create(unique, scope="read", label="a label")
    assert (made.tenant, made.scope, made.label) == (unique, "read", "a label")
    assert made.key not in repr(made)
    reader = connect(daemon.tls, key=made.key, ca=daemon.ca)
    assert reader.tenants.get(unique).name == unique
    (listed,) = root.keys.list(unique)
    assert (listed.id, listed.label, listed.scope) == (made.id, "a label", "read")
    assert (listed.tenant, listed.created_ms) == (unique, made.created_ms)
    root.keys.delete(unique, made.id)
    assert root.keys.list(unique) == []
    with pytest.raises(AuthenticationError):
        reader.tenants.get(unique)
    with pytest.raises(NotFoundError, match="no such key"):
        root.keys.delete(unique, made.id)
    with pytest.raises(InvalidRequestError) as label:
        root.keys.create(unique, scope="read", label="x" * 257)
    assert label.value.field == "label"
    for missing in (root.keys.list, lambda name: root.keys.create(name, scope="read")):
        with pytest.raises(NotFoundError, match="no such tenant"):
            missing("unknown")
    # A second key would be one that nobody has. A quota is the same after a repetition.
    with BreakingProxy(tmp_path / "proxy", daemon.socket, breaks=1) as proxy:
        with pytest.raises(ConnectionLostError):
            connect(proxy.host).keys.create(unique, scope="read")
        assert proxy.answers == 1
    assert len(root.keys.list(unique)) == 1
    with BreakingProxy(tmp_path / "other", daemon.socket, breaks=1) as proxy:
        assert connect(proxy.host).tenants.put(unique, weight=3).quota.weight == 3
        assert proxy.answers == 2


def test_limits_of_networks(connect: Connect, daemon: Daemon, root: Client, unique: str) -> None:
    admin = connect(daemon.tls, key=daemon.make_key("admin"), ca=daemon.ca)
    spec = Spec("service", args=("idle",))
    root.machines.create(spec, name=unique, start=True)
    until(lambda: root.machines.get(unique).state == "running")
    with pytest.raises(ConflictError) as none:
        admin.machines.limit_network(unique, bandwidth=1000)
    assert none.value.code == "no-network"
    root.machines.kill(unique)
    with pytest.raises(NotFoundError):
        admin.machines.limit_network("no-such-machine")
    writer = connect(daemon.tls, key=daemon.make_key("write"), ca=daemon.ca)
    with pytest.raises(ForbiddenError):
        writer.machines.limit_network(unique)


def test_request_for_limits_of_a_network() -> None:
    plan = machines.limit_network("web-1", bandwidth=10**6)
    request = next(plan)
    assert (request.method, request.path) == ("PUT", "/v1/machines/web-1/network-limits")
    assert request.json == {"bandwidth": 10**6, "packets": 0}
    with pytest.raises(StopIteration) as end:
        plan.send(Answer(200, {}, json.dumps(request.json).encode()))
    assert end.value.value == NetworkLimits(10**6, 0)
