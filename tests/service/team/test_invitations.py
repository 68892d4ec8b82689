"""Invitations: made, accepted once, taken back (decisions §3, §9)."""

from collections import Counter
from datetime import datetime, timedelta
from functools import partial

import httpx
import pytest
from support.crowd import together
from support.gateway import PASSWORD, LiveGateway, Owner
from support.insight import execute, rows, set_active, set_role
from support.shapes import MOMENT, REQUIRED, UUID7, complaints, refused
from support.team import TOO_LATE, Colleague, accept, audited, fresh_email, invite, token_of

USELESS = "This invitation was used already, revoked, or has expired; ask an admin for a new one"


def test_an_invitation_is_answered_with_the_link_to_pass_on(acme: Owner) -> None:
    """Without mail the 201 has the link, the token in its fragment, and no cache may keep it."""
    email = fresh_email()
    answer = invite(acme, email.upper(), "viewer")
    assert answer.status_code == 201
    assert answer.headers["Cache-Control"] == "no-store"
    body = answer.json()
    assert UUID7.fullmatch(body["id"])
    assert MOMENT.fullmatch(body["created_at"])
    assert MOMENT.fullmatch(body["expires_at"])
    assert (body["email"], body["role"], body["invited_by"]) == (email, "viewer", acme.user["id"])
    address, _, token = body["link"].partition("#token=")
    assert address == f"{acme.url}/console/invitation"
    assert len(token) == 43, "256 bits in base64url"


def test_the_token_is_stored_hashed(gateway: LiveGateway, acme: Owner) -> None:
    """Whoever reads the database finds no token in it (decisions §9)."""
    invitation = invite(acme)
    [(kept,)] = rows(gateway, "SELECT token_hash FROM invitations WHERE id = ?", invitation.json()["id"])
    assert len(kept) == 64
    assert token_of(invitation) not in kept


def test_whoever_accepts_is_a_user_and_logged_in(gateway: LiveGateway, acme: Owner) -> None:
    """Acceptance answers as login does, with a token that works; the password works afterwards too."""
    with Colleague(acme, "member") as colleague:
        assert colleague.user == {
            "id": colleague.id,
            "email": colleague.email,
            "organization_id": acme.user["organization_id"],
        }
        assert colleague.http.get("/auth/me").status_code == 200
        assert colleague.login().status_code == 200
        [row] = [one for one in acme.http.get("/api/team").json()["users"] if one["id"] == colleague.id]
        assert row["role"] == "member"
        assert audited(gateway, colleague.id) == [("team.joined", colleague.id)]


def test_an_invitation_is_accepted_once_under_a_race(acme: Owner) -> None:
    """Of ten simultaneous acceptances one succeeds, whatever passwords they choose; later ones fail too."""
    token = token_of(invite(acme))
    answers = together(*[partial(accept, acme.url, token, f"password {number}") for number in range(10)])
    assert Counter(answer.status_code for answer in answers) == {200: 1, 400: 9}
    for answer in answers:
        if answer.status_code == 400:
            assert answer.json()["detail"] in {USELESS, "E-mail already registered"}
    refused(accept(acme.url, token), 400, USELESS)


def test_an_expired_invitation_is_useless(gateway: LiveGateway, acme: Owner) -> None:
    """It works for 72 hours, and is no longer listed afterwards."""
    answer = invite(acme)
    lasts = "SELECT created_at, expires_at FROM invitations WHERE id = ?"
    [(made, ends)] = rows(gateway, lasts, answer.json()["id"])
    assert datetime.fromisoformat(ends) - datetime.fromisoformat(made) == timedelta(hours=72)
    execute(gateway, "UPDATE invitations SET expires_at = ? WHERE id = ?", TOO_LATE, answer.json()["id"])
    refused(accept(acme.url, token_of(answer)), 400, USELESS)
    listed = acme.http.get("/api/team").json()["invitations"]
    assert answer.json()["id"] not in {one["id"] for one in listed}


@pytest.mark.parametrize("token", ["", "x", "é" * 300])
def test_a_made_up_token_is_useless(acme: Owner, token: str) -> None:
    """A token of nobody's gets the same 400 as a used one."""
    refused(accept(acme.url, token), 400, USELESS)


def test_a_revoked_invitation_is_useless(gateway: LiveGateway, acme: Owner) -> None:
    """DELETE takes it back once; the link works no more, and the list forgets it."""
    answer = invite(acme)
    path = f"/api/team/invitations/{answer.json()['id']}"
    assert acme.http.delete(path).status_code == 204
    refused(acme.http.delete(path), 404, "Invitation not found")
    refused(accept(acme.url, token_of(answer)), 400, USELESS)
    assert audited(gateway, answer.json()["id"]) == [
        ("team.invited", acme.user["id"]),
        ("team.invitation_revoked", acme.user["id"]),
    ]


def test_inviting_again_replaces_the_link(newcomer: Owner) -> None:
    """One open invitation an e-mail: the new link works, the old one does not."""
    email = fresh_email()
    old, new = invite(newcomer, email), invite(newcomer, email, "viewer")
    assert [one["id"] for one in newcomer.http.get("/api/team").json()["invitations"]] == [new.json()["id"]]
    refused(accept(newcomer.url, token_of(old)), 400, USELESS)
    assert accept(newcomer.url, token_of(new)).status_code == 200


def test_a_registered_email_is_not_invited(acme: Owner, rival: Owner) -> None:
    """One user per e-mail, also across organizations, also by another capitalisation (decisions §2)."""
    for taken in (acme.email, rival.email, rival.email.upper()):
        refused(invite(acme, taken), 400, "E-mail already registered")


def test_an_email_that_registered_meanwhile_does_not_join(acme: Owner) -> None:
    """Whoever was invited and registered on their own stays where they are."""
    email = fresh_email()
    token = token_of(invite(acme, email))
    with Owner(acme.url, email=email):
        refused(accept(acme.url, token), 400, "E-mail already registered")


def test_two_organizations_race_for_one_person(acme: Owner, rival: Owner) -> None:
    """Invited by two and accepted in both at once, one person becomes one user."""
    email = fresh_email()
    tokens = [token_of(invite(owner, email)) for owner in (acme, rival)]
    answers = together(*[partial(accept, acme.url, token) for token in tokens * 3])
    assert Counter(answer.status_code for answer in answers) == {200: 1, 400: 5}


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        ({}, {"email", "role"}),
        ({"email": "x", "role": "owner"}, {"email", "role"}),
        ({"email": "a@example.test\r\nBcc: b@example.test", "role": "member"}, {"email"}),
        ({"email": "a@example.test", "role": "member", "name": "x"}, {"name"}),
    ],
)
def test_a_wrong_invitation_is_named(acme: Owner, body: dict[str, object], fields: set[str]) -> None:
    """Each wrong field is a 400 under its name, and nobody is invited."""
    before = acme.http.get("/api/team").json()
    assert set(complaints(acme.http.post("/api/team/invitations", json=body))) == fields
    assert acme.http.get("/api/team").json() == before


def test_a_short_password_leaves_the_invitation_good(acme: Owner) -> None:
    """The password is judged as at registration; the link works once a good one is chosen."""
    token = token_of(invite(acme))
    assert list(complaints(accept(acme.url, token, "short"))) == ["password"]
    assert complaints(httpx.post(f"{acme.url}/auth/accept-invitation", json={})) == {
        "token": [REQUIRED],
        "password": [REQUIRED],
    }
    assert accept(acme.url, token, PASSWORD).status_code == 200


def test_an_inactive_organization_takes_nobody(gateway: LiveGateway, newcomer: Owner) -> None:
    """Nobody is invited into an inactive organization, and nobody joins it (decisions §9)."""
    token = token_of(invite(newcomer))
    set_active(gateway, newcomer, active=False)
    refused(invite(newcomer), 403, "Organization is not active")
    refused(accept(newcomer.url, token), 403, "Organization is not active")
    set_active(gateway, newcomer, active=True)
    assert accept(newcomer.url, token).status_code == 200


@pytest.mark.parametrize("way", ["demoted", "removed"])
def test_who_may_invite_no_more_leaves_no_door_open(newcomer: Owner, way: str) -> None:
    """The open invitations of an admin who is demoted or removed work no more."""
    with Colleague(newcomer, "admin") as other:
        answer = other.http.post("/api/team/invitations", json={"email": fresh_email(), "role": "admin"})
        path = f"/api/team/{other.id}"
        if way == "demoted":
            assert newcomer.http.put(path, json={"role": "viewer"}).status_code == 200
        else:
            assert newcomer.http.delete(path).status_code == 204
        refused(accept(newcomer.url, token_of(answer)), 400, USELESS)
        assert newcomer.http.get("/api/team").json()["invitations"] == []


def test_only_admins_see_who_is_invited(gateway: LiveGateway, newcomer: Owner) -> None:
    """Others see the users; for them the invitations are null."""
    invite(newcomer)
    assert len(newcomer.http.get("/api/team").json()["invitations"]) == 1
    for role in ("member", "viewer"):
        set_role(gateway, newcomer, role)
        team = newcomer.http.get("/api/team").json()
        assert team["invitations"] is None
        assert [user["email"] for user in team["users"]] == [newcomer.email]


def test_an_invitation_of_another_organization_is_not_found(acme: Owner, rival: Owner) -> None:
    """Nobody revokes, or learns of, another organization's invitation."""
    answer = invite(acme)
    refused(rival.http.delete(f"/api/team/invitations/{answer.json()['id']}"), 404, "Invitation not found")
    assert accept(acme.url, token_of(answer)).status_code == 200
