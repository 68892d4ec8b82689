"""Pages of agents: creation, permissions, status, deletion."""

import re

import pytest
from support.console import Reader, field, text_of
from support.gateway import Owner
from support.team import Colleague


def created(reader: Reader, **fields: str) -> str:
    answer = reader.submit("/console/agents", token=reader.token(), **fields)
    assert answer.status_code == 303, answer.text
    agent: str = answer.headers["Location"].rpartition("/")[2]
    return agent


def permit(reader: Reader, agent: str, **fields: str) -> int:
    way = f"/console/agents/{agent}/permissions"
    return reader.submit(way, token=reader.token(), **fields).status_code


def permissions(owner: Owner, agent: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = owner.http.get(f"/api/agents/{agent}/permissions").json()
    return found


def test_an_agent_is_created(maya: Reader, acme: Owner) -> None:
    """The list shows it first, enabled and without permissions; its name is escaped."""
    agent = created(maya, name=" <b>Bot</b> ", description="Does & undoes")
    shown = acme.http.get(f"/api/agents/{agent}").json()
    assert (shown["name"], shown["description"], shown["status"]) == ("<b>Bot</b>", "Does & undoes", "active")
    assert "&lt;b&gt;Bot&lt;/b&gt;" in maya.page("/console/agents")
    page = maya.page(f"/console/agents/{agent}")
    assert "<b>Bot" not in page
    assert "all its checks are denied" in page


@pytest.mark.parametrize("name", ["", " ", "x" * 101, "a\nb"])
def test_an_invalid_name_is_refused(maya: Reader, name: str) -> None:
    """The list shows the typed values and the error."""
    answer = maya.submit("/console/agents", token=maya.token(), name=name, description="kept")
    assert (answer.status_code, "kept" in answer.text) == (400, True)
    assert 'role="alert"' in answer.text


def test_an_agent_is_created_in_the_shown_environment(maya: Reader, acme: Owner) -> None:
    answer = maya.submit("/console/agents?environment=test", token=maya.token(), name="for test")
    agent = re.split("[/?]", answer.headers["Location"])[3]
    assert acme.http.get(f"/api/agents/{agent}").status_code == 404
    assert acme.http.get(f"/api/agents/{agent}", params={"environment": "test"}).status_code == 200


def test_permissions_are_created_changed_and_deleted(maya: Reader, acme: Owner) -> None:
    """Amounts stay exact and agree with the API."""
    agent = acme.agent("permitted")
    assert (
        permit(
            maya,
            agent,
            action=" stripe.refund ",
            requires_approval="on",
            max_amount="49.90",
            amount_required="on",
        )
        == 303
    )
    [one] = permissions(acme, agent)
    assert (one["action"], one["requires_approval"], one["max_amount"]) == ("stripe.refund", True, 49.9)
    assert (one["amount_required"], one["separation_of_duties"], one["required_approvals"]) == (
        True,
        False,
        1,
    )
    words = text_of(maya.page(f"/console/agents/{agent}"))
    assert "stripe.refund approval required Up to 49.9, calls without an amount are denied." in words
    way = f"/console/agents/{agent}/permissions/{one['id']}"
    terms = {"max_amount": "", "required_approvals": "2", "separation_of_duties": "on"}
    assert maya.submit(way, token=maya.token(), **terms).status_code == 303
    [one] = permissions(acme, agent)
    assert (one["requires_approval"], one["max_amount"], one["required_approvals"]) == (False, None, 2)
    assert "stripe.refund allowed" in text_of(maya.page(f"/console/agents/{agent}"))
    assert maya.submit(f"{way}/delete", token=maya.token()).status_code == 303
    assert permissions(acme, agent) == []


def test_amount_is_required_only_with_maximum(maya: Reader, acme: Owner) -> None:
    """Without a maximum the ticked box is not stored; the form offers it ticked again for a new maximum."""
    agent = acme.agent("limited")
    assert permit(maya, agent, action="pay", amount_required="on") == 303
    [one] = permissions(acme, agent)
    assert (one["max_amount"], one["amount_required"]) == (None, False)
    page = maya.page(f"/console/agents/{agent}")
    assert page.count('name="amount_required" checked') == page.count('name="amount_required"') == 2
    way = f"/console/agents/{agent}/permissions/{one['id']}"
    for maximum, ticked, stored in (("5", "on", True), ("", "on", False), ("5", None, False)):
        boxes = {} if ticked is None else {"amount_required": ticked}
        assert maya.submit(way, token=maya.token(), max_amount=maximum, **boxes).status_code == 303
        assert permissions(acme, agent)[0]["amount_required"] is stored


@pytest.mark.parametrize(
    "fields",
    [
        {"action": "a b", "max_amount": "50", "required_approvals": "2"},
        {"action": ""},
        {"action": "a", "max_amount": "-1"},
        {"action": "a", "max_amount": "ten"},
        {"action": "a", "max_amount": "NaN"},
        {"action": "a", "max_amount": "[1]"},
        {"action": "a", "required_approvals": "11"},
        {"action": "a", "required_approvals": "1.5"},
        {"action": "taken"},
        {"action": "stripe.*"},
    ],
)
def test_what_the_api_refuses_is_refused(maya: Reader, acme: Owner, fields: dict[str, str]) -> None:
    """The agent's page shows the error and the typed values with 400; nothing is granted."""
    agent = acme.agent()
    acme.permit(agent, "taken")
    given = {"token": maya.token(), "separation_of_duties": "on"} | fields
    answer = maya.submit(f"/console/agents/{agent}/permissions", **given)
    assert (answer.status_code, 'class="problem"' in answer.text) == (400, True)
    assert len(permissions(acme, agent)) == 1
    # The corrected form grants only what it contains.
    form = answer.text.partition('id="grant"')[2]
    for name in ("max_amount", "required_approvals"):
        assert field(form, name) == fields.get(name, "")
    assert 'name="requires_approval" checked' not in form
    assert 'name="separation_of_duties" checked' in form


def test_an_agent_is_disabled_and_enabled(maya: Reader, acme: Owner) -> None:
    """Disabling denies the next check and cancels pending requests."""
    agent = acme.agent("switched")
    acme.permit(agent, "a", requires_approval=True)
    approval = acme.check(agent, "a").json()["approval_id"]
    way = f"/console/agents/{agent}/switch"
    assert maya.submit(way, token=maya.token(), status="inactive").status_code == 303
    assert acme.check(agent, "a").json()["reason"] == "Agent is inactive"
    assert acme.http.get(f"/api/approvals/{approval}").json()["status"] == "cancelled"
    assert "The agent is disabled" in maya.page(f"/console/agents/{agent}")
    assert maya.submit(way, token=maya.token(), status="active").status_code == 303
    assert acme.check(agent, "a").json()["requires_approval"] is True
    for wrong in ("", "off", "deleted"):
        assert maya.submit(way, token=maya.token(), status=wrong).status_code == 400


def test_an_agent_is_renamed(maya: Reader, acme: Owner) -> None:
    """Name and description change, an empty description is removed, an invalid name changes nothing."""
    agent = acme.agent("old")
    way = f"/console/agents/{agent}/name"
    assert maya.submit(way, token=maya.token(), name=" new ", description="a\r\nb").status_code == 303
    shown = acme.http.get(f"/api/agents/{agent}").json()
    assert (shown["name"], shown["description"], shown["status"]) == ("new", "a\nb", "active")
    assert maya.submit(way, token=maya.token(), name="newer", description="").status_code == 303
    assert acme.http.get(f"/api/agents/{agent}").json()["description"] is None
    answer = maya.submit(way, token=maya.token(), name=" ")
    assert (answer.status_code, "name: " in text_of(answer.text)) == (400, True)
    assert acme.http.get(f"/api/agents/{agent}").json()["name"] == "newer"


def test_an_agent_is_deleted(maya: Reader, acme: Owner) -> None:
    """Its permissions are gone, its pending requests cancelled, its log entries kept."""
    agent = acme.agent("leaves")
    acme.permit(agent, "a", requires_approval=True)
    approval = acme.check(agent, "a").json()["approval_id"]
    acme.log(agent, "a")
    answer = maya.submit(f"/console/agents/{agent}/delete", token=maya.token())
    assert (answer.status_code, answer.headers["Location"]) == (303, "/console/agents")
    assert maya.get(f"/console/agents/{agent}").status_code == 404
    assert acme.http.get(f"/api/approvals/{approval}").json()["status"] == "cancelled"
    assert acme.entries(agent_id=agent)[0]["agent_id"] == agent
    assert acme.check(agent, "a").json()["reason"].startswith("Agent not found")


def test_an_agents_page_shows_active_temporary_approvals(maya: Reader, acme: Owner) -> None:
    """Ended ones are missing; the page revokes active ones."""
    agent = acme.agent()
    acme.permit(agent, "pay", requires_approval=True)
    for uses in (7, 8):
        approval = acme.check(agent, "pay", {"uses": uses}).json()["approval_id"]
        grant = {"grant": {"uses": uses, "seconds": 900}}
        assert acme.http.post(f"/api/approvals/{approval}/approve", json=grant).status_code == 200
    page = maya.page(f"/console/agents/{agent}")
    assert "7 of 7 calls" in page
    assert "8 of 8 calls" in page
    grant_id = re.findall(r"/console/grants/([^/]+)/revoke", page)[0]
    answer = maya.submit(f"/console/grants/{grant_id}/revoke", token=maya.token(), then="agent")
    assert (answer.status_code, answer.headers["Location"]) == (303, f"/console/agents/{agent}")
    page = maya.page(f"/console/agents/{agent}")
    assert "7 of 7 calls" not in page
    assert "8 of 8 calls" in page


def test_a_denial_block_is_shown_and_lifted(maya: Reader, acme: Owner) -> None:
    """Ten denials block an action; members see the block, administrators remove it."""
    agent = acme.agent()
    acme.permit(agent, "pay", requires_approval=True)
    for n in range(10):
        approval = acme.check(agent, "pay", {"n": n}).json()["approval_id"]
        assert acme.http.post(f"/api/approvals/{approval}/deny").status_code == 200
    assert "Blocked after repeated rejections" in maya.page(f"/console/agents/{agent}")
    way = f"/console/agents/{agent}/unblock"
    with Colleague(acme) as colleague, Reader.of(acme.url, colleague.email) as member:
        page = member.page(f"/console/agents/{agent}")
        assert "Blocked after repeated rejections" in page
        assert "/unblock" not in page
        assert member.submit(way, token=member.token(), action="pay").status_code == 403
    assert maya.submit(way, token=maya.token(), action="pay").status_code == 303
    assert "Blocked after repeated rejections" not in maya.page(f"/console/agents/{agent}")
    assert acme.check(agent, "pay", {"n": 11}).json()["requires_approval"] is True
    assert maya.submit(way, token=maya.token(), action="pay").status_code == 404


def test_a_member_may_disable_but_not_grant(maya: Reader, acme: Owner) -> None:
    """The page offers a member what the API allows."""
    agent = acme.agent("guarded")
    permission = acme.permit(agent, "a")
    with Colleague(acme) as colleague, Reader.of(acme.url, colleague.email) as member:
        page = member.page(f"/console/agents/{agent}")
        assert "Disable…" in page
        assert "Remove…" in page
        assert "Change…" not in page
        assert "Add a permission" not in page
        assert permit(member, agent, action="b") == 403
        way = f"/console/agents/{agent}/permissions/{permission}"
        assert member.submit(way, token=member.token(), max_amount="").status_code == 403
        maya.submit(f"/console/agents/{agent}/switch", token=maya.token(), status="inactive")
        answer = member.submit(f"/console/agents/{agent}/switch", token=member.token(), status="active")
        assert (answer.status_code, "An admin disabled this agent" in answer.text) == (403, True)
        assert member.submit(f"{way}/delete", token=member.token()).status_code == 303


def test_a_permission_belongs_to_its_agent(maya: Reader, acme: Owner, rival: Owner) -> None:
    """A permission is not found through another agent's page or in another organization."""
    agent, other = acme.agent(), acme.agent()
    foreign = rival.permit(rival.agent(), "a")
    for permission in (acme.permit(other, "a"), foreign):
        way = f"/console/agents/{agent}/permissions/{permission}"
        assert maya.submit(way, token=maya.token(), max_amount="1").status_code == 404
        assert maya.submit(f"{way}/delete", token=maya.token()).status_code == 404
    assert len(permissions(acme, other)) == 1
