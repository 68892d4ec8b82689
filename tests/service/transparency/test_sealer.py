"""The sealer continues with other logs after an error in one log, and reports it until it has ended."""

from pathlib import Path

import pytest
from support.gateway import LiveGateway, Owner
from support.tables import execute
from support.verified_log import until_sealed
from support.waiting import until

pytestmark = pytest.mark.sqlite_only("the error is the same on both databases")


def test_a_damaged_log_does_not_stop_the_others(tmp_path: Path) -> None:
    with LiveGateway(tmp_path) as gateway, Owner(gateway.url) as damaged, Owner(gateway.url) as healthy:
        until_sealed(damaged)
        organization = damaged.user["organization_id"]
        tile = "UPDATE transparency_tiles SET level = ? WHERE organization_id = ? AND level = ?"
        assert execute(gateway, tile, 7, organization, 0) == 1
        damaged.agent()
        before = until_sealed(healthy)
        healthy.agent()
        assert until(lambda: until_sealed(healthy) > before)

        def problem() -> str | None:
            found: str | None = damaged.http.get("/api/transparency").json()["problem"]
            return found

        assert until(problem) == "Leaves cannot be appended to the log: KeyError"
        assert execute(gateway, tile, 0, organization, 7) == 1
        until(lambda: problem() is None)
        assert until_sealed(damaged) > 0
