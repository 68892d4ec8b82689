"""Every statement that the gateway says finds what it looks for by an index, however much there is."""

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import pytest
from support.crowded import crowd
from support.databases import CHOICE, empty_database, engine, finished
from support.gateway import LiveGateway, Owner
from support.overhearing import OVERHEARD_IN, SERVICE, Heard, read
from support.plans import Plan, plans_of
from support.valkey import Valkey
from support.walk.everything import ENV, do_everything

from toolgate_service.db.migrate import upgrade

ONE_ROW = {"alembic_version", "heartbeats"}
#: read whole: where, which table, and why that is right
WHOLE = {
    ("budgets/service.py", "budgets"): "once at start: the time zones that budgets use",
    ("cli/context.py", "organizations"): "an operator's command: an organization by whatever name",
    ("console/auth_pages.py", "users"): "whichever row comes first",
    ("logs/counts.py", "environments"): "once a round, one look into an index for each",
    (
        "logs/partitions.py",
        "log_entries",
    ): "a month that is over: whether anything is left, and how much",
    ("logs/partitions.py", "organizations"): "once a round: how long any of them keeps entries",
    ("secret_check.py", "api_keys"): "once at start, the first and the last few rows of the primary key",
    (
        "secret_check.py",
        "webhook_secrets",
    ): "once at start, the first and the last few rows of the primary key",
    ("db/health.py", "organizations"): "whichever row comes first",
    ("access_requests/repository.py", "access_requests"): "an index that contains only callbacks to send",
    ("scratch/service.py", "scratch_organizations"): "a few rows at most",
    (
        "jobs/batches.py",
        "rate_windows",
    ): "a row for whoever asked within the hour; an index would cost every request",
    ("jobs/batches.py", "webhooks"): "an index that holds only what is deleted",
    ("logs/repository.py", "organizations"): "once a round, one look into an index for each",
    (
        "secret_check.py",
        "transparency_logs",
    ): "once at start, the first and the last few rows of the primary key",
    ("transparency/repository.py", "transparency_chunks"): "an index that contains only unsealed chunks",
    ("webhooks/delivery_queue.py", "deliveries"): "the first row of an index that holds only what waits",
}
#: files and functions whose statements look in all organizations, along an index of their own
AT_LARGE = {
    "accounts/login_throttle.py": "failed logins that are forgotten",
    "audit/erasure.py _erase_copies": "idempotency keys that were stored within a second of an entry",
    "billing/service.py overdue_organizations": "organizations with overdue payments",
    "budgets/service.py refuse_unknown_zones": "the time zones that budgets use, once at start",
    "console/auth_pages.py": "whether the installation has a user",
    "logs/partitions.py": "which months of the log there are",
    "api/metrics.py": "the number of pending approvals and deliveries",
    "secret_check.py": "a few sealed values of any organization, once at start",
    "db/postgres.py": "sessions of the server, none of its rows",
    "jobs/batches.py": "what is kept no longer",
    "approvals/service.py": "what runs out",
    "logs/repository.py tenants_with_old_rows": "all organizations, so many at once",
    "transparency/repository.py pending_tenants": "chunks that are not sealed yet",
    "webhooks/delivery_queue.py": "what is due",
    "access_requests/repository.py find_decided_callbacks": "callbacks that are not sent yet",
    "scratch/service.py remove_scratch": "scratch organizations that have expired or were closed",
}
#: the lists that grow without end are read in order
NEVER_SORTED = ("log_entries", "decisions", "audit_entries", "approvals")
#: sorted nevertheless: the few rows of
SORTED = {
    "approvals/policy.py": "one agent's denials within the window",
    "checks/repository.py": "one agent's requests of one digest",
    "approvals/grant_proposals.py": "what waits of one agent, at most TOOLGATE_PENDING_PER_AGENT",
}
#: what asks a database for something
SAYING = {"exec", "execute", "executemany", "fetch", "fetchrow", "fetchval"}
#: functions that were not heard, as whatever leads there takes more than a request or two
UNHEARD = {
    "access_requests/repository.py count_votes",
    "audit/erasure.py _erase_submissions",
    "accounts/service.py _count_recent_resets",
    "accounts/login_throttle.py _is_known_address",
    "accounts/login_throttle.py _delete_stale",
    "cli/admin.py _audit",
    "cli/admin.py _discard_unreadable",
    "cli/admin.py _replace",
    "cli/admin.py _reseal",
    "cli/admin.py _sealed",
    "agents/service.py _count_production_agent",
    "agents/service.py _require_may_enable",
    "billing/service.py _update_one",
    "cli/config.py check_database",
    "console/inbox.py show_cards",
    "console/queries.py list_pending",
    "embedded.py _get_or_create_agent",
    "scratch/service.py _delete_from",
    "scratch/service.py _delete_rows",
    "scratch/service.py _require_room",
    "scratch/service.py work",
    "embedded.py _get_or_create_key",
    "embedded.py _set_permissions",
    "embedded.py _get_or_create_user",
    "embedded.py create_token",
    "approvals/policy.py approval_invalid_reason",
    "logs/store_postgres.py begin_available",
    "logs/partitions.py _drop",
    "logs/partitions.py _short_lock_waits",
    "logs/partitions.py _create_partition",
    "logs/partitions.py _exchange_default",
    "logs/partitions.py _has_default_entries",
    "logs/partitions.py _attach_default",
    "rules/service.py refuse_missing_library",
    "slack/service.py _load_caller",
    "slack/repository.py count_wrong_code",
    "logs/service.py _prune_entries_of",
    "webhooks/delivery_queue.py _record_success",
}
#: about a database as a whole: an operator's, and what a start says of another version's schema
AS_A_WHOLE = ("cli/backup.py", "cli/copy.py", "cli/database.py", "migrations/", "db/migrate.py")
#: the other database's, what only prepares a connection or passes on what others say, and a file with one small table
ELSEWHERE = {
    "sqlite": (
        "auth_store/postgres.py",
        "logs/store_postgres.py",
        "rate_limit/sqlite.py",
        "logs/partitions.py",
        "db/pubsub.py",
        "db/postgres.py",
        "db/postgres_connection.py",
        "db/sqlite",
    ),
    "postgresql": (
        "rate_limit/sqlite.py",
        "auth_store/sqlite.py",
        "logs/store_sqlite.py",
        "decisions/store_sqlite.py",
        "transparency/statements.py",
        "db/sqlite",
        "db/postgres.py",
        "db/postgres_connection.py",
    ),
}


@pytest.fixture(
    scope="module",
    params=[pytest.param(2, id="two-filters"), pytest.param(None, id="all-filters", marks=pytest.mark.slow)],
)
def heard(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> set[Heard]:
    """What a gateway said while everything was done."""
    folder = tmp_path_factory.mktemp("overheard")
    said = folder / "said"
    with LiveGateway(folder, env=ENV | {OVERHEARD_IN: str(said)}) as gateway:
        do_everything(gateway, filters=request.param)
    if CHOICE.server is not None:
        with Valkey() as valkey:
            env = {OVERHEARD_IN: str(said), "TOOLGATE_REDIS_URL": valkey.url}
            with LiveGateway(folder, env=env) as gateway, Owner(gateway.url) as owner:
                count_in_redis(owner)
    return {one for one in read(said) if not one.module.startswith("migrations/")}


def count_in_redis(owner: Owner) -> None:
    """Have requests counted one by one, several together, and as a person's."""
    owner.check(owner.agent(), "a")
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: owner.check("x", "a"), range(50)))
    assert {answer.status_code for answer in answers} == {200}


@pytest.fixture(scope="module")
def new_database(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A database of the newest schema."""
    url = empty_database(tmp_path_factory.mktemp("empty"))

    async def migrate() -> None:
        async with engine(url).begin() as connection:
            await connection.run_sync(upgrade)

    finished(migrate())
    if CHOICE.server is not None:
        crowd(url)
    return url


@pytest.fixture(scope="module")
def plans(heard: set[Heard], new_database: str) -> Mapping[str, Plan]:
    """How the database would answer each of them."""
    return plans_of(new_database, sorted({one.statement for one in heard}))


def told(heard: set[Heard], plans: Mapping[str, Plan]) -> Iterator[tuple[Heard, Plan]]:
    """Yield every statement with its plan."""
    for one in heard:
        if one.statement in plans:
            yield one, plans[one.statement]


def shown(one: Heard, plan: Plan) -> str:
    """Return what somebody who has to mend it reads."""
    return f"\n{one.module}:{one.line}\n{one.statement}\n{plan.shown}\n"


def test_every_statement_is_heard_and_has_its_index(heard: set[Heard], plans: Mapping[str, Plan]) -> None:
    """Nothing reads a whole table, looks in all organizations or sorts an endless list; in one test, for what leads
    to all of it takes a quarter of a minute."""
    assert not "".join(unbounded(heard, plans))
    assert not "".join(at_large(heard, plans))
    assert not "".join(sorting(heard, plans))
    assert not "".join(all_tiles(heard, plans))
    new, led_to = unheard(heard)
    assert not new, f"nothing in support/walk/everything.py leads to: {new}"
    assert not led_to, f"is heard now, remove it from UNHEARD: {led_to}"


def unbounded(heard: set[Heard], plans: Mapping[str, Plan]) -> Iterator[str]:
    """Yield what reads all rows of a table or all of an index, but for those above, each with its reason."""
    for one, plan in told(heard, plans):
        if any((one.module, table) not in WHOLE for table in plan.whole - ONE_ROW):
            yield shown(one, plan)


def at_large(heard: set[Heard], plans: Mapping[str, Plan]) -> Iterator[str]:
    """Yield what reads through what others have waiting: only jobs look in all organizations."""
    functions = places()
    for one, plan in told(heard, plans):
        allowed = {one.module} | {
            f"{module} {function}"
            for module, function, first, last in functions
            if module == one.module and first <= one.line <= last
        }
        if plan.at_large - ONE_ROW and not allowed & AT_LARGE.keys():
            yield shown(one, plan)


def sorting(heard: set[Heard], plans: Mapping[str, Plan]) -> Iterator[str]:
    """Yield what sorts log, approvals or audit: they come out of an index in order, whatever they are filtered by."""
    for one, plan in told(heard, plans):
        endless = any(f"FROM {name} " in one.statement for name in NEVER_SORTED)
        if plan.sorts and one.module not in SORTED and endless:
            yield shown(one, plan)


def all_tiles(heard: set[Heard], plans: Mapping[str, Plan]) -> Iterator[str]:
    """Yield the queries that read all tiles of a tree instead of a few."""
    for one, plan in told(heard, plans):
        if "FROM transparency_tiles" in one.statement and "position" not in plan.shown:
            yield shown(one, plan)


def unheard(heard: set[Heard]) -> tuple[list[str], list[str]]:
    """Return the places that say something and were not heard, and those said to be silent that were."""
    lines = defaultdict(set)
    for one in heard:
        lines[one.module].add(one.line)
    silent = {
        f"{module} {function}"
        for module, function, first, last in places()
        if not lines[module].intersection(range(first, last + 1))
    }
    known = {one for one in UNHEARD if not one.startswith(elsewhere())}
    return sorted(silent - known), sorted(known - silent)


@pytest.mark.parametrize(
    ("statement", "fault"),
    [
        ("SELECT id FROM log_entries WHERE key_id = {}", "whole"),
        ("SELECT id FROM log_entries ORDER BY organization_id, environment, created_at LIMIT 1", "whole"),
        ("SELECT l.id FROM agents a JOIN log_entries l ON l.key_id = a.id WHERE a.id = {}", "whole"),
        ("DELETE FROM permissions WHERE agent_id = {}", "whole"),
        ("SELECT id FROM deliveries WHERE environment = {} AND created_at < {}", "at_large"),
        (
            "SELECT id FROM log_entries WHERE organization_id = {} AND environment = {} ORDER BY action, id",
            "sorts",
        ),
    ],
)
def test_a_fault_is_seen(new_database: str, statement: str, fault: str) -> None:
    """Where an index is missing the plan says so."""
    marks = ("?", "?") if CHOICE.server is None else ("$1", "$2")
    asked = statement.format(*marks)
    assert getattr(plans_of(new_database, [asked])[asked], fault)


def elsewhere() -> tuple[str, ...]:
    """Return what has nothing to do with the chosen database."""
    return ELSEWHERE["sqlite" if CHOICE.server is None else "postgresql"]


@cache
def places() -> list[tuple[str, str, int, int]]:
    """Return where the gateway asks a database for something: file, function, first and last line."""
    return [*_places()]


def _places() -> Iterator[tuple[str, str, int, int]]:
    for path in sorted(Path(SERVICE).rglob("*.py")):
        module = str(path.relative_to(SERVICE))
        if module.startswith((*AS_A_WHOLE, *elsewhere())):
            continue
        for function, call in _calls(ast.parse(path.read_text()), ""):
            if _says(call):
                yield module, function, call.lineno, call.end_lineno or call.lineno


def _calls(node: ast.AST, function: str) -> Iterator[tuple[str, ast.Call]]:
    """Yield every call with the innermost function that it stands in."""
    for inner in ast.iter_child_nodes(node):
        if isinstance(inner, ast.Call):
            yield function, inner
        named = isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef)
        yield from _calls(inner, inner.name if named else function)


def _says(call: ast.Call) -> bool:
    match call.func:
        case ast.Attribute(attr=name) if name in SAYING:
            # Ending a transaction is no question.
            return not (call.args and isinstance(call.args[0], ast.Constant))
        case ast.Attribute(value=ast.Name(id="session"), attr="get"):
            return True
    return False
