"""Proof that a new policy treats no tool call more leniently than the old policy."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from threading import Lock
from time import monotonic
from typing import TypeAlias

from toolgate_service.policies.document import PolicyDocument
from toolgate_service.policies.evaluation import PolicyEvaluator
from toolgate_service.policies.proof.budgets import find_relaxed_budgets
from toolgate_service.policies.proof.call_classes import (
    CallClass,
    ComparisonTimeoutError,
    find_changed_classes,
)
from toolgate_service.policies.proof.concrete import Confirmation
from toolgate_service.policies.proof.cost_bounds import can_exceed_limits
from toolgate_service.policies.proof.results import Counterexample, Proof, Status

__all__ = ["Counterexample", "Proof", "Status", "is_available", "prove"]

_Comparison: TypeAlias = Callable[[CallClass, Confirmation], Counterexample | Sequence[str]]

#: maximum number of reasons of one proof
MAX_REASONS = 20
_MISSING = "The package z3-solver is not installed: install it with `pip install 'toolgate[prove]'`"

#: Z3 uses one context for all threads, which only one thread may use at a time
_lock = Lock()


def is_available() -> bool:
    """Return whether Z3 is installed."""
    try:
        import z3  # noqa: F401 - only tests whether it is installed
    except ImportError:
        return False
    return True


def prove(
    old: PolicyDocument,
    new: PolicyDocument,
    *,
    agent_ids: Mapping[str, str] | None = None,
    seconds: float = 5.0,
    moment: datetime,
) -> Proof:
    """Prove that the new policy treats no call more leniently, or find a call that it treats more leniently.

    If neither succeeds, the result contains the reasons. The evaluator of policies confirms each counterexample. The
    comparison ignores the totals of budgets, existing approvals and freezes.

    Args:
        old: Valid document.
        new: Valid document.
        agent_ids: Ids of existing agents, as for `PolicyEvaluator`.
        seconds: Time limit of the comparison.
        moment: Time of the calls that are tried as counterexamples. If a condition reads the time, times in the week
            after it are tried too. A proof covers all times.
    """
    started = monotonic()
    ids = agent_ids or {}
    reasons = list(find_relaxed_budgets(old, new, ids))
    time_limit = f"The time limit of {seconds:g} s was reached"
    counterexample = None
    if _lock.acquire(timeout=max(seconds, 0.0)):
        try:
            results = _compare(old, new, ids, started + seconds, moment)
            for result in results:
                if isinstance(result, Counterexample):
                    counterexample = result
                    break
                reasons += result
        except ComparisonTimeoutError:
            reasons.append(f"{time_limit} before all agents and actions were compared")
        finally:
            _lock.release()
    else:
        reasons.append(f"{time_limit} while another proof ran")
    elapsed = monotonic() - started
    if counterexample is not None:
        return Proof(Status.WIDENED, counterexample, (), elapsed)
    if reasons:
        return Proof(Status.NOT_PROVEN, None, tuple(dict.fromkeys(reasons))[:MAX_REASONS], elapsed)
    return Proof(Status.PROVEN, None, (), elapsed)


def _compare(
    old: PolicyDocument, new: PolicyDocument, ids: Mapping[str, str], deadline: float, moment: datetime
) -> Iterator[Counterexample | Sequence[str]]:
    """Yield one result for each `CallClass` for which the policies may differ.

    A result is a counterexample, or the reasons why nothing was proven; it is empty for a proof.
    """
    evaluators = PolicyEvaluator(old, ids), PolicyEvaluator(new, ids)
    compare = _comparison(deadline, moment)
    for call_class in find_changed_classes(old, new, ids, lambda: monotonic() < deadline):
        exceeds_limits = any(map(can_exceed_limits, (call_class.old, call_class.new)))
        if call_class.only_adds_restrictions and not exceeds_limits:
            continue
        if call_class.agent_id.isprintable():
            yield compare(call_class, Confirmation(*evaluators, call_class))
        else:
            agent = f"agent id {call_class.agent_id!r}"
            yield [f"The {agent} contains characters that conditions (CEL) may not be able to represent"]


def _comparison(deadline: float, moment: datetime) -> _Comparison:
    """Return the function that compares the policies for one class of calls.

    If Z3 is not installed, the function proves nothing and only searches for a counterexample.
    """
    if is_available():
        from toolgate_service.policies.proof.comparison import Comparer

        return Comparer(deadline, moment).compare

    def search(_call_class: CallClass, confirmation: Confirmation) -> Counterexample | Sequence[str]:
        found = confirmation.search(None, moment, lambda: monotonic() < deadline)
        return [_MISSING] if found is None else confirmation.simplify(found)

    return search
