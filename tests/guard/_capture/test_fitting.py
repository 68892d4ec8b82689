"""A context holds no more values than the gateway reads."""

from __future__ import annotations

from typing import Any

import pytest

from toolgate._capture.fitting import fit
from toolgate._capture.hiding import Hider


def count(value: Any) -> int:
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(count(one) for one in inside)


@pytest.fixture
def hider() -> Hider:
    return Hider("ak_" + "k" * 37)


def test_many_small_values_become_a_digest(hider: Hider) -> None:
    """The argument of most values is bound by its digest; the others stay as they are."""
    context: Any = {"amount": 5, "vector": [1] * 6_000, "matrix": [[1] * 10] * 100, "to": "ann"}
    fitted: Any = fit(context, hider)
    assert set(fitted["vector"]) == {"$digest", "bytes"}
    assert (fitted["amount"], fitted["matrix"], fitted["to"]) == (5, context["matrix"], "ann")
    assert fitted != fit({**context, "vector": [1] * 5_999 + [2]}, hider)


def test_many_arguments_become_one_digest(hider: Hider) -> None:
    """Where each is small the amount stays, and one digest stands for the rest."""
    fitted: Any = fit({"amount": 5, **{f"a{number}": 1 for number in range(6_000)}}, hider)
    assert set(fitted) == {"amount", "$cut"}


def test_what_the_gateway_reads_stays(hider: Hider) -> None:
    """Up to a few thousand values nothing is replaced."""
    context: Any = {"vector": [1] * 4_000}
    assert fit(context, hider) == context
    assert count(context) < 4_500
