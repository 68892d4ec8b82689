"""What the tests of serving share."""

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
