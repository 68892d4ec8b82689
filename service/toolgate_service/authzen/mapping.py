"""Translation of an AuthZEN access evaluation into a check of the gateway.

- The action of the check is `resource.id` if the resource has the type `tool`, otherwise
  ``<resource.type>.<action.name>``.
- The agent is the subject, if its type is `agent`; otherwise the agent in `subject.properties.act.sub`, which acts for
  the subject; otherwise the agent to which the API key belongs.
- The arguments are the properties of the action, together with the subject, the action, the resource and the context.
"""

from collections.abc import Mapping
from urllib.parse import quote, unquote

from toolgate_service.authzen.schemas import Evaluation, Members
from toolgate_service.checks.schemas import CheckRequest
from toolgate_service.core.errors import FieldErrors
from toolgate_service.core.schemas import MAX_ACTION, is_action
from toolgate_service.core.sdk_fields import SdkFields
from toolgate_service.core.strict_json import Json

#: type of a subject that is an agent
AGENT = "agent"
#: type of a resource that is a tool, whose id is the action
TOOL = "tool"
#: names of arguments that contain the entities of the evaluation
ENTITIES = frozenset({"subject", "action", "resource", "context"})
#: members of the context that are not arguments: approvals are not bound to them. `time` differs in each evaluation,
#: `toolgate` describes the check, and `approval` is the approval of the Access Request and Approval Profile.
_NOT_ARGUMENTS = frozenset({"time", "toolgate", "approval"})
#: characters that are not encoded in an action, besides letters and digits; `%`, `*` and `?` are always encoded
_SAFE = "!\"#$&'()+,-./:;<=>@[\\]^_`{|}~"
_ENCODED = frozenset("%*?")


def to_check(
    evaluation: Evaluation, key_agent_id: str | None, raw: bytes | None = None, *, dry_run: bool = False
) -> CheckRequest:
    """Return the check that decides an access evaluation.

    Args:
        evaluation: The evaluation.
        key_agent_id: Id of the only agent that the API key may act as; None for a key of the organization.
        raw: The body as received. If it is given, the size of the arguments is validated faster.
        dry_run: True to decide without changing anything, even if `context.toolgate` does not request a dry run.

    Raises:
        FieldErrors: The evaluation exceeds a limit, or a member of `context.toolgate` is invalid.
    """
    subject, action, resource, context = evaluation
    action_text = action_of(str(resource["type"]), str(resource["id"]), str(action["name"]))
    arguments = SdkFields({"evaluation": _arguments(evaluation)}, raw)
    args = arguments.context("evaluation")
    arguments.finish()
    approval_id = call_id = run_id = reason = None
    extension = context.get("toolgate")
    if extension is not None:
        fields = _extension(extension)
        approval_id, call_id = fields.reference("approval_id"), fields.reference("call_id")
        run_id, reason = fields.reference("run_id"), fields.description("reason")
        dry_run = fields.flag("dry_run") or dry_run
        _finish(fields)
    return CheckRequest(
        agent_of(subject, key_agent_id),
        action_text,
        args or {},
        approval_id,
        call_id,
        run_id,
        dry_run,
        reason,
        arguments.canonical_text,
    )


def bound_members(context: Members) -> dict[str, Json]:
    """Return the members of the context that are arguments, to which approvals are bound."""
    return {name: value for name, value in context.items() if name not in _NOT_ARGUMENTS}


def evaluation_of(args: Mapping[str, Json]) -> Evaluation | None:
    """Return the access evaluation that results in these arguments of a check.

    Return None if the arguments do not come from an access evaluation. The evaluation does not contain the members of
    the context that are not arguments, such as `time`.
    """
    subject, action, resource = (args.get(name) for name in ("subject", "action", "resource"))
    context = args.get("context", {})
    if not (isinstance(subject, dict) and isinstance(action, dict) and isinstance(resource, dict)):
        return None
    if not isinstance(context, dict):
        return None
    properties = {name: value for name, value in args.items() if name not in ENTITIES}
    hidden = action.get("properties")
    properties |= hidden if isinstance(hidden, dict) else {}
    named: dict[str, Json] = {"name": action.get("name")}
    return Evaluation(subject, named | ({"properties": properties} if properties else {}), resource, context)


def action_of(resource_type: str, resource_id: str, action_name: str) -> str:
    """Return the action of an access evaluation.

    Characters that an action cannot contain are percent-encoded, so that different texts result in different actions.

    Raises:
        FieldErrors: The action would be empty or too long.
    """
    text = resource_id if resource_type == TOOL else f"{resource_type}.{action_name}"
    if is_action(text) and _ENCODED.isdisjoint(text):
        return text
    encoded = quote(text, safe=_SAFE)
    if not encoded:
        raise FieldErrors({"resource.id": ["must not be empty for a tool"]})
    if len(encoded) > MAX_ACTION:
        where = "resource.id" if resource_type == TOOL else "action.name"
        raise FieldErrors(
            {where: [f"results in an action with {len(encoded)} characters; the maximum is {MAX_ACTION}"]}
        )
    return encoded


def name_of(resource_type: str, action: str) -> str | None:
    """Return the AuthZEN `action.name` that, with this resource type, results in the gateway's `action`.

    This function is the inverse of `action_of`. It returns None if there is no such name. There is none for the
    resource type `tool`, because `action_of` then uses the resource id and not the name.
    """
    prefix = quote(f"{resource_type}.", safe=_SAFE)
    if resource_type == TOOL or not action.startswith(prefix):
        return None
    return unquote(action.removeprefix(prefix))


def agent_of(subject: Members, key_agent_id: str | None) -> str:
    """Return the id of the agent for which an evaluation is decided; an empty string if none is named."""
    if subject.get("type") == AGENT:
        return str(subject.get("id", ""))
    properties = subject.get("properties")
    actor = properties.get("act") if isinstance(properties, dict) else None
    acting = actor.get("sub") if isinstance(actor, dict) else None
    if isinstance(acting, str):
        return acting
    return key_agent_id or ""


def _arguments(evaluation: Evaluation) -> dict[str, Json]:
    subject, action, resource, context = evaluation
    properties = action.get("properties")
    named: dict[str, Json] = {"name": action["name"]}
    args: dict[str, Json] = {}
    if isinstance(properties, dict):
        args = dict(properties)
        # A property must not hide an entity from rules and approvers.
        hidden = {name: args.pop(name) for name in ENTITIES & properties.keys()}
        if hidden:
            named["properties"] = hidden
    args["subject"], args["action"], args["resource"] = dict(subject), named, dict(resource)
    bound = bound_members(context)
    if bound:
        args["context"] = bound
    return args


def _extension(value: Json) -> SdkFields:
    if not isinstance(value, dict):
        raise FieldErrors({"context.toolgate": ["must be an object"]})
    return SdkFields(value)


def _finish(fields: SdkFields) -> None:
    try:
        fields.finish()
    except FieldErrors as error:
        named: Mapping[str, list[str]] = error.fields
        raise FieldErrors(
            {f"context.toolgate.{name}": messages for name, messages in named.items()}
        ) from None
