"""Which calls are allowed for a while (decisions §5)."""

from collections.abc import Collection, Mapping
from decimal import Decimal

from support.reference.facts import meaning


def covers(seen: Mapping[str, object], asked: Mapping[str, object], free: Collection[str]) -> bool:
    """Say whether a call is what was seen, but for what was left open and an amount that is smaller."""
    for name in seen.keys() | asked.keys():
        if name in free:
            continue
        if name not in seen or name not in asked:
            return False
        before, now = seen[name], asked[name]
        if name == "amount" and isinstance(before, Decimal) and isinstance(now, Decimal):
            if not 0 <= now <= before:
                return False
        elif meaning(before) != meaning(now):
            return False
    return True
