"""``toolgate logs tail``: what agents do, as it happens."""

import time
from typing import Annotated

import typer

from toolgate_cli.answers import ManagementError
from toolgate_cli.approvals.options import Environment, InEnvironment
from toolgate_cli.approvals.pages import ascii_json
from toolgate_cli.conversation import stored_login
from toolgate_cli.logs.entries import read_entry
from toolgate_cli.logs.filters import Containing, Filters, From, OfAction, OfAgent, OfStatus, moment
from toolgate_cli.logs.following import Following
from toolgate_cli.output import fail
from toolgate_cli.stored_login import explain


def tail(
    agent: OfAgent = None,
    action: OfAction = None,
    status: OfStatus = None,
    text: Containing = None,
    begins: From = None,
    lines: Annotated[
        int, typer.Option("--lines", "-n", min=0, max=1000, help="Begin with so many that are there already.")
    ] = 10,
    environment: InEnvironment = Environment.PRODUCTION,
    interval: Annotated[
        float, typer.Option(min=0.2, max=3600, help="Seconds between two looks at the gateway.")
    ] = 2.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line, in ASCII.")] = False,
) -> None:
    """Show each entry as it comes, until Ctrl-C: none is left out and none comes twice, also after an outage.

    With --from, everything since then is shown first.
    """
    since = moment(begins, "--from")
    with stored_login() as management:
        query = Filters(agent, action, status, environment).query(management)
        _say(f"following {management.url}, {environment}; Ctrl-C ends it")
        _Tail(Following(management, query, text, since), lines, as_json=as_json).go_on(interval)


class _Tail:
    """Prints what is new."""

    def __init__(self, following: Following, lines: int, *, as_json: bool) -> None:
        self._following = following
        self._lines = lines
        self._as_json = as_json
        self._away = False

    def go_on(self, interval: float) -> None:
        try:
            while True:
                self._look()
                time.sleep(interval)
        except KeyboardInterrupt:
            raise typer.Exit(130) from None

    def _look(self) -> None:
        try:
            new = self._following.look(self._lines)
        except ManagementError as error:
            self._bear(error)
            return
        if self._away:
            _say("the gateway answers again")
        self._away = False
        for raw in new:
            typer.echo(ascii_json(raw) if self._as_json else "  ".join(read_entry(raw).cells).rstrip())

    def _bear(self, error: ManagementError) -> None:
        """Go on without a gateway for as long as it takes; nothing else gets better by waiting."""
        if not error.may_pass:
            fail(explain(error))
        if not self._away:
            _say(f"{error}; waiting for it to come back")
        self._away = True


def _say(words: str) -> None:
    # Not among what was asked for: a reader of the standard output wants entries alone.
    typer.echo(f"toolgate: {words}", err=True)
