"""Transactions that PostgreSQL ends for another one's sake, at a statement or at the commit, are done anew."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import httpx
import pytest
from support.console import Reader
from support.gateway import PASSWORD, LiveGateway, Owner
from support.losing import CUT_OFF, DEADLOCK, FOR_EVER, losing_reads, losing_writes
from support.mailbox import Mailbox
from support.tables import contents, rows
from support.waiting import until

pytestmark = pytest.mark.postgresql_only("SQLite has one writer at a time: there is nobody to lose against")

#: whatever a request below may write, but the counts of the minute's requests
TABLES = (
    *("agents", "permissions", "approvals", "approval_votes", "audit_entries", "events", "deliveries"),
    *("log_entries", "monthly_usage", "log_counts", "idempotency_keys", "invitations"),
)
NOBODY = "http://127.0.0.1:9/nobody-listens"


@pytest.fixture(scope="module")
def mailbox() -> Iterator[Mailbox]:
    """Where the gateway's mails go."""
    with Mailbox() as mailbox:
        yield mailbox


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, mailbox: Mailbox) -> Iterator[LiveGateway]:
    """A gateway that sends mail, and whose upkeep does not come in between."""
    env = {
        "TOOLGATE_SMTP_URL": mailbox.url(),
        "TOOLGATE_MAIL_FROM": "gate@toolgate.test",
        "TOOLGATE_PUBLIC_URL": "http://gate.test",
        "TOOLGATE_WEBHOOKS_ALLOW_PRIVATE": "true",
        "TOOLGATE_APPROVAL_WATCH_SECONDS": "3600",
        "TOOLGATE_MAINTENANCE_INTERVAL_SECONDS": "21600",
    }
    with LiveGateway(tmp_path_factory.mktemp("gateway"), env=env) as gateway:
        yield gateway


@dataclass
class Office:
    """An organization with an agent that may do everything once, and a webhook that hears of it."""

    owner: Owner
    gateway: LiveGateway
    agent: str
    permissions: Mapping[str, str] = field(default_factory=dict)
    approval: str = ""

    def send(self, what: str) -> httpx.Response:
        """Send one of the requests."""
        http, agent = self.owner.http, self.agent
        requests: Mapping[str, Callable[[], httpx.Response]] = {
            "log": lambda: self.owner.log(agent, "done"),
            "hold": lambda: self.owner.check(agent, "held", {"n": 2}),
            "approve": lambda: http.post(f"/api/approvals/{self.approval}/approve"),
            "create": lambda: http.post("/api/agents", json={"name": "another"}),
            "loosen": lambda: http.put(
                f"/api/permissions/{self.permissions['held']}", json={"max_amount": 9}
            ),
            "invite": lambda: http.post(
                "/api/team/invitations", json={"email": f"new@{agent[-12:]}.test", "role": "member"}
            ),
        }
        return requests[what]()

    def written(self) -> Mapping[str, list[str]]:
        """Return whatever the organization has."""
        return contents(self.gateway, TABLES, self.owner.user["organization_id"])

    def count(self, query: str) -> int:
        """Return how many rows of the organization there are."""
        found = rows(self.gateway, f"SELECT count(*) FROM {query}", self.owner.user["organization_id"])
        return int(found[0][0])


@pytest.fixture
def office(gateway: LiveGateway) -> Iterator[Office]:
    """An organization of one test's own."""
    with Owner(gateway.url) as owner:
        office = Office(owner, gateway, owner.agent())
        office.permissions = {
            "done": owner.permit(office.agent, "done"),
            "held": owner.permit(office.agent, "held", requires_approval=True),
        }
        office.approval = owner.check(office.agent, "held", {"n": 1}).json()["approval_id"]
        hears = [
            "approval.requested",
            "approval.approved",
            "agent.created",
            "permission.updated",
            "log.created",
        ]
        made = owner.http.post("/api/webhooks", json={"url": NOBODY, "events": hears})
        assert made.status_code == 201, made.text
        yield office


#: what is sent, which table it writes, what of audit and events stands there afterwards, once
DEEDS = {
    "log": ("monthly_usage", None, "log.created"),
    "hold": ("approvals", None, "approval.requested"),
    "approve": ("approval_votes", "approval.approved", "approval.approved"),
    "create": ("agents", "agent.created", "agent.created"),
    "loosen": ("permissions", "permission.updated", "permission.updated"),
    "invite": ("invitations", "team.invited", None),
}


@pytest.mark.parametrize("at_commit", [False, True], ids=["at the statement", "at the commit"])
@pytest.mark.parametrize("what", DEEDS)
def test_what_lost_is_done_once_nevertheless(
    office: Office, mailbox: Mailbox, what: str, at_commit: bool
) -> None:
    """Three times in vain, then it is there: one audit entry, one event, one mail, and nobody was told of a failure."""
    table, audited, event = DEEDS[what]
    mails = len(mailbox.mails)
    with losing_writes(office.gateway.database_url, table, 3, at_commit=at_commit) as losing:
        answer = office.send(what)
        assert answer.status_code in {200, 201}, answer.text
        assert losing.attempts == 4
    if audited:
        assert office.count(f"audit_entries WHERE kind = '{audited}' AND organization_id = ?") == (
            # The office's own agent was created as well.
            2 if what == "create" else 1
        )
    if event:
        assert office.count(f"events WHERE kind = '{event}' AND organization_id = ?") == 1
    if what == "log":
        assert office.count("log_entries WHERE organization_id = ?") == 1
    if what == "hold":
        assert office.count("approvals WHERE organization_id = ?") == 2
    if what == "invite":
        until(lambda: len(mailbox.mails) > mails)
        assert len(mailbox.mails) == mails + 1


@pytest.mark.parametrize("what", DEEDS)
def test_whoever_loses_for_ever_is_told_to_come_again(office: Office, what: str) -> None:
    """After some attempts the answer is 503 with Retry-After, and nothing was changed."""
    before = office.written()
    with losing_writes(
        office.gateway.database_url, DEEDS[what][0], FOR_EVER, at_commit=what != "log"
    ) as losing:
        answer = office.send(what)
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1"), answer.text
        assert losing.attempts == 8
    assert office.written() == before


@pytest.mark.parametrize("at_commit", [False, True], ids=["at the statement", "at the commit"])
def test_a_registration_that_lost_is_done_once(gateway: LiveGateway, at_commit: bool) -> None:
    """One organization, one user, one pair of keys."""
    name = "late" if at_commit else "early"
    email = f"{name}@example.test"
    body = {"email": email, "password": PASSWORD, "organization_name": f"Losers {name}"}
    with losing_writes(gateway.database_url, "organizations", 3, at_commit=at_commit):
        answer = httpx.post(f"{gateway.url}/auth/register", json=body, timeout=30)
    assert answer.status_code == 200, answer.text
    organization = answer.json()["user"]["organization_id"]
    assert rows(gateway, "SELECT count(*) FROM users WHERE email = ?", email) == [(1,)]
    assert rows(gateway, "SELECT count(*) FROM api_keys WHERE organization_id = ?", organization) == [(2,)]
    slugs = rows(gateway, "SELECT slug FROM organizations WHERE id = ?", organization)
    assert slugs == [(f"losers-{name}",)]


def test_a_deadlock_is_a_lost_race_too(office: Office) -> None:
    """Whom the server chooses to break a circle of locks begins again."""
    with losing_writes(office.gateway.database_url, "agents", 2, how=DEADLOCK):
        assert office.send("create").status_code == 201


def test_a_form_of_the_console_is_sent_again_by_nobody(office: Office) -> None:
    """It is done anew like a request of the API, its body with it."""
    with Reader.of(office.gateway.url, office.owner.email) as reader:
        token = reader.token()
        with losing_writes(office.gateway.database_url, "agents", 3, at_commit=True) as losing:
            answer = reader.submit("/console/agents", token=token, name="by form", description="")
            assert answer.status_code == 303, answer.text
            assert losing.attempts == 4
    assert office.count("agents WHERE name = 'by form' AND organization_id = ?") == 1


@pytest.mark.parametrize("what", ["approve", "create", "log"])
def test_a_commit_that_nobody_knows_the_outcome_of_is_not_repeated(office: Office, what: str) -> None:
    """The connection is cut while the server commits: 503 after one attempt, for it may have been done."""
    with losing_writes(
        office.gateway.database_url, DEEDS[what][0], FOR_EVER, at_commit=True, how=CUT_OFF
    ) as losing:
        answer = office.send(what)
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1"), answer.text
        assert losing.attempts == 1


@pytest.mark.parametrize(("times", "status"), [(3, 200), (FOR_EVER, 503)], ids=["three times", "for ever"])
def test_a_read_that_lost_is_read_anew(gateway: LiveGateway, times: int, status: int) -> None:
    """A snapshot that the server could not keep, as on a standby, costs the reader nothing but a moment."""
    with Owner(gateway.url) as owner:
        agent = owner.agent()
        with losing_reads(gateway.database_url, "agents", times) as losing:
            answer = owner.http.get(f"/api/agents/{agent}")
            assert answer.status_code == status, answer.text
            assert losing.attempts >= 4
        assert owner.http.get(f"/api/agents/{agent}").status_code == 200


def test_a_check_that_lost_while_it_was_counted_is_counted_once(office: Office) -> None:
    """Also on the road that most checks take, whose one statement is a transaction of its own."""
    before = int(office.owner.check(office.agent, "done").headers["X-RateLimit-Remaining"])
    with losing_writes(office.gateway.database_url, "rate_windows", 3) as losing:
        answer = office.owner.check(office.agent, "done")
        assert answer.json()["allowed"] is True
        assert losing.attempts == 4
    # A new minute may have begun.
    assert int(answer.headers["X-RateLimit-Remaining"]) >= before - 1
