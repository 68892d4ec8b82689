"""The example: its service in a process, its client in a terminal, and a gateway."""

import os
import re
import subprocess
import sys
from pathlib import Path

from support.gateway import Owner
from support.readme import ROOT
from support.terminal import Terminal
from support.waiting import until

FOLDER = ROOT / "examples" / "asgi"


def test_the_example(owner: Owner, tmp_path: Path) -> None:
    agent_id = owner.agent()
    owner.permit(agent_id, "charges.read")
    owner.permit(agent_id, "stripe.refund", requires_approval=True)
    book = tmp_path / "book"
    env = {
        **os.environ,
        "TOOLGATE_URL": owner.url,
        "TOOLGATE_API_KEY": owner.key,
        "TOOLGATE_AGENT_ID": agent_id,
        "TOOLGATE_OUTBOX": str(tmp_path / "outbox"),
        "REFUNDS_BOOK": str(book),
        "PORT": "0",
    }
    with subprocess.Popen(
        [sys.executable, FOLDER / "service.py"], env=env, stderr=subprocess.PIPE, text=True
    ) as service:
        try:
            assert service.stderr is not None
            [url] = next(found for line in service.stderr if (found := re.findall(r"running on (\S+)", line)))
            with Terminal(
                env={**env, "SERVICE_URL": url},
                program=(sys.executable, str(FOLDER / "client.py")),
                columns=300,
            ) as client:
                client.wait_for('200 {"id":"ch_1"')
                client.wait_for("403")
                client.wait_for("waits for a person")
                [approval] = until(lambda: owner.http.get("/api/approvals").json())
                assert not book.exists()
                edited = {**approval["context"], "amount": 4}
                answer = owner.http.post(f"/api/approvals/{approval['id']}/approve", json={"context": edited})
                assert answer.status_code == 200, answer.text
                client.type("")
                client.wait_for('201 "refunded 4.00"')
                assert client.end() == 0
        finally:
            service.terminate()
    assert book.read_text() == "refunded 4.00 of ch_1\n"
