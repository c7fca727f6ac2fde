"""The decoding of answers, without a daemon."""

from __future__ import annotations

import inspect
import json

import pytest

from hartline import (
    ApiError,
    AsyncClient,
    Client,
    Mount,
    Port,
    ProtocolError,
    RunFailedError,
    ServerError,
    Spec,
    Volume,
    WaitTimeoutError,
    aio,
    client,
)
from hartline._decode import decode
from hartline._plans import Answer, Plan, Request, T, error_of, query
from hartline.models import Machine, Output, Piece, Run, RunOutcome
from hartline.operations import machines, programs, runs, volumes
from hartline.spec import to_json

VOLUME = {"name": "data", "size": 1, "inodes": 2, "created_ms": 3}


def answered(plan: Plan[T], *answers: Answer) -> tuple[T, list[Request]]:
    """Execute a plan with these answers. Result: also the requests."""
    requests = [next(plan)]
    for answer in answers:
        try:
            requests.append(plan.send(answer))
        except StopIteration as end:
            return end.value, requests
    raise AssertionError("the plan needs more answers")


def found(value: object, **headers: str) -> Answer:
    return Answer(200, headers, json.dumps(value).encode())


def test_unknown_fields_are_ignored() -> None:
    volume = decode(Volume, VOLUME | {"colour": "red", "more": [1]}, "volume")
    assert volume == Volume("data", 1, 2, 3)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"size": "1"}, "volume.size is str, not int"),
        ({"size": True}, "volume.size is bool, not int"),
        ({"size": None}, "volume.size is NoneType, not int"),
        ({"name": 1}, "volume.name is int, not str"),
    ],
)
def test_wrong_types_are_errors(change: dict[str, object], text: str) -> None:
    with pytest.raises(ProtocolError, match=text):
        decode(Volume, VOLUME | change, "volume")


def test_missing_fields_are_errors() -> None:
    with pytest.raises(ProtocolError, match=r"no volume\.name"):
        decode(Volume, {}, "volume")
    run = {"id": "1", "state": "queued", "message": "", "created_ms": 0}
    assert decode(Run, run, "run").outcome is None
    with pytest.raises(ProtocolError, match="is list, not dict"):
        decode(Volume, [], "volume")
    with pytest.raises(ProtocolError, match=r"no output\.text"):
        Output.from_json({"truncated": False}, "output")
    with pytest.raises(ProtocolError, match="base64"):
        Output.from_json({"base64": "!", "truncated": False}, "output")


def test_lists_of_pages() -> None:
    plan = volumes.list_volumes(page_size=1)
    first = found([VOLUME], link='</v1/volumes?limit=1&after=data>; rel="next"')
    listed, requests = answered(plan, first, found([VOLUME | {"name": "other"}]))
    assert [volume.name for volume in listed] == ["data", "other"]
    paths = [request.path for request in requests]
    assert paths == ["/v1/volumes?limit=1", "/v1/volumes?limit=1&after=data"]


@pytest.mark.parametrize(
    "link",
    [
        '<https://other/v1/volumes>; rel="next"',
        '<//other/v1/volumes>; rel="next"',
        '</v1/volumes?limit=1000>; rel="next"',
    ],
)
def test_pages_that_lead_elsewhere(link: str) -> None:
    with pytest.raises(ProtocolError):
        answered(volumes.list_volumes(), found([], link=link))


def test_errors_of_answers() -> None:
    problem = {"code": "new-code", "detail": "why", "field": "cpus", "status": 418}
    error = error_of(Answer(418, {"retry-after": "7"}, json.dumps(problem).encode()))
    assert type(error) is ApiError
    assert (error.status, error.code, error.message) == (418, "new-code", "why")
    assert (error.field, error.retry_after) == ("cpus", 7.0)
    assert str(error) == "cpus: why (418 new-code)"
    for body in (b"<html>", b"[]", b"\xff", b'{"code": 1}'):
        error = error_of(Answer(502, {"retry-after": "Mon"}, body))
        assert isinstance(error, ServerError)
        assert (error.code, error.retry_after) == ("", None)
    with pytest.raises(ProtocolError, match="not JSON"):
        answered(volumes.get_volume("data"), Answer(200, {}, b"<html>"))


def test_specs() -> None:
    assert to_json(Spec("tool")) == {"program": "tool"}
    spec = Spec(
        "tool",
        args=("a",),
        env={"A": "1"},
        network="tenant",
        volumes=(Mount("data", "/data"),),
        ports=(Port(30080, 80),),
    )
    body = to_json(spec)
    assert body["volumes"] == [{"volume": "data", "path": "/data", "read_only": False}]
    assert body["ports"] == [{"host": 30080, "guest": 80}]
    machine = {
        "id": "1", "name": None, "spec": body, "state": "paused", "exit_code": None, "restarts": 0,
        "address": None, "address6": None, "message": "", "created_ms": 0, "started_ms": None,
        "ended_ms": None,
    }  # fmt: skip
    shown = decode(Machine, machine, "machine")
    assert shown.spec == spec
    assert shown.is_active
    continued = to_json(Spec.continuing("warm", labels={"a": "b"}))
    assert continued == {"snapshot": "warm", "labels": {"a": "b"}}


def test_waiting_for_programs() -> None:
    state = {"id": "1", "name": "tool", "kind": "elf", "size": 1, "tree_size": 1, "programs": []}
    state |= {"message": "", "problem": "", "created_ms": 0}
    packing, translating, ready = (
        found(state | {"state": name}) for name in ("packing", "translating", "ready")
    )
    waited, requests = answered(programs.wait_ready("tool"), packing, packing, translating, ready)
    assert waited.state == "ready"
    assert [request.pause for request in requests] == [0.0, 0.02, 0.04, 0.08]
    waited, _ = answered(programs.wait_ready("tool", translated=False), packing, translating)
    assert waited.state == "translating"
    with pytest.raises(WaitTimeoutError, match="tool is translating after 0 s"):
        answered(programs.wait_ready("tool", timeout=0), translating)


def test_both_clients_have_the_same_documented_operations() -> None:
    groups = {
        "programs": (client.Programs, aio.AsyncPrograms),
        "runs": (client.Runs, aio.AsyncRuns),
        "machines": (client.Machines, aio.AsyncMachines),
        "snapshots": (client.Snapshots, aio.AsyncSnapshots),
        "volumes": (client.Volumes, aio.AsyncVolumes),
        "deliveries": (client.Deliveries, aio.AsyncDeliveries),
        "secrets": (client.Secrets, aio.AsyncSecrets),
        "events": (client.Events, aio.AsyncEvents),
        "tenants": (client.Tenants, aio.AsyncTenants),
        "keys": (client.Keys, aio.AsyncKeys),
        "system": (client.System, aio.AsyncSystem),
    }
    assert vars(Client("unix:///x")).keys() == {"_link", *groups}
    assert vars(AsyncClient("unix:///x")).keys() == {"_link", *groups}
    for blocking, asynchronous in groups.values():
        names = {name for name in vars(blocking) if not name.startswith("_")}
        assert names == {name for name in vars(asynchronous) if not name.startswith("_")}
        for name in names:
            first, second = getattr(blocking, name), getattr(asynchronous, name)
            assert first.__doc__
            assert first.__doc__ == second.__doc__
            parameters = inspect.signature(first).parameters
            assert parameters == inspect.signature(second).parameters
    shown = inspect.signature(aio.AsyncMachines.get)
    assert shown.return_annotation == "Coroutine[Any, Any, Machine]"


def test_names_are_escaped() -> None:
    assert next(machines.get_machine("a/b?c")).path == "/v1/machines/a%2Fb%3Fc"
    assert query("/x", label="a=b&c", follow=True, tail=None) == "/x?label=a%3Db%26c&follow=true"


def test_streams_of_runs() -> None:
    decoder = runs.stream(Spec("tool")).decoder()
    piece = {"piece": {"stream": "stderr", "text": "gr\u00fc\u00df", "truncated": False}}
    line = json.dumps(piece, ensure_ascii=False).encode() + b"\n"
    # A piece of the answer may end anywhere, also in the middle of a character.
    items = [item for byte in line for item in decoder.feed(bytes([byte]))]
    assert items == [Piece("stderr", "gr\u00fc\u00df".encode())]
    output = {"text": "", "truncated": False}
    outcome = {"exit_code": 3, "message": "", "stdout": output, "stderr": output, "exits": {}}
    outcome |= {"queued_ms": 0, "boot_ms": 1, "run_ms": 2.5}
    (last,) = decoder.feed(json.dumps({"outcome": outcome}).encode() + b"\n")
    assert isinstance(last, RunOutcome)
    assert (last.exit_code, last.boot_ms, last.run_ms) == (3, 1.0, 2.5)
    assert list(decoder.finish()) == []


@pytest.mark.parametrize(
    "line",
    [
        b"{}",
        b"[]",
        b"x",
        b'{"new": {}}',
        b'{"piece": 1}',
        b'{"piece": {"stream": "x", "text": ""}}',
    ],
)
def test_unknown_lines_of_streams(line: bytes) -> None:
    with pytest.raises(ProtocolError):
        list(runs.stream(Spec("tool")).decoder().feed(line + b"\n"))


def test_ends_of_streams() -> None:
    decoder = runs.stream(Spec("tool")).decoder()
    with pytest.raises(RunFailedError, match="no room"):
        list(decoder.feed(b'{"failed": {"message": "no room"}}\n'))
    with pytest.raises(ProtocolError, match="exceeds"):
        list(decoder.feed(bytes((16 << 20) + 1)))
