"""Lists and pages of whatever agents call themselves and send."""

import json
import unicodedata
from typing import Any

import pytest
from support.pretend_gateway import APPROVAL, PretendGateway

from toolgate_cli.approval_requests import shorten_ids

HOSTILE = (
    "x[bold red]y[/]\x1b[31m\x1b]0;t\x07\n│ amount 1\u202e\u200b\u2028\ud800\U000e0041[link=http://e.test]z"
)
SHOWN = "x[bold red]y[/]\\x1b[31m\\x1b]0;t\\x07\\n│ amount 1\\u202e\\u200b\\u2028\\ud800\\U000e0041[link=http://e.test]z"
HIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


@pytest.fixture
def hostile(gateway: PretendGateway) -> PretendGateway:
    """Everything that somebody else may have written is hostile."""
    texts = (
        "reason",
        "agent_name",
        "action",
        "note",
        "cancel_reason",
        "run_id",
        "call_id",
        "decided_by",
        "replaces",
    )
    votes = [{"user_id": HOSTILE, "decision": HOSTILE, "note": HOSTILE}]
    context = {"amount": HOSTILE, "to": HOSTILE, HOSTILE: [HOSTILE, {HOSTILE: HOSTILE}]}
    approval = {
        **APPROVAL,
        **dict.fromkeys(texts, HOSTILE),
        "context": context,
        "approved_context": {"a": HOSTILE},
    }
    gateway.approvals = [{**approval, "votes": votes, "required_approvals": 2}]
    return gateway


@pytest.mark.parametrize(
    "words", [["list"], ["list", "--json"], ["show"], ["show", "--full"], ["show", "--json"]]
)
def test_nothing_hidden_is_ever_printed(hostile: PretendGateway, run: Any, words: list[str]) -> None:
    """No command prints a character that cannot be seen, but line ends of its own, whatever agents send."""
    ended = run("approvals", words[0], *([str(APPROVAL["id"])] if words[0] == "show" else []), *words[1:])
    assert ended.exit_code == 0, ended.output
    printed = ended.stdout.replace("\n", "")
    assert not {unicodedata.category(char) for char in printed} & HIDDEN
    assert "[bold red]" in printed, "markup is text"


def test_every_text_of_others_is_escaped_in_full(hostile: PretendGateway, run: Any) -> None:
    """On the page, each hostile text stands with its escapes, on lines that carry its label."""
    lines = run("approvals", "show", str(APPROVAL["id"])).stdout.splitlines()
    assert [line for line in lines if line.startswith("  │ amount 1")] == []
    assert any(SHOWN[:40] in line for line in lines if line.startswith("  agent"))
    assert lines[0].startswith("Approval ")


@pytest.mark.parametrize(
    ("fields", "shown"),
    [
        ({"waiting": True}, "waiting      a call is waiting for this decision now"),
        ({"waiting": False}, "waiting      no call is waiting for this decision now"),
        (
            {"waiting": False, "last_asked_at": "2026-11-21T12:00:00Z"},
            "waiting      no call is waiting for this decision now; the agent last requested this decision ",
        ),
        ({"reason": "the user\nasked"}, 'reason       "the user\\nasked" (given by the agent, not verified)'),
    ],
)
def test_the_page_shows_the_reason_and_whether_a_call_waits(
    gateway: PretendGateway, run: Any, fields: dict[str, Any], shown: str
) -> None:
    gateway.approvals = [APPROVAL | fields]
    assert shown in run("approvals", "show", str(APPROVAL["id"])).stdout


def test_the_page_of_an_older_gateway_has_neither(gateway: PretendGateway, run: Any) -> None:
    page = run("approvals", "show", str(APPROVAL["id"])).stdout
    assert "waiting" not in page
    assert "reason" not in page


def test_a_forged_refusal_is_one_line(gateway: PretendGateway, run: Any) -> None:
    """An error's text cannot write a second line or move the cursor either."""
    gateway.answers["GET", "/api/approvals"] = (400, {"detail": {HOSTILE: [HOSTILE]}})
    ended = run("approvals", "list")
    assert ended.exit_code == 1
    assert SHOWN in ended.stderr
    assert not {unicodedata.category(char) for char in ended.stderr.removesuffix("\n")} & HIDDEN


def test_digits_are_kept(gateway: PretendGateway, run: Any) -> None:
    """An amount is shown with the digits that were sent, however many, in tables, pages and JSON."""
    digits = "12345678901234567890.1234567890123456789"
    text = json.dumps({**APPROVAL, "context": {"amount": 1}}).replace('"amount": 1', f'"amount": {digits}')
    gateway.raw["GET", "/api/approvals"] = f"[{text}]"
    gateway.raw["GET", f"/api/approvals/{APPROVAL['id']}"] = text
    for words in (
        ["list"],
        ["list", "--json"],
        ["show", str(APPROVAL["id"])],
        ["show", str(APPROVAL["id"]), "--json"],
    ):
        assert digits in run("approvals", *words).stdout


def test_a_login_that_is_over_says_what_to_do(gateway: PretendGateway, run: Any) -> None:
    """The token of a removed user, for instance."""
    gateway.answers["GET", "/api/approvals"] = (401, {"detail": "Not authenticated"})
    assert (
        run("approvals", "list").stderr
        == "toolgate: your login has expired or was revoked; log in again: toolgate login\n"
    )


@pytest.mark.parametrize("nonsense", [1, None, {}, {"id": 1}, []], ids=repr)
@pytest.mark.parametrize("words", [["list"], ["list", "--agent", "x"], ["watch"]], ids=" ".join)
def test_a_list_of_something_else_is_refused(
    gateway: PretendGateway, run: Any, words: list[str], nonsense: Any
) -> None:
    """What is no gateway of ours ends every command that lists in one line, never in a traceback."""
    gateway.answers["GET", "/api/approvals"] = (200, [nonsense])
    ended = run("approvals", *words)
    assert ended.exit_code == 1
    assert "an invalid approval request" in ended.stderr.splitlines()[-1]
    assert isinstance(ended.exception, SystemExit)


def test_short_ids_are_beginnings_that_name_one() -> None:
    """Each is the beginning of its id alone, never shorter than the millisecond."""
    ids = ["0199a3f2-4b1c-7000-aaaa", "0199a3f2-4b1c-7000-bbbb", "0199a3f2-4b1d-7000-aaaa"]
    assert list(shorten_ids(ids).values()) == [
        "0199a3f2-4b1c-7000-a",
        "0199a3f2-4b1c-7000-b",
        "0199a3f2-4b1d",
    ]
