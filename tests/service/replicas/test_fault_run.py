"""A short run: everything fails once or twice while twenty clients work, and every promise holds."""

import pytest
from support.faults.run import run, told

pytestmark = pytest.mark.postgresql_only("several machines share a PostgreSQL server, and no file")


@pytest.mark.parametrize(("seconds", "pause"), [(8, 0.6), pytest.param(120, 2.5, marks=pytest.mark.slow)])
def test_whatever_fails_nothing_promised_is_broken(seconds: float, pause: float) -> None:
    """Kills, crashes, cuts and silence: no entry lost or doubled, no approval used twice, no limit passed, nothing
    allowed after its revocation; and all replicas come back by themselves."""
    result = run(seconds, seed=7, pause=pause)
    assert [line.broken for line in result.lines] == [()] * len(result.lines), told(result, 7)
    assert result.is_good, told(result, 7)
    assert sum(times for _, times in result.faults) >= 3, told(result, 7)
