"""Comparison of the budgets of two policies.

The evaluation of a policy does not include the totals of budgets. Therefore, each enabled budget of the old policy must
have a successor in the new policy: an equal or stricter budget with the same name. A budget with another name would
start with an empty total.
"""

from collections.abc import Collection, Iterator, Mapping

from toolgate_service.budgets.schemas import NewBudget
from toolgate_service.policies.document import PolicyDocument, ResolvedAgents, resolve_agents
from toolgate_service.rules.evaluation import WILDCARD

_FIXED = ("scope", "measure", "currency_arg", "window")
_AT_LIMIT = ("require_approval", "deny")


def find_relaxed_budgets(
    old: PolicyDocument, new: PolicyDocument, agent_ids: Mapping[str, str]
) -> Iterator[str]:
    """Yield a message for each enabled old budget without an equal or stricter budget of the same name in `new`."""
    successors = {budget.name: budget for budget in new.budgets}
    before, after = resolve_agents(old, agent_ids), resolve_agents(new, agent_ids)
    for budget in old.budgets:
        if not budget.enabled:
            continue
        successor = successors.get(budget.name)
        if successor is None:
            yield f"Budget {budget.name!r} is removed by the new policy: the proof cannot include totals of budgets"
        elif not successor.enabled:
            yield f"Budget {budget.name!r} is disabled in the new policy: the proof cannot include totals of budgets"
        elif changed := _relaxed_fields(budget, successor, before, after):
            yield (
                f"Budget {budget.name!r} has other values of {', '.join(changed)} in the new policy: the proof "
                "supports only equal or stricter budgets"
            )


def _relaxed_fields(
    old: NewBudget, new: NewBudget, before: ResolvedAgents, after: ResolvedAgents
) -> list[str]:
    changed = [field for field in _FIXED if getattr(old, field) != getattr(new, field)]
    if not _covers_agents(before.ids_of(old.agents), after.ids_of(new.agents), after.ids):
        changed.append("agents")
    if not all(any(_covers(wide, narrow) for wide in new.actions) for narrow in old.actions):
        changed.append("actions")
    if new.limit > old.limit:
        changed.append("limit")
    if _AT_LIMIT.index(new.at_limit) < _AT_LIMIT.index(old.at_limit):
        changed.append("at_limit")
    return changed


def _covers_agents(
    old: Collection[str] | None, new: Collection[str] | None, existing: Collection[str]
) -> bool:
    """Return whether `new` contains all agents of `old` that are in `existing`. None stands for all agents."""
    if new is None or old is None:
        return new is None
    return all(one in new for one in old if one in existing)


def _covers(wide: str, narrow: str) -> bool:
    """Return whether the pattern `wide` matches every action that the pattern `narrow` matches."""
    if wide.endswith(WILDCARD):
        return narrow.removesuffix(WILDCARD).startswith(wide[:-1])
    return wide == narrow
