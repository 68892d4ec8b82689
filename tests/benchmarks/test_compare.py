"""`make bench`: what it plans, and what it does where something is missing."""

import json
from pathlib import Path

import compare
import pytest
from load import peers
from load.rows import ROWS


def test_the_whole_plan_has_every_row_once_and_fits_into_three_quarters_of_an_hour() -> None:
    """Each row on the databases that it is about, except that on PostgreSQL nothing takes minutes."""
    options = compare._options([])
    jobs = compare._jobs(options)
    assert len(jobs) == len(set(jobs))
    elsewhere = {row.name for row in ROWS if "sqlite" not in row.bars}
    assert {name for name, database in jobs if database == "sqlite"} == set(compare.NAMES) - elsewhere
    short = {row.name for row in ROWS if not row.minutes}
    assert {name for name, database in jobs if database == "postgresql"} == short
    assert elsewhere < short
    assert sum(compare._expected(*job, options) for job in jobs) < 45 * 60


def test_a_peer_that_is_not_there_is_told_with_its_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The row is named at the end, the exit code is 1, and no figure is written."""
    monkeypatch.setenv("PEERS", str(tmp_path / "peers"))
    monkeypatch.setattr(peers, "INSTALL", peers.ROOT / "benchmarks" / "peers" / "no-such-script")
    results = tmp_path / "results"
    assert compare.main(["--only", "check-cerbos", "--results", str(results)]) == 1
    told = capfd.readouterr().err
    assert "not measured: sqlite check-cerbos: cerbos is not installed: " in told
    assert "benchmarks/peers/no-such-script cerbos" in told
    assert not list(results.glob("*.json"))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["check-throughput", "soak"])
def test_a_row_is_measured_for_real(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two short slices against a real gateway come out as a result and a line of the page."""
    monkeypatch.setattr(compare, "WARM", 0.1)
    monkeypatch.setattr(compare.soak, "WARM", 1.0)
    monkeypatch.setattr(compare.soak, "EVERY", 0.2)
    results = tmp_path / "results"
    asked = ["--only", name, "--pairs", "2", "--slice", "0.2", "--minutes", "0.03"]
    assert compare.main([*asked, "--results", str(results)]) == 0
    found = json.loads((results / f"sqlite-{name}.json").read_text())
    assert found["row"] == name
    assert found["circumstances"]["commit"]
    assert found["bar"] in (tmp_path / "RESULTS.md").read_text()
