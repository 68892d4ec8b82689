"""What the upkeep consists of."""

import logging
from collections.abc import Sequence
from datetime import timedelta

from toolgate_service.counts.folding import fold
from toolgate_service.plans import Plans
from toolgate_service.settings import Settings
from toolgate_service.storage.database import Database
from toolgate_service.upkeep.expiry import expire_approvals, remind
from toolgate_service.upkeep.loop import Step
from toolgate_service.upkeep.months import make_months
from toolgate_service.upkeep.retention import prune

logger = logging.getLogger("toolgate.gateway")


def watch_steps(database: Database, settings: Settings) -> Sequence[Step]:
    """Return what every gateway looks after all the time: each step changes a thing once, whoever comes first."""

    async def reminding() -> None:
        await remind(database, settings.prune_batch)

    async def expiry() -> None:
        expired = await expire_approvals(database, settings.prune_batch)
        if expired:
            logger.info("%d approvals have run out", expired)

    return (reminding, expiry)


def upkeep_steps(database: Database, settings: Settings, plans: Plans) -> Sequence[Step]:
    """Return the steps of one round of the upkeep, in order."""

    async def retention() -> None:
        counts = await prune(database, plans, settings.prune_batch)
        if counts.total():
            removed = ", ".join(f"{count} {table}" for table, count in sorted(counts.items()) if count)
            logger.info("retention removed %s", removed)

    async def months() -> None:
        await make_months(database)

    async def folding() -> None:
        await fold(database, settings.prune_batch)

    async def payments() -> None:
        # Looked up late: billing's rules know callers, callers know the gateway, and the gateway knows its upkeep.
        from toolgate_service.billing.overdue import deactivate_overdue

        deactivated = await deactivate_overdue(database, timedelta(days=settings.payment_grace_days))
        if deactivated:
            logger.warning("%d organizations were deactivated: their time to pay has passed", deactivated)

    return (payments, months, folding, retention)
