"""Removing at once what is kept no longer, instead of in the gateway's next round."""

from toolgate_service.admin.desk import Desk, Lines, at_desk
from toolgate_service.errors import StartError
from toolgate_service.upkeep.retention import RetentionHalted, prune


def prune_now(*, force: bool = False) -> Lines:
    """Remove what is kept no longer; with `force` also although the clock has jumped."""

    async def work(desk: Desk) -> Lines:
        settings = desk.settings
        try:
            counts = await prune(desk.database, settings.plans, settings.prune_batch, force=force)
        except RetentionHalted as halted:
            raise StartError(f"{halted}; if the clock is right, add --force") from None
        removed = [f"{count} {table}" for table, count in sorted(counts.items()) if count]
        return [f"removed {', '.join(removed)}" if removed else "nothing is kept for too long"]

    return at_desk(work)
