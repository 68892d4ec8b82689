"""POST /auth/register."""

import time
from collections import Counter
from functools import partial

import httpx
import jwt
import pytest
from support.crowd import together
from support.gateway import PASSWORD, LiveGateway, Owner
from support.shapes import REQUIRED, UUID7, complaints, refused


def registration(**changes: object) -> dict[str, object]:
    return {"email": "someone@example.test", "password": PASSWORD, "organization_name": "Acme"} | changes


def register(client: httpx.Client, body: object) -> httpx.Response:
    return client.post("/auth/register", json=body)


def test_the_answer_has_exactly_the_fields_of_the_specification(anyone: httpx.Client) -> None:
    """Registration answers 200 with token, scheme and user (spec §4), and no cache may keep it."""
    answer = register(anyone, registration(email="fields@example.test"))
    assert answer.status_code == 200
    assert set(answer.json()) == {"access_token", "token_type", "user"}
    assert answer.json()["token_type"] == "bearer"
    user = answer.json()["user"]
    assert set(user) == {"id", "email", "organization_id"}
    assert user["email"] == "fields@example.test"
    assert UUID7.fullmatch(user["id"])
    assert UUID7.fullmatch(user["organization_id"])
    claims = jwt.decode(answer.json()["access_token"], options={"verify_signature": False})
    assert claims["sub"] == user["id"]
    assert answer.headers["Cache-Control"] == "no-store"


def test_an_email_registers_once(anyone: httpx.Client) -> None:
    """A registered e-mail is refused in every spelling of it (spec §7, decisions §2)."""
    assert register(anyone, registration(email="twice@example.test")).status_code == 200
    for spelling in ("twice@example.test", "TWICE@Example.Test", " twice@example.test "):
        refused(register(anyone, registration(email=spelling)), 400, "E-mail already registered")


def test_parallel_registrations_of_one_email_leave_one_account(anyone: httpx.Client) -> None:
    """Of five simultaneous registrations of one e-mail one succeeds and four are told why not."""
    body = registration(email="race@example.test")
    answers = together(*[partial(register, anyone, body)] * 5)
    assert Counter(answer.status_code for answer in answers) == {200: 1, 400: 4}


@pytest.mark.parametrize("missing", ["email", "password", "organization_name"])
def test_a_missing_field_is_named(anyone: httpx.Client, missing: str) -> None:
    """Each of the three fields is required, and its absence said by its name (decisions §2)."""
    body = registration()
    del body[missing]
    assert complaints(register(anyone, body)) == {missing: [REQUIRED]}


def test_all_missing_fields_are_named_together(anyone: httpx.Client) -> None:
    """An empty object gets one answer that names all three fields."""
    assert set(complaints(register(anyone, {}))) == {"email", "password", "organization_name"}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("password", "seven77"),
        ("password", "x" * 129),
        ("password", 12345678),
        ("password", None),
        ("email", "no at sign"),
        ("email", "a@b@c"),
        ("email", "ma\N{KELVIN SIGN}@example.test"),
        ("email", ""),
        ("email", "a" * 250 + "@example.test"),
        ("email", ["a@example.test"]),
        ("organization_name", ""),
        ("organization_name", "   "),
        ("organization_name", "x" * 101),
        ("organization_name", "line\nbreak"),
        ("organization_name", True),
        ("role", "admin"),
    ],
)
def test_a_wrong_value_is_named_and_registers_nobody(anyone: httpx.Client, field: str, value: object) -> None:
    """A value outside decisions §2 and §9, or an unknown field, is a 400 under its name; the e-mail stays free."""
    body = registration(email=f"wrong-{time.time_ns()}@example.test")
    assert list(complaints(register(anyone, body | {field: value}))) == [field]
    assert register(anyone, body).status_code == 200


@pytest.mark.parametrize("length", [8, 128])
def test_passwords_of_the_shortest_and_the_longest_length_work(anyone: httpx.Client, length: int) -> None:
    """Eight characters are enough (spec §4) and 128 are not too many (decisions §9)."""
    body = registration(email=f"length-{length}@example.test", password="é" * length)
    assert register(anyone, body).status_code == 200
    login = {"email": body["email"], "password": body["password"]}
    assert anyone.post("/auth/login", json=login).status_code == 200


@pytest.mark.parametrize(
    ("name", "slug"),
    [("Crème & Söhne", "creme-sohne"), ("株式会社", "organization"), ("㍿" * 100, "organization")],
)
def test_the_slug_comes_from_the_name(gateway: LiveGateway, name: str, slug: str) -> None:
    """A slug is plain ASCII made of the organization's name; a taken one gets a suffix (decisions §2)."""
    for _ in range(2):
        with Owner(gateway.url, organization=name) as owner:
            found = owner.http.get("/api/organization").json()
            assert found["name"] == name
            assert found["slug"] == slug or found["slug"].startswith(f"{slug}-")
            assert found["slug"].isascii()


def test_equal_names_get_different_slugs(gateway: LiveGateway) -> None:
    """Two organizations may share a name, never a slug (decisions §2)."""
    slugs = set()
    for _ in range(3):
        with Owner(gateway.url, organization="Twins Ltd") as owner:
            slugs.add(owner.http.get("/api/organization").json()["slug"])
    assert len(slugs) == 3
