"""POST /auth/login and GET /auth/me."""

import httpx
import jwt
import pytest
from support.gateway import PASSWORD, Owner
from support.shapes import MOMENT, REQUIRED, complaints, refused


def login(owner: Owner, **changes: object) -> httpx.Response:
    body = {"email": owner.email, "password": PASSWORD} | changes
    return httpx.post(f"{owner.url}/auth/login", json=body, timeout=30)


def test_the_answer_has_the_shape_of_registration(acme: Owner) -> None:
    """Login answers 200 with the same three fields as registration (spec §4)."""
    answer = login(acme)
    assert answer.status_code == 200
    assert set(answer.json()) == {"access_token", "token_type", "user"}
    assert answer.json()["user"] == acme.user
    assert answer.headers["Cache-Control"] == "no-store"


def test_the_email_is_compared_in_lower_case(acme: Owner) -> None:
    """Whoever registered may log in with any capitalisation (decisions §2)."""
    assert login(acme, email=acme.email.upper()).status_code == 200


@pytest.mark.parametrize(
    "changes",
    [{"password": "wrong horse battery"}, {"password": ""}, {"email": "nobody@example.test"}, {"email": "x"}],
)
def test_invalid_credentials_look_all_the_same(acme: Owner, changes: dict[str, object]) -> None:
    """A wrong password and an unknown e-mail get one and the same 401 (spec §7)."""
    refused(login(acme, **changes), 401, "Invalid e-mail or password")


def test_missing_fields_are_named(acme: Owner) -> None:
    """Both fields are required (decisions §2)."""
    answer = httpx.post(f"{acme.url}/auth/login", json={}, timeout=30)
    assert complaints(answer) == {"email": [REQUIRED], "password": [REQUIRED]}


@pytest.mark.parametrize("changes", [{"email": 1}, {"password": None}, {"scope": "root"}, {"remember": True}])
def test_wrong_fields_are_named(acme: Owner, changes: dict[str, object]) -> None:
    """A value of the wrong kind, an unknown scope and an unknown field are 400 under their names."""
    assert list(complaints(login(acme, **changes))) == list(changes)


def test_the_token_lives_seven_days_and_says_what_decisions_promise(acme: Owner) -> None:
    """The token is a JWT by HS256 with the claims of decisions §9, and expires seven days after its issue."""
    token = login(acme).json()["access_token"]
    assert jwt.get_unverified_header(token)["alg"] == "HS256"
    claims = jwt.decode(token, options={"verify_signature": False})
    assert set(claims) == {"iss", "aud", "sub", "iat", "exp", "jti", "ver", "scope"}
    assert claims["exp"] - claims["iat"] == 7 * 24 * 3600
    assert claims["sub"] == acme.user["id"]
    assert claims["scope"] == "full"


def test_me_is_the_user_with_the_moment_of_creation(acme: Owner) -> None:
    """GET /auth/me answers the user resource of spec §2."""
    answer = acme.http.get("/auth/me")
    assert answer.status_code == 200
    me = answer.json()
    assert MOMENT.fullmatch(me.pop("created_at"))
    assert me == acme.user
