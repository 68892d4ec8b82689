"""Roles changed, users removed, and the admin who stays (decisions §3, §9)."""

from functools import partial

import httpx
import pytest
from support.crowd import together
from support.gateway import PASSWORD, LiveGateway, Owner
from support.shapes import MOMENT, complaints, refused
from support.team import Colleague, accept, audited, invite, token_of

UNKNOWN = "01890000-0000-7000-8000-000000000000"
LAST = "This is the organization's last admin; make another user an admin first"


def is_out(answer: httpx.Response) -> bool:
    return answer.status_code == 401 and answer.json()["detail"] == "Not authenticated"


def test_the_team_shows_who_is_in_it(newcomer: Owner) -> None:
    """GET /api/team answers users with id, email, role and created_at, newest first."""
    with Colleague(newcomer, "viewer") as viewer:
        team = newcomer.http.get("/api/team").json()
        assert set(team) == {"users", "invitations"}
        assert [(user["id"], user["email"], user["role"]) for user in team["users"]] == [
            (viewer.id, viewer.email, "viewer"),
            (newcomer.user["id"], newcomer.email, "admin"),
        ]
        for user in team["users"]:
            assert set(user) == {"id", "email", "role", "created_at"}
            assert MOMENT.fullmatch(user["created_at"])
        assert viewer.http.get("/api/team").json()["users"] == team["users"]


def test_a_changed_role_ends_every_token(gateway: LiveGateway, newcomer: Owner) -> None:
    """PUT answers the user with the new role; older tokens die, a new one has the new right (decisions §9)."""
    with Colleague(newcomer, "viewer") as colleague:
        answer = newcomer.http.put(f"/api/team/{colleague.id}", json={"role": "member"})
        assert (answer.status_code, answer.json()["role"]) == (200, "member")
        assert is_out(colleague.http.get("/auth/me"))
        colleague.http.headers["Authorization"] = f"Bearer {colleague.login().json()['access_token']}"
        assert colleague.http.post("/api/agents", json={"name": "bot"}).status_code == 201
        assert ("team.role_changed", newcomer.user["id"]) in audited(gateway, colleague.id)


def test_the_same_role_again_changes_nothing(gateway: LiveGateway, newcomer: Owner) -> None:
    """A role that is set already ends no session and is not audited."""
    with Colleague(newcomer, "member") as colleague:
        assert newcomer.http.put(f"/api/team/{colleague.id}", json={"role": "member"}).status_code == 200
        assert colleague.http.get("/auth/me").status_code == 200
        assert [kind for kind, _ in audited(gateway, colleague.id)] == ["team.joined"]


def test_a_removed_user_is_out_at_once_and_the_email_free(gateway: LiveGateway, newcomer: Owner) -> None:
    """DELETE is 204: token and password stop working, the list forgets the user, the e-mail may be invited again."""
    with Colleague(newcomer, "member") as colleague:
        path = f"/api/team/{colleague.id}"
        assert newcomer.http.delete(path).status_code == 204
        assert is_out(colleague.http.get("/auth/me"))
        refused(colleague.login(), 401, "Invalid e-mail or password")
        refused(newcomer.http.delete(path), 404, "User not found")
        refused(newcomer.http.put(path, json={"role": "admin"}), 404, "User not found")
        assert [user["id"] for user in newcomer.http.get("/api/team").json()["users"]] == [
            newcomer.user["id"]
        ]
        again = accept(newcomer.url, token_of(invite(newcomer, colleague.email)))
        assert again.status_code == 200
        assert again.json()["user"]["id"] != colleague.id
        assert is_out(colleague.http.get("/auth/me"))
        assert ("team.removed", newcomer.user["id"]) in audited(gateway, colleague.id)


def test_an_approval_of_a_removed_user_lets_nothing_through(newcomer: Owner) -> None:
    """The approver's right is looked at again when the approval is used (decisions §5)."""
    bot = newcomer.agent()
    newcomer.permit(bot, "x.y", requires_approval=True)
    approval = newcomer.check(bot, "x.y").json()["approval_id"]
    with Colleague(newcomer, "member") as colleague:
        assert colleague.http.post(f"/api/approvals/{approval}/approve").status_code == 200
        assert newcomer.http.delete(f"/api/team/{colleague.id}").status_code == 204
    assert newcomer.check(bot, "x.y").json()["allowed"] is False


@pytest.mark.parametrize("role", ["member", "viewer"])
def test_the_last_admin_is_not_demoted(newcomer: Owner, role: str) -> None:
    """Demoting the only admin is 409 with the reason, whoever else is there."""
    with Colleague(newcomer, "member"):
        path = f"/api/team/{newcomer.user['id']}"
        refused(newcomer.http.put(path, json={"role": role}), 409, LAST)
        assert newcomer.http.get("/auth/me").status_code == 200


def test_the_last_admin_is_not_removed(newcomer: Owner) -> None:
    """Nor removed; once there is another admin, either may go."""
    path = f"/api/team/{newcomer.user['id']}"
    refused(newcomer.http.delete(path), 409, LAST)
    with Colleague(newcomer, "admin"):
        assert newcomer.http.delete(path).status_code == 204
        assert is_out(newcomer.http.get("/auth/me"))


@pytest.mark.parametrize("how", ["PUT", "DELETE"])
def test_two_admins_at_each_other_leave_one(newcomer: Owner, how: str) -> None:
    """Two admins who demote or remove each other at the same moment: one of them stays, every time."""
    body = {"role": "member"} if how == "PUT" else None
    for _ in range(5):
        with Colleague(newcomer, "admin") as other:
            first, second = together(
                partial(newcomer.http.request, how, f"/api/team/{other.id}", json=body),
                partial(other.http.request, how, f"/api/team/{newcomer.user['id']}", json=body),
            )
            assert sorted([first.is_success, second.is_success]) == [False, True]
            loser = second if first.is_success else first
            assert loser.status_code == 401, "whoever lost the right meanwhile is told so"
            survivor = newcomer.http if first.is_success else other.http
            users = survivor.get("/api/team").json()["users"]
            assert [user["role"] for user in users].count("admin") == 1
            if not first.is_success:
                return


def test_many_admins_who_all_leave_at_once_leave_one(newcomer: Owner) -> None:
    """Five admins who remove themselves at the same moment: four go, the last is told why not."""
    others = [Colleague(newcomer, "admin") for _ in range(4)]
    everybody = [(newcomer.http, newcomer.user["id"]), *[(one.http, one.id) for one in others]]
    answers = together(*[lambda who=who: who[0].delete(f"/api/team/{who[1]}") for who in everybody])
    assert sorted(answer.status_code for answer in answers) == [204] * 4 + [409]
    for one in others:
        one.close()


@pytest.mark.parametrize("body", [{}, {"role": "owner"}, {"role": None}, {"role": "admin", "email": "x"}])
def test_a_wrong_role_is_named(acme: Owner, body: dict[str, object]) -> None:
    """Roles are admin, member and viewer; anything else is a 400."""
    answer = acme.http.put(f"/api/team/{acme.user['id']}", json=body)
    assert set(complaints(answer)) == ({"email"} if "email" in body else {"role"})


def test_users_of_others_are_not_found(acme: Owner, rival: Owner) -> None:
    """Another organization's user and an unknown one look the same, and stay as they are."""
    for user_id in (acme.user["id"], UNKNOWN, "x"):
        refused(rival.http.put(f"/api/team/{user_id}", json={"role": "viewer"}), 404, "User not found")
        refused(rival.http.delete(f"/api/team/{user_id}"), 404, "User not found")
    assert acme.http.get("/auth/me").status_code == 200
    assert acme.email not in rival.http.get("/api/team").text


def test_a_removed_users_name_stays_on_what_they_did(gateway: LiveGateway, newcomer: Owner) -> None:
    """The removal is soft: an agent of theirs keeps naming its creator."""
    with Colleague(newcomer, "member") as colleague:
        bot = colleague.http.post("/api/agents", json={"name": "bot"}).json()["id"]
        newcomer.http.delete(f"/api/team/{colleague.id}")
        assert newcomer.http.get(f"/api/agents/{bot}").json()["created_by"] == colleague.id
        body = {"email": colleague.email, "password": PASSWORD, "organization_name": "Own"}
        assert httpx.post(f"{newcomer.url}/auth/register", json=body, timeout=30).status_code == 200
