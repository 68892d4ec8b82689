"""What was asked is kept once, in its canonical form, and everything shown is rendered from that (decisions §4)."""

import hashlib
import json

import httpx
import pytest
from support.asking import Decide
from support.gateway import LiveGateway, Owner
from support.tables import rows

ASKED = r'{"b": 9007199254740993.250, "a": {"y": 1e2, "x": "\u00e9", "n": 9007199254740993}}'
AGAIN = r'{"a": {"n": 9007199254740993.0, "x": "é", "y": 100.0}, "b": 900719925474099325e-2}'
KEPT = '{"a":{"n":9007199254740993,"x":"é","y":100},"b":9007199254740993.25}'


def ask(owner: Owner, agent: str, context: str | None) -> httpx.Response:
    member = "" if context is None else f', "context": {context}'
    body = f'{{"agent_id": "{agent}", "action": "db.drop"{member}}}'
    return owner.http.post("/sdk/check", content=body.encode(), headers={"X-API-Key": owner.key})


def shown(owner: Owner, agent: str, approval: str) -> list[str]:
    """Return the texts of every answer that shows an approval: the list, people's view, the agent's view."""
    key = {"X-API-Key": owner.key}
    return [
        owner.http.get("/api/approvals", params={"agent_id": agent}).text,
        owner.http.get(f"/api/approvals/{approval}").text,
        owner.http.get(f"/sdk/approvals/{approval}", headers=key).text,
    ]


def test_one_text_is_kept_shown_and_digested(
    gateway: LiveGateway, acme: Owner, bot: str, permission: str, decide: Decide
) -> None:
    """Stored as the canonical form with its SHA-256, shown digit by digit, the same from asking to being used up."""
    approval = ask(acme, bot, ASKED).json()["approval_id"]
    expected = [(KEPT, hashlib.sha256(KEPT.encode()).hexdigest())]
    query = "SELECT context, digest FROM approvals WHERE id = ?"
    assert rows(gateway, query, approval) == expected
    assert ask(acme, bot, AGAIN).json()["approval_id"] == approval
    assert all(f'"context":{KEPT}' in text for text in shown(acme, bot, approval))
    decide(approval)
    assert ask(acme, bot, AGAIN).json()["allowed"] is True
    assert rows(gateway, query, approval) == expected
    assert all(f'"context":{KEPT}' in text for text in shown(acme, bot, approval))


@pytest.mark.parametrize("context", ["null", "{}", " { } "])
def test_an_absent_context_is_an_empty_one(acme: Owner, bot: str, permission: str, context: str) -> None:
    """A check without the member, with null and with an empty object are one request."""
    approval = ask(acme, bot, None).json()["approval_id"]
    assert approval is not None
    assert ask(acme, bot, context).json()["approval_id"] == approval
    assert ask(acme, bot, '{"context": null}').json()["approval_id"] != approval
    assert json.loads(shown(acme, bot, approval)[1])["context"] == {}
