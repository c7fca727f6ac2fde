"""Snapshots, and machines and runs that continue them."""

from __future__ import annotations

import pytest
from daemon import until

from hartline import Client, ConflictError, NotFoundError, Spec

SCRIPT = "x=42; echo file >/tmp/f; echo ready; read line; echo $x $line $(cat /tmp/f)"


def test_snapshots(api: Client, tools: str, unique: str) -> None:
    spec = Spec(
        tools,
        path="/bin/sh",
        args=("-c", SCRIPT),
        memory=64 << 20,
        interactive=True,
    )
    machine = api.machines.create(spec, name=unique, start=True)
    until(lambda: api.machines.logs(unique).text == "ready\n")
    made = api.snapshots.create(unique, name=unique)
    assert (made.name, made.machine, made.memory) == (unique, machine.id, 64 << 20)
    assert made.size > 0
    assert api.snapshots.get(unique) == api.snapshots.get(made.id[:20]) == made
    other = api.snapshots.create(unique)
    assert other.name is None
    listed = [snapshot.id for snapshot in api.snapshots.list(page_size=1)]
    assert listed == sorted([made.id, other.id])
    with pytest.raises(ConflictError) as conflict:
        api.snapshots.create(unique, name=unique)
    assert conflict.value.code == "name-in-use"

    # The run continues with another input. Its output is that from now on.
    outcome = api.runs.run(Spec.continuing(unique), stdin="typed\n")
    assert (outcome.exit_code, outcome.stdout.text) == (0, "42 typed file\n")
    continued = api.machines.create(Spec.continuing(made.id), name=f"{unique}-2", start=True)
    assert (continued.spec.snapshot, continued.spec.path) == (made.id, "/bin/sh")
    assert api.machines.wait(continued.id).exit_code == 0
    assert api.machines.logs(continued.id).text == "42 file\n"

    with pytest.raises(ConflictError) as used:
        api.snapshots.delete(unique)
    assert used.value.code == "snapshot-in-use"
    with pytest.raises(ConflictError) as both:
        api.runs.run(Spec(tools, snapshot=unique))
    assert both.value.code == "not-with-snapshot"
    api.machines.delete(continued.id)
    api.snapshots.delete(unique)
    api.snapshots.delete(other.id)
    with pytest.raises(NotFoundError, match="no such snapshot"):
        api.snapshots.get(unique)
    api.machines.kill(machine.id)


def test_machines_without_snapshots(api: Client, service: str, unique: str) -> None:
    api.machines.create(Spec(service), name=unique)
    with pytest.raises(ConflictError) as refused:
        api.snapshots.create(unique)
    assert refused.value.code in {"no-snapshot", "wrong-state"}
    api.machines.delete(unique)
