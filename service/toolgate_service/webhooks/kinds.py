"""The kinds of events (decisions §10)."""

import json

#: the feature that a plan must have
FEATURE = "webhooks"

#: everything a webhook may ask for
KINDS = (
    "approval.requested",
    "approval.approved",
    "approval.denied",
    "approval.expired",
    "approval.cancelled",
    "approval.consumed",
    "approval.replaced",
    "approval.reminder",
    "agent.created",
    "agent.updated",
    "agent.deleted",
    "permission.created",
    "permission.updated",
    "permission.deleted",
    "log.created",
    "usage.warning",
    "organization.key_regenerated",
)
LOG_CREATED = "log.created"
USAGE_WARNING = "usage.warning"
#: so frequent that only who names them gets them
OPT_IN = frozenset({LOG_CREATED})
#: what a webhook gets that names no kinds
DEFAULT = tuple(kind for kind in KINDS if kind not in OPT_IN)
#: what a Slack webhook gets that names no kinds
ABOUT_APPROVALS = tuple(kind for kind in KINDS if kind.startswith("approval."))
#: what `POST /api/webhooks/{id}/test` sends; nobody subscribes to it
TRIAL = "webhook.test"


def chosen(events: str | None) -> tuple[str, ...]:
    """Return the kinds that a webhook gets, from what is stored about it."""
    return DEFAULT if events is None else tuple(json.loads(events))


def resource_of(kind: str) -> str:
    """Return the name under which a payload shows what an event is about, for instance ``approval``."""
    return kind.partition(".")[0]
