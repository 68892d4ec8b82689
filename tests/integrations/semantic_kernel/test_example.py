"""The example, run as it is documented: once until it is held, once more after the person decided."""

from pathlib import Path

import pytest
from support.frameworks.examples import DECISIONS, Decision, Example, Play, in_two_processes
from support.gateway import Owner

EXAMPLE = Example(
    "semantic_kernel/treasurer.py",
    "history.json",
    waits="waits for a person: approval {}",
    reading="invoices.read",
    paying="invoices.pay",
)


@pytest.mark.slow
@DECISIONS
def test_a_payment_waits_for_a_person(owner: Owner, tmp_path: Path, decision: Decision) -> None:
    """The next process pays if the person approved, and tells why not if they declined."""
    in_two_processes(Play(EXAMPLE, owner, tmp_path), decision)
