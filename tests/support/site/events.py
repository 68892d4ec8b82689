"""The reference page of webhook events, from the types that the gateway sends."""

from toolgate_service.webhooks.events import EVENT_TYPES, OPT_IN_TYPES, TEST_EVENT, resource_name

HEAD = """\
# Events

This page is generated from the types of the events that the gateway sends to [webhooks](../guides/webhooks.md). The member
`data` of an event contains `organization_id`, `environment`, and the resource as the HTTP API returns it, under the key in the
column *resource*.

| type | resource | sent when |
| --- | --- | --- |
"""

TAIL = """
Deliveries, [webhooks](../guides/webhooks.md) and [audit events](../guides/logs.md#audit-log) have their type in the field
`type`. Webhooks and audit events also contain the field `kind`, the former name of `type`, with the same value.

At the end of a task with a [callback](../guides/access-requests.md#callbacks), the gateway sends an event
`access_request.<status>` with `task` and `state` to the webhook of the callback. Webhooks cannot subscribe to this event.

A webhook without `events` receives all types except those marked *opt-in*.

Deleting an agent also deletes its permissions and keys. The gateway sends no separate events for these permissions
and keys.
"""

DESCRIPTIONS = {
    "approval.requested": "a check requires approval, and the gateway has created a new request",
    "approval.approved": "the last required approver has approved the request",
    "approval.denied": "an approver has rejected the request",
    "approval.expired": "the request was not decided in time, or its approval was not used in time",
    "approval.cancelled": "the request was withdrawn, or its agent or permission was disabled or deleted",
    "approval.consumed": "a check has used the approval, and the call was allowed",
    "approval.replaced": "the request was approved with edited arguments; `replaced_by` names the new request",
    "approval.reminder": "a pending request is about to expire",
    "agent.created": "an agent was created",
    "agent.updated": "an agent was changed, enabled or disabled",
    "agent.deleted": "an agent was deleted",
    "permission.created": "a permission was created",
    "permission.updated": "a permission was changed",
    "permission.deleted": "a permission was deleted",
    "rule.created": "a rule was created",
    "rule.updated": "a rule was changed",
    "rule.deleted": "a rule was deleted",
    "budget.created": "a budget was created",
    "budget.updated": "a budget was changed",
    "budget.deleted": "a budget was deleted",
    "budget.exceeded": (
        "a call would have exceeded a [budget](../guides/budgets.md#settings-of-a-budget); the event is sent once in "
        "each window, for each agent, run or currency that the budget counts separately"
    ),
    "freeze.created": "a freeze was created, which denies calls from now on; the event is sent in both environments",
    "freeze.lifted": "a freeze was lifted; the event is sent in both environments",
    "log.created": "a log entry was stored (*opt-in*)",
    "usage.warning": "80 or 100 percent of the plan's limit of agents or of monthly log entries are used",
    "organization.key_regenerated": "an API key of the organization was replaced; the event contains no key",
    TEST_EVENT: "a user has requested a test event for this webhook",
}


def render_events() -> str:
    """Return the page."""
    assert set(DESCRIPTIONS) == {*EVENT_TYPES, TEST_EVENT}, "DESCRIPTIONS must have every event type"
    assert all("*opt-in*" in DESCRIPTIONS[kind] for kind in OPT_IN_TYPES)
    rows = [f"| `{kind}` | `{resource_name(kind)}` | {text} |" for kind, text in DESCRIPTIONS.items()]
    return HEAD + "\n".join([*rows, ""]) + TAIL
