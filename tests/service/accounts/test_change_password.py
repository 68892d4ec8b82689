"""POST /auth/password and POST /auth/logout (decisions §3, §9)."""

from collections import Counter

import httpx
import jwt
import pytest
from support.crowd import together
from support.gateway import PASSWORD, LiveGateway, Owner
from support.insight import rows, set_active
from support.shapes import complaints, refused
from support.team import audited, client

NEW = "another horse battery"


def change(http: httpx.Client, **changes: object) -> httpx.Response:
    return http.post("/auth/password", json={"current_password": PASSWORD, "new_password": NEW} | changes)


def login(owner: Owner, password: str, **fields: object) -> httpx.Response:
    body = {"email": owner.email, "password": password} | fields
    return httpx.post(f"{owner.url}/auth/login", json=body, timeout=30)


def test_a_change_ends_every_token_but_answers_a_new_one(gateway: LiveGateway, newcomer: Owner) -> None:
    """The answer has the shape of login; all older tokens die, the new password works and the old one does not."""
    with newcomer.login() as elsewhere:
        answer = change(newcomer.http)
        assert answer.status_code == 200
        assert set(answer.json()) == {"access_token", "token_type", "user"}
        assert answer.json()["user"] == newcomer.user
        assert answer.headers["Cache-Control"] == "no-store"
        for ended in (newcomer.http, elsewhere):
            refused(ended.get("/auth/me"), 401, "Not authenticated")
        with client(newcomer.url, answer.json()["access_token"]) as fresh:
            assert fresh.get("/auth/me").status_code == 200
    assert login(newcomer, NEW).status_code == 200
    assert login(newcomer, PASSWORD).status_code == 401
    assert audited(gateway, newcomer.user["id"]) == [("user.password_changed", newcomer.user["id"])]
    [(kept,)] = rows(gateway, "SELECT password_hash FROM users WHERE id = ?", newcomer.user["id"])
    assert kept.startswith("$argon2id$")


def test_a_wrong_current_password_changes_nothing(newcomer: Owner) -> None:
    """It is a 400 that names the field, not a 401: the token is good and stays so."""
    answer = change(newcomer.http, current_password="wrong horse battery")
    assert complaints(answer) == {"current_password": ["is not your current password"]}
    assert newcomer.http.get("/auth/me").status_code == 200
    assert login(newcomer, PASSWORD).status_code == 200


@pytest.mark.parametrize("new", ["seven77", "x" * 129, None, 12345678])
def test_a_wrong_new_password_is_named(acme: Owner, new: object) -> None:
    """8 to 128 characters, as at registration (decisions §9)."""
    assert list(complaints(change(acme.http, new_password=new))) == ["new_password"]
    assert acme.http.get("/auth/me").status_code == 200


def test_of_many_changes_at_once_one_wins(newcomer: Owner) -> None:
    """Five simultaneous changes with one token: one answers a token that works, the others find theirs dead."""
    passwords = [f"password number {number}" for number in range(5)]
    answers = together(*[lambda new=new: change(newcomer.http, new_password=new) for new in passwords])
    assert Counter(answer.status_code for answer in answers) == {200: 1, 401: 4}
    [winner] = [new for new, answer in zip(passwords, answers, strict=True) if answer.status_code == 200]
    assert [new for new in passwords if login(newcomer, new).status_code == 200] == [winner]


def test_the_new_token_has_the_old_ones_scope(newcomer: Owner) -> None:
    """A `cli` token's change answers a `cli` token: no way round its limits (decisions §9)."""
    token = login(newcomer, PASSWORD, scope="cli").json()["access_token"]
    with client(newcomer.url, token) as cli:
        fresh = change(cli).json()["access_token"]
    assert jwt.decode(fresh, options={"verify_signature": False})["scope"] == "cli"
    with client(newcomer.url, fresh) as cli:
        assert cli.post("/api/organization/regenerate-key").status_code == 403


def test_logout_ends_this_session_alone(acme: Owner) -> None:
    """204; the token stops working at once, another login of the same user goes on (decisions §9)."""
    with acme.login() as leaving, acme.login() as staying:
        answer = leaving.post("/auth/logout")
        assert (answer.status_code, answer.content) == (204, b"")
        for path in ("/auth/me", "/api/team"):
            refused(leaving.get(path), 401, "Not authenticated")
        refused(leaving.post("/auth/logout"), 401, "Not authenticated")
        assert staying.get("/auth/me").status_code == 200


def test_an_inactive_organizations_user_keeps_their_own_account(
    gateway: LiveGateway, newcomer: Owner
) -> None:
    """Logging in and out and one's own password go on, so that a leaked one can be changed; nothing else does."""
    set_active(gateway, newcomer, active=False)
    fresh = change(newcomer.http)
    assert fresh.status_code == 200
    with client(newcomer.url, fresh.json()["access_token"]) as http:
        refused(http.post("/api/agents", json={"name": "bot"}), 403, "Organization is not active")
        assert http.post("/auth/logout").status_code == 204
