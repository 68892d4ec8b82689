"""`toolgate admin reset-password`: a link for whoever forgot the password (decisions §3, §9)."""

import re

import httpx
from support.admin import done, refusal
from support.gateway import PASSWORD, LiveGateway, Owner
from support.tables import rows

LINK = re.compile(r"(https://gate\.example\.test)?/console/password-reset#token=([A-Za-z0-9_-]{43})")
ANOTHER = "another horse battery"


def reset(gateway: LiveGateway, token: str, password: str) -> int:
    body = {"token": token, "new_password": password}
    return httpx.post(f"{gateway.url}/auth/password-reset/confirm", json=body, timeout=30).status_code


def login(gateway: LiveGateway, email: str, password: str) -> int:
    body = {"email": email, "password": password}
    return httpx.post(f"{gateway.url}/auth/login", json=body, timeout=30).status_code


def test_the_link_lets_a_user_choose_a_password_once(tended: LiveGateway, tenant: Owner) -> None:
    """The old password stops working, the new one works, the link does not work again, and nobody saw the token stored."""
    found = LINK.fullmatch(done(tended, "reset-password", tenant.email.upper())[0])
    assert found
    token = found[2]
    query = "SELECT token_hash FROM password_resets WHERE user_id = ?"
    assert token not in str(rows(tended, query, tenant.user["id"]))
    assert login(tended, tenant.email, PASSWORD) == 200
    assert reset(tended, token, ANOTHER) == 204
    assert (login(tended, tenant.email, PASSWORD), login(tended, tenant.email, ANOTHER)) == (401, 200)
    assert reset(tended, token, PASSWORD) == 400


def test_a_second_link_ends_the_first(tended: LiveGateway, tenant: Owner) -> None:
    """Only the newest link works; each is audited as the operator's, without the token."""
    lines = [done(tended, "reset-password", tenant.email)[0] for _ in range(2)]
    first, second = (line.partition("#token=")[2] for line in lines)
    assert reset(tended, first, ANOTHER) == 400
    assert reset(tended, second, ANOTHER) == 204
    query = "SELECT user_id, resource_id, changes FROM audit_entries WHERE organization_id = ? AND kind = ?"
    values = (tenant.user["organization_id"], "user.password_reset_issued")
    assert rows(tended, query, *values) == [(None, tenant.user["id"], None)] * 2


def test_the_link_begins_with_the_public_url(tended: LiveGateway, tenant: Owner) -> None:
    """Where it is set."""
    env = {"TOOLGATE_PUBLIC_URL": "https://gate.example.test"}
    found = LINK.fullmatch(done(tended, "reset-password", tenant.email, env=env)[0])
    assert found
    assert found[1] == "https://gate.example.test"


def test_an_unknown_email_is_named(tended: LiveGateway) -> None:
    """One line, no link."""
    assert "'nobody@example.test'" in refusal(tended, "reset-password", "nobody@example.test")
