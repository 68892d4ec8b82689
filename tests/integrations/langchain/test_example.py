"""The example, run as it is documented: once until it is held, once more after the person decided."""

import os
from pathlib import Path

import pytest
from support.frameworks.examples import DECISIONS, Decision, Example, Play, in_two_processes
from support.gateway import Owner

KEYS = {"OPENAI_API_KEY": "openai:gpt-5-mini", "ANTHROPIC_API_KEY": "anthropic:claude-sonnet-4-5"}


def models() -> list[str]:
    """The scripted one, and those there is a key for."""
    return ["", *(model for key, model in KEYS.items() if os.environ.get(key))]


@pytest.mark.parametrize("model", models())
@DECISIONS
def test_a_payment_waits_for_a_person(owner: Owner, tmp_path: Path, decision: Decision, model: str) -> None:
    """The next process pays if the person approved, and tells why not if they declined."""
    example = Example(
        "langchain/treasurer.py",
        "treasurer.db",
        waits="waits for a person: pay_invoice, approval {}",
        model="LANGCHAIN_MODEL",
        env={"LANGCHAIN_MODEL": model},
    )
    in_two_processes(Play(example, owner, tmp_path), decision)
