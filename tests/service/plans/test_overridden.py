"""A gateway whose operator overrides the plans."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.gateway import LiveGateway, Owner
from support.serving import run_serve

FILE = """
[free]
requests_per_minute = 7
max_logs_per_month = 2
max_agents = 1
"""


@pytest.fixture(scope="module")
def overridden(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveGateway]:
    """A gateway whose free plan is smaller."""
    folder = tmp_path_factory.mktemp("overridden")
    (folder / "plans.toml").write_text(FILE)
    env = {"TOOLGATE_PLANS_FILE": str(folder / "plans.toml")}
    with LiveGateway(folder, plan="free", env=env) as gateway:
        yield gateway


def test_the_files_limits_hold(overridden: LiveGateway) -> None:
    """Rate, month and agents follow the file, and the refusals name its numbers."""
    with Owner(overridden.url) as owner:
        bot = owner.agent()
        refusal = owner.http.post("/api/agents", json={"name": "second"})
        assert "1/1 used" in refusal.json()["detail"]["message"]
        answers = [owner.log(bot, "a") for _ in range(3)]
        assert [answer.status_code for answer in answers] == [200, 200, 403]
        assert "2/2 used" in answers[-1].json()["detail"]["message"]
        assert answers[-1].headers["X-RateLimit-Limit"] == "7"


def test_a_wrong_file_stops_the_start(tmp_path: Path) -> None:
    """One line names setting, file, plan, field and value; nothing is created."""
    home = tmp_path / "home"
    home.mkdir()
    path = tmp_path / "plans.toml"
    path.write_text("[pro]\nmax_agents = 'many'")
    ended = run_serve(home, extra={"TOOLGATE_PLANS_FILE": str(path)})
    assert (ended.returncode, ended.stdout) == (1, "")
    (line,) = ended.stderr.splitlines()
    for word in ("TOOLGATE_PLANS_FILE", str(path), "'max_agents'", "'pro'", "'many'", "whole number"):
        assert word in line
    assert list(home.iterdir()) == []
