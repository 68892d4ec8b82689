"""Fixtures of gateways that are begun and ended as an operator does: a home, its data, and signals that are heard."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.databases import database_url
from support.gateway import SECRET


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """An empty home."""
    home = tmp_path / "home"
    home.mkdir()
    return home


@pytest.fixture
def kept(home: Path) -> dict[str, str]:
    """What a gateway is told that keeps its data for this home."""
    return {"TOOLGATE_DATABASE_URL": database_url(home), "TOOLGATE_SECRET": SECRET}


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Let the processes started here hear SIGINT: a shell's background job, and all it starts, ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
