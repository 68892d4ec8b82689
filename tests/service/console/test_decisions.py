"""The pages of the decision log."""

import re
from datetime import UTC, datetime
from html import unescape

import pytest
from support.console import Reader
from support.decisions import decision_id, recorded, write_decisions
from support.gateway import LiveGateway, Owner

PAGE = "/console/decisions"
UNKNOWN = "01890000-0000-7000-8000-000000000000"


def test_list_shows_decisions_and_filters_them(newcomer: Owner) -> None:
    agent = newcomer.agent("refund-bot")
    newcomer.permit(agent, "stripe.refund")
    ids = [
        decision_id(answer)
        for answer in (
            newcomer.check(agent, "stripe.refund", run_id="run-1"),
            newcomer.check(agent, "mail.send"),
            newcomer.check("<b>nobody</b>", "mail.send"),
        )
    ]
    with Reader.of(newcomer.url, newcomer.email) as reader:
        recorded(newcomer, *ids)
        page = reader.page(PAGE)
        assert all(f"{PAGE}/{one}" in page for one in ids)
        assert all(
            text in page for text in ("refund-bot", "stripe.refund", "no_permission", "agent_not_found")
        )
        assert ("&lt;b&gt;nobody" in page, "<b>nobody" in page) == (True, False)
        shown = {
            "outcome=allowed": [True, False, False],
            "outcome=denied": [False, True, True],
            f"agent_id={agent}&action=mail.send": [False, True, False],
            "reason_code=agent_not_found": [False, False, True],
            "run_id=run-1": [True, False, False],
            "from=2100-01-01": [False, False, False],
            f"rule_id={UNKNOWN}": [False, False, False],
            "environment=test": [False, False, False],
        }
        for filters, expected in shown.items():
            page = reader.page(f"{PAGE}?{filters}")
            assert [f"{PAGE}/{one}" in page for one in ids] == expected, filters
        assert "No matching decisions" in page or "No decisions" in page


def test_older_decisions_are_on_further_pages(gateway: LiveGateway, newcomer: Owner) -> None:
    write_decisions(gateway, newcomer, [newcomer.agent()], 120, newest=datetime(2026, 6, 1, tzinfo=UTC))
    seen: list[str] = []
    with Reader.of(newcomer.url, newcomer.email) as reader:
        path: str | None = f"{PAGE}?outcome=denied"
        while path:
            page = reader.page(path)
            seen += re.findall(rf'"{PAGE}/([0-9a-f-]{{36}})', page)
            further = re.search(r'href="([^"]*cursor=[^"]*)"', page)
            path = unescape(further[1]) if further else None
    assert len(seen) == len(set(seen)) == 40


def test_decision_links_to_its_approval_and_the_log_entry_to_the_decision(newcomer: Owner) -> None:
    agent = newcomer.agent("refund-bot")
    newcomer.permit(agent, "pay", requires_approval=True)
    held = newcomer.check(agent, "pay", {"n": 1})
    made = decision_id(held)
    entries = [
        newcomer.log(agent, "pay", "pending", decision_id=one).json()["id"] for one in (made, UNKNOWN, "<i>")
    ]
    with Reader.of(newcomer.url, newcomer.email) as reader:
        page = reader.page(f"{PAGE}/{made}")
        assert f'href="/console/approvals/{held.json()["approval_id"]}"' in page
        assert all(text in page for text in ("approval required", "refund-bot", "Policy revision"))
        links = [f'href="{PAGE}/' in reader.page(f"/console/logs/{entry}") for entry in entries]
        # The navigation links to the list without a slash at the end.
        assert links == [True, False, False]


def test_decision_links_to_its_rule_until_the_rule_is_deleted(newcomer: Owner) -> None:
    agent = newcomer.agent()
    body = {"name": "No refunds", "effect": "forbid", "actions": ["*"]}
    rule = newcomer.http.post("/api/rules", json=body).json()["id"]
    made = decision_id(newcomer.check(agent, "pay"))
    recorded(newcomer, made)
    link = f'href="/console/rules/{rule}"'
    with Reader.of(newcomer.url, newcomer.email) as reader:
        assert link in reader.page(f"{PAGE}/{made}")
        assert newcomer.http.delete(f"/api/rules/{rule}").status_code == 204
        page = reader.page(f"{PAGE}/{made}")
    assert (link in page, "which was deleted" in page) == (False, True)


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ("outcome=held", "unknown outcome &#39;held&#39;"),
        ("from=x", "is not a time"),
        ("from=2026-01-02&to=2026-01-01", "must be later"),
    ],
)
def test_invalid_filter_is_shown_with_its_error(newcomer: Owner, query: str, error: str) -> None:
    with Reader.of(newcomer.url, newcomer.email) as reader:
        answer = reader.get(f"{PAGE}?{query}")
        assert (answer.status_code, "Invalid filters" in answer.text) == (400, True)
        assert error in answer.text.replace("&#x27;", "&#39;")


def test_export_is_that_of_the_api(gateway: LiveGateway, newcomer: Owner) -> None:
    write_decisions(gateway, newcomer, [newcomer.agent()], 30)
    with Reader.of(newcomer.url, newcomer.email) as reader:
        for form in ("csv", "jsonl"):
            file = reader.page(f"{PAGE}/export?format={form}&outcome=denied")
            params = {"format": form, "outcome": "denied"}
            assert file == newcomer.http.get("/api/decisions/export", params=params).text
            assert len(file.splitlines()) == 10 + (form == "csv")
        assert reader.get(f"{PAGE}/export?format=xml").status_code == 400
