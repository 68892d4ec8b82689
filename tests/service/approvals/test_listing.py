"""GET /api/approvals (decisions §3)."""

import pytest
from support.asking import Ask, Decide
from support.gateway import Owner
from support.shapes import complaints


def ids(owner: Owner, **params: str | int) -> list[str]:
    answer = owner.http.get("/api/approvals", params=params)
    assert answer.status_code == 200
    return [approval["id"] for approval in answer.json()]


def test_approvals_are_listed_newest_first_and_filtered(
    acme: Owner, bot: str, ask: Ask, decide: Decide
) -> None:
    """The listing filters by status, agent and action, pages by limit and offset, newest first."""
    made = [ask({"n": number})["approval_id"] for number in range(5)]
    decide(made[0])
    decide(made[1], "deny")
    assert ids(acme, agent_id=bot) == made[::-1]
    assert ids(acme, agent_id=bot, status="approved") == [made[0]]
    assert ids(acme, agent_id=bot, status="denied") == [made[1]]
    assert ids(acme, agent_id=bot, status="pending") == made[:1:-1]
    assert ids(acme, agent_id=bot, status="expired") == []
    assert ids(acme, agent_id=bot, action="db.drop") == made[::-1]
    assert ids(acme, agent_id=bot, action="db.wipe") == []
    assert ids(acme, agent_id=bot, limit=2, offset=1) == [made[3], made[2]]


def test_other_organizations_see_nothing_of_it(acme: Owner, rival: Owner, bot: str, ask: Ask) -> None:
    """A listing holds the caller's organization alone, also when it is asked for a foreign agent."""
    approval = ask()["approval_id"]
    assert ids(rival, agent_id=bot) == []
    assert approval not in ids(rival)


@pytest.mark.parametrize(
    "params", [{"limit": 0}, {"limit": 101}, {"limit": "x"}, {"offset": -1}, {"status": "maybe"}]
)
def test_a_wrong_parameter_is_named(acme: Owner, params: dict[str, str | int]) -> None:
    """A parameter out of range is 400 under its name (decisions §2)."""
    assert list(complaints(acme.http.get("/api/approvals", params=params))) == list(params)
