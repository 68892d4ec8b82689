"""Result of a proof."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from toolgate_service.core.strict_json import Json
from toolgate_service.policies.evaluation import Judgement


class Status(StrEnum):
    """Status of a proof."""

    #: the new policy treats no call more leniently than the old policy
    PROVEN = "proven"
    #: there is a call that the new policy treats more leniently
    WIDENED = "widened"
    #: neither a proof nor a call that the new policy treats more leniently was found
    NOT_PROVEN = "not_proven"


@dataclass(frozen=True, slots=True)
class Counterexample:
    """Tool call that the new policy treats more leniently than the old policy, and both results.

    Attributes:
        agent: Name of the agent in the new policy.
        moment: Time of the call, which conditions read as `now`.
    """

    agent: str
    agent_id: str
    action: str
    context: Mapping[str, Json]
    run_id: str | None
    moment: datetime
    old: Judgement
    new: Judgement


@dataclass(frozen=True, slots=True)
class Proof:
    """Result of the comparison of two policies.

    Attributes:
        counterexample: Call that is treated more leniently, if the status is `WIDENED`.
        reasons: Messages for people that explain why nothing was proven; empty for the other statuses.
        seconds: Time that the comparison took.
    """

    status: Status
    counterexample: Counterexample | None = None
    reasons: Sequence[str] = ()
    seconds: float = 0.0
