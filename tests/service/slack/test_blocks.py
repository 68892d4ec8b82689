"""Messages: what stands where, what cannot be forged, and that a button means that everything was shown."""

import json
import re
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.slack import buttons_of, shown_in

from toolgate_cli import layout as cli_fields
from toolgate_cli.output import sanitize as cli_sanitize
from toolgate_service.core import strict_json
from toolgate_service.core import text_safety as fields
from toolgate_service.core.text_safety import visible
from toolgate_service.slack.messages import BAR, MAX_CONTEXT, Layout, in_code, slack_message, span
from toolgate_service.slack.schemas import APPROVE, DENY, ButtonPress, parse_button
from toolgate_service.webhooks.events import EVENT_TYPES, build_payload, resource_name

ID = "0192f0c0-0000-7000-8000-000000000001"
DIGEST = "ab" * 32
MOMENT = datetime(2026, 11, 21, 15, 4, 5, tzinfo=UTC)


def message(
    kind: str = "approval.requested", environment: str = "production", **about: Any
) -> dict[str, Any]:
    """Return the message of an event about an approval."""
    approval = {
        "id": ID,
        "agent_name": "refund bot",
        "action": "stripe.refund",
        "digest": DIGEST,
        "context": {},
        "run_id": None,
        "call_id": None,
        "note": None,
        "required_approvals": 1,
        "votes": [],
        "expires_at": MOMENT,
    } | about
    if approval["context"] is None:
        del approval["context"]
    made: dict[str, Any] = json.loads(slack_message(build_payload(kind, MOMENT, ID, environment, approval)))
    return made


def lines_of(made: dict[str, Any]) -> list[str]:
    """Return the lines of the code blocks."""
    blocks = re.findall(r"```\n(.*?)\n?```", shown_in(made), re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


def fits(made: dict[str, Any]) -> None:
    """Assert that Slack would take a message."""
    assert len(made["blocks"]) <= 50
    assert 1 <= len(made["text"]) <= 40_000
    for block in made["blocks"]:
        if block["type"] == "section":
            assert 1 <= len(block["text"]["text"]) <= 3000
    for value in buttons_of(made).values():
        assert len(value) <= 2000


def test_a_request_reads_in_the_order_of_what_matters() -> None:
    """Who, what, amounts, recipients, the rest; until when, and how many have approved."""
    made = message(
        context={"reason": "late", "to": "ann@example.test", "amount": Decimal("500.15"), "fee_total": 2},
        required_approvals=2,
        votes=[{"user_id": ID, "decision": "approved"}],
        run_id="run-1",
    )
    text = shown_in(made)
    assert "*An agent needs an approval*" in text
    assert "Can be decided until <!date^1795273445^" in text
    assert "|2026-11-21 15:04 UTC>" in text
    assert "1 of 2 required approvals" in text
    assert [line.split()[1] for line in lines_of(made)] == [
        "agent", "action", "run", "amount", "fee_total", "to", "reason",
    ]  # fmt: skip
    assert "│ amount     500.15" in text
    assert '"ann@example.test"' in text
    assert "test" not in made["text"]
    fits(made)


def test_the_test_environment_is_named() -> None:
    """In the message and in the notice on a lock screen."""
    made = message(environment="test")
    assert "*test environment*" in shown_in(made)
    assert made["text"].startswith("[test]")


def test_what_is_hidden_is_named() -> None:
    """A digest is not a value: the field is named, and said to be hidden."""
    hidden = {"$digest": "hmac-sha256:" + "0" * 64, "bytes": 16}
    made = message(context={"card": hidden, "inner": {"pin": hidden}})
    text = shown_in(made)
    assert "redacted     card, inner.pin" in text
    assert "redacted, 16 bytes (hmac-sha256:00000000…)" in text
    assert set(buttons_of(made)) == {APPROVE, DENY}


def test_the_buttons_bind_request_and_digest() -> None:
    """What comes back with a press names exactly what was shown."""
    values = buttons_of(message())
    assert parse_button(APPROVE, values[APPROVE]) == ButtonPress(ID, DIGEST, approves=True)
    assert parse_button(DENY, values[DENY]) == ButtonPress(ID, DIGEST, approves=False)
    for action, value in (("other", values[APPROVE]), (APPROVE, values[APPROVE] + "0"), (APPROVE, "")):
        assert parse_button(action, value) is None


def test_the_agents_reason_is_named_as_such() -> None:
    assert 'reason (not verified) "The user asked for it"' in shown_in(
        message(reason="The user asked for it")
    )


def test_the_visible_part_of_a_redacted_text_is_shown() -> None:
    text = {"$redacted": "ls # token=[redacted]", "$digest": "hmac-sha256:" + "0" * 64, "bytes": 18}
    shown = shown_in(message(context={"script": text}))
    assert "redacted     script" in shown
    assert '"ls # token=[redacted]" (partly redacted, 18 bytes' in shown


@pytest.mark.parametrize("kind", [kind for kind in EVENT_TYPES if kind.startswith("approval.")])
def test_only_what_waits_has_buttons(kind: str) -> None:
    """A request and its reminder; never what is decided."""
    expected = {APPROVE, DENY} if kind in {"approval.requested", "approval.reminder"} else set()
    made = message(kind)
    assert set(buttons_of(made)) == expected
    fits(made)


@pytest.mark.parametrize(
    "context",
    [
        {"body": "x" * 20_000},
        {"body": "&" * 3_000},
        {f"field_{number}": number for number in range(900)},
        {"list": [{"a": [1, 2, {"b": "<" * 900}]}] * 30},
    ],
)
def test_what_does_not_fit_has_no_buttons_and_says_so(context: dict[str, Any]) -> None:
    """Nobody decides about what they did not see; the message says where they see it."""
    made = message(context=context)
    assert buttons_of(made) == {}
    text = shown_in(made)
    assert "so this message shows only a part of them" in text
    assert f"`toolgate approvals show {ID}`" in text
    fits(made)


def test_without_the_context_there_are_no_buttons() -> None:
    """A webhook that is not told contexts cannot be decided on."""
    made = message(context=None)
    assert buttons_of(made) == {}
    assert "does not receive the arguments" in shown_in(made)


@pytest.mark.parametrize(
    "hostile",
    [
        "<!channel>",
        "<@U2CERLKJA>",
        "<https://evil.example|Approve>",
        "```\n*Approved*\n```",
        "`code`",
        "*bold* _it_ ~no~ :tada:",
        "a\n│ amount     1",
        "a" + " " * 80 + "amount     1",
        "\u202eevil\u200b\u2066",
        "&lt;!channel&gt;",
        "\u2502 amount 1",
    ],
)
@pytest.mark.parametrize("where", ["context", "name", "agent_name", "action", "note", "run_id", "reason"])
def test_nothing_of_others_is_read_by_slack(hostile: str, where: str) -> None:
    """No mention, link, format, line or end of a block comes from a value, wherever it stands."""
    about: dict[str, Any] = {
        "context": {"context": {"to": hostile}},
        "name": {"context": {hostile: 1}},
    }.get(where, {where: hostile})
    made = message("approval.requested", **about)
    for block in made["blocks"]:
        if block["type"] == "section":
            raw = block["text"]["text"]
            assert raw.count("```") in {0, 2}
            # Of the three characters only our own date begins anything.
            assert re.sub(r"<!date\^[^<>]*>", "", raw).count("<") == 0
            inside = re.sub(r"```.*?```|`[^`]*`", "", raw, flags=re.DOTALL)
            assert "evil" not in inside
            assert "U2CERLKJA" not in inside
            assert "bold" not in inside
    assert "<" not in made["text"]
    assert made["text"].count("`") == 4
    for line in lines_of(made):
        assert line.startswith(BAR)
        assert "│" not in line[1:]
        assert "\u202e" not in line


TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=60)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.decimals(-(10**30), 10**30, places=6) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=30,
)


@settings(
    max_examples=2 * settings().max_examples, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
@given(context=st.dictionaries(TEXTS, VALUES, max_size=12), agent=TEXTS, note=TEXTS)
def test_any_context_makes_a_message_that_slack_takes(context: dict[str, Any], agent: str, note: str) -> None:
    """Whatever an agent asks with: within Slack's limits, each line ours, buttons only where nothing was cut."""
    made = message(context=context, agent_name=agent, note=note)
    fits(made)
    lines = lines_of(made)
    assert all(line.startswith(BAR) for line in lines)
    # As the gateway has it: numbers by their exact value.
    kept: Any = strict_json.loads_own(strict_json.dumps(context))
    whole = list(Layout(full=True).context(kept))
    if buttons_of(made):
        assert lines[-len(whole) :] == whole
        assert sum(map(len, whole)) <= MAX_CONTEXT


@given(TEXTS)
def test_the_escapes_are_those_of_the_command_line(text: str) -> None:
    """One request reads alike in Slack and on a terminal."""
    assert visible(text) == cli_sanitize(text)
    assert visible(text, quote='"') == cli_sanitize(text, quote='"')
    shown = in_code(text)
    assert "`" not in shown
    assert "  " not in shown
    assert span(text).count("`") == 2


@given(
    st.dictionaries(
        st.sampled_from(["to", "amount", "refundAmount", "x", "user_id", "TOTAL"]) | TEXTS, VALUES
    )
)
def test_the_order_is_that_of_the_command_line(context: dict[str, Any]) -> None:
    """Amounts, recipients, the rest; and the same is called hidden."""
    assert fields.in_reading_order(context) == cli_fields.sort_fields(context)
    assert list(fields.hidden_names(context)) == list(cli_fields.find_hidden(context))
    assert fields.AMOUNT_WORDS == cli_fields.AMOUNT_WORDS
    assert fields.RECIPIENT_WORDS == cli_fields.RECIPIENT_WORDS


@pytest.mark.parametrize(
    "kind", [kind for kind in (*EVENT_TYPES, "webhook.test") if not kind.startswith("approval.")]
)
def test_every_other_kind_is_told_too(kind: str) -> None:
    """By its name, with what it is about laid out, and without buttons."""
    resource = {"id": ID, "name": "<!here> `bot`", "created_at": MOMENT, "description": None}
    made = json.loads(slack_message(build_payload(kind, MOMENT, ID, "test", resource)))
    fits(made)
    assert buttons_of(made) == {}
    assert kind in shown_in(made)
    assert r"\x60bot\x60" in shown_in(made)
    assert resource_name(kind) in made["text"]
