"""One approval, brought into any of its states, and everything that may be done to it, over HTTP."""

import asyncio
import json
import re
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

from support.gateway import LiveGateway, Owner
from support.insight import execute
from support.people import ACTION, Board
from support.tables import contents
from toolgate_service.approvals.service import expire_approvals, remind
from toolgate_service.core.ids import new_id
from toolgate_service.db.database import Database, open_database
from toolgate_service.webhooks.events import EVENT_TYPES

PAST = "2020-01-01T00:00:00.000000Z"
ASKED = {"amount": 80, "to": "eve@example.test"}
EDITED = {"amount": 50, "to": "ann@example.test"}
TERMS = {"uses": 5, "seconds": 600}
#: whatever a refused operation must leave as it was
TABLES = ("approvals", "approval_votes", "grants", "grant_votes", "events", "audit_entries")


#: rows as text, by table
Stored: TypeAlias = Mapping[str, Sequence[str]]


class Jobs:
    """Does what the gateway's watch does, when it is told to, over a connection of its own."""

    def __init__(self, gateway: LiveGateway) -> None:
        self._loop = asyncio.new_event_loop()
        self._database = open_database(gateway.database_url)
        self._loop.run_until_complete(self._database.start())

    def do(self, job: Callable[[Database, int], Coroutine[Any, Any, int]]) -> str:
        """Do a job to whatever it is due for."""
        self._loop.run_until_complete(job(self._database, 100))
        return "done"

    def close(self) -> None:
        """Hang up."""
        self._loop.run_until_complete(self._database.close())
        self._loop.close()


@dataclass(frozen=True, slots=True)
class Cast:
    """Who takes part.

    Attributes:
        gateway: the gateway.
        people: the admins; the first creates everything.
        stranger: the admin of another organization.
        jobs: does the gateway's jobs.
    """

    gateway: LiveGateway
    people: Sequence[Owner]
    stranger: Owner
    jobs: Jobs


class Subject:
    """An approval of a new agent, on a board that others share.

    Attributes:
        cast: who takes part.
        gateway: the gateway.
        board: the people, and the agent and its permission.
        approval: the request's id.
    """

    def __init__(self, cast: Cast) -> None:
        self.cast, self.gateway, people = cast, cast.gateway, cast.people
        agent = people[0].agent()
        permission = people[0].permit(agent, ACTION, requires_approval=True, max_amount=100)
        self.board = Board(people, agent, permission)
        self.approval = self.board.ask(ASKED)

    @property
    def first(self) -> Owner:
        """Whoever created everything."""
        return self.board.people[0]

    def post(self, path: str, by: int = 0, **body: object) -> str:
        """Send a POST as one of the people, and return the answer's status."""
        return str(self.board.people[by].http.post(path, json=body).status_code)

    def by_key(self, key: str, path: str) -> str:
        """Send a POST with an API key, and return the answer's status."""
        return str(self.first.http.post(path, headers={"X-API-Key": key}).status_code)

    def check(self, context: object = None, **fields: object) -> str:
        """Check, and say how it went."""
        answer = self.first.check(self.board.agent, ACTION, context or ASKED, **fields)
        if answer.status_code != 200:
            return str(answer.status_code)
        told = answer.json()
        if told["allowed"]:
            return "allowed"
        if not told["requires_approval"]:
            return "blocked"
        return {self.approval: "held", None: "would be held"}.get(told["approval_id"], "held anew")

    def set(self, **columns: object) -> None:
        """Change the approval's row."""
        names = ", ".join(f"{name} = ?" for name in columns)
        statement = f"UPDATE approvals SET {names} WHERE id = ?"
        assert execute(self.gateway, statement, *columns.values(), self.approval) == 1

    def seen(self) -> str:
        """Return the approval's state, which people and the agent see alike."""
        state = str(self.board.shown(self.approval)["status"])
        assert self.board.seen_by_agent(self.approval)["status"] == state
        return state

    def stored(self) -> Stored:
        """Return everything the organization has that an operation may change, by table, in order of ids."""
        organization = self.first.user["organization_id"]
        # The time of the last check is no part of the state: a repeated check changes it.
        execute(
            self.gateway, "UPDATE approvals SET last_asked_at = NULL WHERE organization_id = ?", organization
        )
        return contents(self.gateway, TABLES, organization)

    def told(self, before: Stored, after: Stored) -> list[str]:
        """Return the kinds of the events about approvals that were written, a star at those about others; in order."""
        found = []
        for row in after["events"]:
            kind = re.search(r"'approval\.(\w+)'", row)
            if kind is not None and row not in before["events"]:
                about = re.search(r'"approval": ?{"id": ?"([^"]+)"', row)
                assert about is not None, row
                found.append(kind[1] + ("" if about[1] == self.approval else "*"))
        return found

    def grant(self) -> str:
        """Return a grant that covers nothing but what the tests then say; given for another request."""
        self.board.approved(self.board.ask({"amount": 1}), grant=TERMS)
        return str(self.board.grants(agent_id=self.board.agent)[0]["id"])


def listen(gateway: LiveGateway, owner: Owner) -> None:
    """Give an organization a webhook that wants every kind of event."""
    columns = "id, organization_id, environment, kind, url, events, include_context, is_active, created_by, created_at"
    values = (new_id(), owner.user["organization_id"], "production", "standard", "https://example.test/hook")
    more = (json.dumps(EVENT_TYPES), False, True, owner.user["id"], PAST)
    statement = f"INSERT INTO webhooks ({columns}) VALUES ({', '.join('?' * 10)})"
    assert execute(gateway, statement, *values, *more) == 1


# States -------------------------------------------------------------------------------------------------------------


def _approved(subject: Subject) -> None:
    subject.board.approved(subject.approval, 1)


def _run_out(subject: Subject) -> None:
    subject.set(expires_at=PAST)


def _job(subject: Subject) -> str:
    return subject.cast.jobs.do(expire_approvals)


def _expired(subject: Subject) -> None:
    _run_out(subject)
    _job(subject)


def _consumed(subject: Subject) -> None:
    _approved(subject)
    assert subject.check() == "allowed"


def _late_approved(subject: Subject) -> None:
    _approved(subject)
    _run_out(subject)


#: how a new request comes into each state; `late` are those that the clock has ended and no job has marked
STATES: Mapping[str, Callable[[Subject], object]] = {
    "pending": lambda subject: None,
    "approved": _approved,
    "denied": lambda subject: subject.board.deny(subject.approval, 1),
    "expired": _expired,
    "cancelled": lambda subject: subject.by_key(
        subject.first.key, f"/sdk/approvals/{subject.approval}/cancel"
    ),
    "replaced": lambda subject: subject.board.approved(subject.approval, 1, context=EDITED),
    "consumed": _consumed,
    "late pending": _run_out,
    "late approved": _late_approved,
}


# Operations ---------------------------------------------------------------------------------------------------------

#: prepares something, gives the deed, and tidies up
Operation: TypeAlias = Callable[[Subject], AbstractContextManager[Callable[[], str]]]


def _plain(deed: Callable[[Subject], str]) -> Operation:
    @contextmanager
    def operation(subject: Subject) -> Iterator[Callable[[], str]]:
        yield lambda: deed(subject)

    return operation


def _after(prepare: Callable[[Subject], object], deed: Callable[[Subject], str]) -> Operation:
    @contextmanager
    def operation(subject: Subject) -> Iterator[Callable[[], str]]:
        prepare(subject)
        yield lambda: deed(subject)

    return operation


def _approve(subject: Subject, by: int = 0, **body: object) -> str:
    return subject.post(f"/api/approvals/{subject.approval}/approve", by, **body)


def _named_under_stricter_terms(subject: Subject) -> str:
    found = _named(subject)
    # The request stores these terms.
    return f"{found} under stricter terms" if found == "held" else found


def _named(subject: Subject) -> str:
    return subject.check(approval_id=subject.approval)


def _as_viewer(person: int, deed: Callable[[Subject], str]) -> Operation:
    @contextmanager
    def operation(subject: Subject) -> Iterator[Callable[[], str]]:
        for_whom = subject.board.people[person].user["id"]
        execute(subject.gateway, "UPDATE users SET role = 'viewer' WHERE id = ?", for_whom)
        yield lambda: deed(subject)
        execute(subject.gateway, "UPDATE users SET role = 'admin' WHERE id = ?", for_whom)

    return operation


def _two_needed(subject: Subject) -> None:
    subject.board.change(required_approvals=2)


def _voted(subject: Subject) -> None:
    _two_needed(subject)
    _approve(subject)


@contextmanager
def _cover(subject: Subject) -> Iterator[Callable[[], str]]:
    other = subject.board.ask(ASKED | {"order": 1})
    terms = TERMS | {"except_fields": ["order"]}
    yield lambda: subject.post(f"/api/approvals/{other}/approve", grant=terms)


def _granted(subject: Subject) -> None:
    # A grant covers what waits when it is given: this one is made to cover what waited before.
    seen = "(SELECT context FROM approvals WHERE id = ?)"
    statement = f"UPDATE grants SET context = {seen} WHERE id = ?"
    assert execute(subject.gateway, statement, subject.approval, subject.grant()) == 1


@contextmanager
def _revoke(subject: Subject) -> Iterator[Callable[[], str]]:
    grant = subject.grant()
    # As though it had been approved by the grant, if it was approved.
    statement = "UPDATE approvals SET grant_id = ? WHERE id = ? AND status IN ('approved', 'consumed')"
    execute(subject.gateway, statement, grant, subject.approval)
    yield lambda: subject.post(f"/api/grants/{grant}/revoke")


@contextmanager
def _cancel_as_another_agent(subject: Subject) -> Iterator[Callable[[], str]]:
    other = subject.first.agent("other")
    key = subject.first.http.post(f"/api/agents/{other}/keys").json()["api_key"]
    yield lambda: subject.by_key(key, f"/sdk/approvals/{subject.approval}/cancel")


def _delete(path: str) -> Callable[[Subject], str]:
    def deed(subject: Subject) -> str:
        where = path.format(agent=subject.board.agent, permission=subject.board.permission)
        return str(subject.first.http.delete(where).status_code)

    return deed


def _switch(status: str) -> Callable[[Subject], str]:
    def deed(subject: Subject) -> str:
        path = f"/api/agents/{subject.board.agent}"
        return str(subject.first.http.put(path, json={"status": status}).status_code)

    return deed


def _permit_again(subject: Subject) -> str:
    path = f"/api/agents/{subject.board.agent}/permissions"
    return subject.post(path, action=ACTION, requires_approval=True)


def _new_key(subject: Subject) -> str:
    answer = subject.first.http.post("/api/organization/regenerate-key")
    subject.first.key = answer.json()["api_key"]
    return str(answer.status_code)


def _loosen(subject: Subject) -> str:
    path = f"/api/permissions/{subject.board.permission}"
    return str(subject.first.http.put(path, json={"requires_approval": False}).status_code)


@contextmanager
def _check_while_inactive(subject: Subject) -> Iterator[Callable[[], str]]:
    statement = "UPDATE organizations SET is_active = ? WHERE id = ?"
    organization = subject.first.user["organization_id"]
    execute(subject.gateway, statement, False, organization)
    yield lambda: _named(subject)
    execute(subject.gateway, statement, True, organization)


def _ran_out(subject: Subject) -> str:
    _run_out(subject)
    return "done"


_DELETE_PERMISSION = _delete("/api/permissions/{permission}")

OPERATIONS: Mapping[str, Operation] = {
    "approve": _plain(_approve),
    "approve, one of two": _after(_two_needed, _approve),
    "approve a second time": _after(_voted, _approve),
    "approve as a viewer": _as_viewer(2, lambda subject: _approve(subject, 2)),
    "approve against separation of duties": _after(
        lambda subject: subject.board.change(separation_of_duties=True), _approve
    ),
    "approve from elsewhere": _plain(
        lambda subject: str(
            subject.cast.stranger.http.post(f"/api/approvals/{subject.approval}/approve").status_code
        )
    ),
    "approve something else": _plain(lambda subject: _approve(subject, context=EDITED)),
    "approve something else, one of two": _after(
        _two_needed, lambda subject: _approve(subject, context=EDITED)
    ),
    "approve what may not be": _plain(lambda subject: _approve(subject, context=EDITED | {"amount": 101})),
    "approve for a while": _plain(lambda subject: _approve(subject, grant=TERMS)),
    "approve for a while what is like it": _cover,
    "deny": _plain(lambda subject: subject.post(f"/api/approvals/{subject.approval}/deny")),
    "deny as a viewer": _as_viewer(
        2, lambda subject: subject.post(f"/api/approvals/{subject.approval}/deny", 2)
    ),
    "erase": _plain(lambda subject: subject.post(f"/api/approvals/{subject.approval}/erase")),
    "revoke": _revoke,
    "cancel": _plain(
        lambda subject: subject.by_key(subject.first.key, f"/sdk/approvals/{subject.approval}/cancel")
    ),
    "cancel as another agent": _cancel_as_another_agent,
    "cancel from elsewhere": _plain(
        lambda subject: subject.by_key(subject.cast.stranger.key, f"/sdk/approvals/{subject.approval}/cancel")
    ),
    "check": _plain(lambda subject: subject.check()),
    "check, dry": _plain(lambda subject: subject.check(dry_run=True)),
    "check under a grant": _after(_granted, lambda subject: subject.check()),
    "check by id": _plain(_named),
    "check something else by id": _plain(
        lambda subject: subject.check(ASKED | {"amount": 81}, approval_id=subject.approval)
    ),
    "check by id below the amount": _after(lambda subject: subject.board.change(max_amount=79), _named),
    "check by id when two are needed": _after(_two_needed, _named_under_stricter_terms),
    "check by id when the approver is a viewer": _as_viewer(1, _named),
    "check by id in an inactive organization": _check_while_inactive,
    "run out": _plain(_ran_out),
    "expiry job": _plain(_job),
    "reminder job": _after(
        lambda subject: subject.set(remind_at=PAST), lambda subject: subject.cast.jobs.do(remind)
    ),
    "delete the permission": _plain(_DELETE_PERMISSION),
    "delete the agent's permission": _plain(_delete("/api/agents/{agent}/permissions/{permission}")),
    "make the permission again": _after(_DELETE_PERMISSION, _permit_again),
    "loosen the permission": _plain(_loosen),
    "delete the agent": _plain(_delete("/api/agents/{agent}")),
    "switch the agent off": _plain(_switch("inactive")),
    "switch the agent on again": _after(_switch("inactive"), _switch("active")),
    "regenerate the key": _plain(_new_key),
}
