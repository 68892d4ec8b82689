"""The buttons under a request, and what their values bind: this request, with exactly this context."""

import re
from dataclasses import dataclass
from typing import Any

from toolgate_service.ids import is_id

APPROVE = "toolgate.approve"
DENY = "toolgate.deny"

_VALUE = re.compile(r"v1\.([0-9a-f-]{36})\.([0-9a-f]{64})")


@dataclass(frozen=True, slots=True)
class Pressed:
    """What somebody pressed.

    Attributes:
        approval_id: about which request.
        digest: of the context that was shown.
        approves: which of the two.
    """

    approval_id: str
    digest: str
    approves: bool


def buttons(approval_id: str, digest: str) -> dict[str, Any]:
    """Return the block with both buttons."""
    value = f"v1.{approval_id}.{digest}"
    return {
        "type": "actions",
        "block_id": "toolgate.decide",
        "elements": [
            _button(APPROVE, "Approve", "primary", value),
            _button(DENY, "Deny", "danger", value),
        ],
    }


def pressed(action_id: str, value: str) -> Pressed | None:
    """Return what a button's value says; None where it is no button of ours."""
    found = _VALUE.fullmatch(value)
    if action_id not in {APPROVE, DENY} or found is None or not is_id(found.group(1)):
        return None
    return Pressed(found.group(1), found.group(2), action_id == APPROVE)


def _button(action_id: str, text: str, style: str, value: str) -> dict[str, Any]:
    return {
        "type": "button",
        "action_id": action_id,
        "text": {"type": "plain_text", "text": text, "emoji": False},
        "style": style,
        "value": value,
    }
