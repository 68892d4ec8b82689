"""Schemathesis over the OpenAPI document against a live gateway, every check on."""

import copy
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jsonschema_rs
import schemathesis
from hypothesis import strategies as st
from schemathesis.config import SchemathesisConfig
from schemathesis.config._checks import NEGATIVE_DATA_REJECTION_EXPECTED_STATUSES
from schemathesis.core.failures import AcceptedNegativeData, Failure
from schemathesis.engine import events, from_schema
from schemathesis.openapi.checks import AllowHeaderMismatch, RejectedPositiveData
from schemathesis.schemas import BaseSchema

from support.conformity import document
from support.gateway import Owner
from support.scene import request_schema
from toolgate_service.http.openapi import API_KEY, BEARER

#: Schemathesis does not count 413 among them
REFUSALS = [*NEGATIVE_DATA_REJECTION_EXPECTED_STATUSES, "413"]

#: of what else than the document every request is made; each with its reason
GENERATION = {
    # U+0000 is refused in every string, also deep inside a `context`, where JSON Schema has no word for it.
    "allow-x00": False,
    # Nothing is remembered between runs: a failure names the request that shows it.
    "database": "none",
}

_ONLY_SLACK = {
    "signing_secret": [
        "is only for webhooks of the type 'slack'; the gateway creates the signing secret of this webhook"
    ]
}

#: fields of a policy whose value is valid by itself, but not beside the others; invalid values are below `policy`
_BETWEEN_FIELDS = re.compile(r"(agents|rules|budgets|calls)\.\d+|agent$|until$")
#: valid by the document, and yet refused: what JSON Schema cannot say, by operation id and the refusal's detail
BEYOND_SCHEMA = (
    ("register", "E-mail already registered"),
    ("invite", "E-mail already registered"),
    (
        "acceptInvitation",
        "This invitation was used already, revoked, or has expired; ask an admin for a new one",
    ),
    (
        "confirmPasswordReset",
        "This link was used already, has expired or was replaced by a newer one; request a new link",
    ),
    ("changePassword", {"current_password": ["is not your current password"]}),
    ("createPermission", "Permission already exists for this action"),
    ("exportLogs", {"to": ["must be later than the parameter from"]}),
    ("listDecisions", {"to": ["must be later than the parameter from"]}),
    ("exportDecisionLog", {"to": ["must be later than the parameter from"]}),
    (
        "approve",
        {
            "grant": [
                "cannot be combined with an edited context; send either the field grant or the field context"
            ]
        },
    ),
    ("createWebhook", "The environment already has 20 webhooks, which is the maximum; delete one first"),
    ("createWebhook", _ONLY_SLACK),
    (
        "createWebhook",
        {
            "signing_secret": [
                "This field is required: copy the signing secret from 'Basic Information' of the Slack app"
            ]
        },
    ),
    ("changeWebhook", _ONLY_SLACK),
    ("patchWebhook", _ONLY_SLACK),
)

#: nobody can make up a cursor: the gateway signs it, and the tests of paging follow it
NOT_GENERATED = {"cursor"}

#: a held request would wait for a person who does not come
LONGEST_WAIT = 1

_PRINTABLE = st.characters(codec="utf-8").filter(str.isprintable)


@dataclass
class Outcome:
    """What a run did.

    Attributes:
        cases: requests answered, by method and path.
        statuses: answers by operation id and status.
        failures: what was found, in words.
    """

    cases: Counter[str] = field(default_factory=Counter)
    statuses: Counter[tuple[str, int]] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    @property
    def total(self) -> int:
        """How many requests were answered."""
        return sum(self.cases.values())


def fuzz(owner: Owner, operations: Iterable[str], phases: Iterable[str], examples: int, seed: int) -> Outcome:
    """Run Schemathesis and return what it did.

    Args:
        owner: whose credentials are used; both are renewed when a request spends them.
        operations: ids of the operations.
        phases: of Schemathesis: examples, coverage, fuzzing, stateful.
        examples: how many cases are drawn for each operation in the drawing phases.
        seed: of the drawing.
    """
    _register_formats()
    settings = {
        "seed": seed,
        "base-url": owner.url,
        "generation": {**GENERATION, "max-examples": examples},
        "phases": {
            name: {"enabled": name in set(phases)} for name in ("examples", "coverage", "fuzzing", "stateful")
        },
        "checks": {"negative_data_rejection": {"expected-statuses": REFUSALS}},
        "continue-on-failure": True,
        "warnings": False,
    }
    config = SchemathesisConfig.from_dict(settings)
    schema = schemathesis.openapi.from_dict(_without(NOT_GENERATED), config=config)
    _attend(schema, owner)
    outcome = Outcome()
    for event in from_schema(schema.include(operation_id=list(operations))).execute():
        _note(event, outcome)
    return outcome


def _note(event: events.EngineEvent, outcome: Outcome) -> None:
    match event:
        case events.ScenarioFinished():
            for case_id, interaction in event.recorder.interactions.items():
                if interaction.response is not None:
                    operation = event.recorder.cases[case_id].value.operation
                    outcome.cases[operation.label] += 1
                    name = operation.definition.raw["operationId"]
                    outcome.statuses[name, interaction.response.status_code] += 1
            for checks in event.recorder.checks.values():
                for check in checks:
                    if check.failure_info is not None:
                        failure = check.failure_info.failure
                        told = f"{check.name}: {failure.title}\n{failure.message}\n{check.failure_info.code_sample}"
                        outcome.failures.append(told)
        case events.NonFatalError():
            outcome.failures.append(f"{event.label}: {event.info.format()}")
        case events.FatalError():
            raise event.exception


def _attend(schema: BaseSchema, owner: Owner) -> None:
    """Give requests their credentials, keep those alive, and judge failures by what the document cannot say."""

    @schema.auth(refresh_interval=None)
    class OwnersCredentials(Credentials):
        def __init__(self) -> None:
            super().__init__(owner)

    @schema.hook
    def after_call(_context: object, case: schemathesis.Case, response: schemathesis.Response) -> None:
        if response.status_code < 300:
            renew(owner, operation_id(case), response)

    schema.hook(map_query)
    schema.hook(filter_failure)


class Credentials:
    """What each operation asks for."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner

    def get(self, case: schemathesis.Case, _context: object) -> Mapping[str, str]:
        """Return the headers."""
        names = {name for one in case.operation.definition.raw["security"] for name in one}
        if BEARER in names:
            return {"Authorization": f"Bearer {self._owner.token}"}
        return {"X-API-Key": self._owner.key} if API_KEY in names else {}

    def set(self, case: schemathesis.Case, data: Mapping[str, str], _context: object) -> None:
        """Put them on a request."""
        case.headers = {**(case.headers or {}), **data}


def renew(owner: Owner, operation: str, response: schemathesis.Response) -> None:
    """Replace the credential that a request has spent."""
    match operation:
        case "regenerateKey":
            owner.key = response.json()["api_key"]
        case "changePassword" | "logout":
            with Owner(owner.url, organization="Fuzzed again") as other:
                owner.token, owner.key = other.token, other.key


def map_query(_context: object, query: dict[str, Any] | None) -> dict[str, Any] | None:
    """Wait for nobody for long."""
    if query and isinstance(query.get("wait"), int):
        query["wait"] = min(query["wait"], LONGEST_WAIT)
    return query


def filter_failure(
    _context: object, failure: Failure, case: schemathesis.Case, response: schemathesis.Response
) -> bool:
    """Drop a refusal of what the document allows where no document could forbid it."""
    if operation_id(case) == "getEntryBundle" and "\n" in str((case.path_parameters or {}).get("position")):
        # A line break in a path of several segments is no path of ours: 404, before the request is counted.
        return False
    if isinstance(failure, AllowHeaderMismatch) and operation_id(case) in {"invite", "listReservations"}:
        # DELETE /api/team/invitations means the user with the id "invitations", who does not exist: 404. In the same way,
        # DELETE /api/budgets/reservations means the budget with the id "reservations".
        return False
    if isinstance(failure, AcceptedNegativeData) and operation_id(case) == "logMany":
        # One bad entry fails alone, inside a 200.
        return all(result["status"] == 200 for result in response.json()["results"])
    if isinstance(failure, AcceptedNegativeData) and "larger than maxLength" in failure.message:
        # The gateway is kinder than its word: spaces around a name are cut off before it is measured.
        return not _announced(case, {name: _trimmed(value) for name, value in case.body.items()})
    if isinstance(failure, AcceptedNegativeData) and "violates `format`" in failure.message:
        # It supposes to have broken a format that is ours alone; the pattern beside it knows better.
        return not _announced(case, case.body)
    return not isinstance(failure, RejectedPositiveData) or _is_unexpected(case, response)


def _is_unexpected(case: schemathesis.Case, response: schemathesis.Response) -> bool:
    """Return whether the document could forbid a request that was refused."""
    if case.path.startswith("/access/v1/requests"):
        # Which evaluations were denied is in no document, nor that the entities must be theirs.
        return False
    if case.path.startswith("/access/v1/"):
        return not _is_beyond_authzen_schema(operation_id(case), response.json())
    if operation_id(case) in {"createWebhook", "changeWebhook", "patchWebhook"} and list(
        response.json()["detail"]
    ) == ["url"]:
        # Which hosts are public names is more than a pattern says; the tests of webhooks know.
        return False
    if operation_id(case) in {"setAllowedNetworks", "patchAllowedNetworks"} and list(
        response.json()["detail"]
    ) == ["networks"]:
        # Nor does it say that an address has four parts, and a network nothing behind its length.
        return False
    if _depends_on_other_values(case.path, response.json()["detail"]):
        return False
    return (operation_id(case), response.json()["detail"]) not in BEYOND_SCHEMA


def _is_beyond_authzen_schema(operation: str, message: str) -> bool:
    """Return whether the message of a refusal is about the size of an evaluation, a token, or a missing default.

    The document cannot say how long an action of two members is, which tokens exist, or that a request without evaluations
    needs the entities that are otherwise defaults.
    """
    paths = {part.partition(":")[0] for part in message.split("; ")}
    allowed = {"evaluation", "resource.id", "action.name", "page.token"}
    entities = {"subject", "action", "resource"} if operation == "authzenEvaluations" else set()
    return all(path in allowed or path.partition(".")[0] in entities for path in paths)


def _depends_on_other_values(path: str, detail: Mapping[str, object] | str) -> bool:
    """Return whether a refusal is about values that are valid by themselves.

    No document says which agents there are, that names in a policy are unique, or that conditions compile.
    """
    if path.startswith(("/api/rules", "/api/budgets")):
        return list(detail) == ["agents"]
    return path.startswith("/api/policy") and all(map(_BETWEEN_FIELDS.match, detail))


def _announced(case: schemathesis.Case, body: object) -> bool:
    schema = request_schema(operation_id(case))
    return schema is not None and jsonschema_rs.validator_for(schema).is_valid(body)


def _trimmed(value: object) -> object:
    match value:
        case str():
            return value.strip()
        case dict():
            return {name: _trimmed(member) for name, member in value.items()}
        case list():
            return [_trimmed(member) for member in value]
    return value


def operation_id(case: schemathesis.Case) -> str:
    """Return the id of a case's operation."""
    name: str = case.operation.definition.raw["operationId"]
    return name


def _without(names: set[str]) -> dict[str, Any]:
    described = copy.deepcopy(document())
    for item in described["paths"].values():
        for operation in item.values():
            parameters = operation.get("parameters", [])
            operation["parameters"] = [one for one in parameters if one["name"] not in names]
    return described


def _register_formats() -> None:
    # The patterns say it with Unicode categories, at which Schemathesis only guesses.
    schemathesis.openapi.format("name", st.text(_PRINTABLE, min_size=1, max_size=100).filter(str.strip))
    schemathesis.openapi.format("description", st.text(_PRINTABLE, max_size=1000))
    hosts = st.from_regex(r"https://[a-z]{1,20}\.example\.com/[a-z0-9]{0,50}", fullmatch=True)
    schemathesis.openapi.format("webhook-url", hosts)
    networks = st.ip_addresses().map(str) | st.sampled_from(["10.0.0.0/8", "2001:db8::/32", "0.0.0.0/0"])
    schemathesis.openapi.format("network", networks)
    windows = st.sampled_from(["hour", "day", "month", "day(UTC)", "month(Europe/Berlin)", "rolling(3600)"])
    schemathesis.openapi.format("budget-window", windows)
    conditions = st.sampled_from(["args.amount > 100", "has(args.to)", "action == 'a.b'", "true"])
    schemathesis.openapi.format("cel-expression", conditions)
    schemathesis.openapi.format("reference", st.text(_PRINTABLE, min_size=1, max_size=255))
