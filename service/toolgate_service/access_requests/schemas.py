"""Request and response bodies of access requests.

Unknown members of a request are ignored, as the AuthZEN Access Request and Approval Profile requires.
"""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from toolgate_service.core.schemas import EXAMPLE_APPROVAL_ID, EXAMPLE_EXPIRY, EXAMPLE_ID, EXAMPLE_TIME
from toolgate_service.core.sdk_fields import MAX_CONTEXT_BYTES

#: maximum number of items of one access request
MAX_ITEMS = 100
#: maximum number of characters of the state of a callback, and maximum number of its events
MAX_STATE, MAX_EVENTS = 1_000, 20
#: maximum number of characters of a binding token, which contains the names of the members of the context: each byte of
#: the context takes at most eight characters in the token
MAX_TOKEN = 8 * MAX_CONTEXT_BYTES + 2_000

Status = Literal["pending", "approved", "denied", "expired", "cancelled", "failed", "partial"]

_URL = "https://toolgate.example.com/access/v1/requests/3f0f7f0a-6d3d-4a0e-9a55-6a1b9c2d4e55"
_TOOL: dict[str, JsonValue] = {"type": "tool", "id": "stripe.refund"}
_CALL: dict[str, JsonValue] = {"name": "call", "properties": {"amount": 400}}


class _Received(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)


class Denial(_Received):
    """Members of the denied decision, unchanged."""

    evaluation_id: str | None = Field(
        default=None, description="Value of `context.evaluation_id` in the denied decision."
    )
    evaluated_at: str | None = Field(
        default=None, description="Value of `context.evaluated_at` in the denied decision."
    )
    expires_at: str = Field(
        description="Value of `context.access_request.expires_at` in the denied decision."
    )
    reason: str | None = Field(default=None, description="Value of `context.reason` in the denied decision.")
    binding_token: str | None = Field(
        default=None,
        max_length=MAX_TOKEN,
        description="Value of `context.access_request.binding_token` in the denied decision. Either this token or "
        "the id of the evaluation is required.",
    )
    template: str | None = Field(default=None, description="Ignored.")


class SubmittedItem(_Received):
    """One of several evaluations."""

    resource: dict[str, Any] = Field(description="Resource of the denied evaluation.")
    action: dict[str, Any] = Field(description="Action of the denied evaluation.")
    requested_access: dict[str, Any] | None = Field(
        default=None,
        description=(
            "Further details of the requested access. The gateway stores them, but does not interpret them."
        ),
    )
    denial: Denial | None = Field(default=None, description="The denial of this evaluation. Required.")


class Client(_Received):
    """The application that submits the request, and the agent that acts for the subject."""

    model_config = ConfigDict(extra="allow", strict=True)

    actor: dict[str, Any] | None = Field(
        default=None,
        description="Agent that acts for the subject. The `id` must be the id of the agent in the denied evaluation.",
    )


class Callback(_Received):
    """Notification about the end of an access request."""

    endpoint: str = Field(
        description="URL of an enabled webhook of type `standard` in the environment. The notification is signed with "
        "the secret of the webhook."
    )
    state: str | None = Field(
        default=None,
        max_length=MAX_STATE,
        description="Text that the gateway copies unchanged into the notification.",
    )
    events: list[str] | None = Field(
        default=None,
        max_length=MAX_EVENTS,
        description="Final states of the task about which the client is notified; by default all of them.",
    )


class Submission(_Received):
    """Access request for a denied evaluation, or for several of them."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "subject": {"type": "user", "id": "ann@example.com"},
                    "resource": _TOOL,
                    "action": _CALL,
                    "context": {"business_justification": "Duplicate charge"},
                    "denial": {"evaluation_id": EXAMPLE_ID, "expires_at": EXAMPLE_EXPIRY},
                }
            ]
        }
    )

    subject: dict[str, Any] = Field(description="Subject of the denied evaluation.")
    resource: dict[str, Any] | None = Field(
        default=None, description="Resource of the denied evaluation. Required without `items`."
    )
    action: dict[str, Any] | None = Field(
        default=None, description="Action of the denied evaluation. Required without `items`."
    )
    items: list[SubmittedItem] | None = Field(
        default=None,
        min_length=1,
        max_length=MAX_ITEMS,
        description="Several evaluations of the same subject, each with its own denial.",
    )
    context: dict[str, Any] | None = Field(
        default=None,
        description="Context of the denied evaluation. Further members are stored; approvers see `business_justification` in the console.",
    )
    requested_access: dict[str, Any] | None = Field(
        default=None,
        description="Further details of the requested access. The gateway stores them, but does not interpret them.",
    )
    callback: Callback | None = Field(default=None, description="Notification about the end of the task.")
    client: Client | None = Field(default=None, description="The application that submits the request.")
    denial: Denial | None = Field(
        default=None, description="The denial of the evaluation. Required without `items`."
    )


class Cancellation(_Received):
    """Reason for the cancellation of an access request."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"reason": "user_left"}]})

    reason: str | None = Field(
        default=None, max_length=100, description="Code of the reason for the cancellation."
    )
    comment: str | None = Field(
        default=None,
        max_length=1000,
        description="Note about the cancellation. The gateway does not store the note.",
    )


class TaskProgress(BaseModel):
    """Progress of a task that needs several approvals."""

    current_step: int = Field(
        description="Number of the approval for which the task waits: 1 for the first one."
    )
    total_steps: int = Field(description="Number of approvals that the request needs.")


class ApprovalReference(BaseModel):
    """Reference to an approval. Send it unchanged as `context.approval` of the next evaluation."""

    id: str = Field(description="Id of the approval.")
    approved_at: str = Field(description="Time of the approval.")
    approved_until: str = Field(description="Deadline for the client to evaluate the access again.")


class TaskResult(BaseModel):
    """Result of an approved task, or of a task whose arguments an approver edited."""

    mode: str = Field(
        description=(
            "Next step for the client. `reevaluate`: evaluate the access again, and send the approval as "
            "`context.approval`. `urn:toolgate:result:edited` (only for a denied task): an approver changed "
            "the access, and approved only the access in `evaluation`; evaluate this access, and send the approval as "
            "`context.approval`."
        )
    )
    approval: ApprovalReference | None = Field(default=None, description="The approval.")
    evaluation: dict[str, Any] | None = Field(default=None, description="Access that an approver approved.")


class TaskItem(BaseModel):
    """State of one of several evaluations."""

    resource: dict[str, Any] = Field(description="Resource of the evaluation.")
    action: dict[str, Any] = Field(description="Action of the evaluation.")
    status: Status = Field(description="State of the evaluation.")
    result: TaskResult | None = Field(default=None, description="Result of the evaluation.")


class TaskLinks(BaseModel):
    """URLs of a task."""

    cancel: str = Field(description="URL for the cancellation of the task.")
    review: str | None = Field(default=None, description="Page of the console on which approvers decide.")


class Task(BaseModel):
    """State of an access request."""

    id: str = Field(description="Id of the task.")
    status: Status = Field(
        description="State of the task. `partial`: the items have different final states. A final state never changes."
    )
    status_endpoint: str = Field(description="URL of the task.")
    expires_at: str = Field(description="Time after which the task can no longer be read.")
    progress: TaskProgress | None = Field(
        default=None,
        description=("Number of approvals that the request has and needs. Absent if one approval is enough."),
    )
    links: TaskLinks = Field(description="URLs of the task.")
    items: list[TaskItem] | None = Field(
        default=None, description="State of each item, in the order of the submission."
    )


class TaskView(BaseModel):
    """Task of an access request. Members without a value are absent."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "task": {
                        "id": "3f0f7f0a-6d3d-4a0e-9a55-6a1b9c2d4e55",
                        "status": "approved",
                        "status_endpoint": _URL,
                        "expires_at": EXAMPLE_EXPIRY,
                        "links": {"cancel": f"{_URL}/cancel"},
                    },
                    "result": {
                        "mode": "reevaluate",
                        "approval": {
                            "id": EXAMPLE_APPROVAL_ID,
                            "approved_at": EXAMPLE_TIME,
                            "approved_until": EXAMPLE_EXPIRY,
                        },
                    },
                }
            ]
        }
    )

    task: Task = Field(description="The task.")
    result: TaskResult | None = Field(default=None, description="Result of the task.")


class JsonWebKey(BaseModel):
    """Public key."""

    kty: Literal["OKP"] = Field(description="Type of the key.")
    crv: Literal["Ed25519"] = Field(description="Curve of the key.")
    x: str = Field(description="The public key.")
    kid: str = Field(description="Id of the key.")
    use: Literal["sig"] = Field(description="Use of the key.")
    alg: Literal["EdDSA"] = Field(description="Algorithm of the signatures.")


class JsonWebKeySet(BaseModel):
    """Public keys that verify the values signed by the gateway."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "keys": [
                        {
                            "kty": "OKP",
                            "crv": "Ed25519",
                            "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo",
                            "kid": "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k",
                            "use": "sig",
                            "alg": "EdDSA",
                        }
                    ]
                }
            ]
        }
    )

    keys: list[JsonWebKey] = Field(description="The keys.")
