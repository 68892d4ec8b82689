"""What becomes of a request: sent once as it is, or not at all; with both HTTP libraries, synchronous and not."""

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from support.readme import ROOT
from support.rest_api import BASE, DOCUMENT, Client

from toolgate import ActionDenied, ApprovalDenied, ApprovalPending, ConfigurationError, GatewayUnavailable
from toolgate.testing import FakeGateway
from toolgate_integrations.openapi import AsyncGuardTransport, GuardTransport

Make = Callable[..., Client]


@pytest.fixture
def gateway() -> FakeGateway:
    return FakeGateway(
        allow={
            "pay.PostRefunds": {"max_amount": 100, "amount_required": False},
            "pay.Move": {},
            "pay.Drop": {},
        },
        require_approval=["pay.PatchRefund"],
    )


@pytest.fixture(
    params=[(library, mode) for library in ("httpx", "httpx2") for mode in ("sync", "async")],
    ids="-".join,
)
def make(request: pytest.FixtureRequest, gateway: FakeGateway) -> Make:
    library, mode = request.param
    return lambda **options: Client(library, mode, gateway, **options)


def statuses(gateway: FakeGateway) -> list[tuple[str, str]]:
    return [(each.action, each.status) for each in gateway.entries]


async def test_an_allowed_request_is_sent_once_as_it_is(make: Make, gateway: FakeGateway) -> None:
    """Method, address, headers and every byte of the body arrive as they were, once, and the log says so."""
    client = make()
    body = b'{ "amount": 40.50,\n "charge":"ch_1" }'
    headers = {
        "Content-Type": "application/json",
        "Authorization": "Bearer sk_live_1",
        "Cookie": "session=abc",
    }
    answer = await client.send("POST", "/refunds?expand=a&expand=b&key=k_1", content=body, headers=headers)
    assert (answer.status_code, answer.json()) == (200, {"done": True})
    [sent] = client.sent
    assert (sent.method, sent.url, sent.body) == ("POST", f"{BASE}/refunds?expand=a&expand=b&key=k_1", body)
    assert sent.headers["authorization"] == "Bearer sk_live_1"
    assert sent.headers["cookie"] == "session=abc"
    [entry] = gateway.entries
    assert (entry.action, entry.status) == ("pay.PostRefunds", "success")
    context = dict(entry.context)
    context.pop("duration_ms")
    assert {name: str(value) for name, value in context.items()} == {
        "amount": "40.50",
        "charge": "ch_1",
        "expand": "['a', 'b']",
        "http_status": "200",
    }


async def test_a_blocked_request_is_not_sent(make: Make, gateway: FakeGateway) -> None:
    """Too much, or not granted: the denial comes through the client as it is, and nothing arrives."""
    client = make()
    with pytest.raises(ActionDenied, match="500 is above the maximum") as denied:
        await client.send("POST", "/refunds", json={"amount": 500})
    assert denied.value.action == "pay.PostRefunds"
    with pytest.raises(ActionDenied, match=r"no permission for action 'pay\.ListRefunds'"):
        await client.send("GET", "/refunds")
    assert client.sent == []
    assert statuses(gateway) == [("pay.PostRefunds", "denied"), ("pay.ListRefunds", "denied")]


async def test_a_held_request_is_sent_once_it_is_approved(make: Make, gateway: FakeGateway) -> None:
    """The same request passes once; another one, and the same once more, wait for a person of their own."""
    client = make()
    with pytest.raises(ApprovalPending) as pending:
        await client.send("PATCH", "/refunds/re_1", json={"note": "late"})
    gateway.approve(pending.value.approval_id)
    for path, note in (("/refunds/re_2", "late"), ("/refunds/re_1", "early")):
        with pytest.raises(ApprovalPending):
            await client.send("PATCH", path, json={"note": note})
    assert client.sent == []
    assert (await client.send("PATCH", "/refunds/re_1", json={"note": "late"})).status_code == 200
    with pytest.raises(ApprovalPending):
        await client.send("PATCH", "/refunds/re_1", json={"note": "late"})
    assert len(client.sent) == 1


@pytest.mark.parametrize("then", ["approved", "denied"])
async def test_a_request_that_waits(make: Make, gateway: FakeGateway, then: Any) -> None:
    """With on_hold='wait' the request goes out when the person has approved, and not at all when they declined."""
    gateway.require_approval("pay.PatchRefund", then=then)
    client = make(on_hold="wait")
    if then == "approved":
        assert (await client.send("PATCH", "/refunds/re_1")).status_code == 200
        assert len(client.sent) == 1
    else:
        with pytest.raises(ApprovalDenied):
            await client.send("PATCH", "/refunds/re_1")
        assert client.sent == []


async def test_no_gateway(make: Make, gateway: FakeGateway) -> None:
    """Where no gateway answers nothing is sent."""
    client = make()
    with gateway.outage(), pytest.raises(GatewayUnavailable):
        await client.send("POST", "/refunds")
    assert client.sent == []


async def test_an_answer_that_says_no_is_a_failure_in_the_log(make: Make, gateway: FakeGateway) -> None:
    """The caller is given the response as it is, and the log says what the API answered."""
    client = make()
    client.answer = lambda _: client.http.Response(409, text="it is paid")
    answer = await client.send("DELETE", "/refunds/re_1")
    assert (answer.status_code, answer.text) == (409, "it is paid")
    [entry] = gateway.entries
    assert entry.status == "failed"
    assert entry.context["http_status"] == 409
    assert entry.context["error"] == {"type": "HTTPStatusError", "message": "the API answered 409"}


async def test_an_error_on_the_way_comes_through(make: Make, gateway: FakeGateway) -> None:
    """What the transport raises is raised, the very object, and recorded as a failure."""
    client = make()
    error = client.http.ReadTimeout("too slow")

    def lose(_: object) -> None:
        raise error

    client.answer = lose
    with pytest.raises(client.http.ReadTimeout) as raised:
        await client.send("DELETE", "/refunds/re_1")
    assert raised.value is error
    assert statuses(gateway) == [("pay.Drop", "failed")]


async def test_a_redirect_is_a_request_of_its_own(make: Make, gateway: FakeGateway) -> None:
    """The client's next request is asked about as what it is, and one to another host is refused."""
    client = make()
    places = iter([f"{BASE}/refunds/re_1", "https://elsewhere.test/v1/refunds"])
    client.answer = lambda _: client.http.Response(303, headers={"Location": next(places)})
    with pytest.raises(ActionDenied, match=r"GET:/refunds/\{id\}"):
        await client.send("POST", "/moved", follow=True)
    with pytest.raises(ConfigurationError, match="does not belong to a server of the document"):
        await client.send("POST", "/moved", follow=True)
    assert [each.url for each in client.sent] == [f"{BASE}/moved"] * 2
    assert statuses(gateway) == [
        ("pay.Move", "success"),
        ("pay.GET:/refunds/{id}", "denied"),
        ("pay.Move", "success"),
    ]


async def test_a_streamed_body_is_read_within_a_bound(make: Make, gateway: FakeGateway) -> None:
    """A generator's pieces are read, asked about, and sent; one that does not end is refused, and nothing is sent."""
    client = make(max_body=1000)

    def pieces(many: int) -> Any:
        def given() -> Iterator[bytes]:
            yield b'{"amount": 40'
            yield b" " * many
            yield b"}"

        async def agiven() -> Any:
            for piece in given():
                yield piece

        return given() if client.mode == "sync" else agiven()

    headers = {"Content-Type": "application/json"}
    await client.send("POST", "/refunds", content=pieces(2), headers=headers)
    [sent] = client.sent
    assert sent.body == b'{"amount": 40  }'
    assert gateway.checks[0].context["amount"] == 40
    with pytest.raises(
        ConfigurationError, match=r"POST https://api\.example\.test/v1/refunds' is longer than 1000"
    ):
        await client.send("POST", "/refunds", content=pieces(1000), headers=headers)
    assert len(client.sent) == len(gateway.checks) == 1


@pytest.mark.parametrize(
    ("headers", "extensions"),
    [
        ({"X-HTTP-Method-Override": "DELETE"}, {}),
        ({"X-Original-URL": "/v1/admin"}, {}),
        ({"Host": "other.test"}, {}),
        ({}, {"target": b"/v1/admin"}),
        ({}, {"sni_hostname": "other.test"}),
    ],
)
async def test_a_request_in_disguise_is_refused(
    make: Make, gateway: FakeGateway, headers: dict[str, str], extensions: dict[str, Any]
) -> None:
    """What an API may take for another request than it looks like is not sent, and nobody is asked."""
    client = make()
    with pytest.raises(ConfigurationError, match="the request was not sent"):
        await client.send("POST", "/refunds", headers=headers, extensions=extensions)
    assert (client.sent, gateway.checks) == ([], [])


async def test_what_is_not_in_the_document(make: Make, gateway: FakeGateway) -> None:
    """It is refused; with an action of its own it is asked about with its address and all that it says."""
    with pytest.raises(
        ConfigurationError, match=r"GET https://api\.example\.test/v1/admin' is not an operation"
    ):
        await make().send("GET", "/admin?secret=hush")
    assert gateway.checks == []
    client = make(unknown="pay.unknown")
    with pytest.raises(ActionDenied, match=r"pay\.unknown"):
        await client.send("POST", "/admin", json={"amount": 5})
    gateway.allow("pay.unknown")
    await client.send("POST", "https://other.test/x?y=1")
    assert [each.url for each in client.sent] == ["https://other.test/x?y=1"]
    assert [each.context for each in gateway.checks] == [
        {"method": "POST", "url": f"{BASE}/admin", "amount": 5},
        {"method": "POST", "url": "https://other.test/x", "y": "1"},
    ]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("transport", object()),
        ("guard", "environment"),
        ("max_body", -1),
        ("servers", "https://api.example.test"),
        ("servers", ["/v1"]),
        ("unknown", "pay unknown"),
        ("on_hold", "perhaps"),
        ("amounts", {"pay.PostRefund": "cents"}),
        ("redact", "note"),
        ("headers", ["Authorization"]),
        ("headers", ["x-token"]),
        ("headers", "Account"),
        ("prefix", ""),
        ("prefix", "tools"),
    ],
)
@pytest.mark.parametrize("kind", [GuardTransport, AsyncGuardTransport])
def test_wrong_arguments_are_refused_when_the_transport_is_made(kind: Any, name: str, value: Any) -> None:
    """Each says what it is, and nothing has to be sent to find out."""
    given = {"transport": httpx.MockTransport(lambda _: httpx.Response(200)), "prefix": "pay", name: value}
    with pytest.raises(ConfigurationError):
        kind(given.pop("transport"), DOCUMENT, **given)


def test_the_page_names_every_argument() -> None:
    """The page of REST APIs lists all options."""
    page = (ROOT / "docs" / "frameworks" / "openapi.md").read_text()
    names = list(inspect.signature(GuardTransport).parameters)
    assert names[:2] == ["transport", "document"]
    assert [each for each in names[2:] if f"`{each}`" not in page] == []
