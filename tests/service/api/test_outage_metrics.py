"""What metrics and log lines show while Redis or PostgreSQL cannot be used."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import make_url
from support.databases import database_url
from support.gateway import SECRET, LiveGateway, Owner
from support.lines import Line, Lines
from support.serving import Serving
from support.valkey import Valkey
from support.waiting import until

pytestmark = pytest.mark.postgresql_only("an SQLite gateway needs neither server")


@pytest.fixture
def line(tmp_path: Path) -> Iterator[tuple[Line, str]]:
    """A line to the database, and the database's URL over it."""
    there = make_url(database_url(tmp_path))
    assert there.port is not None
    with Lines() as lines:
        line = lines.to(there.port)
        yield line, there.set(host="127.0.0.1", port=line.port).render_as_string(hide_password=False)


def _value(gateway: LiveGateway, name: str) -> float:
    text = httpx.get(gateway.metrics_url, timeout=30).text
    [family] = [
        each for each in text_string_to_metric_families(text) if each.name == name.removesuffix("_total")
    ]
    return family.samples[0].value


def test_lost_redis_and_lost_notifications_are_shown(tmp_path: Path, line: tuple[Line, str]) -> None:
    way, url = line
    with Valkey() as valkey:
        env = {
            "TOOLGATE_METRICS_ADDRESS": "127.0.0.1:0",
            "TOOLGATE_DATABASE_URL": url,
            "TOOLGATE_REDIS_URL": valkey.url,
        }
        with LiveGateway(tmp_path, env=env) as gateway, Owner(gateway.url) as owner:
            agent = owner.agent()
            until(lambda: _value(gateway, "toolgate_notifications_lost") == 0)
            assert _value(gateway, "toolgate_redis_unavailable") == 0
            assert _value(gateway, "toolgate_transactions_retried_total") >= 0
            valkey.kill()
            assert owner.check(agent, "files.read").status_code == 200
            until(lambda: _value(gateway, "toolgate_redis_unavailable") == 1)
            way.cut()
            until(lambda: _value(gateway, "toolgate_notifications_lost") == 1)
            way.heal()
            valkey.start()
            until(lambda: _value(gateway, "toolgate_notifications_lost") == 0)
            until(lambda: _value(gateway, "toolgate_redis_unavailable") == 0, seconds=90)


def test_an_outage_is_logged_once_for_each_kind_of_work(tmp_path: Path, line: tuple[Line, str]) -> None:
    way, url = line
    extra = {
        "TOOLGATE_DATABASE_URL": url,
        "TOOLGATE_SECRET": SECRET,
        "TOOLGATE_APPROVAL_WATCH_SECONDS": "1",
        "TOOLGATE_MAINTENANCE_INTERVAL_SECONDS": "1",
    }
    home = tmp_path / "home"
    home.mkdir()
    with Serving(home, extra=extra) as serving:
        serving.listening()
        token = serving.register()
        assert serving.knows(token)
        way.cut()
        headers = {"Authorization": f"Bearer {token}"}
        for _ in range(40):
            assert httpx.get(f"{serving.url}/auth/me", headers=headers, timeout=30).status_code == 503
        way.heal()
        until(lambda: serving.knows(token))
        until(lambda: httpx.get(f"{serving.url}/health/ready", timeout=30).status_code == 200)
        until(lambda: "the database works again" in serving.complaint)
        assert serving.complaint.count("requests fail") == 1
        assert "40 requests" in serving.complaint
        assert "Traceback" not in serving.complaint
