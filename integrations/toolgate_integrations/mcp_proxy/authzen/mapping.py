"""Construction of access evaluations from a mapping, the parameters of an MCP request, and the client's token."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from toolgate_integrations.mcp_proxy.authzen.errors import MappingError
from toolgate_integrations.mcp_proxy.authzen.expressions import ABSENT, Variables, evaluate

__all__ = ["Evaluation", "Identity", "resolve"]

#: maximum number of evaluations of one mapping; each is a check of the gateway
MAX_EVALUATIONS: Final = 16
_MAX_LEAVES: Final = 500
_DEFAULT_SUBJECT_TYPE: Final = "identity"
_ENTITY_MEMBERS: Final[Mapping[str, frozenset[str]]] = {
    "subject": frozenset({"type", "id", "properties"}),
    "action": frozenset({"name", "properties"}),
    "resource": frozenset({"type", "id", "properties"}),
}
_MEMBERS: Final = frozenset({*_ENTITY_MEMBERS, "context"})
_AUDIENCE: Final = "$token.aud"


@dataclass(frozen=True, slots=True)
class Identity:
    """The client of a request, from the validated token.

    Attributes:
        subject: The claim `sub`.
        audience: The audience that identifies this proxy, one of the token's claim `aud`.
        claims: All claims of the token.
    """

    subject: str
    audience: str
    claims: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One access evaluation, as in the AuthZEN Authorization API."""

    subject: Mapping[str, Any]
    action: Mapping[str, Any]
    resource: Mapping[str, Any]
    context: Mapping[str, Any]


def resolve(mapping: object, params: Mapping[str, Any], identity: Identity | None) -> list[Evaluation]:
    """Return the evaluations of a mapping; the request may run only if each of them is permitted.

    Args:
        mapping: The mapping: an object with one member, `evaluation` or `evaluations`.
        params: Parameters of the request.
        identity: The client; None if there is no token.

    Raises:
        MappingError: The mapping is invalid, an expression fails, a required member is missing, or the subject is not
            the subject of the token.
    """
    envelope, body = _envelope(mapping)
    template = _Template(params, identity)
    common = {name: template.entity(name, body[name]) for name in _MEMBERS & body.keys()}
    if envelope == "evaluation":
        return [_evaluation(common, identity)]
    return [
        # A member of an entry replaces the default of the same name, without merging the two.
        _evaluation(
            {**common, **{name: template.entity(name, entry[name]) for name in _MEMBERS & entry.keys()}},
            identity,
        )
        for entry in _entries(body)
    ]


def _envelope(mapping: object) -> tuple[str, Mapping[str, Any]]:
    if not isinstance(mapping, Mapping) or len(mapping) != 1:
        raise MappingError("the mapping must have exactly one member: evaluation or evaluations")
    [(envelope, body)] = mapping.items()
    if envelope not in {"evaluation", "evaluations"}:
        raise MappingError(f"the mapping has the unknown member {envelope!r}: use evaluation or evaluations")
    if not isinstance(body, Mapping):
        raise MappingError(f"{envelope} must be an object")
    # The options of the Access Evaluations API cannot weaken the rule that each evaluation must permit the request.
    more = {"evaluations", "options"} if envelope == "evaluations" else set[str]()
    _only(body, _MEMBERS | more, envelope)
    return envelope, body


def _entries(body: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    entries = body.get("evaluations")
    if not isinstance(entries, list) or not entries:
        raise MappingError("evaluations.evaluations must be a list with at least one entry")
    if len(entries) > MAX_EVALUATIONS:
        raise MappingError(f"the mapping has {len(entries)} evaluations; the maximum is {MAX_EVALUATIONS}")
    for entry in entries:
        if not isinstance(entry, Mapping):
            raise MappingError("each entry of evaluations must be an object")
        if "subject" in entry:
            raise MappingError("an entry of evaluations must not contain a subject")
        _only(entry, _MEMBERS, "an entry of evaluations")
    return entries


def _only(value: Mapping[str, Any], known: Collection[str], where: str) -> None:
    for name in value:
        if name not in known:
            raise MappingError(f"{where} has the unknown member {name!r}")


class _Template:
    """Template of a request, whose strings may be expressions.

    Args:
        params: Parameters of the request.
        identity: The client; None if there is no token.
    """

    def __init__(self, params: Mapping[str, Any], identity: Identity | None) -> None:
        self._variables = Variables(params, None if identity is None else identity.claims)
        self._identity = identity
        self._leaves = 0

    def entity(self, name: str, template: Any) -> Any:
        """Return the value of `subject`, `action`, `resource` or `context`, or `ABSENT`.

        Raises:
            MappingError: An expression fails, or the template is too large.
        """
        value = self._value(template)
        is_server = name == "resource" and isinstance(template, Mapping) and template.get("id") == _AUDIENCE
        if is_server and self._identity is not None:
            # The claim may be a list. Its member that identifies this proxy was validated with the token.
            return {**value, "id": self._identity.audience}
        return value

    def _value(self, template: Any) -> Any:
        self._leaves += 1
        if self._leaves > _MAX_LEAVES:
            raise MappingError(f"the mapping has more than {_MAX_LEAVES} values")
        if isinstance(template, str):
            if template.startswith("$$"):
                return template[1:]
            return evaluate(template[1:], self._variables) if template.startswith("$") else template
        if isinstance(template, Mapping):
            found = {name: self._value(member) for name, member in template.items()}
            return {name: value for name, value in found.items() if value is not ABSENT}
        if isinstance(template, list):
            return [value for value in map(self._value, template) if value is not ABSENT]
        return template


def _evaluation(members: Mapping[str, Any], identity: Identity | None) -> Evaluation:
    context = members.get("context", ABSENT)
    if context is ABSENT:
        context = {}
    if not isinstance(context, Mapping):
        raise MappingError("context must be an object")
    if identity is not None and (client := identity.claims.get("client_id")) is not None:
        context = {"agent": client, **context}
    return Evaluation(
        _subject(members.get("subject", ABSENT), identity),
        _entity("action", members.get("action", ABSENT), ("name",)),
        _entity("resource", members.get("resource", ABSENT), ("type", "id")),
        context,
    )


def _subject(subject: Any, identity: Identity | None) -> Mapping[str, Any]:
    if identity is None:
        raise MappingError("the request has no access token, from which the proxy reads the subject")
    if subject is ABSENT:
        subject = {}
    if isinstance(subject, Mapping):
        subject = {"type": _DEFAULT_SUBJECT_TYPE, "id": identity.subject, **subject}
    found = _entity("subject", subject, ("type", "id"))
    if found["id"] != identity.subject:
        # A server could otherwise assert the identity of another user.
        raise MappingError("subject.id differs from the claim sub of the access token")
    return found


def _entity(name: str, value: Any, required: Collection[str]) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise MappingError(f"{name} is missing or not an object")
    _only(value, _ENTITY_MEMBERS[name], name)
    for member in required:
        if not isinstance(value.get(member), str) or not value[member]:
            raise MappingError(f"{name}.{member} is missing or not a text")
    if not isinstance(value.get("properties", {}), Mapping):
        raise MappingError(f"{name}.properties must be an object")
    return value
