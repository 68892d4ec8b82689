"""How the growth of memory is told."""

import pytest
from load.soak import growth

MIB = 2**20


def test_what_a_warm_up_takes_is_no_growth() -> None:
    """Memory that is taken once at the start does not count."""
    samples = [(float(at), (50 if at < 60 else 100) * MIB) for at in range(600)]
    assert growth(samples, 60, 60) == 0


def test_a_leak_is_told() -> None:
    """A steady leak shows from the middle of the first minute to the middle of the last."""
    samples = [(float(at), 100 * MIB + at * MIB // 60) for at in range(661)]
    assert growth(samples, 60, 60) == pytest.approx(9 / 101.5, abs=0.002)


def test_one_peak_is_no_growth() -> None:
    """A single sample out of line changes nothing."""
    samples = [(float(at), 100 * MIB) for at in range(660)] + [(660.0, 900 * MIB)]
    assert growth(samples, 60, 60) == 0


def test_nothing_seen_after_the_warm_up_is_no_result() -> None:
    """A soak that ended early has no growth, rather than one of 0."""
    with pytest.raises(ValueError, match="no memory was seen after a warm-up of 60 s"):
        growth([(1.0, MIB)], 60, 60)
