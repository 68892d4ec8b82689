"""The example, run as it is documented: once until it is told to wait, once more after the person decided."""

from pathlib import Path

import pytest
from support.frameworks.examples import Example, Play
from support.gateway import Owner

EXAMPLE = Example("crewai/treasurer.py", model="CREWAI_MODEL")


@pytest.mark.slow
def test_a_payment_waits_for_a_person(owner: Owner, tmp_path: Path) -> None:
    """The first process is told that the payment waits, the second begins anew and pays it."""
    play = Play(EXAMPLE, owner, tmp_path)
    said = play.run()
    [request] = play.requests()
    assert request["id"] in said
    assert not play.payments.exists()

    play.decide(request["id"], "approve")
    said = play.run()
    if play.scripted:
        assert said == "I read INV-7. Result of the payment: paid 120.50 for INV-7\n"
    assert play.payments.read_text() == "INV-7 120.50\n"
    assert play.statuses() == ["pending", "success", "success", "success"]
