"""The ledger beside the database: what was promised, and what is there."""

from collections import Counter
from dataclasses import dataclass

from support.counted import in_the_counts, in_the_log
from support.faults.ledger import Ledger
from support.gateway import LiveGateway, Owner
from support.tables import rows

#: of the plan that the frugal have, a minute; and agents, and entries a month
RATE, AGENTS, ENTRIES = 100, 2, 1_000


@dataclass(frozen=True, slots=True)
class Line:
    """A promise.

    Attributes:
        promise: what was promised.
        looked_at: how often it was put to the test.
        broken: each time it was broken, in words.
    """

    promise: str
    looked_at: int
    broken: tuple[str, ...]


def verdict(ledger: Ledger, gateway: LiveGateway, acme: Owner, frugal: list[Owner]) -> list[Line]:
    """Return what became of every promise."""
    return [
        _entries(ledger, gateway, acme),
        _approvals(ledger, gateway, acme),
        Line(
            "no check was allowed after the gateway had acknowledged the revocation of the permission, and no response "
            "contradicted another response",
            ledger.checked,
            tuple(ledger.lies),
        ),
        _rates(ledger, frugal),
        _plan(ledger, gateway, frugal),
        _counts(gateway, [acme, *frugal]),
    ]


def _entries(ledger: Ledger, gateway: LiveGateway, acme: Owner) -> Line:
    query = "SELECT id, context FROM log_entries WHERE organization_id = ? AND action = 'amid.faults'"
    found = [
        (str(entry), str(context)) for entry, context in rows(gateway, query, acme.user["organization_id"])
    ]
    ids = {context.split('"')[3]: entry for entry, context in found}
    counted = Counter(context.split('"')[3] for _, context in found)
    missing = [f"{key} is not there" for key, entry in ledger.entries.items() if ids.get(key) != entry]
    twice = [f"{key} is there {count} times" for key, count in counted.items() if count != 1]
    unknown = [f"{key} was never sent" for key in counted.keys() - ledger.keys]
    return Line(
        f"every acknowledged log entry is stored exactly once (clients sent {len(ledger.keys) - len(ledger.entries):,} "
        f"more entries, which were not acknowledged: {len(counted) - len(ledger.entries):,} of these are stored, "
        "each once)",
        len(ledger.entries),
        (*missing, *twice, *unknown),
    )


def _approvals(ledger: Ledger, gateway: LiveGateway, acme: Owner) -> Line:
    query = "SELECT id, status FROM approvals WHERE organization_id = ?"
    status = {str(one): said for one, said in rows(gateway, query, acme.user["organization_id"])}
    broken = [
        f"{approval} let {len(decisions)} checks through"
        for approval, decisions in ledger.passes.items()
        if len(decisions) > 1
    ]
    broken += [
        f"{approval} let a check through and is {status.get(approval)!r}"
        for approval in ledger.passes
        if status.get(approval) != "consumed"
    ]
    return Line("no approval was used twice", len(ledger.passes), tuple(broken))


def _rates(ledger: Ledger, frugal: list[Owner]) -> Line:
    whose = {owner.user["organization_id"] for owner in frugal}
    minutes = {window: count for window, count in ledger.admitted.items() if window[0] in whose}
    broken = [
        f"{count} in the minute to {window}" for (_, window), count in minutes.items() if count > 2 * RATE
    ]
    full = sum(count == RATE for count in minutes.values())
    return Line(
        f"no minute had more than {2 * RATE} allowed requests: the limit is {RATE}, but Redis and the database count "
        f"separately ({full} of the minutes had exactly {RATE} allowed requests)",
        len(minutes),
        tuple(broken),
    )


def _plan(ledger: Ledger, gateway: LiveGateway, frugal: list[Owner]) -> Line:
    broken = []
    for owner in frugal:
        whose = owner.user["organization_id"]
        [(agents,)] = rows(
            gateway, "SELECT count(*) FROM agents WHERE organization_id = ? AND deleted_at IS NULL", whose
        )
        [(entries,)] = rows(gateway, "SELECT count(*) FROM log_entries WHERE organization_id = ?", whose)
        [(used,)] = rows(
            gateway,
            "SELECT coalesce(sum(log_entries), 0) FROM monthly_usage WHERE organization_id = ?",
            whose,
        )
        broken += [f"{agents} agents"] if agents > AGENTS else []
        broken += [f"{entries} entries"] if entries > ENTRIES else []
        broken += [f"{entries} entries, counted as {used}"] if entries != used else []
    return Line(
        f"no limit of a plan was exceeded ({AGENTS} agents, {ENTRIES:,} entries), and usage is counted correctly",
        ledger.agents_made + ledger.stored,
        tuple(broken),
    )


def _counts(gateway: LiveGateway, owners: list[Owner]) -> Line:
    broken = [
        f"the counts of {owner.email} differ from its log"
        for owner in owners
        if in_the_counts(gateway, owner) != in_the_log(gateway, owner)
    ]
    return Line("the counts in the console equal the counts of the log", len(owners), tuple(broken))
