"""Approvals, as the gateway tells of them (decisions §5)."""

import re
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

from pydantic import AwareDatetime, BaseModel, ConfigDict, ValidationError

from toolgate_cli.answers import ManagementError
from toolgate_cli.management import Management
from toolgate_cli.output import fail
from toolgate_cli.visible import visible

PATH: Final = "/api/approvals"

#: as far back as the beginning of an id is looked for
_NEWEST: Final = 1_000
_WHOLE_ID: Final = 36
#: characters of a UUIDv7 that say its millisecond: what is asked later begins otherwise
_MILLISECOND: Final = 13
_BEGINNING: Final = re.compile(r"[0-9a-f-]{4,36}")


class Vote(BaseModel):
    """One person's decision."""

    model_config = ConfigDict(frozen=True)

    user_id: str
    decision: str
    note: str | None = None


class Approval(BaseModel):
    """A request that a person decides about. What the gateway says beyond this stays in `raw`."""

    model_config = ConfigDict(frozen=True)

    id: str
    status: str
    agent_id: str
    agent_name: str
    action: str
    digest: str
    context: dict[str, Any]
    created_at: AwareDatetime
    expires_at: AwareDatetime
    run_id: str | None = None
    call_id: str | None = None
    note: str | None = None
    decided_by: str | None = None
    decided_at: AwareDatetime | None = None
    cancel_reason: str | None = None
    required_approvals: int = 1
    votes: list[Vote] = []
    replaces: str | None = None
    replaced_by: str | None = None
    approved_context: dict[str, Any] | None = None
    grant_id: str | None = None
    reason: str | None = None
    #: None from gateways before version 0.2
    waiting: bool | None = None
    last_asked_at: AwareDatetime | None = None

    @property
    def is_pending(self) -> bool:
        """Whether a person may decide."""
        return self.status == "pending"

    @property
    def approving_votes(self) -> int:
        """How many people approved so far."""
        return sum(vote.decision == "approved" for vote in self.votes)


def read_approval(content: Any) -> Approval:
    """Return an approval from the gateway's JSON.

    Raises:
        ManagementError: it is none.
    """
    try:
        return Approval.model_validate(content)
    except ValidationError as error:
        where = ".".join(str(part) for part in error.errors()[0]["loc"])
        raise ManagementError(
            f"the gateway answered with something that is no approval: its {visible(where)!r} is wrong"
        ) from None


def get_approval(management: Management, approval_id: str, environment: str) -> Approval:
    """Return one approval by its whole id.

    Raises:
        ManagementError: the gateway refused, did not answer, or knows none of that id.
    """
    return read_approval(management.get(f"{PATH}/{approval_id}", {"environment": environment}))


def iter_raw(management: Management, environment: str, **filters: str | None) -> Iterator[dict[str, Any]]:
    """Yield approvals as the gateway shows them, newest first.

    Raises:
        ManagementError: the gateway refused, did not answer, or answered with something else than approvals.
    """
    for page in management.pages(PATH, {"environment": environment, **filters}):
        for raw in page:
            # Whoever takes members out of it finds them.
            read_approval(raw)
            yield raw


def find_approval(management: Management, beginning: str, environment: str) -> Approval:
    """Return the one approval whose id begins so.

    Raises:
        ManagementError: the gateway refused or did not answer.
        typer.Exit: there is none, or more than one; one line says so.
    """
    wanted = beginning.strip().lower()
    if not _BEGINNING.fullmatch(wanted):
        fail(f"{beginning!r} is no approval's id nor the beginning of one; see: toolgate approvals list")
    if len(wanted) == _WHOLE_ID:
        return get_approval(management, wanted, environment)
    recent = [read_approval(content) for content in islice(iter_raw(management, environment), _NEWEST)]
    found = [approval for approval in recent if approval.id.startswith(wanted)]
    if not found:
        fail(
            f"no approval of the {environment} environment begins with {beginning!r} among the newest {_NEWEST:,}; "
            "see: toolgate approvals list --status all"
        )
    if len(found) > 1:
        listed = ", ".join(visible(approval.id) for approval in found[:5])
        fail(f"{len(found):,} approvals begin with {beginning!r}: {listed}; write more of the id")
    return found[0]


def short_ids(ids: list[str]) -> dict[str, str]:
    """Return for each id the shortest beginning that names it among these, with its millisecond at least."""
    return {each: _short(each, ids) for each in ids}


def _short(wanted: str, ids: list[str]) -> str:
    length = _MILLISECOND
    while sum(other.startswith(wanted[:length]) for other in ids) > 1 and length < len(wanted):
        length += 1
    return wanted[:length]
