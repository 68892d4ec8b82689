"""Request and response bodies of replays of policies."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from toolgate_service.core.schemas import (
    EXAMPLE_AGENT_ID,
    EXAMPLE_ID,
    EXAMPLE_TIME,
    Action,
    Body,
    Moment,
    example,
)
from toolgate_service.policies.document import PolicyDocument
from toolgate_service.policies.schemas import EXAMPLE_POLICY, OutcomeName

#: number of days that a replay covers by default
DEFAULT_DAYS = 30
#: maximum number of decisions that one replay compares
MAX_DECISIONS = 1_000_000
#: maximum number of rows in the table of a report, and of examples for each kind of difference
MAX_ROWS, MAX_EXAMPLES = 200, 20
#: maximum number of pairs of agent and action that a replay counts separately
MAX_PAIRS = 20_000

DifferenceName = Literal["newly_allowed", "newly_held", "newly_denied"]


class PolicyReplay(Body):
    """Request body of POST /api/policy/replay."""

    model_config = example(policy=EXAMPLE_POLICY, since="2026-11-01T00:00:00Z", until=None)

    policy: PolicyDocument = Field(
        description="Complete candidate policy. The gateway decides the recorded calls "
        "again with this policy."
    )
    since: Moment | None = Field(
        default=None,
        description="Start of the time range, inclusive (ISO 8601; without an offset, UTC); null for "
        f"{DEFAULT_DAYS} days before the end of the time range.",
    )
    until: Moment | None = Field(
        default=None,
        description="End of the time range, exclusive (ISO 8601; without an offset, UTC); null for the current time.",
    )
    agent: Annotated[str, Field(min_length=1, max_length=100)] | None = Field(
        default=None,
        description="Name or id of an agent, to compare only decisions about this agent; null for all agents.",
    )
    action: Action | None = Field(
        default=None,
        description="An action, to compare only decisions about this action; null for all actions.",
    )


class ReplayCounts(BaseModel):
    """Number of decisions in each category."""

    unchanged: int = Field(
        default=0, description="Number of decisions with the same result under the candidate policy."
    )
    newly_allowed: int = Field(
        default=0,
        description="Number of calls that were denied or needed an approval, and that the candidate policy allows "
        "without an approval. The number includes calls that an approval allowed at the time.",
    )
    newly_held: int = Field(
        default=0,
        description="Number of calls that were allowed or denied, and for which the candidate policy requires an "
        "approval.",
    )
    newly_denied: int = Field(
        default=0,
        description="Number of calls that were allowed or needed an approval, and that the candidate "
        "policy denies.",
    )
    not_replayable: int = Field(
        default=0,
        description="Number of decisions whose result under the candidate policy is unknown. The report lists the "
        "reasons in `not_replayable`.",
    )


class ReplayRow(ReplayCounts):
    """Number of decisions about an action of an agent, in each category."""

    agent_id: str | None = Field(
        description="Id of the agent; null for checks with an unknown agent id, and in the row that sums up the "
        "remaining pairs of agent and action."
    )
    agent: str | None = Field(description="Name of the agent; null if `agent_id` is null.")
    action: str | None = Field(
        description=f"Action of the calls; null in the row that sums up all pairs of agent and action after the "
        f"first {MAX_PAIRS:,}."
    )


class ReplayReason(BaseModel):
    """Reason why decisions are not replayable."""

    reason: str = Field(description="Reason, for people.")
    count: int = Field(description="Number of decisions.")


class ReplayExample(BaseModel):
    """Decision with another result under the candidate."""

    decision_id: str = Field(description="Id of the decision, a UUID.")
    created_at: datetime = Field(description="Time of the decision (UTC).")
    agent_id: str | None = Field(description="Id of the agent, a UUID.")
    agent: str | None = Field(description="Name of the agent.")
    action: str = Field(description="Action of the call.")
    outcome: OutcomeName = Field(description="Recorded decision.")
    reason_code: str = Field(description="Recorded code of the reason for the decision.")
    new_outcome: OutcomeName = Field(description="Result under the candidate policy.")
    new_reason_code: str = Field(description="Code of the reason under the candidate policy.")
    reason: str | None = Field(
        description="Reason under the candidate policy; null if the candidate policy allows the call."
    )
    rule: str | None = Field(
        description="Name of the rule in the candidate policy that decides the call; null if no rule decides the call."
    )


class ReplayExamples(BaseModel):
    """Oldest decisions of each category of differences."""

    newly_allowed: list[ReplayExample] = Field(default_factory=list, description="Newly allowed calls.")
    newly_held: list[ReplayExample] = Field(
        default_factory=list, description="Calls that newly require an approval."
    )
    newly_denied: list[ReplayExample] = Field(default_factory=list, description="Newly denied calls.")


class ReplayReport(BaseModel):
    """Comparison of recorded decisions with the results of a candidate."""

    model_config = example(
        since=EXAMPLE_TIME,
        until=EXAMPLE_TIME,
        judged=1204,
        is_complete=True,
        seconds=0.09,
        decisions_per_second=13377,
        totals={
            "unchanged": 1187,
            "newly_allowed": 12,
            "newly_held": 0,
            "newly_denied": 1,
            "not_replayable": 4,
        },
        rows=[
            {
                "agent_id": EXAMPLE_AGENT_ID,
                "agent": "refund-bot",
                "action": "stripe.refund",
                "unchanged": 1187,
                "newly_allowed": 12,
                "newly_held": 0,
                "newly_denied": 1,
                "not_replayable": 4,
            }
        ],
        omitted_rows=0,
        not_replayable=[{"reason": "The agent was deleted after the decision", "count": 4}],
        examples={
            "newly_allowed": [],
            "newly_held": [],
            "newly_denied": [
                {
                    "decision_id": EXAMPLE_ID,
                    "created_at": EXAMPLE_TIME,
                    "agent_id": EXAMPLE_AGENT_ID,
                    "agent": "refund-bot",
                    "action": "stripe.refund",
                    "outcome": "allowed",
                    "reason_code": "allowed",
                    "new_outcome": "denied",
                    "new_reason_code": "forbidden_by_rule",
                    "reason": "Rule 'No refunds abroad' forbids action 'stripe.refund'",
                    "rule": "No refunds abroad",
                }
            ],
        },
    )

    since: datetime = Field(description="Start of the time range, inclusive (UTC).")
    until: datetime = Field(description="End of the time range, exclusive (UTC).")
    judged: int = Field(description="Number of compared decisions.")
    is_complete: bool = Field(
        description=f"False if the replay ended after {MAX_DECISIONS:,} decisions, so that later ones were not compared."
    )
    seconds: float = Field(description="Duration of the replay, in seconds.")
    decisions_per_second: int = Field(description="Number of compared decisions per second.")
    totals: ReplayCounts = Field(description="Numbers for all compared decisions together.")
    rows: Sequence[ReplayRow] = Field(
        description=f"Numbers by agent and action, at most {MAX_ROWS} rows. The rows with the most newly allowed, "
        "held and denied calls come first, then the rows with the most decisions."
    )
    omitted_rows: int = Field(description="Number of pairs of agent and action that `rows` does not contain.")
    not_replayable: Sequence[ReplayReason] = Field(
        description="Reasons for which decisions are not replayable, the most frequent first."
    )
    examples: ReplayExamples = Field(
        description=f"The oldest decisions with a different result: at most {MAX_EXAMPLES} for each kind of "
        "difference."
    )
