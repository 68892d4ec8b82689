"""`toolgate policy validate` and `test`, and the proof of `toolgate policy plan`, without a gateway or a database."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from pydantic import Field, ValidationError

from toolgate_service.core.clock import utcnow, wire
from toolgate_service.core.errors import FieldErrors
from toolgate_service.core.schemas import Action, Body, Moment, Name, field_messages
from toolgate_service.core.strict_json import InvalidJson, Json, dumps, loads
from toolgate_service.policies.document import PolicyDocument, agent_ids_by_reference
from toolgate_service.policies.evaluation import Judgement, PolicyEvaluator

#: address of the JSON Schema of policy documents on the documentation site
SCHEMA_URL: Final = "https://toolgate.github.io/toolgate/reference/policy.schema.json"
_AGENT_NOT_FOUND: Final = "agent_not_found"

Problems = Mapping[str, Sequence[str]]


class CaseCall(Body):
    """Call of a test case, which the policy evaluates."""

    agent: Name = Field(description="Name or id of the agent.")
    action: Action = Field(description="Action of the call.")
    args: dict[str, Any] = Field(default_factory=dict, description="Arguments of the call.")
    run_id: str | None = Field(default=None, description="Identifier of the agent run.")
    now: Moment | None = Field(default=None, description="Time of the check; by default the current time.")


class Expectation(Body):
    """Expected result of a test case. Fields that are missing are not compared."""

    outcome: Literal["allowed", "approval_required", "denied"] = Field(description="Expected decision.")
    rule: Name | None = Field(
        default=None, description="Name of the rule that decides; null if no rule decides the call."
    )
    reason_code: str | None = Field(default=None, description="Reason code of the expected decision.")
    quorum: int | None = Field(default=None, description="Number of different users who must approve.")


class PolicyCase(Body):
    """Test case: a call and its expected result."""

    name: Name = Field(description="Name of the case in the output.")
    call: CaseCall
    expect: Expectation


class CaseFile(Body):
    """File with test cases."""

    tests: list[PolicyCase] = Field(description="Test cases, in the order in which they run.")


@dataclass(frozen=True, slots=True)
class CaseResult:
    """Result of a test case.

    Attributes:
        actual: Values that result from the policy, by the name of the field in `Expectation`.
        reason: Reason that the agent would receive; None if the call is allowed.
        failures: One message for each field that differs from the expected value; empty if the case has passed.
    """

    name: str
    actual: Mapping[str, Any]
    reason: str | None
    failures: Sequence[str]


class InvalidCasesError(Exception):
    """Raised if a file with test cases is invalid.

    Attributes:
        problems: Messages by the path of the field.
    """

    def __init__(self, problems: Problems) -> None:
        super().__init__("invalid test cases")
        self.problems = problems


def validate_policy(content: object) -> Problems:
    """Return the problems of a policy document as messages by the path of the field; empty if there are none."""
    try:
        _read_policy(content)
    except ValidationError as error:
        return field_messages(error.errors())
    except FieldErrors as error:
        return error.fields
    return {}


def run_cases(content: object, cases: object) -> Sequence[CaseResult]:
    """Evaluate a valid policy document for the call of each test case, and compare the results.

    Raises:
        InvalidCasesError: The test cases are invalid.
    """
    try:
        found = CaseFile.model_validate(cases).tests
    except ValidationError as error:
        raise InvalidCasesError(field_messages(error.errors())) from None
    evaluator = PolicyEvaluator(_read_policy(content))
    return [_run_case(evaluator, case, index) for index, case in enumerate(found)]


def prove_change(
    old: object, new: object, agents: Iterable[tuple[str, str]], seconds: float
) -> dict[str, Any]:
    """Search for a call that policy `new` treats more leniently than policy `old`, and return the result as JSON.

    Both policies must be valid. The result contains the `status` of the proof and its `reasons`. If such a call was
    found, `call` describes it, and `old` and `new` are the decisions about the call under the two policies. Otherwise,
    `call`, `old` and `new` are None.

    Args:
        old: Policy before the change.
        new: Policy after the change.
        agents: Ids and names of the existing agents.
        seconds: Time limit of the search.

    Raises:
        ModuleNotFoundError: The extra `prove` is not installed.
    """
    from toolgate_service.policies.proof.prove import prove
    from toolgate_service.policies.service import serialize_judgement

    ids = agent_ids_by_reference(agents)
    proof = prove(_read_policy(old), _read_policy(new), agent_ids=ids, seconds=seconds, moment=utcnow())
    found = proof.counterexample
    result: dict[str, Any] = {"status": proof.status.value, "reasons": list(proof.reasons)}
    if found is None:
        return result | {"call": None, "old": None, "new": None}
    call = {
        "agent": found.agent,
        "agent_id": found.agent_id,
        "action": found.action,
        "context": dict(found.context),
        "run_id": found.run_id,
        "now": wire(found.moment),
    }
    return result | {
        "call": call,
        "old": serialize_judgement(found.old).model_dump(),
        "new": serialize_judgement(found.new).model_dump(),
    }


def policy_schema() -> dict[str, Any]:
    """Return the JSON Schema of policy documents, for editors."""
    schema = PolicyDocument.model_json_schema()
    for name in ("NewRule", "NewBudget"):
        # The models omit this default for the sake of the OpenAPI document, but editors should show it.
        schema["$defs"][name]["properties"]["agents"]["default"] = ["*"]
    for definition in schema["$defs"].values():
        # Remove the description: it is the docstring of the class, which describes the body of a request.
        definition.pop("description", None)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": SCHEMA_URL} | schema


def _read_policy(content: object) -> PolicyDocument:
    policy = PolicyDocument.model_validate(content)
    policy.verify()
    return policy


def _run_case(evaluator: PolicyEvaluator, case: PolicyCase, index: int) -> CaseResult:
    expected = case.expect.model_dump(exclude_unset=True)
    call = case.call
    agent_id = evaluator.agent_id(call.agent)
    judgement = evaluator.judge(
        agent_id or call.agent, call.action, _read_args(call.args, index), call.run_id, call.now or utcnow()
    )
    actual = _actual(judgement)
    failures = [
        f"{name}: expected {_text(value)}, got {_text(actual[name])}"
        for name, value in expected.items()
        if value != actual[name]
    ]
    if agent_id is None and expected.get("reason_code") != _AGENT_NOT_FOUND:
        failures.append(f"agent: {call.agent!r} is not an agent of the policy")
    return CaseResult(case.name, actual, judgement.reason, failures)


def _actual(judgement: Judgement) -> dict[str, Any]:
    return {
        "outcome": judgement.outcome.label,
        "rule": judgement.rule,
        "reason_code": judgement.reason_code,
        "quorum": None if judgement.terms is None else judgement.terms.quorum,
    }


def _read_args(args: Mapping[str, Any], index: int) -> dict[str, Json]:
    """Return the arguments as a check would receive them.

    The gateway's parser determines the types of numbers, and rejects arguments that exceed its limits.
    """
    try:
        value = loads(dumps(args).encode("utf-8", "surrogatepass"))
    except (InvalidJson, TypeError) as error:
        message = str(error).replace("The body", "The arguments")
        raise InvalidCasesError({f"tests.{index}.call.args": [message]}) from None
    if not isinstance(value, dict):
        raise InvalidCasesError({f"tests.{index}.call.args": ["must be an object"]})
    return value


def _text(value: object) -> str:
    return "none" if value is None else str(value)
