"""The asynchronous client in event loops of both libraries, with several operations at once."""

from __future__ import annotations

import os
from pathlib import Path

import anyio
import pytest
from anyio.abc import TaskStatus
from daemon import Daemon

from hartline import AsyncClient, Client, ConnectionLostError, MachineEvent, Piece, RunOutcome, Spec

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def test_runs_at_once(daemon: Daemon, root: Client) -> None:
    codes: list[int] = []

    async def run(client: AsyncClient, argument: str) -> None:
        codes.append((await client.runs.run(Spec("service", args=(argument,)))).exit_code)

    async with AsyncClient(daemon.host) as client, anyio.create_task_group() as group:
        for argument in ("", "exit") * 4:
            group.start_soon(run, client, argument)
    assert sorted(codes) == [0] * 4 + [7] * 4


async def test_streams(daemon: Daemon, root: Client) -> None:
    async with AsyncClient(daemon.host) as client:
        items = [item async for item in client.runs.stream(Spec("service", args=("gush", "2")))]
        assert isinstance(items[-1], RunOutcome)
        pieces = [item for item in items if isinstance(item, Piece)]
        assert sum(len(piece.data) for piece in pieces) == 2 << 20
        async with client.runs.stream(Spec("service", args=("tick",))) as stream:
            assert isinstance(await anext(stream), Piece)


async def test_events(daemon: Daemon, root: Client) -> None:
    states: list[str] = []
    has_ended = anyio.Event()

    async def watch(client: AsyncClient, *, task_status: TaskStatus[None]) -> None:
        async with client.events.follow() as events:
            task_status.started()
            async for event in events:
                assert isinstance(event, MachineEvent)
                states.append(event.state)
                if event.state == "exited":
                    has_ended.set()

    async with AsyncClient(daemon.host) as client, anyio.create_task_group() as group:
        await group.start(watch, client)
        machine = await client.machines.create(Spec("service"), start=True)
        await client.machines.wait(machine.id)
        with anyio.fail_after(300):
            await has_ended.wait()
        # The stream has no end.
        group.cancel_scope.cancel()
    assert "running" in states


async def test_attachments(daemon: Daemon, root_box: str) -> None:
    async with (
        AsyncClient(daemon.tls, key=daemon.make_key("read"), ca=daemon.ca) as client,
        client.machines.attach(root_box, logs=True) as program,
    ):
        with anyio.move_on_after(0.2) as scope:
            await program.wait()
        assert scope.cancelled_caught
    with pytest.raises(ConnectionLostError, match="closed"):
        await program.wait()


async def test_cancelled_calls(daemon: Daemon, root: Client) -> None:
    async with AsyncClient(daemon.host) as client:
        with anyio.move_on_after(0.2) as scope:
            await client.runs.run(Spec("service", args=("idle",)))
        assert scope.cancelled_caught
        with anyio.move_on_after(0.2) as scope:
            async for _ in client.runs.stream(Spec("service", args=("tick",))):
                pass
        assert scope.cancelled_caught
        assert (await client.runs.run(Spec("service"))).exit_code == 0


async def test_processes(daemon: Daemon, root_box: str) -> None:
    async with AsyncClient(daemon.tls, key=daemon.make_key("write"), ca=daemon.ca) as client:
        data = bytes(1 << 20)
        async with client.machines.exec_stream(root_box, ["cat"]) as process:
            assert (await process.communicate(data)).stdout.data == data
        async with client.runs.attached(Spec("service", args=("copy",))) as run:
            assert (await run.communicate(data)).stdout.data == data
        async with client.machines.exec_stream(root_box, ["cat"]) as process:
            with anyio.move_on_after(0.2) as scope:
                await process.wait()
            assert scope.cancelled_caught
            # The command goes on.
            await process.write(b"more")
            assert await anext(process) == Piece("stdout", b"more")
        with pytest.raises(ConnectionLostError, match="closed"):
            await process.write(b"x")


async def test_copies(daemon: Daemon, root_box: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(os.urandom(1 << 20))
    async with AsyncClient(daemon.tls, key=daemon.make_key("write"), ca=daemon.ca) as client:
        machines = client.machines
        await machines.copy_to(root_box, "/tmp", tmp_path / "file")
        # From the machine to itself, without a file here.
        async with machines.copy_from(root_box, "/tmp/file") as archive:
            await machines.copy_to(root_box, "/bin", archive)
        await machines.copy_from(root_box, "/bin/file").extract(tmp_path / "copy")
        assert (tmp_path / "copy/file").read_bytes() == (tmp_path / "file").read_bytes()
        (tmp_path / "zeros").write_bytes(bytes(20_000_000))
        await machines.copy_to(root_box, "/tmp", tmp_path / "zeros")
        # Before its begin, or in its middle.
        with anyio.move_on_after(0.02) as scope:
            await machines.copy_from(root_box, "/tmp/zeros").extract(tmp_path / "cancelled")
        assert scope.cancelled_caught
        assert await machines.file_type(root_box, "/tmp/zeros") == "file"


async def test_process_that_another_task_closes(daemon: Daemon, root_box: str) -> None:
    async with (
        AsyncClient(daemon.host) as client,
        client.machines.exec_stream(root_box, ["cat"]) as process,
        anyio.create_task_group() as group,
    ):

        async def close() -> None:
            await anyio.sleep(0.1)
            await process.close()

        group.start_soon(close)
        with pytest.raises(ConnectionLostError, match="closed"):
            await process.wait()
