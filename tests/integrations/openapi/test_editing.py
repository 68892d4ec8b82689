"""A request that a person changed while they approved it: sent as they changed it, or not at all."""

import json
from typing import Any

import pytest
from support.rest_api import BASE, Client

from toolgate import ApprovalPending, ConfigurationError
from toolgate.testing import FakeGateway

ACTIONS = ("PostRefunds", "PatchRefund", "GET:/refunds/{id}", "GetReport")


@pytest.fixture
def gateway() -> FakeGateway:
    return FakeGateway(require_approval=[f"pay.{each}" for each in ACTIONS])


class Editor:
    """A person who approves what waits, with changes; the request goes on waiting meanwhile."""

    def __init__(self, gateway: FakeGateway, **changes: Any) -> None:
        self.gateway = gateway
        self.changes = changes

    def __call__(self, pending: ApprovalPending) -> str:
        [request] = self.gateway.pending()
        self.gateway.approve(pending.approval_id, context={**request.context, **self.changes})
        return "wait"


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("library", ["httpx", "httpx2"])
async def test_a_changed_body(gateway: FakeGateway, library: str, mode: Any) -> None:
    """The API gets what was approved, everything else stays, and the log tells what was sent."""
    client = Client(library, mode, gateway, on_hold=Editor(gateway, amount=1000))
    body = {"charge": "ch_1", "amount": 90, "secret": "hush", "rate": 0.10}
    await client.send("POST", "/refunds?key=k&expand=a", json=body, headers={"Authorization": "Bearer t"})
    [sent] = client.sent
    assert json.loads(sent.body) == {**body, "amount": 1000}
    assert (sent.url, sent.headers["authorization"]) == (f"{BASE}/refunds?key=k&expand=a", "Bearer t")
    assert sent.headers["content-length"] == str(len(sent.body))
    [pending, success] = gateway.entries
    assert (pending.context["amount"], success.context["amount"], success.status) == (90, 1000, "success")


@pytest.mark.parametrize(
    ("method", "path", "request_", "changes", "arrived"),
    [
        (
            "POST",
            "/refunds",
            {"data": {"amount": "90", "to": "a b"}},
            {"amount": 40},
            ("/refunds", b"amount=40&to=a+b"),
        ),
        (
            "POST",
            "/refunds",
            {"data": {"tag": ["a", "b"], "x": "1"}},
            {"tag": ["c"]},
            ("/refunds", b"tag=c&x=1"),
        ),
        ("POST", "/refunds?amount=90&key=k", {}, {"amount": 40}, ("/refunds?amount=40&key=k", b"")),
        ("GET", "/refunds/re_1?x=1", {}, {"id": "re 2"}, ("/refunds/re%202?x=1", b"")),
        ("GET", "/reports/march.csv", {}, {"name": "may"}, ("/reports/may.csv", b"")),
        ("POST", "/refunds", {"json": [1, 2]}, {"body": [3]}, ("/refunds", b"[3]")),
        ("PATCH", "/refunds/a", {"json": {"id": "b"}}, {"body.id": "c"}, ("/refunds/a", b'{"id":"c"}')),
    ],
)
async def test_changes_elsewhere(
    gateway: FakeGateway, method: str, path: str, request_: Any, changes: Any, arrived: tuple[str, bytes]
) -> None:
    """Forms, queries, paths and whole bodies are written as what they are."""
    client = Client("httpx", "sync", gateway, on_hold=Editor(gateway, **changes))
    await client.send(method, path, **request_)
    [sent] = client.sent
    assert (sent.url, sent.body) == (BASE + arrived[0], arrived[1])


async def test_a_changed_header(gateway: FakeGateway) -> None:
    """A header that is an argument is one that can be changed."""
    client = Client("httpx", "sync", gateway, headers=["Account"], on_hold=Editor(gateway, Account="b"))
    await client.send("POST", "/refunds", json={"x": 1}, headers={"Account": "a"})
    [sent] = client.sent
    assert (sent.headers["account"], sent.body) == ("b", b'{"x":1}')


@pytest.mark.parametrize("id_", ["mine", "a/b", "..", ""])
async def test_a_change_that_would_be_another_operation(gateway: FakeGateway, id_: str) -> None:
    """It is not sent, and the log says that it failed."""
    client = Client("httpx", "sync", gateway, on_hold=Editor(gateway, id=id_))
    with pytest.raises(
        ConfigurationError, match="approved with a changed 'id', but the new value cannot be written into"
    ):
        await client.send("GET", "/refunds/re_1")
    assert client.sent == []
    assert [each.status for each in gateway.entries] == ["pending", "failed"]


async def test_a_streamed_body_that_was_changed(gateway: FakeGateway) -> None:
    """It is sent in one piece, and says how long that is, once."""
    client = Client("httpx", "sync", gateway, on_hold=Editor(gateway, amount=1000))
    headers = {"Content-Type": "application/json"}
    await client.send("POST", "/refunds", content=iter([b'{"amount"', b": 90}"]), headers=headers)
    [sent] = client.sent
    assert sent.body == b'{"amount":1000}'
    assert sent.headers["content-length"] == "15"
    assert "transfer-encoding" not in sent.headers


async def test_a_change_that_cannot_be_written(gateway: FakeGateway) -> None:
    """A form has no empty lists: what it would say in its place is not what was approved, and is not sent."""
    client = Client("httpx", "sync", gateway, on_hold=Editor(gateway, tag=[]))
    with pytest.raises(ConfigurationError, match="changed 'tag', but the new value cannot be written"):
        await client.send("POST", "/refunds", data={"tag": ["a", "b"], "x": "1"})
    assert client.sent == []
    assert [each.status for each in gateway.entries] == ["pending", "failed"]


async def test_what_is_not_in_the_document_goes_where_it_was_asked_for(gateway: FakeGateway) -> None:
    """Its address can be approved or not, and not exchanged; its arguments can."""
    gateway.require_approval("pay.unknown")
    options = {"unknown": "pay.unknown", "on_hold": Editor(gateway, url="https://evil.test/")}
    client = Client("httpx", "sync", gateway, **options)
    with pytest.raises(ConfigurationError, match="changed 'url'"):
        await client.send("POST", "https://other.test/x", json={"a": 1})
    assert client.sent == []
    client = Client("httpx", "sync", gateway, unknown="pay.unknown", on_hold=Editor(gateway, a=2))
    await client.send("POST", "https://other.test/x", json={"a": 1})
    assert [(each.url, each.body) for each in client.sent] == [("https://other.test/x", b'{"a":2}')]
