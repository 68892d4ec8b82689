"""Parser for the request bodies of the AuthZEN endpoints.

Unknown members are ignored, as the specification requires. An optional member with the value null counts as absent.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias, cast

from toolgate_service.core.errors import REQUIRED, FieldErrors
from toolgate_service.core.schemas import normalize_whole
from toolgate_service.core.strict_json import Json

Members: TypeAlias = Mapping[str, Json]
#: messages by the path of an invalid member, such as ``subject.type``
Problems: TypeAlias = dict[str, list[str]]
Semantic: TypeAlias = Literal["execute_all", "deny_on_first_deny", "permit_on_first_permit"]
Kind: TypeAlias = Literal["subject", "resource", "action"]

EXECUTE_ALL: Semantic = "execute_all"
DENY_ON_FIRST_DENY: Semantic = "deny_on_first_deny"
PERMIT_ON_FIRST_PERMIT: Semantic = "permit_on_first_permit"
SEMANTICS: tuple[Semantic, ...] = (EXECUTE_ALL, DENY_ON_FIRST_DENY, PERMIT_ON_FIRST_PERMIT)

#: maximum number of evaluations in one request
MAX_EVALUATIONS = 100
#: default and maximum number of results on a page of a search
DEFAULT_RESULTS = 50
MAX_RESULTS = 100

_IDENTIFIED = ("type", "id")
_SEARCHED = ("type",)
_NAMED = ("name",)
_ENTITIES = ("subject", "action", "resource", "context")


class Evaluation(NamedTuple):
    """One access evaluation.

    The subject, the action and the resource contain only the members that the specification defines.
    """

    subject: Members
    action: Members
    resource: Members
    context: Members


class Batch(NamedTuple):
    """Several access evaluations of one request, in order.

    Attributes:
        items: The evaluations. An item that is not a valid evaluation is replaced by its error.
        semantic: Value of `options.evaluations_semantic`, which determines after which decision the batch stops.
        explain: True if every denial has a context, not only the denials that wait for approval.
    """

    items: Sequence[Evaluation | FieldErrors]
    semantic: Semantic
    explain: bool


class PageRequest(NamedTuple):
    """Requested page of the results of a search.

    Attributes:
        limit: Maximum number of results; None if the request contains no limit.
        token: `next_token` in the response with the previous page; None for the first page.
        properties: Implementation-specific attributes, which the gateway ignores.
    """

    limit: int | None
    token: str | None
    properties: Members


class Search(NamedTuple):
    """Search for subjects, resources or actions.

    In `evaluation`, the entity that is searched for has no id or name.
    """

    kind: Kind
    evaluation: Evaluation
    page: PageRequest


def read_evaluation(body: Members) -> Evaluation:
    """Validate the body of an access evaluation request.

    Raises:
        FieldErrors: Members are missing or have another type. The error contains every such member.
    """
    problems: Problems = {}
    evaluation = Evaluation(
        _read_entity(body, "subject", _IDENTIFIED, problems),
        _read_entity(body, "action", _NAMED, problems),
        _read_entity(body, "resource", _IDENTIFIED, problems),
        _read_object(body, "context", problems),
    )
    _finish(problems)
    return evaluation


def read_evaluations(body: Members) -> Evaluation | Batch:
    """Validate the body of an access evaluations request.

    A request without evaluations is a single access evaluation request. Return its `Evaluation`, not a `Batch`.

    Raises:
        FieldErrors: The request as a whole is invalid. An error of a single item is part of the result instead.
    """
    problems: Problems = {}
    items = body.get("evaluations")
    if items is not None and not isinstance(items, list):
        problems["evaluations"] = ["must be an array"]
    options = _read_object(body, "options", problems)
    semantic = _read_semantic(options, problems)
    explain = _read_explain(options, problems)
    if not items:
        _finish(problems)
        return read_evaluation(body)
    for name in _ENTITIES:
        _read_object(body, name, problems)
    if isinstance(items, list) and len(items) > MAX_EVALUATIONS:
        problems["evaluations"] = [f"must contain at most {MAX_EVALUATIONS} evaluations, not {len(items)}"]
    _finish(problems)
    defaults = {name: body.get(name) for name in _ENTITIES}
    return Batch([_read_item(item, defaults) for item in cast("list[Json]", items)], semantic, explain)


def read_search(kind: Kind, body: Members) -> Search:
    """Validate the body of a search.

    Raises:
        FieldErrors: Members are missing or have another type. The error contains every such member.
    """
    problems: Problems = {}
    evaluation = Evaluation(
        _read_entity(body, "subject", _SEARCHED if kind == "subject" else _IDENTIFIED, problems),
        {} if kind == "action" else _read_entity(body, "action", _NAMED, problems),
        _read_entity(body, "resource", _SEARCHED if kind == "resource" else _IDENTIFIED, problems),
        _read_object(body, "context", problems),
    )
    page = _read_object(body, "page", problems)
    limit, token = normalize_whole(page.get("limit")), page.get("token")
    if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 0):
        problems["page.limit"] = ["must be a whole number, 0 or more"]
    if token is not None and not isinstance(token, str):
        problems["page.token"] = ["must be a string"]
    properties = _read_object(page, "properties", problems, "page.properties")
    _finish(problems)
    # An empty token requests the first page.
    found = PageRequest(cast("int | None", limit), cast("str | None", token) or None, properties)
    return Search(kind, evaluation, found)


def _read_item(item: Json, defaults: Members) -> Evaluation | FieldErrors:
    if not isinstance(item, dict):
        return FieldErrors({"evaluation": ["must be an object"]})
    # An entity of the item replaces the default as a whole: members are not merged.
    merged = {name: default if item.get(name) is None else item[name] for name, default in defaults.items()}
    try:
        return read_evaluation(merged)
    except FieldErrors as error:
        return error


def _read_entity(body: Members, name: str, members: tuple[str, ...], problems: Problems) -> dict[str, Json]:
    value = body.get(name)
    if not isinstance(value, dict):
        problems[name] = [REQUIRED if value is None else "must be an object"]
        return {}
    entity: dict[str, Json] = {}
    for member in members:
        text = value.get(member)
        if isinstance(text, str):
            entity[member] = text
        else:
            problems[f"{name}.{member}"] = [REQUIRED if text is None else "must be a string"]
    properties = value.get("properties")
    if properties is not None:
        if not isinstance(properties, dict):
            problems[f"{name}.properties"] = ["must be an object"]
        elif properties:
            entity["properties"] = properties
    return entity


def _read_object(body: Members, name: str, problems: Problems, path: str | None = None) -> dict[str, Json]:
    value = body.get(name)
    if value is None:
        return {}
    if isinstance(value, dict):
        return value
    problems[path or name] = ["must be an object"]
    return {}


def _read_semantic(options: Members, problems: Problems) -> Semantic:
    value = options.get("evaluations_semantic")
    for semantic in SEMANTICS:
        if value == semantic:
            return semantic
    if value is not None:
        problems["options.evaluations_semantic"] = [f"must be one of {', '.join(SEMANTICS)}"]
    return EXECUTE_ALL


def _read_explain(options: Members, problems: Problems) -> bool:
    extension = _read_object(options, "toolgate", problems, "options.toolgate")
    value = extension.get("explain")
    if value is not None and not isinstance(value, bool):
        problems["options.toolgate.explain"] = ["must be true or false"]
    return value is True


def _finish(problems: Problems) -> None:
    if problems:
        raise FieldErrors(problems)
