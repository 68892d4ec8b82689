"""Random changes of policies that certainly widen, or certainly do not widen, what a policy allows."""

import copy
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

from support.policy_documents import ACTIONS, Document, Policies, load
from toolgate_service.policies.document import PolicyDocument
from toolgate_service.policies.evaluation import PolicyEvaluator
from toolgate_service.rules.evaluation import action_matches

#: number of random calls of which one must show that a change widens the policy
_CALLS = 300

_Change: TypeAlias = Callable[[Policies, Document], bool]


class Edit(NamedTuple):
    """Changed policy."""

    kind: str
    old: PolicyDocument
    new: PolicyDocument


def widening_edits(seed: int) -> Iterator[Edit]:
    """Yield changes after which the evaluator treats at least one of many random calls more leniently."""
    policies = Policies(seed)
    while True:
        edit = _edit(policies, _WIDENING)
        if edit is not None and _widens(policies, edit):
            yield edit


def other_edits(seed: int) -> Iterator[Edit]:
    """Yield changes that do not widen the policy by construction."""
    policies = Policies(seed)
    while True:
        edit = _edit(policies, _NARROWING)
        if edit is not None:
            yield edit


def _edit(policies: Policies, kinds: list[_Change]) -> Edit | None:
    base = policies.document()
    change = policies.random.choice(kinds)
    changed = copy.deepcopy(base)
    if not change(policies, changed) or changed == base:
        return None
    return Edit(change.__name__, load(base), load(changed))


def _widens(policies: Policies, edit: Edit) -> bool:
    before, after = PolicyEvaluator(edit.old), PolicyEvaluator(edit.new)
    calls = [policies.call([agent.name for agent in edit.new.agents]) for _ in range(_CALLS)]
    return any(after.judge(*call).is_more_lenient(before.judge(*call)) for call in calls)


def _change(items: list[Any], change: Callable[[Any], object]) -> bool:
    if items:
        change(items[0])
    return bool(items)


def raise_max_amount(policies: Policies, document: Document) -> bool:
    found = policies.permissions_with(document, lambda one: "max_amount" in one)
    return _change(found, lambda pair: pair[1].update(max_amount=pair[1]["max_amount"] + 100))


def remove_max_amount(policies: Policies, document: Document) -> bool:
    found = policies.permissions_with(document, lambda one: "max_amount" in one)
    return _change(found, lambda pair: pair[1].pop("max_amount"))


def drop_approval(policies: Policies, document: Document) -> bool:
    found = policies.permissions_with(document, lambda one: one["requires_approval"])
    return _change(found, lambda pair: pair[1].update(requires_approval=False))


def remove_forbidding_rule(policies: Policies, document: Document) -> bool:
    found = policies.rules_with(document, lambda rule: rule["effect"] == "forbid")
    return _change(found, document["rules"].remove)


def disable_rule(policies: Policies, document: Document) -> bool:
    found = policies.rules_with(document, lambda rule: rule["effect"] != "allow")
    return _change(found, lambda rule: rule.update(enabled=False))


def weaken_forbidding_rule(policies: Policies, document: Document) -> bool:
    found = policies.rules_with(document, lambda rule: rule["effect"] == "forbid")
    return _change(found, lambda rule: rule.update(when=f"({rule['when']}) && ({policies.condition()})"))


def weaken_allowing_rule(policies: Policies, document: Document) -> bool:
    found = policies.rules_with(document, lambda rule: rule["effect"] == "allow" and rule["when"])
    return _change(found, lambda rule: rule.update(when=f"({rule['when']}) || ({policies.condition()})"))


def add_allowing_rule(policies: Policies, document: Document) -> bool:
    rule = policies.rule("new rule", [agent["name"] for agent in document["agents"]])
    document["rules"].append(rule | {"effect": "allow", "approval": None})
    return True


def widen_actions(policies: Policies, document: Document) -> bool:
    found = policies.rules_with(document, lambda rule: rule["effect"] == "allow")
    return _change(found, lambda rule: rule.update(actions=["*"]))


def widen_agents(policies: Policies, document: Document) -> bool:
    found = policies.rules_with(document, lambda rule: rule["effect"] == "allow")
    return _change(found, lambda rule: rule.update(agents=["*"]))


def lower_quorum(policies: Policies, document: Document) -> bool:
    found = policies.rules_with(document, lambda rule: (rule.get("approval") or {}).get("quorum"))
    return _change(found, lambda rule: rule["approval"].update(quorum=1))


def lower_quorum_of_permission(policies: Policies, document: Document) -> bool:
    found = policies.permissions_with(document, lambda one: one["required_approvals"] > 1)
    return _change(found, lambda pair: pair[1].update(required_approvals=1))


def lengthen_time(policies: Policies, document: Document) -> bool:
    found = policies.rules_with(document, lambda rule: (rule.get("approval") or {}).get("ttl"))
    return _change(found, lambda rule: rule["approval"].update(ttl=86_400))


def extend_approvers(policies: Policies, document: Document) -> bool:
    found = policies.rules_with(document, lambda rule: (rule.get("approval") or {}).get("approvers"))
    return _change(
        found, lambda rule: rule["approval"].update(approvers=[*rule["approval"]["approvers"], "new@x.org"])
    )


def drop_separation_of_duties(policies: Policies, document: Document) -> bool:
    found = policies.permissions_with(document, lambda one: one["separation_of_duties"])
    return _change(found, lambda pair: pair[1].update(separation_of_duties=False))


def drop_required_amount(policies: Policies, document: Document) -> bool:
    found = policies.permissions_with(document, lambda one: one.get("amount_required"))
    return _change(found, lambda pair: pair[1].update(amount_required=False))


def enable_agent(policies: Policies, document: Document) -> bool:
    return _change(
        [one for one in document["agents"] if not one["enabled"]], lambda one: one.update(enabled=True)
    )


def add_agent(policies: Policies, document: Document) -> bool:
    document["agents"].append({"name": "new-bot", "enabled": True, "permissions": [{"action": "mail.read"}]})
    return True


def add_permission(policies: Policies, document: Document) -> bool:
    agent = policies.random.choice(document["agents"])
    given = {one["action"] for one in agent["permissions"]}
    missing = [action for action in ACTIONS if action not in given]
    return _change(
        missing, lambda action: agent["permissions"].append({"action": action, "requires_approval": False})
    )


def lower_max_amount(policies: Policies, document: Document) -> bool:
    found = policies.permissions_with(document, lambda one: "max_amount" in one)
    return _change(found, lambda pair: pair[1].update(max_amount=pair[1]["max_amount"] / 2))


def require_amount(policies: Policies, document: Document) -> bool:
    found = policies.permissions_with(document, lambda one: one.get("amount_required") is False)
    return _change(found, lambda pair: pair[1].update(amount_required=True))


def add_approval(policies: Policies, document: Document) -> bool:
    found = policies.permissions_with(document, lambda one: not one["requires_approval"])
    return _change(found, lambda pair: pair[1].update(requires_approval=True))


def add_forbidding_rule(policies: Policies, document: Document) -> bool:
    rule = policies.rule("new rule", [agent["name"] for agent in document["agents"]])
    document["rules"].append(rule | {"effect": "forbid", "approval": None})
    return True


def add_requiring_rule(policies: Policies, document: Document) -> bool:
    """Add a rule for one permission: without a permission, the rule would make a denied call possible."""
    [agent, permission] = policies.random.choice(policies.permissions_with(document, lambda one: True))
    scope = {"agents": [agent["name"]], "actions": [permission["action"]], "approval": {"quorum": 2}}
    rule = policies.rule("new rule", [agent["name"]])
    document["rules"].append(rule | {"effect": "require_approval"} | scope)
    return True


def remove_permission(policies: Policies, document: Document) -> bool:
    """Remove a permission for an action to which no rule applies that is weaker than a forbidding one."""
    weaker = [rule for rule in document["rules"] if rule["effect"] != "forbid"]
    patterns = [pattern for rule in weaker for pattern in rule["actions"]]
    found = policies.permissions_with(
        document, lambda one: not any(action_matches(pattern, one["action"]) for pattern in patterns)
    )
    return _change(found, lambda pair: pair[0]["permissions"].remove(pair[1]))


def tighten_allowing_rule(policies: Policies, document: Document) -> bool:
    found = policies.rules_with(document, lambda rule: rule["effect"] == "allow" and rule["when"])
    return _change(found, lambda rule: rule.update(when=f"({rule['when']}) && ({policies.condition()})"))


def tighten_forbidding_rule(policies: Policies, document: Document) -> bool:
    found = policies.rules_with(document, lambda rule: rule["effect"] == "forbid")
    return _change(found, lambda rule: rule.update(when=f"({rule['when']}) || ({policies.condition()})"))


def remove_allowing_rule(policies: Policies, document: Document) -> bool:
    found = policies.rules_with(document, lambda rule: rule["effect"] == "allow")
    return _change(found, document["rules"].remove)


def raise_quorum(policies: Policies, document: Document) -> bool:
    found = policies.rules_with(document, lambda rule: rule.get("approval"))
    return _change(found, lambda rule: rule["approval"].update(quorum=5))


def shorten_time(policies: Policies, document: Document) -> bool:
    found = policies.rules_with(document, lambda rule: (rule.get("approval") or {}).get("ttl"))
    return _change(found, lambda rule: rule["approval"].update(ttl=600))


def remove_approver(policies: Policies, document: Document) -> bool:
    found = policies.rules_with(
        document, lambda rule: len((rule.get("approval") or {}).get("approvers") or ()) > 1
    )
    return _change(found, lambda rule: rule["approval"]["approvers"].pop())


def disable_agent(policies: Policies, document: Document) -> bool:
    return _change(
        [one for one in document["agents"] if one["enabled"]], lambda one: one.update(enabled=False)
    )


def rename_rule(policies: Policies, document: Document) -> bool:
    return _change(policies.rules_with(document, lambda _: True), lambda rule: rule.update(name="renamed"))


def reorder_rules(policies: Policies, document: Document) -> bool:
    policies.random.shuffle(document["rules"])
    policies.random.shuffle(document["agents"])
    return True


def refactor_condition(policies: Policies, document: Document) -> bool:
    found = policies.rules_with(document, lambda rule: rule["when"])
    return _change(found, lambda rule: rule.update(when=policies.equivalent(rule["when"])))


_WIDENING = [
    raise_max_amount,
    remove_max_amount,
    drop_approval,
    remove_forbidding_rule,
    disable_rule,
    weaken_forbidding_rule,
    weaken_allowing_rule,
    add_allowing_rule,
    widen_actions,
    widen_agents,
    lower_quorum,
    lower_quorum_of_permission,
    lengthen_time,
    extend_approvers,
    drop_separation_of_duties,
    drop_required_amount,
    enable_agent,
    add_agent,
    add_permission,
]
_NARROWING = [
    lower_max_amount,
    require_amount,
    add_approval,
    add_forbidding_rule,
    add_requiring_rule,
    remove_permission,
    tighten_allowing_rule,
    tighten_forbidding_rule,
    remove_allowing_rule,
    raise_quorum,
    shorten_time,
    remove_approver,
    disable_agent,
    rename_rule,
    reorder_rules,
    refactor_condition,
]
