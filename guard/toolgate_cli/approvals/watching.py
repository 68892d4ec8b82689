"""``toolgate approvals watch``: what agents ask for, as it comes."""

import time
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from toolgate_cli.answers import ManagementError
from toolgate_cli.approvals.options import AsJson, Environment, Full, InEnvironment
from toolgate_cli.approvals.pages import ascii_json, people_of, print_approval, state_text
from toolgate_cli.approvals.reading import PATH, Approval, iter_raw, read_approval
from toolgate_cli.management import Management
from toolgate_cli.output import fail
from toolgate_cli.stored_login import StoredLogin, explain
from toolgate_cli.visible import visible

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
