"""Upper bounds of the cost of conditions for the largest valid calls."""

from collections.abc import Iterable

from toolgate_service.core.sdk_fields import MAX_CONTEXT_BYTES
from toolgate_service.core.strict_json import MAX_NODES
from toolgate_service.policies.proof.call_classes import PolicyPart
from toolgate_service.policies.proof.syntax import Path
from toolgate_service.rules.expression_cost import MAX_COST
from toolgate_service.rules.expressions import MAX_TOTAL_COST, ROUGH_COST, compile_expression

#: largest number of values and of bytes of texts in the arguments of a valid call, as `rules.expressions` counts them:
#: keys of maps count as values, and each character as up to four bytes
MAX_VALUES, MAX_BYTES = 2 * MAX_NODES, 4 * MAX_CONTEXT_BYTES


def can_exceed_limits(part: PolicyPart) -> bool:
    """Return whether the arguments of a valid call may be so large that a condition exceeds a cost limit."""
    analyses = [compile_expression(rule.when).analysis for rule in part.rules if rule.when is not None]
    costs = [analysis.cost for analysis in analyses if analysis.uses_args]
    if any(_maximum(cost.base, cost.terms.items()) > MAX_COST for cost in costs):
        return True
    base = sum(cost.base + ROUGH_COST for cost in costs)
    return _maximum(base, [term for cost in costs for term in cost.terms.items()]) > MAX_TOTAL_COST


def _maximum(base: int, terms: Iterable[tuple[Path, tuple[int, int]]]) -> int:
    """Return an upper bound of the cost, for arguments with at most `MAX_VALUES` values and `MAX_BYTES` bytes."""
    sums: dict[Path, tuple[int, int]] = {}
    for path, (value, byte) in terms:
        values, length = sums.get(path[:1], (0, 0))
        sums[path[:1]] = (values + value, length + byte)
    # A missing argument counts as one value. The path () stands for all arguments together. Its cost is added to the
    # cost of the single arguments.
    whole_value, whole_byte = sums.pop((), (0, 0))
    missing = sum(value for value, _ in sums.values())
    largest = max((value for value, _ in sums.values()), default=0) + whole_value
    longest = max((byte for _, byte in sums.values()), default=0) + whole_byte
    return base + missing + largest * MAX_VALUES + longest * MAX_BYTES
