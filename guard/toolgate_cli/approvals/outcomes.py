"""What came of a decision, said to the person who made it."""

from collections.abc import Iterator

from toolgate_cli.answers import ManagementError
from toolgate_cli.approvals.reading import Approval, get_approval
from toolgate_cli.approvals.spans import until
from toolgate_cli.management import Management
from toolgate_cli.visible import visible


def outcome_lines(
    answer: Approval, verb: str, deciding: Management, environment: str, *, granting: bool
) -> Iterator[str]:
    """Yield what is said; the decision stands, whatever cannot be asked any more.

    Args:
        answer: the gateway's.
        verb: what the person said.
        deciding: asks for what the answer leaves open.
        environment: the approval's.
        granting: the same was allowed for a while as well.
    """
    if verb == "deny":
        yield f"denied; {visible(answer.agent_name)} is told" + (" your note" if answer.note else "")
        return
    if answer.replaced_by:
        yield f"edited: it goes on as {visible(answer.replaced_by)}"
        try:
            answer = get_approval(deciding, answer.replaced_by, environment)
        except ManagementError as error:
            yield f"how that stands is unknown: {error}"
            return
    yield _standing(answer)
    if granting:
        yield _grant(answer, deciding, environment)


def _standing(answer: Approval) -> str:
    if answer.is_pending:
        missing = max(1, answer.required_approvals - answer.approving_votes)
        who = "one more person has" if missing == 1 else f"{missing} more people have"
        return f"your vote counts, {answer.approving_votes} of {answer.required_approvals}: {who} to approve"
    if answer.status == "approved":
        may = f"{visible(answer.agent_name)} may do this once, within {until(answer.expires_at)}"
        return f"approved: {may}"
    return f"it is {visible(answer.status)}"


def _grant(answer: Approval, deciding: Management, environment: str) -> str:
    try:
        theirs = deciding.get("/api/grants", {"environment": environment, "agent_id": answer.agent_id})
        grant = next(one for one in theirs if one["approval_id"] == answer.id)
        name, status, uses = visible(grant["id"]), grant["status"], int(grant["uses_left"])
    except (ManagementError, StopIteration, TypeError, KeyError, ValueError):
        return "how the grant stands is unknown"
    if status == "proposed":
        return f"the grant {name} begins once everybody needed has approved"
    return f"the grant {name} is {visible(status)}: the same may be done {uses:,} more times"
