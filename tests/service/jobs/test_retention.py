"""What is kept for how long (spec §8, decisions §7, §8)."""

import uuid

import pytest
from support.bulk import write_entries
from support.gateway import LiveGateway, Owner
from support.tables import execute, rows
from support.upkeep import Prune, ago, ago_text

TEST = {"environment": "test"}


def count(owner: Owner, **params: str) -> int:
    return len(owner.entries(limit=100, **params))


def on_plan(
    gateway: LiveGateway, owner: Owner, plan: str, changed: int | None = None, before: int | None = None
) -> None:
    """Put an organization on a plan, some days ago, after one that kept entries for so many days."""
    statement = (
        "UPDATE organizations SET plan = ?, plan_changed_at = ?, retention_days_before = ? WHERE id = ?"
    )
    moment = None if changed is None else ago_text(days=changed)
    execute(gateway, statement, plan, moment, before, owner.user["organization_id"])


@pytest.mark.parametrize(("plan", "days"), [("free", 7), ("pro", 30), ("business", 90)])
def test_entries_are_kept_as_long_as_the_plan_says(
    attic: LiveGateway, keeper: Owner, pruned: Prune, plan: str, days: int
) -> None:
    """A minute short of the retention an entry stays, a minute beyond it goes (spec §8)."""
    agent = keeper.agent()
    on_plan(attic, keeper, plan)
    write_entries(attic, keeper, [agent], 5, newest=ago(days=days, minutes=-1))
    write_entries(attic, keeper, [agent], 7, newest=ago(days=days, minutes=1))
    keeper.log(agent, "new")
    assert pruned()["log_entries"] == 7
    assert count(keeper) == 6
    assert pruned()["log_entries"] == 0


def test_the_enterprise_plan_keeps_entries_for_ever(attic: LiveGateway, keeper: Owner, pruned: Prune) -> None:
    """A retention of -1 removes nothing."""
    on_plan(attic, keeper, "enterprise")
    write_entries(attic, keeper, [keeper.agent()], 5, newest=ago(days=5000))
    assert pruned()["log_entries"] == 0
    assert count(keeper) == 5


@pytest.mark.parametrize(
    ("changed", "before", "kept"),
    [(29, 90, 2), (31, 90, 1), (29, -1, 3), (31, -1, 1), (1, 5, 1), (None, 90, 1)],
)
def test_a_shorter_retention_acts_thirty_days_after_the_change(
    attic: LiveGateway, keeper: Owner, pruned: Prune, changed: int | None, before: int, kept: int
) -> None:
    """Until then the plan before says how long entries are kept, if it kept them longer (decisions §7)."""
    agent = keeper.agent()
    on_plan(attic, keeper, "free", changed, before)
    for days in (6, 80, 1000):
        write_entries(attic, keeper, [agent], 1, newest=ago(days=days))
    assert pruned()["log_entries"] == 3 - kept
    assert count(keeper) == kept


def test_test_entries_are_kept_for_seven_days_whatever_the_plan(
    attic: LiveGateway, keeper: Owner, pruned: Prune
) -> None:
    """The test environment has its own retention (decisions §8)."""
    on_plan(attic, keeper, "enterprise")
    made = keeper.http.post("/api/agents", json={"name": "t"}, params=TEST).json()["id"]
    write_entries(attic, keeper, [made], 3, newest=ago(days=6.9), environment="test")
    write_entries(attic, keeper, [made], 4, newest=ago(days=7.1), environment="test")
    write_entries(attic, keeper, [keeper.agent()], 2, newest=ago(days=7.1))
    assert pruned()["log_entries"] == 4
    assert (count(keeper, environment="test"), count(keeper)) == (3, 2)


@pytest.mark.parametrize("batch", [1, 7, 1000])
def test_every_batch_size_removes_everything_old_and_nothing_else(
    attic: LiveGateway, keeper: Owner, pruned: Prune, batch: int
) -> None:
    """However many go at once, the end is the same."""
    agent = keeper.agent()
    write_entries(attic, keeper, [agent], 30, newest=ago(days=8))
    write_entries(attic, keeper, [agent], 20)
    assert pruned(batch=batch)["log_entries"] == 30
    assert count(keeper) == 20


def held(owner: Owner, agent: str, number: int, key: str | None = None) -> str:
    """Ask for what needs approval and return the request's id."""
    body = {"agent_id": agent, "action": "held", "context": {"n": number}}
    answer = owner.http.post("/sdk/check", json=body, headers={"X-API-Key": key or owner.key})
    approval: str = answer.json()["approval_id"]
    return approval


def test_decided_approvals_and_audit_are_kept_for_a_year(
    attic: LiveGateway, keeper: Owner, pruned: Prune
) -> None:
    """After 365 days all is there, after 367 it goes; a decision counts from when it was made."""
    agent = keeper.agent()
    keeper.permit(agent, "held", requires_approval=True)
    asked = [held(keeper, agent, number) for number in range(4)]
    for one in asked:
        assert keeper.http.post(f"/api/approvals/{one}/approve").status_code == 200
    statement = "UPDATE approvals SET created_at = ?, decided_at = ?, expires_at = ? WHERE id = ?"
    for one, made, decided in zip(asked, (365, 367, 367, 1), (365, 367, 365, 1), strict=True):
        ended = ago_text(days=decided)
        execute(attic, statement, ago_text(days=made), ended, ended, one)
    organization = keeper.user["organization_id"]
    audited = rows(attic, "SELECT id FROM audit_entries WHERE organization_id = ?", organization)
    for days, (entry,) in zip((365, 367), audited[:2], strict=True):
        execute(attic, "UPDATE audit_entries SET created_at = ? WHERE id = ?", ago_text(days=days), entry)
    counts = pruned()
    assert (counts["approvals"], counts["audit_entries"]) == (1, 1)
    left = {one["id"] for one in keeper.http.get("/api/approvals").json()}
    assert left == {asked[0], asked[2], asked[3]}
    query = "SELECT count(*) FROM approval_votes WHERE organization_id = ?"
    assert rows(attic, query, organization) == [(3,)]


def test_an_open_approval_is_not_removed(attic: LiveGateway, keeper: Owner, pruned: Prune) -> None:
    """However long ago it was asked: it still waits."""
    agent = keeper.agent()
    keeper.permit(agent, "held", requires_approval=True)
    waiting = held(keeper, agent, 1)
    execute(attic, "UPDATE approvals SET created_at = ? WHERE id = ?", ago_text(days=400), waiting)
    assert pruned()["approvals"] == 0
    assert keeper.http.get(f"/api/approvals/{waiting}").json()["status"] == "pending"


def test_approvals_of_the_test_environment_go_with_its_entries(
    attic: LiveGateway, keeper: Owner, pruned: Prune
) -> None:
    """Seven days, like all test data (decisions §8)."""
    agent = keeper.http.post("/api/agents", json={"name": "t"}, params=TEST).json()["id"]
    permission = {"action": "held", "requires_approval": True}
    keeper.http.post(f"/api/agents/{agent}/permissions", json=permission, params=TEST)
    key = keeper.http.get("/api/organization/test-key").json()["api_key"]
    old, new = held(keeper, agent, 1, key), held(keeper, agent, 2, key)
    statement = "UPDATE approvals SET created_at = ?, expires_at = ? WHERE id = ?"
    execute(attic, statement, ago_text(days=8), ago_text(days=7.5), old)
    assert pruned()["approvals"] == 1
    assert [one["id"] for one in keeper.http.get("/api/approvals", params=TEST).json()] == [new]


def insert(gateway: LiveGateway, table: str, **values: object) -> None:
    marks = ", ".join("?" * len(values))
    execute(gateway, f"INSERT INTO {table} ({', '.join(values)}) VALUES ({marks})", *values.values())


def test_a_reset_that_was_replaced_is_counted_for_its_hour(
    attic: LiveGateway, keeper: Owner, pruned: Prune
) -> None:
    """A link that a newer one ended stays for an hour: only so many are sent in one."""
    times = {"created_at": ago_text(minutes=50), "expires_at": ago_text(minutes=40)}
    user = {"organization_id": keeper.user["organization_id"], "user_id": keeper.user["id"]}
    insert(attic, "password_resets", id=str(uuid.uuid4()), token_hash=uuid.uuid4().hex, **times, **user)
    assert pruned()["password_resets"] == 0


def test_a_login_is_remembered_as_long_as_it_makes_its_address_familiar(
    attic: LiveGateway, keeper: Owner, pruned: Prune
) -> None:
    """Whoever logs in again once the token has expired comes from an address that is still theirs."""
    of = {"organization_id": keeper.user["organization_id"], "user_id": keeper.user["id"]}
    for days in (8, 29, 31):
        times = {"created_at": ago_text(days=days), "expires_at": ago_text(days=days - 7)}
        insert(attic, "sessions", id=str(uuid.uuid4()), scope="full", **times, **of)
    assert pruned()["sessions"] == 1


def test_what_has_expired_goes(attic: LiveGateway, keeper: Owner, pruned: Prune) -> None:
    """Sessions, idempotency keys, resets, invitations, failed logins and rate windows do not pile up."""
    of = {"organization_id": keeper.user["organization_id"]}
    user, old = keeper.user["id"], ago_text(hours=1)
    for hours, days in ((1, 31), (-1, 29)):
        times = {"created_at": ago_text(days=40), "expires_at": ago_text(hours=hours)}
        secret = {"token_hash": uuid.uuid4().hex}
        insert(attic, "sessions", id=str(uuid.uuid4()), user_id=user, scope="full", **times, **of)
        insert(attic, "password_resets", id=str(uuid.uuid4()), user_id=user, **secret, **times, **of)
        times["expires_at"] = ago_text(days=days)
        invited = {"email": "x@example.test", "role": "member", "invited_by": user}
        insert(attic, "invitations", id=str(uuid.uuid4()), **invited, **secret, **times, **of)
        moment = ago_text(days=30, hours=hours)
        insert(attic, "login_failures", subject=uuid.uuid4().hex, failures=1, last_failed_at=moment)
    body = {"agent_id": keeper.agent(), "action": "a", "status": "success"}
    for key in ("old", "new"):
        keeper.http.post("/sdk/log", json=body, headers={"X-API-Key": keeper.key, "Idempotency-Key": key})
    statement = "UPDATE idempotency_keys SET expires_at = ? WHERE organization_id = ? AND key = 'old'"
    execute(attic, statement, old, of["organization_id"])
    insert(attic, "rate_windows", scope="production/long ago", minute=5, requests=9, **of)
    gone = (
        "sessions",
        "password_resets",
        "idempotency_keys",
        "invitations",
        "login_failures",
        "rate_windows",
    )
    counts = pruned()
    assert {table: counts[table] for table in gone} == dict.fromkeys(gone, 1)
    assert pruned().total() == 0
    assert keeper.http.get("/auth/me").status_code == 200
