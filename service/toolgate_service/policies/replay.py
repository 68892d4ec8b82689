"""Comparison of records of the decision log with the results of a candidate policy, without I/O."""

from collections.abc import Mapping

from toolgate_service.core.strict_json import Json, canonical, digest, loads_own
from toolgate_service.decisions.recorder import MAX_CONTEXT
from toolgate_service.decisions.repository import RecordedDecision
from toolgate_service.policies.comparison import (
    NOT_REPLAYABLE,
    Comparison,
    DecidedCall,
    PolicyComparison,
    is_independent,
)

NO_CONTEXT = (
    f"The arguments are not stored: they are longer than {MAX_CONTEXT:,} characters, or older than "
    "TOOLGATE_DECISION_CONTEXT_DAYS"
)
OTHER_CONTEXT = "The stored arguments do not have the recorded digest"


def compare_recorded(comparison: PolicyComparison, decision: RecordedDecision) -> Comparison:
    """Return the result of the candidate for a recorded decision, compared with the recorded result.

    A decision whose arguments are not stored is not replayable, unless it does not depend on the policy.
    """
    context: Mapping[str, Json] = {}
    if not is_independent(decision.agent_id, decision.reason_code):
        if decision.context is None:
            return Comparison(NOT_REPLAYABLE, problem=NO_CONTEXT)
        stored = _read_context(decision.context, decision.context_digest)
        if stored is None:
            return Comparison(NOT_REPLAYABLE, problem=OTHER_CONTEXT)
        context = stored
    call = DecidedCall(
        decision.agent_id,
        decision.action,
        context,
        decision.run_id,
        decision.created_at,
        decision.outcome,
        decision.reason_code,
        decision.rule_id,
    )
    return comparison.compare(call)


def _read_context(text: str, expected: str) -> Mapping[str, Json] | None:
    """Return the arguments in a stored text; None if they do not have the recorded digest."""
    try:
        args = loads_own(text)
    except ValueError:
        return None
    if not isinstance(args, dict):
        return None
    # The digest is that of the canonical text, which differs from the stored text only by the types of numbers.
    if digest(text) == expected or digest(canonical(args)) == expected:
        return args
    return None
