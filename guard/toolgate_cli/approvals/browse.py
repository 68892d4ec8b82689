"""``toolgate approvals list``, ``show`` and ``watch``."""

import time
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Annotated, Any

import typer

from toolgate_cli.approvals.requests import (
    PATH,
    Approval,
    find_approval,
    iter_raw,
    people_of,
    print_approval,
    read_approval,
    short_ids,
    state_text,
)
from toolgate_cli.client import Management, ManagementError
from toolgate_cli.credentials import StoredLogin, explain
from toolgate_cli.durations import since, until
from toolgate_cli.layout import summary
from toolgate_cli.options import ApprovalId, AsJson, Environment, Full, InEnvironment, Status
from toolgate_cli.output import Column, ascii_json, cell, fail, print_table, visible


def list_(
    status: Annotated[Status, typer.Option(help="Where they stand.")] = Status.PENDING,
    agent: Annotated[str | None, typer.Option(help="Only this agent's, by its name or id.")] = None,
    action: Annotated[str | None, typer.Option(help="Only this action.")] = None,
    environment: InEnvironment = Environment.PRODUCTION,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="So many, newest first.")] = 100,
    as_json: AsJson = False,
) -> None:
    """List what waits for a decision, newest first."""
    login = StoredLogin.required()
    try:
        with login.management() as management:
            found = _found(management, status, agent, action, environment, limit + 1)
            approvals = [read_approval(content) for content in found[:limit]]
    except ManagementError as error:
        fail(explain(error))
    if as_json:
        typer.echo(ascii_json(found[:limit]))
        return
    if not approvals:
        typer.echo(f"nothing {'there' if status is Status.ALL else status} at {login.url}, {environment}")
        return
    _print_table(approvals, with_status=status is not Status.PENDING)
    if len(found) > limit:
        typer.echo(f"and more; --limit shows more than {limit:,}")


def show(
    approval_id: ApprovalId,
    environment: InEnvironment = Environment.PRODUCTION,
    full: Full = False,
    as_json: AsJson = False,
) -> None:
    """Show one request with everything it would be done with: amounts first, then recipients, then the rest."""
    login = StoredLogin.required()
    try:
        with login.management() as management:
            approval = find_approval(management, approval_id, environment)
            if as_json:
                typer.echo(ascii_json(management.get(f"{PATH}/{approval.id}", {"environment": environment})))
            else:
                print_approval(approval, management, environment, full=full)
    except ManagementError as error:
        fail(explain(error))


def _found(
    management: Management,
    status: Status,
    agent: str | None,
    action: str | None,
    environment: Environment,
    limit: int,
) -> list[dict[str, Any]]:
    wanted = None if status is Status.ALL else status.value
    everything = iter_raw(management, environment, status=wanted, action=action)
    # By name here: a name is not unique, and the gateway filters by id.
    theirs = (one for one in everything if agent is None or agent in {one["agent_id"], one["agent_name"]})
    return list(islice(theirs, limit))


def _print_table(approvals: Sequence[Approval], *, with_status: bool) -> None:
    columns = (
        Column("id", whole=True),
        Column("agent"),
        Column("action"),
        Column("arguments"),
        Column("age", whole=True),
        Column("status" if with_status else "runs out in", whole=True),
    )
    short = short_ids([approval.id for approval in approvals])
    rows = (
        (
            visible(short[approval.id]),
            cell(visible(approval.agent_name)),
            visible(approval.action),
            summary(approval.context),
            since(approval.created_at),
            visible(approval.status) if with_status else until(approval.expires_at),
        )
        for approval in approvals
    )
    print_table(columns, rows)


#: states from which something may still come
OPEN = ("pending", "approved")


def watch(
    environment: InEnvironment = Environment.PRODUCTION,
    interval: Annotated[
        float, typer.Option(min=0.2, max=3600, help="Seconds between two looks at the gateway.")
    ] = 2.0,
    full: Full = False,
    as_json: AsJson = False,
) -> None:
    """Show each request as it comes, and what becomes of it, until interrupted with Ctrl-C."""
    login = StoredLogin.required()
    try:
        with login.management() as management:
            _Watch(management, environment, full=full, as_json=as_json).go_on(interval)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


class _Watch:
    """What was shown so far, and where it stood then."""

    def __init__(
        self, management: Management, environment: Environment, *, full: bool, as_json: bool
    ) -> None:
        self._management = management
        self._environment = environment
        self._full = full
        self._as_json = as_json
        self._shown: dict[str, Approval] = {}
        self._away = False

    def go_on(self, interval: float) -> None:
        self._say(f"watching {self._management.url}, {self._environment}; Ctrl-C ends it")
        while True:
            try:
                self._look()
            except ManagementError as error:
                self._bear(error)
            else:
                if self._away:
                    self._say("the gateway answers again")
                self._away = False
            time.sleep(interval)

    def _look(self) -> None:
        now = dict(self._open())
        # Oldest first, as they came.
        for raw in reversed(now.values()):
            approval = read_approval(raw)
            if approval.id not in self._shown:
                # What is approved was shown before, or this watch came too late for it.
                if approval.is_pending:
                    self._show(approval, raw)
            elif self._stands(self._shown[approval.id]) != self._stands(approval):
                self._tell(approval, raw)
        for approval_id in [each for each in self._shown if each not in now]:
            self._settle(approval_id)

    def _open(self) -> Iterator[tuple[str, dict[str, Any]]]:
        # Approved after pending: what is approved between the two looks is found in the second.
        for status in OPEN if self._shown else OPEN[:1]:
            for raw in iter_raw(self._management, self._environment, status=status):
                yield str(raw["id"]), raw

    def _settle(self, approval_id: str) -> None:
        raw = self._get(approval_id)
        approval = read_approval(raw)
        if self._stands(approval) != self._stands(self._shown[approval_id]):
            self._tell(approval, raw)
        if approval.status not in OPEN:
            del self._shown[approval_id]
        if approval.replaced_by:
            raw = self._get(approval.replaced_by)
            self._show(read_approval(raw), raw)

    def _get(self, approval_id: str) -> Any:
        return self._management.get(f"{PATH}/{approval_id}", {"environment": self._environment})

    def _show(self, approval: Approval, raw: dict[str, Any]) -> None:
        if self._as_json:
            self._object("requested", raw)
        else:
            typer.echo()
            print_approval(approval, self._management, self._environment, full=self._full)
        self._shown[approval.id] = approval

    def _tell(self, approval: Approval, raw: dict[str, Any]) -> None:
        if self._as_json:
            self._object("changed", raw)
        else:
            quorum = approval.is_pending and approval.required_approvals > 1
            votes = (
                f", {approval.approving_votes} of {approval.required_approvals} approvals" if quorum else ""
            )
            state = state_text(approval, people_of(approval, self._management))
            what = f"{visible(approval.action)} of {visible(approval.agent_name)}"
            typer.echo(f"\n{visible(approval.id)} · {what}: now {state}{votes}")
        self._shown[approval.id] = approval

    @staticmethod
    def _stands(approval: Approval) -> tuple[str, int]:
        return approval.status, len(approval.votes)

    @staticmethod
    def _object(event: str, raw: dict[str, Any]) -> None:
        typer.echo(ascii_json({"event": event, "approval": raw}))

    def _bear(self, error: ManagementError) -> None:
        """Go on without a gateway for as long as it takes; nothing else gets better by waiting."""
        if not error.may_pass:
            fail(explain(error))
        if not self._away:
            self._say(f"{error}; waiting for it to come back")
        self._away = True

    @staticmethod
    def _say(words: str) -> None:
        # Not among what was asked for: a reader of the standard output wants approvals alone.
        typer.echo(f"toolgate: {words}", err=True)
