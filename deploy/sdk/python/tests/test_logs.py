"""Outputs of machines and kept runs."""

from __future__ import annotations

import re

import pytest
from daemon import until

from hartline import Client, InvalidRequestError, NotFoundError, Spec


def test_logs_of_a_machine(api: Client, tools: str, unique: str) -> None:
    script = "for n in 1 2 3; do echo $n; done; echo error >&2; printf '\\377'"
    api.machines.create(Spec(tools, path="/bin/sh", args=("-c", script)), name=unique, start=True)
    api.machines.wait(unique)
    whole = api.machines.logs(unique)
    assert (whole.start, whole.data) == (0, b"1\n2\n3\n\xff")
    assert whole.text == "1\n2\n3\n\ufffd"
    assert api.machines.logs(unique, stream="stderr").text == "error\n"
    rest = api.machines.logs(unique, offset=4)
    assert (rest.start, rest.data) == (4, b"3\n\xff")
    assert api.machines.logs(unique, tail=2).data == b"3\n\xff"
    assert api.machines.logs(unique, since="2000-01-01T00:00:00Z").data == whole.data
    assert api.machines.logs(unique, since="0s").data == b""
    stamped = api.machines.logs(unique, timestamps=True, tail=2).text
    assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z 3\n", stamped)
    assert b"".join(api.machines.follow(unique)) == whole.data
    with pytest.raises(InvalidRequestError) as field:
        api.machines.logs(unique, since="noon")
    assert field.value.field == "since"
    with pytest.raises(NotFoundError):
        api.machines.logs("no-such-machine")
    with pytest.raises(NotFoundError):
        next(api.machines.follow("no-such-machine"))


def test_follow(api: Client, service: str, unique: str) -> None:
    api.machines.create(Spec(service, args=("tick",)), name=unique, start=True)
    seen = b""
    with api.machines.follow(unique) as log:
        for data in log:
            seen += data
            if seen.count(b"\n") >= 3:
                break
    assert seen.startswith(b"tick\ntick\ntick\n")
    # The closed stream did not end the machine. Another one ends with it.
    with api.machines.follow(unique, tail=1, timestamps=True) as log:
        assert re.match(rb"\S+Z tick\n", next(log))
        api.machines.kill(unique)
        for _ in log:
            pass
    assert not api.machines.wait(unique).is_active


def test_logs_of_a_run(api: Client, service: str) -> None:
    run = api.runs.submit(Spec(service, args=("tick",)))
    with api.runs.follow(run.id) as log:
        assert next(log).startswith(b"tick\n")
    until(lambda: api.runs.logs(run.id, offset=5).data.startswith(b"tick\n"))
    assert api.runs.logs(run.id, stream="stderr").data == b""
    api.runs.delete(run.id)
