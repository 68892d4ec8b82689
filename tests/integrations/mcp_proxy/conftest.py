from collections.abc import Iterator
from pathlib import Path

import pytest
from support.gateway import Owner
from support.proxies import Bank


@pytest.fixture
def bank(owner: Owner, tmp_path: Path) -> Iterator[Bank]:
    bank = Bank(owner, owner.agent(), tmp_path)
    yield bank
    for each in bank.proxies:
        each.gone()
