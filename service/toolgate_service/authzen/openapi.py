"""OpenAPI description of the AuthZEN endpoints."""

from collections.abc import Mapping
from typing import Any

from toolgate_service.authzen.metadata import (
    EVALUATION,
    EVALUATIONS,
    SEARCH_ACTION,
    SEARCH_RESOURCE,
    SEARCH_SUBJECT,
)
from toolgate_service.authzen.schemas import DEFAULT_RESULTS, MAX_EVALUATIONS, MAX_RESULTS, SEMANTICS
from toolgate_service.core.schemas import DESCRIPTION, EXAMPLE_APPROVAL_ID, EXAMPLE_ID, REFERENCE, nullable

Schema = Mapping[str, Any]

_TEXT = {"type": "string"}


def _reference(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


def _object(description: str, required: tuple[str, ...] = (), **properties: Schema) -> dict[str, Any]:
    return {
        "type": "object",
        "description": description,
        "required": list(required),
        "properties": {name: dict(schema) for name, schema in properties.items()},
    }


def _attributes(description: str) -> dict[str, Any]:
    return {"type": ["object", "null"], "additionalProperties": True, "description": description}


_TOOLGATE_CONTEXT = _object(
    "Options and identifiers for the gateway, with the same names as in the body of `POST /sdk/check`. The fields "
    "are not arguments of the call.",
    approval_id=nullable(REFERENCE)
    | {"description": "Id of an approval request. Only this request may then permit the call."},
    call_id=nullable(REFERENCE) | {"description": "Identifier of the call, chosen by the client."},
    run_id=nullable(REFERENCE) | {"description": "Identifier of the agent run, chosen by the client."},
    reason=nullable(DESCRIPTION) | {"description": "Reason for the call, which approvers see."},
    dry_run={
        "type": ["boolean", "null"],
        "description": "True to receive the decision without creating or consuming an approval request.",
    },
) | {"type": ["object", "null"]}
_CONTEXT = {
    "type": ["object", "null"],
    "additionalProperties": True,
    "properties": {"toolgate": _TOOLGATE_CONTEXT},
    "description": (
        "Attributes of the circumstances of the access. The gateway ignores `time`. The field `approval` contains "
        "the approval of an access request."
    ),
}
_SUBJECT = _object(
    "Principal that requests access: an agent, or a user for whom an agent acts.",
    ("type", "id"),
    type=_TEXT | {"description": "Type of the subject. `agent` is an agent of the gateway."},
    id=_TEXT | {"description": "Identifier of the subject. For the type `agent`, the id of the agent."},
    properties=_attributes(
        "Attributes of the subject. `act.sub` is the id of the agent that acts for the subject."
    ),
)
_ACTION = _object(
    "Type of access.",
    ("name",),
    name=_TEXT | {"description": "Name of the action."},
    properties=_attributes("Arguments of the call."),
)
_RESOURCE = _object(
    "Target of the access.",
    ("type", "id"),
    type=_TEXT
    | {"description": "Type of the resource. `tool` is a tool, whose id is the action of the check."},
    id=_TEXT | {"description": "Identifier of the resource."},
    properties=_attributes("Attributes of the resource."),
)
_IGNORED_ID = {"id": {"description": "Ignored."}}
_SEARCHED_SUBJECT = _SUBJECT | {
    "required": ["type"],
    "description": "Type and attributes of the subjects to search for.",
    "properties": _SUBJECT["properties"] | _IGNORED_ID,
}
_SEARCHED_RESOURCE = _RESOURCE | {
    "required": ["type"],
    "description": "Type and attributes of the resources to search for.",
    "properties": _RESOURCE["properties"] | _IGNORED_ID,
}
_ANY_ENTITY = {"type": ["object", "null"], "additionalProperties": True}
_PAGE = _object(
    "Requested page of the results.",
    token={"type": ["string", "null"], "description": "The `next_token` of the previous page."},
    limit={
        "type": ["integer", "null"],
        "minimum": 0,
        "description": f"Maximum number of results: {DEFAULT_RESULTS} by default, at most {MAX_RESULTS}.",
    },
    properties=_attributes("Ignored."),
) | {"type": ["object", "null"]}
_USER = {"type": "user", "id": "alice@example.com"}
_RECORD = {"type": "record", "id": "record-1"}
_DECISION_CONTEXT = _object(
    "Additional information about the decision. Absent if the evaluation was permitted, reserved no budget and "
    "consumed no approval.",
    evaluation_id=_TEXT | {"description": "Id of the decision. Send it as `decision_id` of the log entry."},
    reason=_TEXT
    | {"description": "Code of the decision, for instance `no_permission` or `approval_required`."},
    message=_TEXT | {"description": "Reason for the denial, for people."},
    approval_id=_TEXT | {"description": "Id of the approval request that is pending, or that was consumed."},
    rule_id=_TEXT | {"description": "Id of the rule that denies the call, or that requires the approval."},
    budget_left=_TEXT
    | {"description": "The smallest remaining amount of all budgets that apply to the call."},
    evaluated_at=_TEXT
    | {
        "description": "Time of the decision. An access request contains this value as `denial.evaluated_at`."
    },
    access_request=_object(
        "Present if an access request can be submitted for the denied evaluation.",
        ("endpoint", "expires_at", "binding_token"),
        endpoint=_TEXT | {"description": "URL to which the access request is sent."},
        expires_at=_TEXT | {"description": "Time until which the access request must be sent."},
        binding_token=_TEXT
        | {
            "description": "Token that proves the denial. The client sends the token unchanged as "
            "`denial.binding_token` of the access request."
        },
    ),
    approval=_object(
        "The approval from `context.approval` of the request, which permitted the evaluation.",
        ("id", "approved_until"),
        id=_TEXT | {"description": "Id of the approval."},
        approved_until=_TEXT | {"description": "Time until which the access may be used."},
    ),
    next_action={
        "type": "string",
        "enum": ["request", "retry", "none"],
        "description": (
            "Next step for a client whose evaluation was denied although it sent `context.approval`: `request` "
            "(submit an access request), `retry` (repeat the evaluation) or `none`."
        ),
    },
    retry_after={
        "type": "integer",
        "description": "Seconds to wait before the evaluation is repeated, if `next_action` is `retry`.",
    },
    error=_object(
        "Error of an item that is not a valid evaluation.",
        ("status", "message"),
        status={
            "type": "integer",
            "description": "HTTP status that a request with only this evaluation would get.",
        },
        message=_TEXT | {"description": "Message that contains the reason for the error."},
    ),
)
_DECISION = _object(
    "Decision about an access evaluation.",
    ("decision",),
    decision={"type": "boolean", "description": "True if the access is permitted."},
    context=_DECISION_CONTEXT,
)
_HELD = {
    "decision": False,
    "context": {
        "evaluation_id": EXAMPLE_ID,
        "reason": "approval_required",
        "message": "Action 'record.delete' needs human approval",
        "approval_id": EXAMPLE_APPROVAL_ID,
    },
}
_RESULT_PAGE = _object(
    "Page of the results.",
    ("next_token", "count"),
    next_token=_TEXT | {"description": "Token of the next page; an empty string on the last page."},
    count={"type": "integer", "minimum": 0, "description": "Number of results on this page."},
)
_FOUND_SUBJECT = _object(
    "Subject.",
    ("type", "id"),
    type=_TEXT | {"description": "Type of the entity."},
    id=_TEXT | {"description": "Identifier of the entity."},
)
_FOUND_ACTION = _object("Action.", ("name",), name=_TEXT | {"description": "Name of the action."})


def _results(entity: Schema) -> dict[str, Any]:
    return _object(
        "Permitted entities.",
        ("page", "results"),
        page=_RESULT_PAGE,
        results={"type": "array", "items": dict(entity), "description": "The entities, in a fixed order."},
    )


#: JSON schemas of the request and response bodies in the OpenAPI document, by name
AUTHZEN_SCHEMAS: dict[str, dict[str, Any]] = {
    "AuthzenEvaluation": _object(
        "Access evaluation request of AuthZEN. Unknown members are ignored.",
        ("subject", "action", "resource"),
        subject=_SUBJECT,
        action=_ACTION,
        resource=_RESOURCE,
        context=_CONTEXT,
    )
    | {"examples": [{"subject": _USER, "action": {"name": "read"}, "resource": _RECORD}]},
    "AuthzenEvaluations": _object(
        "AuthZEN request for several access evaluations. A request without `evaluations` is a single access "
        "evaluation. Unknown members are ignored.",
        subject=_ANY_ENTITY | {"description": "Subject of all evaluations that contain no subject."},
        action=_ANY_ENTITY | {"description": "Action of all evaluations that contain no action."},
        resource=_ANY_ENTITY | {"description": "Resource of all evaluations that contain no resource."},
        context=_ANY_ENTITY | {"description": "Context of all evaluations that contain no context."},
        evaluations={
            "type": ["array", "null"],
            "maxItems": MAX_EVALUATIONS,
            "items": {},
            "description": f"At most {MAX_EVALUATIONS} evaluations. An invalid evaluation does not affect the others.",
        },
        options=_object(
            "Options of the evaluation.",
            evaluations_semantic={
                "enum": [*SEMANTICS, None],
                "description": "Point at which the gateway stops: after all evaluations, the first denial, or the "
                "first permit.",
            },
            toolgate=_object(
                "Options that only Toolgate supports.",
                explain={
                    "type": ["boolean", "null"],
                    "description": "True to add `context` to each denial, not only to denials that wait for approval.",
                },
            )
            | {"type": ["object", "null"]},
        )
        | {"type": ["object", "null"]},
    )
    | {
        "examples": [
            {
                "subject": _USER,
                "action": {"name": "read"},
                "evaluations": [{"resource": _RECORD}, {"resource": {"type": "record", "id": "record-2"}}],
            }
        ]
    },
    "AuthzenDecision": _DECISION | {"title": "AuthzenDecision", "examples": [{"decision": True}, _HELD]},
    "AuthzenDecisions": {
        "title": "AuthzenDecisions",
        "description": "Decisions in the order of the evaluations, or the decision about a request without evaluations.",
        "anyOf": [
            _object(
                "Decisions in the order of the evaluations.",
                ("evaluations",),
                evaluations={
                    "type": "array",
                    "items": _reference("AuthzenDecision"),
                    "description": (
                        "The decisions. If `options.evaluations_semantic` stops at a denial or a permit, the "
                        "last decision is the one at which the gateway stopped."
                    ),
                },
            )
            | {"examples": [{"evaluations": [{"decision": True}, {"decision": False}]}]},
            _reference("AuthzenDecision"),
        ],
        "examples": [{"evaluations": [{"decision": True}, {"decision": False}]}],
    },
    "AuthzenSubjectSearch": _object(
        "Subject search request of AuthZEN. Unknown members are ignored.",
        ("subject", "action", "resource"),
        subject=_SEARCHED_SUBJECT,
        action=_ACTION,
        resource=_RESOURCE,
        context=_CONTEXT,
        page=_PAGE,
    )
    | {"examples": [{"subject": {"type": "user"}, "action": {"name": "read"}, "resource": _RECORD}]},
    "AuthzenResourceSearch": _object(
        "Resource search request of AuthZEN. Unknown members are ignored.",
        ("subject", "action", "resource"),
        subject=_SUBJECT,
        action=_ACTION,
        resource=_SEARCHED_RESOURCE,
        context=_CONTEXT,
        page=_PAGE,
    )
    | {"examples": [{"subject": _USER, "action": {"name": "read"}, "resource": {"type": "record"}}]},
    "AuthzenActionSearch": _object(
        "Action search request of AuthZEN. Unknown members are ignored.",
        ("subject", "resource"),
        subject=_SUBJECT,
        resource=_RESOURCE,
        context=_CONTEXT,
        page=_PAGE,
    )
    | {"examples": [{"subject": _USER, "resource": _RECORD}]},
    "AuthzenSubjects": _results(_FOUND_SUBJECT)
    | {
        "title": "AuthzenSubjects",
        "examples": [{"page": {"next_token": "", "count": 1}, "results": [_USER]}],
    },
    "AuthzenResources": _results(_FOUND_SUBJECT | {"description": "Resource."})
    | {
        "title": "AuthzenResources",
        "examples": [{"page": {"next_token": "", "count": 1}, "results": [_RECORD]}],
    },
    "AuthzenActions": _results(_FOUND_ACTION)
    | {
        "title": "AuthzenActions",
        "examples": [{"page": {"next_token": "", "count": 1}, "results": [{"name": "read"}]}],
    },
    "AuthzenError": _TEXT
    | {
        "description": "Message that contains the reason for the error.",
        "examples": ["subject.id: This field is required"],
    },
}

#: names of the request and response schemas, operation id, summary and description of each endpoint, by path
DESCRIPTIONS: dict[str, tuple[str, str, str, str, str]] = {
    EVALUATION: (
        "AuthzenEvaluation",
        "AuthzenDecision",
        "authzenEvaluation",
        "Evaluate access",
        (
            "Decide about one access evaluation of AuthZEN. The gateway handles the evaluation like `POST /sdk/check`: "
            "it reserves budgets, consumes approvals and records the decision, unless the API key is advisory or "
            "`context.toolgate.dry_run` is true.\n\n"
            "A call that waits for approval has `decision: false`, the reason `approval_required` and an "
            "`approval_id`. If the decision contains `access_request`, the client can submit an access request at "
            "`/access/v1/requests`."
        ),
    ),
    EVALUATIONS: (
        "AuthzenEvaluations",
        "AuthzenDecisions",
        "authzenEvaluations",
        "Evaluate access several times",
        (
            "Decide about several access evaluations of AuthZEN, one after the other. Each evaluation is a check, "
            "and counts towards the rate limit.\n\n"
            "The entities outside the array are the defaults of the evaluations. The decision about an invalid "
            "evaluation is `decision: false`, with the error in `context`."
        ),
    ),
    SEARCH_SUBJECT: (
        "AuthzenSubjectSearch",
        "AuthzenSubjects",
        "authzenSearchSubjects",
        "Search for subjects",
        (
            "Return the subjects that may perform an action on a resource: agents, or ids with which conditions of rules compare "
            "`args.subject.id`. A search changes nothing."
        ),
    ),
    SEARCH_RESOURCE: (
        "AuthzenResourceSearch",
        "AuthzenResources",
        "authzenSearchResources",
        "Search for resources",
        (
            "Return the resources on which a subject may perform an action: tools, or ids with which conditions of rules compare "
            "`args.resource.id`. A search changes nothing."
        ),
    ),
    SEARCH_ACTION: (
        "AuthzenActionSearch",
        "AuthzenActions",
        "authzenSearchActions",
        "Search for actions",
        "Return the actions that a subject may perform on a resource. A search changes nothing.",
    ),
}

#: headers of the response to an access evaluation
EVALUATION_HEADERS = (
    "X-Reason-Code",
    "X-Rule-ID",
    "X-Approval-ID",
    "X-Budget-Left",
    "X-Call-Let-Through",
)
