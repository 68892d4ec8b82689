"""The example, over standard input and output, with a real gateway."""

import os
import sys
from pathlib import Path

import pytest
from support.frameworks.harness import Scene
from support.readme import ROOT
from support.terminal import Terminal
from support.waiting import until


@pytest.mark.parametrize(
    ("page", "shown"),
    [(None, "toolgate approvals approve"), ("https://gate.test/{approval_id}", "https://gate.test/")],
)
def test_the_example(scene: Scene, tmp_path: Path, page: str | None, shown: str) -> None:
    """Told, refused and held as its README says; approved at the gateway the payment is made once."""
    scene.owner.permit(scene.agent_id, "bank.balance")
    book = tmp_path / "book"
    env = {
        **os.environ,
        "TOOLGATE_URL": scene.owner.url,
        "TOOLGATE_API_KEY": scene.owner.key,
        "TOOLGATE_AGENT_ID": scene.agent_id,
        "TOOLGATE_OUTBOX": str(tmp_path / "outbox"),
        "BANK_BOOK": str(book),
        **({} if page is None else {"BANK_APPROVAL_PAGE": page}),
    }
    with Terminal(
        env=env, program=(sys.executable, str(ROOT / "examples/mcp/client.py")), columns=300
    ) as client:
        client.wait_for("savings holds 1200")
        client.wait_for("Not done: 'bank.close_account' is blocked")
        client.wait_for(shown)
        [approval] = until(lambda: scene.owner.http.get("/api/approvals").json())
        assert not book.exists()
        scene.approve(approval["id"])
        client.type("")
        client.wait_for("paid 40 to eve")
        assert client.end() == 0
    assert book.read_text() == "eve 40\n"
