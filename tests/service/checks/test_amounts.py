"""`context.amount` against `max_amount`, compared exactly (decisions §4)."""

import httpx
import pytest
from support.gateway import Owner


@pytest.fixture(scope="module")
def payer(acme: Owner) -> str:
    """An agent whose actions are `pay:` and their maximum."""
    return acme.agent("payer")


@pytest.fixture(scope="module")
def granted(acme: Owner, payer: str) -> set[str]:
    return set()


def ask(owner: Owner, agent: str, action: str, context: str) -> httpx.Response:
    """Send the context's own text: no client rounds its numbers."""
    body = f'{{"agent_id": "{agent}", "action": "{action}", "context": {context}}}'
    return owner.http.post("/sdk/check", content=body, headers={"X-API-Key": owner.key})


def grant(owner: Owner, agent: str, maximum: str, granted: set[str]) -> str:
    action = f"pay:{maximum}"
    if action not in granted:
        body = f'{{"action": "{action}", "max_amount": {maximum}}}'
        answer = owner.http.post(f"/api/agents/{agent}/permissions", content=body)
        assert answer.status_code == 201
        granted.add(action)
    return action


@pytest.mark.parametrize(
    ("maximum", "amount", "allowed"),
    [
        ("50", "50", True),
        ("50", "50.0", True),
        ("50", "5e1", True),
        ("50", "49.99999999999999999999", True),
        ("50", "50.00000000000000000001", False),
        ("50", "51", False),
        ("50", "0", True),
        ("50", "-0", True),
        ("50", "-0.0", True),
        ("50", "1e-400", True),
        ("50", "1e400", False),
        ("50", "9" * 400, False),
        ("0", "0", True),
        ("0", "0.0", True),
        ("0", "1e-400", False),
        ("0.3", "0.3", True),
        ("0.3", "0.30000000000000004", False),
        ("0.30000000000000004", "0.3", True),
        ("9007199254740992", "9007199254740993", False),
        ("9007199254740993", "9007199254740993", True),
        ("9007199254740993", "9007199254740993.0", True),
        ("1e400", "1e400", True),
        ("100.10", "100.1", True),
        ("1e2", "100.01", False),
    ],
)
def test_amounts_are_compared_by_their_exact_value(
    acme: Owner, payer: str, granted: set[str], maximum: str, amount: str, allowed: bool
) -> None:
    """Equal to the maximum passes, a trillionth above it does not; no binary float comes between."""
    action = grant(acme, payer, maximum, granted)
    answer = ask(acme, payer, action, f'{{"amount": {amount}}}')
    assert (answer.status_code, answer.json()["allowed"]) == (200, allowed)
    assert answer.json()["requires_approval"] is False


@pytest.mark.parametrize(
    "amount",
    [
        "null",
        "true",
        "false",
        '"10"',
        '""',
        '"ten"',
        "[10]",
        "[]",
        "{}",
        '{"value": 10}',
        "-1",
        "-0.01",
        "-1e-400",
        '"NaN"',
    ],
)
def test_a_present_amount_that_is_no_amount_is_blocked(
    acme: Owner, payer: str, granted: set[str], amount: str
) -> None:
    """With a maximum, a present amount that is no finite non-negative number is a blocked decision."""
    answer = ask(acme, payer, grant(acme, payer, "50", granted), f'{{"amount": {amount}}}')
    assert answer.status_code == 200
    result = answer.json()
    assert (result["allowed"], result["requires_approval"], result["approval_id"]) == (False, False, None)
    assert "context.amount" in result["reason"]
    assert "50" in result["reason"]


@pytest.mark.parametrize("amount", ["NaN", "Infinity", "-Infinity", "1e401", "-1e401", "1e-401", "9" * 401])
def test_an_unreadable_amount_is_refused(acme: Owner, payer: str, granted: set[str], amount: str) -> None:
    """What is no JSON number, or beyond the digits that are read, is 400 (decisions §2)."""
    answer = ask(acme, payer, grant(acme, payer, "50", granted), f'{{"amount": {amount}}}')
    assert (answer.status_code, list(answer.json()["detail"])) == (400, ["body"])


@pytest.mark.parametrize(
    "context", ["null", "{}", '{"total": 500}', '{"Amount": 500}', '{"x": {"amount": 500}}']
)
def test_an_absent_amount_passes(acme: Owner, payer: str, granted: set[str], context: str) -> None:
    """Only `context.amount` itself is compared; without it the check passes, as in the specification."""
    answer = ask(acme, payer, grant(acme, payer, "50", granted), context)
    assert answer.json()["allowed"] is True


@pytest.mark.parametrize("context", ["null", "{}", '{"total": 500}'])
def test_an_absent_amount_is_blocked_where_it_is_required(acme: Owner, bot: str, context: str) -> None:
    """With `amount_required` a check without an amount is blocked, with one it is judged as always."""
    acme.permit(bot, "pay", max_amount=50, amount_required=True)
    answer = ask(acme, bot, "pay", context)
    assert (answer.status_code, answer.json()["allowed"]) == (200, False)
    assert "required" in answer.json()["reason"]
    assert ask(acme, bot, "pay", '{"amount": 50}').json()["allowed"] is True


@pytest.mark.parametrize("amount", ["null", '"a lot"', "-5", "true", "1e300"])
def test_without_a_maximum_any_amount_passes(acme: Owner, bot: str, amount: str) -> None:
    """Amounts mean nothing where no maximum is set."""
    acme.permit(bot, "pay")
    assert ask(acme, bot, "pay", f'{{"amount": {amount}}}').json()["allowed"] is True


def test_the_reason_repeats_a_number_whole_and_a_long_text_not(
    acme: Owner, payer: str, granted: set[str]
) -> None:
    """The amount is named digit by digit (spec §4); of a text only the beginning is."""
    action = grant(acme, payer, "50", granted)
    assert "1" + "0" * 400 in ask(acme, payer, action, '{"amount": 1e400}').json()["reason"]
    text = '"' + "x" * 10_000 + '"'
    assert len(ask(acme, payer, action, f'{{"amount": {text}}}').json()["reason"]) < 200
