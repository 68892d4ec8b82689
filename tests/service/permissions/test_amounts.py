"""`max_amount`: exact, non-negative, finite (decisions §4)."""

import re

import pytest
from support.gateway import Owner
from support.shapes import complaints


def body(amount: str) -> bytes:
    return b'{"action": "pay", "max_amount": %s}' % amount.encode()


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("0", "0"),
        ("-0", "0"),
        ("-0.0", "0"),
        ("0e5", "0"),
        ("50", "50"),
        ("50.0", "50"),
        ("100.10", "100.1"),
        ("0.1", "0.1"),
        ("0.30000000000000004", "0.30000000000000004"),
        ("1e2", "100"),
        ("1E+2", "100"),
        ("12.5e-3", "0.0125"),
        ("9007199254740993", "9007199254740993"),
        ("9007199254740992.5", "9007199254740992.5"),
        ("0." + "0" * 30 + "1", "0." + "0" * 30 + "1"),
        ("9" * 400, "9" * 400),
        ("1e400", "1" + "0" * 400),
        ("1e-400", "0." + "0" * 399 + "1"),
    ],
)
def test_an_amount_comes_back_digit_by_digit(acme: Owner, bot: str, given: str, shown: str) -> None:
    """A maximum is stored exactly and shown in its one canonical spelling, by POST, PUT and the listing."""
    path = f"/api/agents/{bot}/permissions"
    made = acme.http.post(path, content=body(given))
    assert made.status_code == 201
    changed = acme.http.put(
        f"/api/permissions/{made.json()['id']}", content=b'{"max_amount": %s}' % given.encode()
    )
    for text in (made.text, changed.text, acme.http.get(path).text):
        found = re.search(r'"max_amount":([^,]+),', text)
        assert found is not None
        assert found[1] == shown


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ("-1", "max_amount"),
        ("-0.01", "max_amount"),
        ("-1e-400", "max_amount"),
        ('"50"', "max_amount"),
        ("true", "max_amount"),
        ("false", "max_amount"),
        ("[50]", "max_amount"),
        ("{}", "max_amount"),
        ('""', "max_amount"),
        ("NaN", "body"),
        ("Infinity", "body"),
        ("-Infinity", "body"),
        ("1e401", "body"),
        ("1e-401", "body"),
        ("1e99999999999999999999", "body"),
        ("9" * 401, "body"),
        ("0." + "1" * 400, "body"),
        ("0x10", "body"),
        ("1.", "body"),
        (".5", "body"),
        ("01", "body"),
        ("+1", "body"),
        ("1_000", "body"),
    ],
)
def test_what_is_no_non_negative_number_is_refused(acme: Owner, bot: str, given: str, field: str) -> None:
    """A negative, non-finite, non-numeric or endless maximum is 400 and grants nothing (decisions §2, §4)."""
    path = f"/api/agents/{bot}/permissions"
    assert list(complaints(acme.http.post(path, content=body(given)))) == [field]
    assert acme.http.get(path).json() == []
