"""`toolgate admin prune`: what is kept no longer goes at once (spec §8)."""

from support.admin import done
from support.gateway import LiveGateway, Owner
from support.provider import fresh, subscription, tell
from support.tables import execute, rows

LONG_AGO = "2026-01-01T00:00:00.000000Z"


def test_entries_beyond_the_plans_retention_are_removed(tended: LiveGateway, tenant: Owner) -> None:
    """An old entry of the free plan goes, a fresh one stays, and the command says what it removed; twice does nothing."""
    bot = tenant.agent()
    old = tenant.log(bot, "old").json()["id"]
    fresh_one = tenant.log(bot, "fresh").json()["id"]
    execute(tended, "UPDATE log_entries SET created_at = ? WHERE id = ?", LONG_AGO, old)
    (line,) = done(tended, "prune")
    assert "1 log_entries" in line
    assert [entry["id"] for entry in tenant.entries()] == [fresh_one]
    assert done(tended, "prune") == ["removed no rows, because no row is older than its retention period"]


def test_events_that_nobody_claimed_are_forgotten(tended: LiveGateway) -> None:
    """What the payment provider said of an unknown customer is kept for 90 days, not for ever."""
    customer = fresh("cus")
    tell(tended.url, "customer.subscription.created", subscription(customer))
    statement = "UPDATE provider_events SET received_at = ? WHERE provider_customer_id = ?"
    query = "SELECT id FROM provider_events WHERE provider_customer_id = ?"
    done(tended, "prune")
    assert len(rows(tended, query, customer)) == 1
    execute(tended, statement, LONG_AGO, customer)
    done(tended, "prune")
    assert rows(tended, query, customer) == []
