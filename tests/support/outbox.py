"""What the gateway has written down to tell webhooks, in the database itself."""

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel
from sqlmodel import select

from toolgate_service.accounts.models import User
from toolgate_service.core import strict_json
from toolgate_service.core.ids import new_id
from toolgate_service.db.database import Database, now
from toolgate_service.db.models import ENVIRONMENTS, PRODUCTION
from toolgate_service.organizations.models import Environment, Organization
from toolgate_service.webhooks.events import emit
from toolgate_service.webhooks.models import Delivery, Event, Webhook


class Thing(BaseModel):
    """What an event is about."""

    id: str
    amount: Any = None
    context: dict[str, Any] | None = None


class Outbox:
    """A database, and an organization with webhooks.

    Attributes:
        database: where it all is.
        organization_id: the organization founded last.
    """

    def __init__(self, database: Database) -> None:
        self.database = database
        self.organization_id = ""
        self._user_id = ""

    async def found(self, plan: str) -> None:
        """Found an organization with both environments and a user."""
        self.organization_id, self._user_id = new_id(), new_id()
        async with self.database.writing() as session:
            moment = now(session)
            session.add(
                Organization(
                    id=self.organization_id,
                    name="Acme",
                    slug=self.organization_id,
                    plan=plan,
                    created_at=moment,
                )
            )
            await session.flush()
            for name in ENVIRONMENTS:
                session.add(Environment(organization_id=self.organization_id, name=name))
            session.add(
                User(
                    id=self._user_id,
                    organization_id=self.organization_id,
                    email=f"{self._user_id}@example.test",
                    password_hash="x",
                    role="admin",
                    created_at=moment,
                )
            )

    async def webhook(self, *events: str, environment: str = PRODUCTION, **fields: Any) -> str:
        """Add a webhook that wants some kinds, or the default ones, and return its id."""
        webhook_id = new_id()
        async with self.database.writing(self.organization_id) as session:
            session.add(
                Webhook(
                    id=webhook_id,
                    organization_id=self.organization_id,
                    environment=environment,
                    created_by=self._user_id,
                    created_at=now(session),
                    events=strict_json.dumps(list(events)) if events else None,
                    **{"url": "https://example.test/hook"} | fields,
                )
            )
        return webhook_id

    async def emit(self, kind: str, *things: BaseModel, environment: str = PRODUCTION) -> None:
        """Let something happen."""
        async with self.database.writing(self.organization_id) as session:
            await emit(session, self.organization_id, environment, kind, *things)

    async def events(self) -> list[Event]:
        """Return every event, in order."""
        async with self.database.reading() as session:
            return list((await session.exec(select(Event).order_by(Event.created_at, Event.id))).all())  # type: ignore[arg-type]  # SQLModel's columns

    async def told(self) -> Sequence[tuple[str, str]]:
        """Return which webhook is to be told of which kind."""
        async with self.database.reading() as session:
            query = select(Delivery.webhook_id, Event.kind).join(Event, Event.id == Delivery.event_id)  # type: ignore[arg-type]  # SQLModel's columns
            return sorted((await session.exec(query)).all())
