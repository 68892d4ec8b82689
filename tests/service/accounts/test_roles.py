"""What each role, a `cli` token and an inactive organization may do (decisions §9)."""

from collections.abc import Iterator

import httpx
import pytest
from support.gateway import PASSWORD, LiveGateway, Owner
from support.insight import move_into, set_active, set_role
from support.shapes import refused

READS = ["/auth/me", "/api/organization", "/api/agents", "/api/logs", "/api/approvals"]


@pytest.fixture
def owner(gateway: LiveGateway) -> Iterator[Owner]:
    """An organization whose only user a test may demote."""
    with Owner(gateway.url, organization="Roles") as owner:
        yield owner


def test_a_viewer_reads_and_changes_nothing(gateway: LiveGateway, owner: Owner) -> None:
    """A viewer's changes are 403 and leave everything as it was; reading goes on."""
    bot = owner.agent()
    permission = owner.permit(bot, "x.y", requires_approval=True)
    approval = owner.check(bot, "x.y").json()["approval_id"]
    set_role(gateway, owner, "viewer")
    for answer in (
        owner.http.post("/api/agents", json={"name": "other"}),
        owner.http.put(f"/api/agents/{bot}", json={"status": "inactive"}),
        owner.http.delete(f"/api/agents/{bot}"),
        owner.http.post(f"/api/agents/{bot}/permissions", json={"action": "z"}),
        owner.http.put(f"/api/permissions/{permission}", json={"max_amount": 1}),
        owner.http.delete(f"/api/permissions/{permission}"),
        owner.http.delete(f"/api/agents/{bot}/permissions/{permission}"),
        owner.http.post(f"/api/approvals/{approval}/approve"),
        owner.http.post("/api/organization/regenerate-key"),
        owner.http.put("/api/organization", json={"name": "Other"}),
    ):
        assert answer.status_code == 403
        assert isinstance(answer.json()["detail"], str)
    assert [owner.http.get(path).status_code for path in READS] == [200] * len(READS)
    assert owner.check(bot, "x.y").json()["approval_id"] == approval


def test_a_member_switches_off_but_does_not_grant(gateway: LiveGateway, owner: Owner) -> None:
    """A member handles agents, deletes permissions and decides; granting, loosening and keys are an admin's."""
    bot = owner.agent()
    permission = owner.permit(bot, "x.y", requires_approval=True)
    approval = owner.check(bot, "x.y").json()["approval_id"]
    set_role(gateway, owner, "member")
    for refusal in (
        owner.http.post(f"/api/agents/{bot}/permissions", json={"action": "z"}),
        owner.http.put(f"/api/permissions/{permission}", json={"max_amount": 1}),
        owner.http.post("/api/organization/regenerate-key"),
        owner.http.put("/api/organization", json={"name": "Other"}),
    ):
        assert refusal.status_code == 403
    assert owner.http.post(f"/api/approvals/{approval}/approve").status_code == 200
    assert owner.http.delete(f"/api/permissions/{permission}").status_code == 204
    assert owner.http.put(f"/api/agents/{bot}", json={"status": "inactive"}).status_code == 200
    assert owner.http.post("/api/agents", json={"name": "other"}).status_code == 201


@pytest.mark.parametrize(("switched_off_by", "expected"), [("admin", 403), ("member", 200)])
def test_what_an_admin_switched_off_only_an_admin_switches_on(
    gateway: LiveGateway, owner: Owner, switched_off_by: str, expected: int
) -> None:
    """A member re-activates what a member switched off, not what an admin did."""
    bot = owner.agent()
    with Owner(gateway.url) as other:
        move_into(gateway, other, owner)
        set_role(gateway, other, "member")
        switcher = owner.http if switched_off_by == "admin" else other.http
        assert switcher.put(f"/api/agents/{bot}", json={"status": "inactive"}).status_code == 200
        answer = other.http.put(f"/api/agents/{bot}", json={"status": "active"})
    assert answer.status_code == expected
    expected_status = "active" if expected == 200 else "inactive"
    assert owner.http.get(f"/api/agents/{bot}").json()["status"] == expected_status


def test_an_admins_word_holds_for_an_agent_that_a_member_had_switched_off(
    gateway: LiveGateway, owner: Owner
) -> None:
    """An admin who switches off what is off already has switched it off: no member switches it on."""
    bot = owner.agent()
    with Owner(gateway.url) as other:
        move_into(gateway, other, owner)
        set_role(gateway, other, "member")
        for one in (other, owner, other):
            assert one.http.put(f"/api/agents/{bot}", json={"status": "inactive"}).status_code == 200
        assert other.http.put(f"/api/agents/{bot}", json={"status": "active"}).status_code == 403
    assert owner.http.get(f"/api/agents/{bot}").json()["status"] == "inactive"


def test_only_an_admin_sees_the_whole_key(gateway: LiveGateway, owner: Owner) -> None:
    """Members and viewers see the prefix and the last four characters."""
    for role in ("member", "viewer"):
        set_role(gateway, owner, role)
        assert owner.http.get("/api/organization").json()["api_key"] == f"ak_…{owner.key[-4:]}"


def cli_login(owner: Owner) -> httpx.Client:
    body = {"email": owner.email, "password": PASSWORD, "scope": "cli"}
    token = httpx.post(f"{owner.url}/auth/login", json=body, timeout=30).json()["access_token"]
    return httpx.Client(base_url=owner.url, headers={"Authorization": f"Bearer {token}"}, timeout=30)


def test_a_cli_token_decides_nothing_and_sees_no_key(owner: Owner) -> None:
    """An admin's `cli` token cannot decide, show keys or change permissions; agents it can create."""
    bot = owner.agent()
    permission = owner.permit(bot, "x.y", requires_approval=True)
    approval = owner.check(bot, "x.y").json()["approval_id"]
    with cli_login(owner) as cli:
        assert cli.get("/api/organization").json()["api_key"] == f"ak_…{owner.key[-4:]}"
        for answer in (
            cli.post("/api/organization/regenerate-key"),
            cli.post(f"/api/approvals/{approval}/approve"),
            cli.post(f"/api/approvals/{approval}/deny"),
            cli.post(f"/api/agents/{bot}/permissions", json={"action": "z"}),
            cli.put(f"/api/permissions/{permission}", json={"requires_approval": False}),
            cli.delete(f"/api/permissions/{permission}"),
            cli.delete(f"/api/agents/{bot}/permissions/{permission}"),
        ):
            assert answer.status_code == 403
            assert "cli" in answer.json()["detail"]
        assert cli.post("/api/agents", json={"name": "by-cli"}).status_code == 201
        assert [cli.get(path).status_code for path in READS] == [200] * len(READS)


def test_an_inactive_organization_reads_and_changes_nothing(gateway: LiveGateway, owner: Owner) -> None:
    """The users of an inactive organization may log in and read, nothing else."""
    bot = owner.agent()
    set_active(gateway, owner, active=False)
    for answer in (
        owner.http.post("/api/agents", json={"name": "other"}),
        owner.http.put(f"/api/agents/{bot}", json={"name": "other"}),
        owner.http.post("/api/organization/regenerate-key"),
        owner.http.post(f"/api/agents/{bot}/permissions", json={"action": "z"}),
    ):
        refused(answer, 403, "Organization is not active")
    with owner.login() as again:
        assert [again.get(path).status_code for path in READS] == [200] * len(READS)
        assert again.get("/api/organization").json()["is_active"] is False
