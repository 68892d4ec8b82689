"""``toolgate approvals list``, ``show`` and ``watch``."""

import time
from collections.abc import Sequence
from enum import StrEnum
from itertools import islice
from typing import Annotated, Any

import typer

from toolgate_cli.approvals.requests import (
    Approval,
    ApprovalId,
    fetch_approval,
    fetch_emails,
    find_approval,
    format_status,
    iter_approvals,
    parse_approval,
    print_approval,
    shorten_ids,
)
from toolgate_cli.client import GatewayClient, GatewayError, Outage
from toolgate_cli.credentials import describe_error, stored_session
from toolgate_cli.durations import format_age, format_remaining
from toolgate_cli.layout import summarize
from toolgate_cli.options import AsJson, Environment, EnvironmentOption, Full, JsonLines, PollInterval
from toolgate_cli.output import Column, print_json, print_note, print_table, sanitize, truncate

#: statuses of approval requests that can still change
_OPEN = ("pending", "approved")


class Status(StrEnum):
    """Values of the option `--status`, which filters approval requests; `all` means every status."""

    PENDING = "pending"
    APPROVED = "approved"
    DENIED = "denied"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    REPLACED = "replaced"
    CONSUMED = "consumed"
    ALL = "all"


def list_(
    status: Annotated[Status, typer.Option(help="Filter by status.")] = Status.PENDING,
    agent: Annotated[str | None, typer.Option(help="Filter by agent: its name or id.")] = None,
    action: Annotated[str | None, typer.Option(help="Filter by action.")] = None,
    environment: EnvironmentOption = Environment.PRODUCTION,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Maximum number of requests.")] = 100,
    as_json: AsJson = False,
) -> None:
    """List approval requests, newest first; by default those that need a decision."""
    with stored_session() as client:
        wanted = None if status is Status.ALL else status.value
        everything = iter_approvals(client, environment, status=wanted, action=action)
        # The gateway filters only by a single agent id, but several agents may have the same name. Therefore `--agent`
        # is applied here.
        matching = (
            one for one in everything if agent is None or agent in {one[0].agent_id, one[0].agent_name}
        )
        found = list(islice(matching, limit + 1))
    if as_json:
        print_json([raw for _, raw in found[:limit]])
        return
    if not found:
        name = "approval requests" if status is Status.ALL else f"{status} approval requests"
        typer.echo(f"no {name} at {client.url}, {environment}")
        return
    _print_table([approval for approval, _ in found[:limit]], has_status=status is not Status.PENDING)
    if len(found) > limit:
        typer.echo(f"there are more; write a --limit above {limit:,}")


def show(
    approval_id: ApprovalId,
    environment: EnvironmentOption = Environment.PRODUCTION,
    full: Full = False,
    as_json: AsJson = False,
) -> None:
    """Show one approval request with all arguments of the call: amounts first, then recipients, then others."""
    with stored_session() as client:
        approval = find_approval(client, approval_id, environment)
        if as_json:
            print_json(fetch_approval(client, approval.id, environment))
        else:
            print_approval(approval, client, environment, full=full)


def watch(
    environment: EnvironmentOption = Environment.PRODUCTION,
    interval: PollInterval = 2.0,
    full: Full = False,
    as_json: JsonLines = False,
) -> None:
    """Show new approval requests and their changes, until Ctrl-C."""
    try:
        with stored_session() as client:
            _Watch(client, environment, full=full, as_json=as_json).run(interval)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


class _Watch:
    """Polls the gateway for approval requests, and prints new requests and changes of printed ones."""

    def __init__(self, client: GatewayClient, environment: Environment, *, full: bool, as_json: bool) -> None:
        self._client = client
        self._environment = environment
        self._full = full
        self._as_json = as_json
        #: maps ids of requests to the requests as they were last printed; contains only requests that can still change
        self._printed: dict[str, Approval] = {}

    def run(self, interval: float) -> None:
        print_note(f"watching {self._client.url}, {self._environment}; stop with Ctrl-C")
        outage = Outage()
        while True:
            try:
                self._poll()
            except GatewayError as error:
                outage.report(error, describe_error(error))
            else:
                outage.end()
            time.sleep(interval)

    def _poll(self) -> None:
        found = self._fetch_open()
        # The gateway returns the newest request first, but requests are printed oldest first.
        for approval, raw in reversed(found.values()):
            if approval.id not in self._printed:
                # Only pending requests are printed as new, because a request that is already approved needs no
                # decision.
                if approval.is_pending:
                    self._print_new(approval, raw)
            elif _state(self._printed[approval.id]) != _state(approval):
                self._print_change(approval, raw)
        for approval_id in [each for each in self._printed if each not in found]:
            self._close(approval_id)

    def _fetch_open(self) -> dict[str, tuple[Approval, dict[str, Any]]]:
        # Pending requests are fetched before approved requests. In the opposite order, neither result would contain a
        # request that is approved between the two fetches.
        return {
            approval.id: (approval, raw)
            for status in (_OPEN if self._printed else _OPEN[:1])
            for approval, raw in iter_approvals(self._client, self._environment, status=status)
        }

    def _close(self, approval_id: str) -> None:
        approval, raw = self._fetch(approval_id)
        if _state(approval) != _state(self._printed[approval_id]):
            self._print_change(approval, raw)
        if approval.status not in _OPEN:
            del self._printed[approval_id]
        if approval.replaced_by:
            self._print_new(*self._fetch(approval.replaced_by))

    def _fetch(self, approval_id: str) -> tuple[Approval, Any]:
        raw = fetch_approval(self._client, approval_id, self._environment)
        return parse_approval(raw), raw

    def _print_new(self, approval: Approval, raw: dict[str, Any]) -> None:
        if self._as_json:
            print_json({"event": "requested", "approval": raw})
        else:
            typer.echo()
            print_approval(approval, self._client, self._environment, full=self._full)
        self._printed[approval.id] = approval

    def _print_change(self, approval: Approval, raw: dict[str, Any]) -> None:
        if self._as_json:
            print_json({"event": "changed", "approval": raw})
        else:
            status = format_status(approval, fetch_emails(approval, self._client))
            if approval.is_pending and approval.required_approvals > 1:
                status += f", {approval.approving_votes} of {approval.required_approvals} approvals"
            call = f"{sanitize(approval.action)} of {sanitize(approval.agent_name)}"
            typer.echo(f"\n{sanitize(approval.id)} · {call}: now {status}")
        self._printed[approval.id] = approval


def _state(approval: Approval) -> tuple[str, int]:
    return approval.status, len(approval.votes)


def _print_table(approvals: Sequence[Approval], *, has_status: bool) -> None:
    columns = (
        Column("id", no_wrap=True),
        Column("agent"),
        Column("action"),
        Column("arguments"),
        Column("age", no_wrap=True),
        Column("status" if has_status else "expires in", no_wrap=True),
    )
    ids = shorten_ids([approval.id for approval in approvals])
    rows = (
        (
            sanitize(ids[approval.id]),
            truncate(sanitize(approval.agent_name)),
            sanitize(approval.action),
            summarize(approval.context),
            format_age(approval.created_at),
            sanitize(approval.status) if has_status else format_remaining(approval.expires_at),
        )
        for approval in approvals
    )
    print_table(columns, rows)
