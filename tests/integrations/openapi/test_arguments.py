"""What of a request is an argument, under which name, and what of it is none."""

from decimal import Decimal
from typing import Any

import httpx
import pytest
from support.rest_api import BASE, DOCUMENT, Client

from toolgate import ActionDenied, ConfigurationError
from toolgate.testing import FakeGateway
from toolgate_integrations.openapi import GuardTransport

ACTIONS = ("PostRefunds", "ListRefunds", "PatchRefund", "GetReport")


@pytest.fixture
def gateway() -> FakeGateway:
    return FakeGateway(allow=[f"pay.{each}" for each in ACTIONS])


def asked(
    gateway: FakeGateway, method: str, path: str, *, options: Any = None, **request: Any
) -> dict[str, Any]:
    """The context that the gateway was asked with."""
    inner = httpx.MockTransport(lambda _: httpx.Response(200))
    transport = GuardTransport(inner, DOCUMENT, prefix="pay", guard=gateway.guard(), **(options or {}))
    with httpx.Client(transport=transport, base_url=BASE) as client:
        client.request(method, path, **request)
    return dict(gateway.checks[-1].context)


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        ({"json": {"amount": 5, "to": {"name": "Ada"}}}, {"amount": 5, "to": {"name": "Ada"}}),
        (
            {"content": b"[1, 2.50]", "headers": {"content-type": "application/json"}},
            {"body": [1, Decimal("2.50")]},
        ),
        (
            {
                "content": b'{"a": 1}',
                "headers": {"content-type": 'Application/Merge-Patch+JSON; Charset="UTF-8"'},
            },
            {"a": 1},
        ),
        (
            {"data": {"amount": "12.50", "tag": ["a", "b"], "empty": ""}},
            {"amount": Decimal("12.5"), "tag": ["a", "b"], "empty": ""},
        ),
        ({"params": {"amount": "7", "limit": "10"}}, {"amount": 7, "limit": "10"}),
        ({"data": {"amount": "1e3"}}, {"amount": "1e3"}),
        ({"data": {"amount": ["1", "1000"]}}, {"amount": ["1", "1000"]}),
        ({"json": {"amount": "1000"}}, {"amount": "1000"}),
        ({}, {}),
    ],
)
def test_bodies_and_queries(gateway: FakeGateway, request_: dict[str, Any], expected: dict[str, Any]) -> None:
    """Members and fields by name, numbers with their digits; of text only an amount in plain digits is a number."""
    assert asked(gateway, "POST", "/refunds", **request_) == expected


def test_an_amount_in_a_form_is_compared(gateway: FakeGateway) -> None:
    """What is sent as text is held to the maximum, and what is no plain number is blocked."""
    gateway.allow("pay.PostRefunds", max_amount=100)
    for amount in ("100.01", "1e3", ["1", "1000"]):
        with pytest.raises(ActionDenied, match="maximum of 100"):
            asked(gateway, "POST", "/refunds", data={"amount": amount})
    assert asked(gateway, "POST", "/refunds", data={"amount": "100"})["amount"] == 100


@pytest.mark.parametrize("amount", ["cents", lambda cents: Decimal(cents) / 100], ids=["name", "function"])
def test_an_amount_of_another_name(gateway: FakeGateway, amount: Any) -> None:
    """By action, an argument or a function says what is compared."""
    gateway.allow("pay.PostRefunds", max_amount=100)
    options = {"amounts": {"pay.PostRefunds": amount}}
    if amount == "cents":
        with pytest.raises(ActionDenied, match="5000 is above"):
            asked(gateway, "POST", "/refunds", data={"cents": "5000"}, options=options)
    else:
        assert asked(gateway, "POST", "/refunds", data={"cents": "5000"}, options=options)["amount"] == 50


def test_the_same_name_in_several_places(gateway: FakeGateway) -> None:
    """Each is told apart by where it stands; an amount may stand in one place only."""
    found = asked(gateway, "PATCH", "/refunds/re_1?id=q", json={"id": "b", "note": "n"})
    assert found == {"path.id": "re_1", "query.id": "q", "body.id": "b", "note": "n"}
    with pytest.raises(ConfigurationError, match="'amount' in several places"):
        asked(gateway, "POST", "/refunds?amount=1", json={"amount": 1000})
    for unread in ({"files": {"amount": (None, "1000")}}, {"content": b'{"amount": 1000}'}):
        with pytest.raises(
            ConfigurationError, match="'amount' in several places, or together with a body that cannot"
        ):
            asked(gateway, "POST", "/refunds?amount=1", **unread)
    with pytest.raises(ConfigurationError, match=r"'query\.id' in several places"):
        asked(gateway, "PATCH", "/refunds/re_1?id=q&query.id=x")


@pytest.mark.parametrize(
    "said",
    [
        {"params": {"_method": "delete"}},
        {"json": {"_method": "delete"}},
        {"data": {"_method": "delete"}},
        {"files": {"_method": (None, "delete")}},
    ],
    ids=["query", "json", "form", "multipart"],
)
def test_an_argument_that_makes_another_method_of_a_post(gateway: FakeGateway, said: dict[str, Any]) -> None:
    """Frameworks take such a POST for a DELETE: it is not sent, and nobody is asked; elsewhere it is an argument."""
    with pytest.raises(ConfigurationError, match="has the argument '_method'"):
        asked(gateway, "POST", "/refunds", **said)
    with pytest.raises(ConfigurationError, match="has the argument '_method'"):
        asked(gateway, "POST", "/other", options={"unknown": "pay.PostRefunds"}, **said)
    assert gateway.checks == []
    assert asked(gateway, "PATCH", "/refunds/re_1", **said)["id"] == "re_1"


def test_what_is_no_text(gateway: FakeGateway) -> None:
    """A body that is neither JSON nor a form is bound by its bytes, and shown to nobody."""
    for headers in (
        {},
        {"content-type": "text/csv"},
        {"content-type": "application/json", "content-encoding": "gzip"},
    ):
        found = asked(gateway, "POST", "/refunds", content=b"amount;5", headers=headers)
        assert list(found) == ["body"]
        assert found["body"]["bytes"] == 8
    files = asked(gateway, "POST", "/refunds", files={"scan": b"12345"})
    assert list(files["body"]) == ["$digest", "bytes"]


def test_credentials_are_no_arguments(gateway: FakeGateway) -> None:
    """Headers, cookies and the key in the query are not even there as digests; what is called a secret is one."""
    headers = {"Authorization": "Bearer hush", "X-Token": "hush", "Cookie": "session=hush"}
    found = asked(gateway, "POST", "/refunds?key=hush&limit=1", json={"password": "hush"}, headers=headers)
    assert sorted(found) == ["limit", "password"]
    assert "hush" not in str(found)


def test_headers_that_are_arguments(gateway: FakeGateway) -> None:
    """Those that are named are shown and bound, where they are sent."""
    options = {"headers": ["Stripe-Account"]}
    found = asked(gateway, "POST", "/refunds", headers={"stripe-account": "acct_1"}, options=options)
    assert found == {"Stripe-Account": "acct_1"}
    assert asked(gateway, "POST", "/refunds", options=options) == {}


def test_more_that_is_hidden(gateway: FakeGateway) -> None:
    """What `redact` names is a digest, wherever it stands."""
    found = asked(
        gateway, "POST", "/refunds?iban=DE1", json={"note": "x"}, options={"redact": ["iban", "note"]}
    )
    assert {tuple(value) for value in found.values()} == {("$digest", "bytes")}


@pytest.mark.parametrize(
    ("kind", "body", "said"),
    [
        ("application/json", b'{"amount": 1, "amount": 1000}', "contains the same key twice"),
        ("application/json", b'{"amount": NaN}', "NaN is not a JSON number"),
        ("application/json", b"{", "Expecting"),
        ("application/json", b"\xff", "it is not UTF-8"),
        ("application/json", '{"amount": 1}'.encode("utf-16"), "it is not UTF-8"),
        ("application/json; charset=utf-7", b"{}", "the charset is 'utf-7', not UTF-8"),
        ("application/json", b"[" * 100_000, "nested too deep"),
        ("application/json", b"1" * 5000, "Exceeds the limit"),
        ("application/x-www-form-urlencoded", b"amount=%ff", "it is not UTF-8"),
        ("application/x-www-form-urlencoded", b"a&" * 10_001, "Max number of fields"),
    ],
)
async def test_bodies_that_others_may_read_otherwise(
    gateway: FakeGateway, kind: str, body: bytes, said: str
) -> None:
    """What is not read in one way by everybody is not sent, and nobody is asked."""
    client = Client("httpx", "sync", gateway)
    with pytest.raises(ConfigurationError, match=said):
        await client.send("POST", "/refunds", content=body, headers={"content-type": kind})
    assert (client.sent, gateway.checks) == ([], [])


def test_a_query_that_is_no_text(gateway: FakeGateway) -> None:
    """It would be bound as something else than it is."""
    with pytest.raises(ConfigurationError, match=r"the query of .* cannot be read: it is not UTF-8"):
        asked(gateway, "GET", "/refunds?name=%ff")
