"""The page of budgets."""

import pytest
from support.budgets import ACTION, create
from support.console import Reader
from support.gateway import Owner
from support.team import Colleague

PAGE = "/console/budgets"
FORM = {
    "name": "<b>Refunds</b>",
    "actions": "stripe.refund, paypal.*",
    "limit": "99.50",
    "measure": "sum(args.amount)",
    "currency_arg": "",
    "window": "day(Europe/Berlin)",
    "scope": "agent",
    "at_limit": "require_approval",
}


def test_budget_is_created_used_disabled_and_deleted(newcomer: Owner) -> None:
    agent = newcomer.agent("refund-bot")
    newcomer.permit(agent, ACTION)
    with Reader.of(newcomer.url, newcomer.email) as reader:
        assert "No budgets" in reader.page(PAGE)
        assert reader.submit(PAGE, token=reader.token(), **FORM).status_code == 303
        [made] = newcomer.http.get("/api/budgets").json()
        assert (made["limit"], made["actions"]) == (99.5, ["stripe.refund", "paypal.*"])
        page = reader.page(PAGE)
        assert ("&lt;b&gt;Refunds" in page, "<b>Refunds" in page) == (True, False)
        assert "No call used this budget in the current time window" in page
        decision = newcomer.check(agent, ACTION, {"amount": 40}).headers["x-decision-id"]
        newcomer.check(agent, ACTION, {"amount": 49.5})
        newcomer.log(agent, ACTION, decision_id=decision)
        page = reader.page(PAGE)
        for text in (
            "refund-bot",
            "10 left",
            "40 used, 49.5 reserved",
            'class="bar near"',
            'aria-valuenow="89"',
        ):
            assert text in page
        path = f"{PAGE}/{made['id']}"
        assert reader.submit(f"{path}/status", token=reader.token(), status="off").status_code == 303
        assert newcomer.http.get(f"/api/budgets/{made['id']}").json()["enabled"] is False
        assert reader.submit(f"{path}/delete", token=reader.token()).status_code == 303
        assert "No budgets" in reader.page(PAGE)


@pytest.mark.parametrize(
    ("field", "value"), [("window", "week"), ("limit", "many"), ("limit", ""), ("actions", "")]
)
def test_invalid_budget_is_shown_again_with_the_error(newcomer: Owner, field: str, value: str) -> None:
    with Reader.of(newcomer.url, newcomer.email) as reader:
        answer = reader.submit(PAGE, token=reader.token(), **(FORM | {field: value}))
        assert answer.status_code == 400
        assert 'role="alert"' in answer.text
        assert 'value="day(Europe/Berlin)"' in answer.text or field == "window"
        assert newcomer.http.get("/api/budgets").json() == []


@pytest.mark.parametrize("role", ["viewer", "member"])
def test_only_admins_change_budgets(newcomer: Owner, role: str) -> None:
    budget = create(newcomer)
    with Colleague(newcomer, role) as colleague, Reader.of(newcomer.url, colleague.email) as reader:
        page = reader.page(PAGE)
        assert ("Refunds" in page, "Create a budget" in page, "Disable" in page) == (True, False, False)
        for path in (PAGE, f"{PAGE}/{budget}/status", f"{PAGE}/{budget}/delete"):
            assert reader.submit(path, token=reader.token(), **FORM).status_code == 403
    assert newcomer.http.get(f"/api/budgets/{budget}").json()["enabled"] is True


def test_card_of_a_request_shows_the_budget_that_does_not_cover_the_call(newcomer: Owner) -> None:
    agent = newcomer.agent()
    newcomer.permit(agent, ACTION)
    budget = create(newcomer, name="Refunds & more", limit=0, at_limit="require_approval")
    approval = newcomer.check(agent, ACTION).json()["approval_id"]
    with Reader.of(newcomer.url, newcomer.email) as reader:
        page = reader.page(f"/console/approvals/{approval}")
        assert "This call would exceed the budget &#39;Refunds &amp; more&#39;" in page
        assert "The permission requires an approval" not in page
        newcomer.http.delete(f"/api/budgets/{budget}")
        assert "This call would have exceeded a budget. The budget was deleted" in reader.page(
            f"/console/approvals/{approval}"
        )
