"""A vote stores the credential that proved who cast it; admins see it, others do not."""

from typing import Any

import pytest
from support.asking import Ask, Decide
from support.console import Reader
from support.gateway import PASSWORD, Owner
from support.team import Colleague

from toolgate_service.accounts.sessions import read_credential


def votes(owner: Any, approval: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = owner.http.get(f"/api/approvals/{approval}").json()["votes"]
    return found


@pytest.mark.parametrize("how", ["approve", "deny"])
def test_vote_by_the_api_names_the_session(acme: Owner, ask: Ask, decide: Decide, how: str) -> None:
    approval = ask({"how": how})["approval_id"]
    [decided] = decide(approval, how).json()["votes"]
    [vote] = votes(acme, approval)
    assert vote["credential"] == decided["credential"]
    assert set(vote["credential"]) == {"type", "kind", "session_id", "scope"}
    assert vote["credential"]["type"] == "token"
    assert (vote["credential"]["kind"], vote["credential"]["scope"]) == ("token", "full")
    [entry] = [one for one in acme.http.get("/api/audit").json() if one["resource_id"] == approval]
    assert entry["changes"]["credential"] == vote["credential"]


def test_each_login_is_another_credential(acme: Owner, ask: Ask) -> None:
    first = ask({"n": 1})["approval_id"]
    second = ask({"n": 2})["approval_id"]
    acme.http.post(f"/api/approvals/{first}/approve")
    login = acme.http.post("/auth/login", json={"email": acme.email, "password": PASSWORD})
    headers = {"Authorization": f"Bearer {login.json()['access_token']}"}
    assert acme.http.post(f"/api/approvals/{second}/approve", headers=headers).status_code == 200
    sessions = [votes(acme, one)[0]["credential"]["session_id"] for one in (first, second)]
    assert len(set(sessions)) == 2


def test_vote_in_the_console_names_the_console(acme: Owner, ask: Ask) -> None:
    approval = ask({"n": 3})["approval_id"]
    with Reader.of(acme.url, acme.email) as reader:
        digest = acme.http.get(f"/api/approvals/{approval}").json()["digest"]
        answer = reader.submit(f"/console/approvals/{approval}/deny", token=reader.token(), digest=digest)
        assert answer.status_code < 400, answer.text
    [vote] = votes(acme, approval)
    assert vote["credential"]["type"] == vote["credential"]["kind"] == "console"


def test_only_admins_see_credentials(acme: Owner, ask: Ask) -> None:
    approval = ask({"n": 4})["approval_id"]
    body = {"grant": {"uses": 1, "seconds": 600}}
    assert acme.http.post(f"/api/approvals/{approval}/approve", json=body).status_code == 200
    [grant] = [one for one in acme.http.get("/api/grants").json() if one["approval_id"] == approval]
    assert grant["votes"][0]["credential"]["type"] == grant["votes"][0]["credential"]["kind"] == "token"
    with Colleague(acme, "member") as member:
        assert votes(member, approval)[0]["credential"] is None
        [grant] = [one for one in member.http.get("/api/grants").json() if one["approval_id"] == approval]
        assert grant["votes"][0]["credential"] is None


def test_stored_credential_without_a_type_gets_one() -> None:
    """Earlier versions stored only the kind."""
    assert read_credential('{"kind":"slack","link_id":"x"}') == {
        "type": "slack",
        "kind": "slack",
        "link_id": "x",
    }
    assert read_credential(None) is None
