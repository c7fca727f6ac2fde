"""What the tests need: a program that exports functions."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from hartline_host import Sandbox


@pytest.fixture
def program() -> Path:
    """Return the program of tests/programs/alone/calls.c."""
    return Path(os.environ["HARTLINE_CALLS"])


@pytest.fixture
def sandbox(program: Path) -> Iterator[Sandbox]:
    with Sandbox(program) as sandbox:
        yield sandbox
