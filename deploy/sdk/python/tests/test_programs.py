"""Uploads and their preparation."""

from __future__ import annotations

import hashlib
import io
import tarfile
from pathlib import Path

import pytest

from hartline import (
    Client,
    ConflictError,
    InvalidRequestError,
    NotFoundError,
    ProgramFailedError,
    Spec,
    TooLargeError,
)


def variant(service_file: Path, unique: str) -> bytes:
    """Return the service program with other bytes behind it: it is another program."""
    return service_file.read_bytes() + unique.encode()


def test_push_of_a_path(api: Client, service_file: Path, tmp_path: Path, unique: str) -> None:
    path = tmp_path / unique
    path.write_bytes(variant(service_file, unique))
    pushed = api.programs.push(path)
    assert pushed.id == hashlib.sha256(path.read_bytes()).hexdigest()
    assert (pushed.name, pushed.kind, pushed.size) == (unique, "elf", path.stat().st_size)
    ready = api.programs.wait_ready(unique)
    # On a busy machine the translation may exceed its time limit. Then the program is interpreted.
    assert ready.state == "ready"
    assert bool(ready.message) == bool(ready.problem)
    assert api.programs.get(pushed.id[:20]) == api.programs.get(unique) == ready
    assert api.programs.push(str(path), name=f"{unique}-again").id == pushed.id
    assert api.programs.get(pushed.id).name == f"{unique}-again"
    api.programs.delete(pushed.id)
    with pytest.raises(NotFoundError, match="no such program"):
        api.programs.get(pushed.id)


def test_push_of_bytes_and_open_files(api: Client, service_file: Path, unique: str) -> None:
    content = variant(service_file, unique)
    pushed = api.programs.push(content, name=unique)
    assert api.programs.push(io.BytesIO(content), name=unique).id == pushed.id
    assert api.programs.wait_ready(unique, translated=False).state in {"translating", "ready"}
    assert api.runs.run(Spec(unique)).stdout.text == "hello, world\n"
    with pytest.raises(ValueError, match="needs a name"):
        api.programs.push(content)


def test_push_of_a_root_file_system(api: Client, service_file: Path, unique: str) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        tar.add(service_file, f"bin/{unique}")
    packed.seek(0)
    pushed = api.programs.push(packed, name=unique, programs=[f"/bin/{unique}"])
    assert (pushed.kind, pushed.programs) == ("rootfs", (f"/bin/{unique}",))
    assert api.programs.wait_ready(unique, timeout=300).state == "ready"
    outcome = api.runs.run(Spec(unique, path=f"/bin/{unique}", args=("exit",)))
    assert outcome.exit_code == 7
    with pytest.raises(InvalidRequestError) as path:
        api.runs.run(Spec(unique))
    assert path.value.field == "path"
    api.programs.delete(unique)


def test_list_follows_pages(api: Client, service_file: Path, unique: str) -> None:
    pushed = [
        api.programs.push(variant(service_file, f"{unique}-{n}"), name=f"{unique}-{n}").id
        for n in range(3)
    ]
    listed = [program.id for program in api.programs.list(page_size=1)]
    assert listed == sorted(listed)
    assert set(pushed) <= set(listed)
    assert [program.id for program in api.programs.list()] == listed
    for program in pushed:
        api.programs.delete(program)


def test_program_that_is_not_valid(api: Client, unique: str) -> None:
    api.programs.push(b"\x7fELF and nothing more", name=unique)
    with pytest.raises(ProgramFailedError) as failed:
        api.programs.wait_ready(unique)
    assert failed.value.problem == "bad-upload"
    assert failed.value.program == api.programs.get(unique).id
    with pytest.raises(ConflictError) as conflict:
        api.runs.run(Spec(unique))
    assert conflict.value.code == "program-failed"


def test_refused_uploads(api: Client, unique: str) -> None:
    with pytest.raises(TooLargeError) as large:
        api.programs.push(bytes(9 << 20), name=unique)
    assert (large.value.status, large.value.code) == (413, "too-large")
    with pytest.raises(InvalidRequestError) as empty:
        api.programs.push(b"", name=unique)
    assert (empty.value.status, empty.value.code) == (400, "bad-request")
    with pytest.raises(InvalidRequestError) as long:
        api.programs.push(b"x", name="x" * 256)
    assert (long.value.status, long.value.field) == (422, "name")
    with pytest.raises(FileNotFoundError):
        api.programs.push(Path("/nowhere/at/all"))


def test_program_in_use(api: Client, service: str, unique: str) -> None:
    api.machines.create(Spec(service), name=unique)
    with pytest.raises(ConflictError) as conflict:
        api.programs.delete(service)
    assert conflict.value.code == "program-in-use"
    api.machines.delete(unique)
