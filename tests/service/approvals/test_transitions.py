"""Every state of an approval and everything that may be done to it: what becomes of it, and what is told (decisions §5).

A cell of the table says what an operation answers, after ``→`` the next state where that is another, and after each
``+`` an event that is written. A star marks an event about another request than the one that is looked at.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack

import pytest
from support.conformity import document
from support.gateway import LiveGateway, Owner
from support.insight import move_into
from support.transitions import OPERATIONS, STATES, Cast, Jobs, Subject, listen

from toolgate_service.approvals.models import STATUSES

CLOSED = ("denied", "expired", "cancelled", "replaced", "consumed", "late pending", "late approved")
NOT_PENDING = ("approved", *CLOSED)
ALL = ("pending", *NOT_PENDING)
#: closed, and no person said no of late
ENDED = ("expired", "cancelled", "replaced", "consumed", "late approved")
#: closed, and nothing of it is left open
GONE = ("denied", "expired", "cancelled", "consumed", "late pending", "late approved")

Cells = Mapping[tuple[str, ...], str]


def ends_open(status: int) -> Cells:
    # With what was replaced ends what took its place.
    return {
        ("pending", "approved"): f"{status} → cancelled +cancelled",
        ("replaced",): f"{status} +cancelled*",
        GONE: f"{status}",
    }


def only_pending(cell: str, other: str = "409") -> Cells:
    return {("pending",): cell, NOT_PENDING: other}


TABLE: Mapping[str, Cells] = {
    "approve": only_pending("200 → approved +approved"),
    "approve, one of two": only_pending("200"),
    "approve a second time": only_pending("409"),
    "approve as a viewer": {ALL: "403"},
    "approve against separation of duties": only_pending("403"),
    "approve from elsewhere": {ALL: "404"},
    "approve something else": only_pending("200 → replaced +replaced +approved*"),
    "approve something else, one of two": only_pending("200 → replaced +replaced +requested*"),
    "approve what may not be": only_pending("400"),
    "approve for a while": only_pending("200 → approved +approved"),
    "approve for a while what is like it": only_pending(
        "200 → approved +approved* +approved", "200 +approved*"
    ),
    "deny": only_pending("200 → denied +denied"),
    "deny as a viewer": {ALL: "403"},
    "erase": {
        ("pending", "approved", "late pending", "late approved"): "409",
        ("denied", "expired", "cancelled", "replaced", "consumed"): "204",
    },
    "revoke": {("approved",): "200 → cancelled +cancelled", ("pending", *CLOSED): "200"},
    "cancel": {("pending", "approved"): "200 → cancelled +cancelled", CLOSED: "409"},
    "cancel as another agent": {ALL: "404"},
    "cancel from elsewhere": {ALL: "404"},
    "check": {
        ("pending",): "held",
        ("approved",): "allowed → consumed +consumed",
        ("denied",): "blocked",
        # The new request needs the place of the old one, which is marked then.
        ("late pending",): "held anew +expired +requested*",
        ENDED: "held anew +requested*",
    },
    "check, dry": {
        ("pending",): "held",
        ("approved",): "allowed",
        ("denied",): "blocked",
        ("late pending", *ENDED): "would be held",
    },
    "check under a grant": {
        ("pending", "approved"): "allowed → consumed +consumed",
        ("denied",): "blocked",
        ("late pending", *ENDED): "allowed +consumed*",
    },
    "check by id": {
        ("pending",): "held",
        ("approved",): "allowed → consumed +consumed",
        CLOSED: "blocked",
    },
    "check something else by id": {ALL: "blocked"},
    "check by id below the amount": {ALL: "blocked"},
    "check by id when two are needed": only_pending("held under stricter terms", "blocked"),
    "check by id when the approver is a viewer": only_pending("held", "blocked"),
    "check by id in an inactive organization": {ALL: "401"},
    "run out": {("pending", "approved"): "done → expired", CLOSED: "done"},
    "expiry job": {
        ("pending", "approved", "denied", "expired", "cancelled", "replaced", "consumed"): "done",
        ("late pending", "late approved"): "done +expired",
    },
    "reminder job": only_pending("done +reminder", "done"),
    "delete the permission": ends_open(204),
    "delete the agent's permission": ends_open(204),
    "make the permission again": {("pending", "approved"): "201 → cancelled", CLOSED: "201"},
    "loosen the permission": {ALL: "200"},
    "delete the agent": ends_open(204),
    "switch the agent off": ends_open(200),
    "switch the agent on again": {("pending", "approved"): "200 → cancelled", CLOSED: "200"},
    "regenerate the key": {ALL: "200"},
}
#: what is answered where nothing may have been written
WRITES_NOTHING = {"400", "401", "403", "404", "409", "held", "blocked", "would be held"}
#: what each route that changes approvals is called in the table
ROUTES = {
    "/api/approvals/{approval_id}/approve": "approve",
    "/api/approvals/{approval_id}/reject": "deny",
    "/api/approvals/{approval_id}/deny": "deny",
    "/api/approvals/{approval_id}/erase": "erase",
    "/api/grants/{grant_id}/revoke": "revoke",
    "/sdk/approvals/{approval_id}/cancel": "cancel",
}


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveGateway]:
    """A gateway that leaves what has run out to the test, but for once in its first minute."""
    env = {"TOOLGATE_APPROVAL_WATCH_SECONDS": "3600", "TOOLGATE_MANAGEMENT_REQUESTS_PER_MINUTE": "1000000"}
    with LiveGateway(tmp_path_factory.mktemp("alone"), env=env) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def cast(alone: LiveGateway) -> Iterator[Cast]:
    """Three admins of an organization with a webhook that wants everything, and a stranger."""
    with ExitStack() as stack:
        *people, stranger = [stack.enter_context(Owner(alone.url)) for _ in range(4)]
        for other in people[1:]:
            move_into(alone, other, people[0])
        listen(alone, people[0])
        jobs = Jobs(alone)
        stack.callback(jobs.close)
        yield Cast(alone, people, stranger, jobs)


def cells(operation: str) -> Mapping[str, str]:
    return {state: cell for states, cell in TABLE[operation].items() for state in states}


def test_the_table_is_whole() -> None:
    """Every state that there is, every operation, every route: each has its cells, and each cell once."""
    assert {state for state in STATES if not state.startswith("late ")} == set(STATUSES)
    assert TABLE.keys() == OPERATIONS.keys()
    for operation, line in TABLE.items():
        named = [state for states in line for state in states]
        assert sorted(named) == sorted(STATES), operation
    changing = {
        path
        for path, methods in document()["paths"].items()
        if path.startswith(("/api/approvals", "/sdk/approvals", "/api/grants")) and methods.keys() - {"get"}
    }
    assert changing == ROUTES.keys()
    assert set(ROUTES.values()) <= TABLE.keys()


@pytest.mark.parametrize(
    "states",
    [
        pytest.param(("pending",), id="pending"),
        pytest.param(NOT_PENDING, id="not-pending", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_transitions(cast: Cast, operation: str, states: tuple[str, ...]) -> None:
    """From each state: the answer, the next state as people and the agent see it, and one event for each change."""
    _walk(cast, operation, states)


@pytest.mark.sqlite_only("one walk through the other states is enough")
@pytest.mark.parametrize(
    ("operation", "state"),
    [(operation, NOT_PENDING[number % len(NOT_PENDING)]) for number, operation in enumerate(OPERATIONS)],
)
def test_transitions_from_another_state(cast: Cast, operation: str, state: str) -> None:
    """A part of the same, for the quick run: each operation in one other state, and each state with some operations."""
    _walk(cast, operation, (state,))


def _walk(cast: Cast, operation: str, states: tuple[str, ...]) -> None:
    for state, expected in cells(operation).items():
        if state not in states:
            continue
        found = walked(cast, state, operation)
        if found != expected and (state.startswith("late ") or "job" in operation):
            # The gateway's own job may have come in between, this once.
            found = walked(cast, state, operation)
        assert found == expected, (state, operation)


def walked(cast: Cast, state: str, operation: str) -> str:
    """Do an operation to an approval in a state, and return what came of it as a cell of the table says it."""
    subject = Subject(cast)
    STATES[state](subject)
    before = subject.seen()
    assert before == ("expired" if state.startswith("late ") else state)
    with OPERATIONS[operation](subject) as deed:
        stored = subject.stored()
        answer = deed()
        after_all = subject.stored()
    if answer in WRITES_NOTHING:
        assert after_all == stored, (state, operation)
    after = subject.seen()
    events = [f" +{told}" for told in subject.told(stored, after_all)]
    return answer + (f" → {after}" if after != before else "") + "".join(events)
