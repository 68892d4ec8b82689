"""Telling an organization's admins that a key of theirs was used from outside of its allowed networks: it may be stolen."""

import asyncio
from collections import OrderedDict

from toolgate_service.audit.models import AuditEntry
from toolgate_service.hotpath.standing import Standing
from toolgate_service.ids import new_id
from toolgate_service.storage.database import Database, now

KIND = "organization.key_used_elsewhere"
#: seconds between two entries for one organization, of each gateway: whoever has the key must not fill the audit with it
PAUSE = 60.0
#: organizations that are remembered; of one that is forgotten the next is told again
_MOST = 1_000
_LONGEST = 45


class Strangers:
    """Writes them down in the management audit.

    Args:
        database: the gateway's.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._told: OrderedDict[str, float] = OrderedDict()

    async def tell(self, standing: Standing, peer: str | None) -> None:
        """Add an audit entry, unless one was added a moment ago.

        Args:
            standing: of the refused request.
            peer: from where it came.
        """
        organization, moment = standing.organization_id, asyncio.get_running_loop().time()
        if moment < self._told.get(organization, moment):
            return
        # Before anything is waited for: of many at once one writes.
        self._told[organization] = moment + PAUSE
        self._told.move_to_end(organization)
        if len(self._told) > _MOST:
            self._told.popitem(last=False)
        async with self._database.writing(organization) as session:
            session.add(
                AuditEntry(
                    id=new_id(),
                    organization_id=organization,
                    environment=standing.environment,
                    kind=KIND,
                    resource_id=standing.key_id,
                    ip_address=peer[:_LONGEST] if peer else None,
                    created_at=now(session),
                )
            )
