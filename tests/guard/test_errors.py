from __future__ import annotations

import copy
import pickle

import pytest

from toolgate import (
    ActionDenied,
    ApprovalDenied,
    ApprovalExpired,
    ApprovalPending,
    ConfigurationError,
    GatewayProtocolError,
    GatewayUnavailable,
    GuardError,
)

EVERY = [
    GuardError("plain"),
    ActionDenied(
        action="a.b", agent_id="g", reason="no", approval_id="x", decision_id="d", reason_code="frozen"
    ),
    ApprovalDenied(action="a.b", agent_id="g", reason="not today"),
    ApprovalPending(action="a.b", agent_id="g", approval_id="x", reason="why"),
    ApprovalExpired(action="a.b", agent_id="g", approval_id="x"),
    GatewayUnavailable("down", status=503),
    GatewayProtocolError("html", status=200),
    ConfigurationError("set it"),
]


@pytest.mark.parametrize("error", EVERY, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize(
    "through", [copy.copy, copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))]
)
def test_survives(error: GuardError, through: object) -> None:
    """Every error comes out of pickle and copy with its type, message, fields and notes."""
    error.add_note("on the way")
    again = through(error)  # type: ignore[operator]  # one of three callables
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert again.__dict__ == error.__dict__


def test_tree() -> None:
    """A person's no is a denial; waiting and expiring are not."""
    assert issubclass(ApprovalDenied, ActionDenied)
    assert not issubclass(ApprovalExpired, ActionDenied)
    assert not issubclass(ApprovalPending, ActionDenied)
    assert all(isinstance(error, GuardError) for error in EVERY)


def test_messages_name_the_thing() -> None:
    """An outcome's message names action, agent and reason, and an approval's its id."""
    assert str(EVERY[1]) == "action 'a.b' of agent 'g' is blocked: no"
    assert "'x'" in str(EVERY[3])
    assert "'a.b'" in str(EVERY[3])
