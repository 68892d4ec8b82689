"""What a page of the log costs: the same at the end of a long log as at its beginning (decisions §2)."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine
from sqlmodel import Session
from support.bulk import write_entries
from support.gateway import LiveGateway, Owner

from toolgate_service.db.pagination import Position, newest_first
from toolgate_service.logs.models import LogEntry
from toolgate_service.logs.repository import Filters, in_order, matching

pytestmark = pytest.mark.sqlite_only("it counts the steps of SQLite's own machine")

PAGE = 51
#: SQLite says when it has done so many steps
STEPS = 10


class Counted:
    """A log, read with a count of the steps that it takes."""

    def __init__(self, engine: Engine, organization_id: str) -> None:
        self._engine = engine
        self._organization_id = organization_id

    def page(
        self, filters: Filters, after: Position | None, floor: Position | None = None
    ) -> tuple[int, int]:
        """Return how many entries a page has, and how many steps it took."""
        query = in_order(self._organization_id, "production", filters, after, floor)
        steps = 0

        def count() -> int:
            nonlocal steps
            steps += STEPS
            return 0

        with Session(self._engine) as session:
            raw = session.connection().connection.driver_connection
            assert raw is not None
            raw.set_progress_handler(count, STEPS)
            try:
                found = len(session.exec(query.limit(PAGE)).all())
            finally:
                raw.set_progress_handler(None, 0)
        return found, steps


@pytest.mark.slow
@pytest.mark.parametrize("count", [20_000, 200_000])
def test_the_last_page_costs_what_the_first_does(tmp_path: Path, count: int) -> None:
    """For every filter the steps of a page are a page's, wherever it is; a sort or a skip would take all of them."""
    with LiveGateway(tmp_path) as gateway, Owner(gateway.url) as owner:
        agents = [owner.agent() for _ in range(5)]
        write_entries(gateway, owner, agents, count, newest=datetime(2026, 6, 1, tzinfo=UTC))
        organization = owner.user["organization_id"]
    engine = create_engine(f"sqlite:///{gateway.database}")
    log = Counted(engine, organization)
    asked = (Filters(), Filters(agent_id=agents[1]), Filters(status="denied"), Filters(action="action.2"))
    for filters in asked:
        _, first = log.page(filters, None)
        with Session(engine) as session:
            every = session.exec(newest_first(matching(organization, "production", filters), LogEntry, None))
            before_last = every.all()[-PAGE - 1]
        found, last = log.page(filters, Position(before_last.created_at, before_last.id))
        assert found == PAGE
        assert 0 < last < 2 * first
        assert first < 100 * PAGE
    engine.dispose()


def test_a_time_range_costs_no_more_behind_a_cursor(gateway: LiveGateway, newcomer: Owner) -> None:
    """What stands between the range's end and the cursor, or between the floor and its beginning, is not read again."""
    newest = datetime(2026, 6, 1, tzinfo=UTC)
    write_entries(gateway, newcomer, [newcomer.agent()], 3_000, newest=newest)
    range_ = {"begins": newest - timedelta(days=1), "ends": newest + timedelta(days=1)}
    after = Position(newest - timedelta(seconds=2_000), "00000000-0000-0000-0000-000000000000")
    floor = Position(newest - timedelta(seconds=2_030), "00000000-0000-0000-0000-000000000000")
    engine = create_engine(f"sqlite:///{gateway.database}")
    log = Counted(engine, newcomer.user["organization_id"])
    for more in ({}, {"action": "action.1"}, {"action": "action.1", "status": "nothing"}):
        found, steps = log.page(Filters(**range_, **more), after, floor)  # type: ignore[arg-type]  # moments and texts
        assert found == (0 if "status" in more else 10 if more else 30)
        assert 0 < steps < 100 * PAGE
    engine.dispose()
