"""A rolling update under traffic: the version before serves, this one migrates and joins it, the one before leaves."""

import threading
import uuid
from collections import Counter
from collections.abc import Sequence
from itertools import count

import pytest
from support.before import Versions
from support.crowd import meanwhile
from support.gateway import LiveGateway, Owner
from support.tables import rows
from support.waiting import until
from support.wire import Wire

BEFORE = "0013"
CLIENTS = 3
#: how much every stretch of the update hears at least
REQUESTS = 60


class Traffic:
    """Agents that check, log and repeat what they logged, by turns at each gateway that serves just now."""

    def __init__(self, owner: Owner, agent: str, gateways: Sequence[LiveGateway]) -> None:
        self._owner, self._agent = owner, agent
        self.gateways = gateways
        self.statuses: Counter[int] = Counter()
        self.acknowledged: list[str] = []

    def go_on(self, enough: threading.Event) -> None:
        """Be one agent until it is enough."""
        for number in count():
            if enough.is_set():
                return
            gateways = self.gateways
            for gateway in (gateways[number % len(gateways)], gateways[(number + 1) % len(gateways)]):
                self._ask(gateway, f"{threading.get_ident()}-{number}")

    def _ask(self, gateway: LiveGateway, key: str) -> None:
        with Wire.of(self._owner, gateway.url) as wire:
            answers = [
                wire.check(self._agent, "mail.send", key=key),
                wire.log(self._agent, "mail.send", key=key, n=key),
                wire.log(self._agent, "mail.read", key=f"{uuid.uuid4()}", n=key),
                wire.check(self._agent, "db.drop", key=key[-1]),
                wire.send("GET", "/api/logs?limit=5"),
                wire.send("GET", "/api/approvals?status=pending"),
            ]
        self.statuses.update(answer.status for answer in answers)
        self.acknowledged += [answers[1].json()["id"], answers[2].json()["id"]]

    def stretch(self) -> None:
        """Wait until so much more was answered."""
        wanted = self.statuses.total() + REQUESTS
        until(lambda: self.statuses.total() >= wanted or set(self.statuses) != {200}, seconds=60)


def revision(gateway: LiveGateway) -> str:
    """Return the schema's revision."""
    [(found,)] = rows(gateway, "SELECT version_num FROM alembic_version")
    return str(found)


@pytest.mark.slow
def test_nobody_notices(update: Versions) -> None:
    """No request fails while the schema changes under the older one, while both serve, and after it left; nothing is lost."""
    before, now = update.before, update.now
    with Owner(before.url) as owner:
        agent = owner.agent()
        owner.permit(agent, "mail.send")
        owner.permit(agent, "db.drop", requires_approval=True)
        assert revision(before) == BEFORE, "what stands for the version before is not"
        traffic = Traffic(owner, agent, [before])
        with meanwhile([traffic.go_on] * CLIENTS):
            traffic.stretch()
            now.start()
            assert revision(now) > BEFORE
            # The older one alone on the newer schema, both, and the newer one alone.
            for serving in ([before], [before, now], [now]):
                traffic.gateways = serving
                traffic.stretch()
        before.stop()
        assert set(traffic.statuses) == {200}
        with Wire.of(owner, now.url) as wire:
            found = Counter(
                one["id"] for action in ("mail.send", "mail.read") for one in wire.entries(action)
            )
            assert set(found) == set(traffic.acknowledged)
            assert set(found.values()) == {1}
            used = wire.send("GET", "/api/billing/usage").json()["logs"]["current"]
            assert used == len(found)
