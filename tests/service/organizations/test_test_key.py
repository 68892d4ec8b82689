"""The organization's key to its test environment (decisions §3, §8, §9)."""

import re
from functools import partial

import pytest
from support.crowd import together
from support.gateway import PASSWORD, LiveGateway, Owner
from support.insight import rows, set_role
from support.shapes import refused

KEY = re.compile(r"test_[a-z0-9]{35}")
TEST = {"environment": "test"}
PATH = "/api/organization/test-key"


def ask(owner: Owner, key: str, agent: str) -> int:
    body = {"agent_id": agent, "action": "x"}
    return owner.http.post("/sdk/check", json=body, headers={"X-API-Key": key}).status_code


def test_it_has_the_four_fields_of_a_regeneration(newcomer: Owner) -> None:
    """GET answers id, name, the whole key and the organization's moment, never cached."""
    answer = newcomer.http.get(PATH)
    assert (answer.status_code, answer.headers["Cache-Control"]) == (200, "no-store")
    organization = newcomer.http.get("/api/organization").json()
    key = answer.json()
    assert key == {name: organization[name] for name in ("id", "name", "created_at")} | {
        "api_key": key["api_key"]
    }
    assert KEY.fullmatch(key["api_key"])


def test_a_regeneration_kills_the_old_key_at_once(newcomer: Owner) -> None:
    """The very next check with the old key is 401, with the new one 200; production's key stays."""
    agent = newcomer.http.post("/api/agents", json={"name": "t"}, params=TEST).json()["id"]
    before = newcomer.http.get(PATH).json()
    assert ask(newcomer, before["api_key"], agent) == 200
    answer = newcomer.http.post(f"{PATH}/regenerate")
    assert (answer.status_code, answer.headers["Cache-Control"]) == (200, "no-store")
    after = answer.json()
    assert after == before | {"api_key": after["api_key"]}
    assert KEY.fullmatch(after["api_key"])
    assert (ask(newcomer, before["api_key"], agent), ask(newcomer, after["api_key"], agent)) == (401, 200)
    assert newcomer.http.get(PATH).json() == after
    assert newcomer.http.get("/api/organization").json()["api_key"] == newcomer.key


def test_parallel_regenerations_leave_one_key(newcomer: Owner) -> None:
    """Of six simultaneous regenerations exactly one key works, and it is the one that is shown."""
    answers = together(*[partial(newcomer.http.post, f"{PATH}/regenerate")] * 6)
    assert [answer.status_code for answer in answers] == [200] * 6
    made = [answer.json()["api_key"] for answer in answers]
    alive = [key for key in made if ask(newcomer, key, "nobody") == 200]
    assert alive == [newcomer.http.get(PATH).json()["api_key"]]


def test_showing_and_regenerating_are_audited_without_the_key(gateway: LiveGateway, newcomer: Owner) -> None:
    """Both are in the management audit, under the test environment (decisions §3)."""
    newcomer.http.get(PATH)
    newcomer.http.post(f"{PATH}/regenerate")
    query = (
        "SELECT kind, changes FROM audit_entries "
        "WHERE environment = 'test' AND organization_id = ? ORDER BY id"
    )
    assert rows(gateway, query, newcomer.user["organization_id"]) == [
        ("organization.key_shown", None),
        ("organization.key_regenerated", None),
    ]


@pytest.mark.parametrize("role", ["member", "viewer"])
def test_others_than_admins_see_the_last_four(gateway: LiveGateway, newcomer: Owner, role: str) -> None:
    """Members and viewers see prefix and end, and regenerate nothing (decisions §9)."""
    key = newcomer.http.get(PATH).json()["api_key"]
    set_role(gateway, newcomer, role)
    assert newcomer.http.get(PATH).json()["api_key"] == f"test_…{key[-4:]}"
    assert newcomer.http.post(f"{PATH}/regenerate").status_code == 403
    assert ask(newcomer, key, "nobody") == 200


def test_a_cli_token_sees_the_last_four(newcomer: Owner) -> None:
    """An admin's `cli` token shows no key and regenerates none (decisions §9)."""
    key = newcomer.http.get(PATH).json()["api_key"]
    body = {"email": newcomer.email, "password": PASSWORD, "scope": "cli"}
    token = newcomer.http.post("/auth/login", json=body).json()["access_token"]
    headers = {"Authorization": f"Bearer {token}"}
    assert newcomer.http.get(PATH, headers=headers).json()["api_key"] == f"test_…{key[-4:]}"
    assert newcomer.http.post(f"{PATH}/regenerate", headers=headers).status_code == 403


def test_nobody_sees_it_without_a_token(newcomer: Owner) -> None:
    """An API key opens no management path."""
    headers = {"Authorization": "", "X-API-Key": newcomer.key}
    for answer in (
        newcomer.http.get(PATH, headers=headers),
        newcomer.http.post(f"{PATH}/regenerate", headers=headers),
    ):
        refused(answer, 401, "Not authenticated")
