"""The example, run as it is documented: it waits until the person has decided."""

from pathlib import Path

import pytest
from support.frameworks.examples import DECISIONS, Decision, Example, Play, in_one_process
from support.gateway import Owner

EXAMPLE = Example("autogen/accountant.py")


@pytest.mark.slow
@DECISIONS
def test_a_payment_waits_for_a_person(owner: Owner, tmp_path: Path, decision: Decision) -> None:
    """It pays if the person approved, and tells why not if they declined."""
    in_one_process(Play(EXAMPLE, owner, tmp_path), decision)
