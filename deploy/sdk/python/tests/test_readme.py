"""The examples of README.md, executed in order, with the output that it shows."""

from __future__ import annotations

import contextlib
import io
import re
import shutil
from pathlib import Path

import pytest
from daemon import Daemon

README = Path(__file__).parents[1] / "README.md"
EXAMPLE = re.compile(r"```python\n(.*?)```\n\n```text\n(.*?)```", re.DOTALL)


@pytest.mark.parametrize("place", ["unix", "tls"])
def test_examples(
    place: str,
    daemon: Daemon,
    service_file: Path,
    tools_tar: bytes,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    daemon.make_tenant(f"readme-{place}")
    monkeypatch.setenv("HARTLINE_HOST", daemon.tls if place == "tls" else daemon.host)
    monkeypatch.setenv("HARTLINE_KEY", daemon.make_key("admin", f"readme-{place}"))
    monkeypatch.setenv("HARTLINE_CA", str(daemon.ca))
    monkeypatch.chdir(tmp_path)
    shutil.copy(service_file, "tool")
    Path("rootfs.tar").write_bytes(tools_tar)
    text = README.read_text()
    examples = EXAMPLE.findall(text)
    assert len(examples) == text.count("```python") == 9
    for code, expected in examples:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, "README.md", "exec"), {})
        assert printed.getvalue() == expected
