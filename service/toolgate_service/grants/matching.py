"""Which calls a grant covers. No I/O, no clock."""

from collections.abc import Collection, Mapping
from decimal import Decimal

from toolgate_service import exact_json

#: the one field that is compared and not matched
AMOUNT = "amount"


def covers(seen: Mapping[str, object], asked: Mapping[str, object], free: Collection[str] = ()) -> bool:
    """Say whether a call equals the one that the approvers saw.

    Args:
        seen: the context that the approvers saw.
        asked: the call's.
        free: names of fields that may differ, be missing or be there in addition.

    Returns:
        Whether every other field is there in both and the same; an amount may be smaller than the one seen.
    """
    names = (seen.keys() | asked.keys()) - set(free)
    return all(name in seen and name in asked and _fits(name, seen[name], asked[name]) for name in names)


def _fits(name: str, seen: object, asked: object) -> bool:
    if name == AMOUNT and _is_number(seen) and _is_number(asked):
        return 0 <= Decimal(str(asked)) <= Decimal(str(seen))
    return _text(seen) == _text(asked)


def _is_number(value: object) -> bool:
    return isinstance(value, int | Decimal) and not isinstance(value, bool)


def _text(value: object) -> str:
    # As text: in Python True equals 1, in a context it does not.
    return exact_json.dumps(value, sort_keys=True)
