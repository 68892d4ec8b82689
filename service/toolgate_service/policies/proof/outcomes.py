"""Formulas for the result of a policy for the calls of one `CallClass`, and for the comparison of two results.

The formulas follow `toolgate_service.checks.decide.decide` and `toolgate_service.policies.evaluation`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from toolgate_service.policies.proof.call_classes import PermissionContent, PolicyPart, RuleContent
from toolgate_service.policies.proof.symbols import (
    AMOUNT,
    FALSE,
    TRUE,
    Bool,
    Kind,
    SymbolicCall,
    Ternary,
    all_of,
    any_of,
    negated,
    real,
)
from toolgate_service.rules.models import ALLOW, FORBID, REQUIRE_APPROVAL


@dataclass(frozen=True, slots=True)
class Outcome:
    """Formulas for the result of one policy.

    Attributes:
        requiring: Rules that require an approval, each with a formula that is true if the rule matches.
    """

    denied: Bool
    approval: Bool
    allowed: Bool
    permission: PermissionContent | None
    requiring: tuple[tuple[RuleContent, Bool], ...]

    def has_quorum(self, quorum: int) -> Bool:
        """Return a formula that is true if at least `quorum` different users must approve the call."""
        if quorum <= 1 or (self.permission is not None and self.permission.quorum >= quorum):
            return TRUE
        return any_of(*(matches for rule, matches in self.requiring if (rule.quorum or 1) >= quorum))

    def expires_within(self, seconds: int) -> Bool:
        """Return a formula that is true if the permission or a rule requires a decision within at most `seconds`."""
        if self.permission is not None and self.permission.ttl is not None and self.permission.ttl <= seconds:
            return TRUE
        return any_of(
            *(matches for rule, matches in self.requiring if rule.ttl is not None and rule.ttl <= seconds)
        )

    @property
    def restricts_approvers(self) -> Bool:
        """Formula that is true if only some users may approve the call."""
        return any_of(*(matches for rule, matches in self.requiring if rule.approvers is not None))

    def excludes_approver(self, user: str) -> Bool:
        """Return a formula that is true if a rule does not permit the user to approve the call."""
        return any_of(
            *(
                matches
                for rule, matches in self.requiring
                if rule.approvers is not None and user not in rule.approvers
            )
        )

    @property
    def separates_duties(self) -> bool:
        """True if the creators of the agent and of the permission must not approve the call."""
        return self.permission is not None and self.permission.separation_of_duties

    @property
    def uses_default_ttl(self) -> bool:
        """True if the gateway's setting limits the time in which a request must be decided."""
        return self.permission is None or self.permission.ttl is None


def match_formula(rule: RuleContent, result: Ternary | None) -> Bool:
    """Return a formula that is true if a rule matches.

    `result` is the result of the rule's condition; None if the rule has no condition.
    """
    if result is None:
        return TRUE
    return result.true if rule.effect == ALLOW else negated(result.false)


def outcome_of(part: PolicyPart, matches: Sequence[Bool], call: SymbolicCall) -> Outcome:
    """Return the formulas for the result of a policy whose part `part` applies to the calls.

    `matches` contains a formula for each rule of the part, in the same order. It is true if the rule matches.
    """
    if not part.is_enabled:
        return Outcome(TRUE, FALSE, FALSE, None, ())
    by_effect: dict[str, list[Bool]] = {FORBID: [], REQUIRE_APPROVAL: [], ALLOW: []}
    for rule, formula in zip(part.rules, matches, strict=True):
        by_effect[rule.effect].append(formula)
    forbidding, requiring, allowing = (any_of(*formulas) for formulas in by_effect.values())
    permission = part.permission
    if permission is None:
        denied = any_of(forbidding, negated(any_of(requiring, allowing)))
        needs_approval = requiring
    else:
        denied = any_of(forbidding, _violates_amount(permission, call))
        needs_approval = TRUE if permission.requires_approval else requiring
    return Outcome(
        denied,
        all_of(negated(denied), needs_approval),
        all_of(negated(denied), negated(needs_approval)),
        permission,
        tuple(
            (rule, formula)
            for rule, formula in zip(part.rules, matches, strict=True)
            if rule.effect == REQUIRE_APPROVAL
        ),
    )


def is_more_lenient(new: Outcome, old: Outcome) -> Bool:
    """Return a formula that is true if the new result is more lenient than the old one."""
    return any_of(
        all_of(negated(new.denied), old.denied),
        all_of(new.allowed, old.approval),
        all_of(new.approval, old.approval, _has_more_lenient_term(new, old)),
    )


def _has_more_lenient_term(new: Outcome, old: Outcome) -> Bool:
    if (old.separates_duties and not new.separates_duties) or old.uses_default_ttl != new.uses_default_ttl:
        return TRUE
    pairs = [*old.requiring, *new.requiring]
    quorums = {rule.quorum for rule, _ in pairs if rule.quorum}
    times = {rule.ttl for rule, _ in pairs if rule.ttl is not None}
    if old.permission is not None:
        quorums.add(old.permission.quorum)
        if old.permission.ttl is not None:
            times.add(old.permission.ttl)
    users = {user for rule, _ in pairs for user in rule.approvers or ()}
    return any_of(
        *(all_of(old.has_quorum(one), negated(new.has_quorum(one))) for one in sorted(quorums)),
        *(all_of(old.expires_within(one), negated(new.expires_within(one))) for one in sorted(times)),
        all_of(old.restricts_approvers, negated(new.restricts_approvers)),
        *(
            all_of(new.restricts_approvers, negated(new.excludes_approver(user)), old.excludes_approver(user))
            for user in sorted(users)
        ),
    )


def _violates_amount(permission: PermissionContent, call: SymbolicCall) -> Bool:
    """Return a formula that is true if the amount violates the permission, as `find_amount_violation` decides."""
    if permission.max_amount is None:
        return FALSE
    amount = call.variable(AMOUNT)
    is_within = all_of(
        amount.is_kind(Kind.INT, Kind.DOUBLE),
        amount.exact >= 0,
        amount.exact <= real(permission.max_amount),
    )
    if permission.amount_required:
        return negated(is_within)
    return negated(any_of(is_within, amount.is_kind(Kind.MISSING)))
