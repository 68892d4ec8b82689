"""GET and PUT /api/organization."""

import re

import pytest
from support.gateway import LiveGateway, Owner
from support.insight import key_to_test, rows
from support.shapes import MOMENT, REQUIRED, complaints

KEY = re.compile(r"ak_[a-z0-9]{37}")
TEST_KEY = re.compile(r"test_[a-z0-9]{35}")


def test_the_organization_has_exactly_the_fields_of_the_specification(newcomer: Owner) -> None:
    """GET /api/organization answers the organization resource of spec §2, whole key included, never cached."""
    answer = newcomer.http.get("/api/organization")
    assert answer.status_code == 200
    organization = answer.json()
    assert set(organization) == {"id", "name", "slug", "plan", "api_key", "is_active", "created_at"}
    assert organization["id"] == newcomer.user["organization_id"]
    assert (organization["name"], organization["plan"]) == ("Newcomer", "enterprise")
    assert organization["is_active"] is True
    assert KEY.fullmatch(organization["api_key"])
    assert MOMENT.fullmatch(organization["created_at"])
    assert answer.headers["Cache-Control"] == "no-store"


def test_both_keys_have_forty_characters(gateway: LiveGateway, newcomer: Owner) -> None:
    """Keys are 40 lower-case letters and digits behind their prefix (spec §5)."""
    assert KEY.fullmatch(newcomer.key)
    assert TEST_KEY.fullmatch(key_to_test(gateway, newcomer))


def test_no_key_lies_open_in_the_file(gateway: LiveGateway, newcomer: Owner) -> None:
    """The database holds a digest and a sealed text of a key, never the key (decisions §9)."""
    stored = rows(
        gateway,
        "SELECT digest, ciphertext, last_four FROM api_keys WHERE organization_id = ?",
        newcomer.user["organization_id"],
    )
    assert len(stored) == 2
    for digest, ciphertext, last_four in stored:
        assert newcomer.key not in digest
        assert newcomer.key[:-4].encode() not in ciphertext
        assert len(last_four) == 4


def test_showing_the_key_is_audited_without_the_key(gateway: LiveGateway, newcomer: Owner) -> None:
    """Every showing of a key is in the management audit, who and from where; the key is not (decisions §3)."""
    newcomer.http.get("/api/organization")
    audited = rows(
        gateway,
        "SELECT user_id, ip_address, changes FROM audit_entries "
        "WHERE kind = 'organization.key_shown' AND organization_id = ?",
        newcomer.user["organization_id"],
    )
    assert audited == [(newcomer.user["id"], "127.0.0.1", None)] * 2


def test_a_renamed_organization_keeps_its_slug(newcomer: Owner) -> None:
    """PUT /api/organization changes the name alone (decisions §3)."""
    before = newcomer.http.get("/api/organization").json()
    answer = newcomer.http.put("/api/organization", json={"name": " Renamed "})
    assert answer.status_code == 200
    assert answer.json() == before | {"name": "Renamed"}
    assert newcomer.http.get("/api/organization").json() == before | {"name": "Renamed"}


@pytest.mark.parametrize(
    ("body", "field"),
    [({"name": ""}, "name"), ({"name": 1}, "name"), ({"name": "x", "plan": "pro"}, "plan"), ({}, "name")],
)
def test_a_wrong_change_is_named_and_changes_nothing(acme: Owner, body: object, field: str) -> None:
    """An organization's plan is not its own to choose, nor an empty name (decisions §2)."""
    before = acme.http.get("/api/organization").json()
    found = complaints(acme.http.put("/api/organization", json=body))
    assert list(found) == [field]
    assert body or found == {"name": [REQUIRED]}
    assert acme.http.get("/api/organization").json() == before
