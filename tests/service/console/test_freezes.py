"""The page of freezes, and the notice of active freezes on every page."""

import re

import pytest
from support.console import Reader
from support.gateway import Owner
from support.team import Colleague

PAGE = "/console/freezes"
NAVIGATION = (
    "/console/overview",
    "/console/approvals",
    "/console/approvals/decided",
    "/console/grants",
    "/console/agents",
    "/console/budgets",
    "/console/rules",
    "/console/rules/new",
    "/console/freezes",
    "/console/policy",
    "/console/logs",
    "/console/start",
    "/console/settings",
    "/console/shortcuts",
)


def notice_of(page: str) -> str:
    found = re.search(r'aria-label="Frozen calls">(.*?)</div></div>', page, re.DOTALL)
    return found.group(1) if found else ""


def test_calls_are_frozen_and_the_freeze_is_lifted(newcomer: Owner) -> None:
    agent = newcomer.agent("refund-bot")
    newcomer.permit(agent, "stripe.refund")
    with Reader.of(newcomer.url, newcomer.email) as reader:
        assert "No active freezes" in reader.page(PAGE)
        form = {"token": reader.token(), "agent_id": agent, "action": "stripe.*", "reason": "<b>Twice</b>"}
        assert reader.submit(PAGE, **form).status_code == 303
        page = reader.page(PAGE)
        assert "<code>stripe.*</code>" in page
        assert ("&lt;b&gt;Twice" in page, "<b>Twice" in page) == (True, False)
        assert newcomer.check(agent, "stripe.refund").headers["x-reason-code"] == "frozen"
        [made] = newcomer.http.get("/api/freeze").json()
        assert reader.submit(f"{PAGE}/{made['id']}/lift", token=reader.token()).status_code == 303
        page = reader.page(PAGE)
        assert ("No active freezes" in page, "Lifted by" in page) == (True, True)
        assert newcomer.check(agent, "stripe.refund").headers["x-reason-code"] == "allowed"


@pytest.mark.parametrize("role", ["viewer", "member"])
def test_every_page_shows_active_freezes_to_every_role(newcomer: Owner, role: str) -> None:
    agent = newcomer.agent("<refund> bot")
    with Colleague(newcomer, role) as colleague, Reader.of(newcomer.url, colleague.email) as reader:
        pages = [*NAVIGATION, f"/console/agents/{agent}", "/console/agents?environment=test"]
        assert not any(notice_of(reader.page(path)) for path in pages)
        answer = newcomer.http.post(
            "/api/freeze", json={"agent_id": agent, "action": "stripe.*", "reason": "Twice"}
        )
        made = answer.json()
        for path in pages:
            notice = notice_of(reader.page(path))
            assert "calls of <code>stripe.*</code> by &lt;refund&gt; bot" in notice
            assert f"frozen by {newcomer.email}" in notice
            assert f'datetime="{made["created_at"][:16]}' in notice
            assert 'href="/console/freezes' in notice
        assert newcomer.http.post(f"/api/freeze/{made['id']}/lift").status_code == 200
        assert not any(notice_of(reader.page(path)) for path in pages)


def test_notice_shows_the_newest_freezes_and_that_there_are_more(newcomer: Owner) -> None:
    with Reader.of(newcomer.url, newcomer.email) as reader:
        for number in range(3):
            newcomer.http.post("/api/freeze", json={"action": f"a.{number}", "reason": "x"})
        assert "Show freezes" in notice_of(reader.page("/console/agents"))
        newcomer.http.post("/api/freeze", json={"reason": "x"})
        notice = notice_of(reader.page("/console/agents"))
    assert notice.count("<strong>Frozen:</strong>") == 3
    assert "<strong>Frozen:</strong> all calls, since" in notice
    assert ("a.1" in notice, "a.0" in notice) == (True, False)
    assert "Show all active freezes" in notice


def test_notice_shows_no_freeze_of_another_organization(newcomer: Owner) -> None:
    with (
        Owner(newcomer.url, organization="Other") as other,
        Reader.of(newcomer.url, newcomer.email) as reader,
    ):
        other.http.post("/api/freeze", json={"reason": "x"})
        assert notice_of(reader.page("/console/overview")) == ""


def test_invalid_freeze_is_shown_again_with_its_error(newcomer: Owner) -> None:
    with Reader.of(newcomer.url, newcomer.email) as reader:
        answer = reader.submit(PAGE, token=reader.token(), action="a*b", reason="kept reason")
        assert (answer.status_code, 'class="problem"' in answer.text, "kept reason" in answer.text) == (
            400,
            True,
            True,
        )
        assert newcomer.http.get("/api/freeze").json() == []


def test_member_may_freeze_but_not_lift(newcomer: Owner) -> None:
    with Colleague(newcomer) as member, Reader.of(newcomer.url, member.email) as reader:
        assert reader.submit(PAGE, token=reader.token(), reason="x").status_code == 303
        [made] = newcomer.http.get("/api/freeze").json()
        assert made["created_by"] == member.id
        assert f"{made['id']}/lift" not in reader.page(PAGE)
        assert reader.submit(f"{PAGE}/{made['id']}/lift", token=reader.token()).status_code == 403
