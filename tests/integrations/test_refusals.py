"""What a model reads when its tool call did not happen."""

import pytest

from toolgate import (
    ActionDenied,
    ApprovalDenied,
    ApprovalExpired,
    ApprovalPending,
    ConfigurationError,
    GatewayProtocolError,
    GatewayUnavailable,
)
from toolgate_integrations.refusals import refusal_text

FACTS = {"action": "mail.send", "agent_id": "bot", "reason": "The note says no"}


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ActionDenied(**FACTS), ["'mail.send' is blocked", "The note says no.", "will not help"]),
        (
            ApprovalDenied(**FACTS),
            ["a person rejected 'mail.send'", "The note says no.", "Do not call the tool again"],
        ),
        (ApprovalPending(approval_id="a-1", **FACTS), ["waits for a person", "a-1", "same arguments"]),
        (ApprovalExpired(approval_id="a-1", **FACTS), ["was not decided in time", "a-1", "new request"]),
        (GatewayUnavailable("connection refused"), ["did not answer", "later"]),
        (ConfigurationError("url is not set; set TOOLGATE_URL"), ["set TOOLGATE_URL.", "operator"]),
        (
            GatewayProtocolError("unexpected response with status 404"),
            ["unexpected response with status 404.", "operator"],
        ),
    ],
)
def test_the_text_says_what_why_and_what_can_help(error, told):
    """Each kind of refusal names the action and the reason, and whether asking again can help."""
    text = refusal_text(error)
    assert text.startswith("Not done")
    for words in told:
        assert words in text


def test_paused_call_is_not_to_be_called_again():
    text = refusal_text(ApprovalPending(approval_id="a-1", **FACTS), paused=True)
    assert "when the run is resumed" in text
    assert "Do not call it again" in text
    assert "same call" not in text
