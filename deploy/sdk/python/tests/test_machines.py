"""Machines and volumes."""

from __future__ import annotations

import time

import pytest

from hartline import (
    Client,
    ConflictError,
    InvalidRequestError,
    Mount,
    NotFoundError,
    SecretUse,
    Spec,
    WaitTimeoutError,
    Webhook,
)


def test_life_of_a_machine(api: Client, service: str, unique: str) -> None:
    spec = Spec(service, args=("idle",), labels={"test": unique}, memory=64 << 20)
    made = api.machines.create(spec, name=unique)
    assert (made.name, made.state, made.exit_code) == (unique, "created", None)
    assert not made.is_active
    assert api.machines.wait(unique) == made
    assert (made.spec.args, made.spec.memory) == (("idle",), 64 << 20)
    assert made.spec.program == api.programs.get(service).id
    assert api.machines.start(unique).is_active
    with pytest.raises(WaitTimeoutError, match=f"machine {unique} is"):
        api.machines.wait(unique, timeout=0.2)
    running = api.machines.get(made.id[:20])
    while running.state != "running":
        running = api.machines.get(unique)
    assert api.machines.pause(unique).state == "paused"
    with pytest.raises(ConflictError) as paused:
        api.machines.pause(unique)
    assert paused.value.code == "wrong-state"
    assert api.machines.resume(unique).state == "running"
    assert api.machines.suspend(unique).state == "suspended"
    with pytest.raises(WaitTimeoutError, match=f"machine {unique} is suspended"):
        api.machines.wait(unique, timeout=0.2)
    assert api.machines.start(unique).is_active
    while api.machines.get(unique).state != "running":
        pass
    with pytest.raises(ConflictError):
        api.machines.delete(unique)
    api.machines.stop(unique)
    stopped = api.machines.wait(unique)
    assert (stopped.state, stopped.exit_code) == ("exited", 128 + 15)
    api.machines.start(made.id)
    api.machines.kill(made.id)
    killed = api.machines.wait(made.id, timeout=300)
    assert not killed.is_active
    api.machines.delete(unique)
    with pytest.raises(NotFoundError, match="no such machine"):
        api.machines.get(unique)


def test_machine_that_is_started_at_once(api: Client, service: str, unique: str) -> None:
    spec = Spec(service, args=("exit",), restart="on-failure:1")
    api.machines.create(spec, name=unique, start=True)
    ended = api.machines.wait(unique)
    assert (ended.exit_code, ended.restarts, ended.spec.restart) == (7, 1, "on-failure:1")


def test_list_of_machines(api: Client, service: str, unique: str) -> None:
    spec = Spec(service, labels={"test": unique})
    made = sorted(api.machines.create(spec).id for _ in range(3))
    listed = api.machines.list(label=("test", unique), page_size=2)
    assert [machine.id for machine in listed] == made
    assert api.machines.list(label=("test", unique), state="running") == []
    listed = api.machines.list(program=service, state="created")
    assert set(made) <= {machine.id for machine in listed}
    for machine in made:
        api.machines.delete(machine)


def test_names_and_keys(api: Client, service: str, unique: str) -> None:
    first = api.machines.create(Spec(service), name=unique, idempotency_key=unique)
    again = api.machines.create(Spec(service), name=unique, idempotency_key=unique)
    assert again.id == first.id
    with pytest.raises(ConflictError) as conflict:
        api.machines.create(Spec(service), name=unique)
    assert conflict.value.code == "name-in-use"
    with pytest.raises(InvalidRequestError) as digits:
        api.machines.create(Spec(service), name="cafe")
    assert digits.value.field == "name"
    for name in ("", ".", ".."):
        with pytest.raises(ValueError, match="not a name"):
            api.machines.delete(name)
    with pytest.raises(NotFoundError):
        api.machines.get("a/b?c=d#e %41")


def test_secrets(api: Client, service: str, unique: str) -> None:
    assert api.secrets.put(unique, b"\0one\xff")
    assert not api.secrets.put(unique, "two")
    listed = [found for found in api.secrets.list(page_size=1) if found.name == unique]
    assert [found.changed_ms >= found.created_ms for found in listed] == [True]
    file = Spec(service, args=("get", f"/run/secrets/{unique}"), secrets=(SecretUse(unique),))
    assert api.runs.run(file).stdout.data == b"two"
    api.machines.create(Spec(service, secrets=(SecretUse(unique, env="KEY"),)), name=unique)
    assert api.machines.get(unique).spec.secrets == (SecretUse(unique, env="KEY"),)
    with pytest.raises(ConflictError) as used:
        api.secrets.delete(unique)
    assert used.value.code == "secret-in-use"
    api.machines.delete(unique)
    api.secrets.delete(unique)
    with pytest.raises(NotFoundError):
        api.secrets.delete(unique)
    with pytest.raises(InvalidRequestError):
        api.secrets.put(unique, b"")


def test_webhooks(api: Client, service: str, unique: str) -> None:
    api.secrets.put(unique, b"key")
    # Nothing listens there.
    webhook = Webhook("http://127.0.0.1:1/ended", unique)
    made = api.machines.create(
        Spec(service, args=("exit",), webhook=webhook), name=unique, start=True
    )
    assert made.spec.webhook == webhook
    waiting = [found for found in api.deliveries.list() if found.machine == made.id]
    while not waiting or not waiting[0].attempts:
        time.sleep(0.02)
        waiting = [found for found in api.deliveries.list() if found.machine == made.id]
    assert waiting[0].url == webhook.url
    assert "Connection refused" in waiting[0].error
    with pytest.raises(ConflictError) as refused:
        api.runs.run(Spec(service, webhook=webhook))
    assert refused.value.code == "no-webhook"


def test_volumes(api: Client, service: str, unique: str) -> None:
    volume = api.volumes.create(unique, size=1 << 20, inodes=16)
    assert (volume.name, volume.size, volume.inodes) == (unique, 1 << 20, 16)
    assert api.volumes.get(unique) == volume
    api.volumes.create(f"{unique}-other", size=1 << 20)
    listed = [found.name for found in api.volumes.list(page_size=1)]
    assert listed == sorted(listed)
    assert {unique, f"{unique}-other"} <= set(listed)
    with pytest.raises(ConflictError) as exists:
        api.volumes.create(unique, size=1 << 20)
    assert exists.value.code == "volume-exists"

    mount = Mount(unique, "/data")
    put = Spec(service, args=("put", "/data/file", "kept"), volumes=(mount,))
    api.machines.create(put, name=f"{unique}-put", start=True)
    assert api.machines.wait(f"{unique}-put").exit_code == 0
    read_only = Mount(unique, "/data", read_only=True)
    refused = Spec(service, args=("put", "/data/file", "more"), volumes=(read_only,))
    made = api.machines.create(refused, name=f"{unique}-refused", start=True)
    assert made.spec.volumes == (read_only,)
    read_only_file_system = 30
    assert api.machines.wait(f"{unique}-refused").exit_code == read_only_file_system

    with pytest.raises(ConflictError) as used:
        api.volumes.delete(unique)
    assert used.value.code == "volume-in-use"
    for name in ("put", "refused"):
        api.machines.delete(f"{unique}-{name}")
    for name in (unique, f"{unique}-other"):
        api.volumes.delete(name)
    with pytest.raises(NotFoundError, match="no such volume"):
        api.volumes.get(unique)
