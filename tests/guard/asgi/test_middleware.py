"""Decisions, responses and log entries of guarded requests."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest
from support.asgi import Client, Tool
from support.waiting import eventually

from toolgate import ActionDenied, ConfigurationError, Guard, acting_as, guarded
from toolgate.asgi import Endpoint, GuardMiddleware
from toolgate.testing import FakeGateway

REFUND = "POST /refunds/ch_1"
ACTIONS = {"POST /refunds/{charge}?note": "stripe.refund"}


def guarded_app(tool: Any, **options: Any) -> GuardMiddleware:
    return GuardMiddleware(tool, **{"actions": ACTIONS, **options})


async def test_allowed_request_reaches_the_application_unchanged(fake_gateway: FakeGateway) -> None:
    fake_gateway.allow("stripe.refund", max_amount=100)
    tool, pieces = Tool(201), [b'{ "amount" : 4', b"0.50 ", b"}\n"]
    client = Client("POST /refunds/ch_1?note=a%20b", list(pieces))
    await client.ask(guarded_app(tool))
    assert tool.ran == [("/refunds/ch_1", "note=a%20b", b"".join(pieces))]
    assert tool.scopes[0] is client.scope
    assert (client.status, client.headers, client.body) == (201, {"x-tool": "1"}, b"the tool's")
    [check], [entry] = fake_gateway.checks, fake_gateway.entries
    fake_gateway.assert_checked("stripe.refund", charge="ch_1", note="a b", amount=40.5)
    assert check.context.keys() == {"charge", "note", "amount"}
    assert entry.status == "success"


@pytest.mark.parametrize("status", [200, 204, 303, 304, 400, 404, 422, 500, 503])
async def test_log_entry_has_the_status_of_the_response(fake_gateway: FakeGateway, status: int) -> None:
    fake_gateway.allow("stripe.refund")
    client = await Client(REFUND, {"amount": 1}).ask(guarded_app(Tool(status)))
    assert (client.status, client.body) == (status, b"the tool's")
    [entry] = fake_gateway.entries
    assert entry.status == ("success" if status < 400 else "failed")
    if status >= 400:
        assert entry.context["error"] == {"type": "FailedResponse", "message": f"HTTP status {status}"}


async def test_missing_response_is_logged_as_failed(fake_gateway: FakeGateway) -> None:
    fake_gateway.allow("stripe.refund")
    client = await Client(REFUND).ask(guarded_app(Tool(None)))
    assert client.sent == []
    assert fake_gateway.entries[0].context["error"]["message"] == "no response"


@pytest.mark.parametrize(
    "error", [ValueError("no such charge"), asyncio.CancelledError(), KeyboardInterrupt()], ids=repr
)
async def test_exception_of_the_application_is_raised_unchanged(
    fake_gateway: FakeGateway, error: BaseException
) -> None:
    fake_gateway.allow("stripe.refund")
    with pytest.raises(type(error)) as raised:
        await Client(REFUND).ask(guarded_app(Tool(error=error)))
    assert raised.value is error
    assert raised.value.__cause__ is None
    assert [each.status for each in fake_gateway.entries] == ["failed"]


async def test_guarded_call_inside_the_application_raises_there(fake_gateway: FakeGateway) -> None:
    fake_gateway.allow("stripe.refund")
    inner = guarded("mail.send")(lambda: None)

    async def tool(*_: Any) -> None:
        inner()

    with pytest.raises(ActionDenied, match=r"mail\.send"):
        await Client(REFUND, headers={"x-agent": "ann"}).ask(guarded_app(tool, agent="X-Agent"))
    assert [(each.action, each.agent_id) for each in fake_gateway.checks] == [
        ("stripe.refund", "ann"),
        ("mail.send", "ann"),
    ]


async def test_denied_request_is_403(fake_gateway: FakeGateway) -> None:
    fake_gateway.allow("stripe.refund", max_amount=100)
    tool = Tool()
    client = await Client(REFUND, {"amount": 400}).ask(guarded_app(tool))
    assert (client.status, client.headers["x-toolgate-outcome"]) == (403, "blocked")
    assert client.json["detail"] == "Amount 400 is above the maximum of 100 for action 'stripe.refund'"
    assert client.headers["content-length"] == str(len(client.body))
    assert tool.ran == []
    fake_gateway.assert_logged("stripe.refund", "denied", amount=400)


async def test_request_that_requires_approval_is_202_until_approved(fake_gateway: FakeGateway) -> None:
    fake_gateway.require_approval("stripe.refund")
    tool = Tool()
    app = guarded_app(tool)
    first, again = [await Client(REFUND, {"amount": 4}).ask(app) for _ in range(2)]
    assert (first.status, first.headers["retry-after"]) == (202, "10")
    assert first.json["outcome"] == "pending"
    assert again.json["approval_id"] == first.json["approval_id"] == fake_gateway.pending()[0].approval_id
    assert tool.ran == []
    fake_gateway.approve()
    statuses = [(await Client(REFUND, {"amount": 4}).ask(app)).status for _ in range(2)]
    assert (statuses, len(tool.ran)) == ([200, 202], 1)


async def test_approval_of_a_query_argument_does_not_cover_the_body(fake_gateway: FakeGateway) -> None:
    fake_gateway.require_approval("stripe.refund")
    tool = Tool()
    app = guarded_app(tool)
    assert (await Client("POST /refunds/ch_1?note=test").ask(app)).status == 202
    fake_gateway.approve()
    assert (await Client(REFUND, {"note": "test"}).ask(app)).status == 400
    assert tool.ran == []


async def test_repeated_request_with_a_key_runs_as_edited_once(fake_gateway: FakeGateway) -> None:
    fake_gateway.require_approval("stripe.refund")
    tool, key = Tool(), {"Idempotency-Key": "k-1"}
    app = guarded_app(tool)

    def client() -> Client:
        return Client("POST /refunds/ch_1?note=a", {"amount": 40, "to": ["ann"]}, headers=key)

    assert (await client().ask(app)).status == 202
    fake_gateway.approve(context={"charge": "ch_1", "note": "b c", "amount": 4, "to": ["ann", "bob"]})
    assert (await client().ask(app)).status == 200
    body = b'{"amount":4,"to":["ann","bob"]}'
    assert tool.ran == [("/refunds/ch_1", "note=b+c", body)]
    headers = dict(tool.scopes[0]["headers"])
    assert headers[b"content-length"] == str(len(body)).encode()
    assert len(tool.scopes[0]["headers"]) == len(headers)
    fake_gateway.assert_logged("stripe.refund", "success", amount=4, note="b c")
    over = await client().ask(app)
    assert (over.status, len(tool.ran)) == (403, 1)
    assert "has already been allowed once" in over.json["detail"]


async def test_approval_does_not_cover_other_arguments_with_the_same_key(fake_gateway: FakeGateway) -> None:
    fake_gateway.require_approval("stripe.refund")
    tool, key = Tool(), {"Idempotency-Key": "k-1"}
    app = guarded_app(tool)
    await Client(REFUND, {"amount": 4}, headers=key).ask(app)
    fake_gateway.approve()
    assert (await Client(REFUND, {"amount": 5}, headers=key).ask(app)).status in {202, 403}
    assert tool.ran == []


async def test_edit_of_the_path_is_refused(fake_gateway: FakeGateway) -> None:
    fake_gateway.require_approval("stripe.refund")
    tool, key = Tool(), {"Idempotency-Key": "k-1"}
    app = guarded_app(tool)
    await Client(REFUND, {"amount": 4}, headers=key).ask(app)
    fake_gateway.approve(context={"charge": "ch_2", "amount": 4})
    client = await Client(REFUND, {"amount": 4}, headers=key).ask(app)
    assert (client.status, tool.ran) == (403, [])
    assert "'charge'" in client.json["detail"]
    assert fake_gateway.entries[-1].status == "denied"


async def held(gateway: FakeGateway, client: Client, app: Any) -> asyncio.Task[Client]:
    """Send a request, and return its task when its approval request is pending."""

    async def waits() -> bool:
        return bool(gateway.pending())

    task = asyncio.create_task(client.ask(app))
    await eventually(waits)
    return task


@pytest.mark.parametrize(
    ("decide", "status", "outcome"),
    [("approve", 200, None), ("deny", 403, "declined"), ("block", 403, "blocked")],
)
async def test_waiting_request_is_answered_after_the_decision(
    fake_gateway: FakeGateway, decide: str, status: int, outcome: str | None
) -> None:
    fake_gateway.require_approval("stripe.refund")
    tool, client = Tool(), Client(REFUND, {"amount": 4})
    task = await held(fake_gateway, client, guarded_app(tool, on_hold="wait"))
    assert (client.sent, tool.ran) == ([], [])
    fake_gateway.block("stripe.refund") if decide == "block" else getattr(fake_gateway, decide)()
    await task
    assert (client.status, len(tool.ran)) == (status, status == 200)
    assert client.headers.get("x-toolgate-outcome") == outcome


async def test_waiting_request_is_202_after_its_time_limit(fake_gateway: FakeGateway) -> None:
    fake_gateway.require_approval("stripe.refund", then="ignored")
    endpoint = Endpoint("stripe.refund", on_hold="wait", hold_timeout=5)
    tool = Tool()
    client = await Client(REFUND).ask(guarded_app(tool, actions={"POST /refunds/{charge}": endpoint}))
    assert (client.status, tool.ran) == (202, [])
    assert len(fake_gateway.pending()) == 1


async def test_waiting_request_runs_as_edited(fake_gateway: FakeGateway) -> None:
    fake_gateway.require_approval("stripe.refund")
    tool = Tool()
    task = await held(
        fake_gateway, Client(REFUND, {"amount": 40}), guarded_app(tool, on_hold="wait", hold_timeout=60)
    )
    fake_gateway.approve(context={"charge": "ch_1", "amount": 4})
    assert (await task).status == 200
    assert [body for *_, body in tool.ran] == [b'{"amount":4}']


async def test_disconnect_withdraws_the_approval_request(fake_gateway: FakeGateway) -> None:
    fake_gateway.require_approval("stripe.refund")
    tool, client = Tool(), Client(REFUND)
    task = await held(fake_gateway, client, guarded_app(tool, on_hold="wait"))
    client.hang_up()
    async with asyncio.timeout(30):
        await task
    assert (client.sent, tool.ran, fake_gateway.pending()) == ([], [], [])
    assert task.cancelling() == 0


async def test_cancelled_request_withdraws_the_approval_request(fake_gateway: FakeGateway) -> None:
    fake_gateway.require_approval("stripe.refund")
    tool = Tool()
    task = await held(fake_gateway, Client(REFUND), guarded_app(tool, on_hold="wait"))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (tool.ran, fake_gateway.pending()) == ([], [])


@pytest.mark.parametrize(("held", "on_hold"), [(False, "notify_model"), (False, "wait"), (True, "wait")])
async def test_later_disconnect_reaches_the_application(
    fake_gateway: FakeGateway, held: bool, on_hold: str
) -> None:
    fake_gateway.require_approval("stripe.refund", then="approved") if held else fake_gateway.allow(
        "stripe.refund"
    )
    client, heard = Client(REFUND), list[str]()

    async def tool(_: Any, receive: Any, send: Any) -> None:
        await receive()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await receive()
        client.hang_up()
        heard.extend([(await receive())["type"], (await receive())["type"]])
        await send({"type": "http.response.start", "status": 200, "headers": []})

    await client.ask(guarded_app(tool, on_hold=on_hold))
    assert heard == ["http.disconnect"] * 2


async def test_former_name_of_on_hold_is_deprecated(fake_gateway: FakeGateway) -> None:
    fake_gateway.require_approval("stripe.refund")
    tool, former = Tool(), "tell"
    with pytest.warns(DeprecationWarning, match="on_hold='tell' is deprecated; use 'notify_model'") as caught:
        endpoint = Endpoint("stripe.refund", on_hold=former)  # type: ignore[arg-type]  # the former name
    assert [endpoint.on_hold, caught[0].filename] == ["notify_model", __file__]
    with pytest.warns(DeprecationWarning, match="use 'notify_model'"):
        app = guarded_app(tool, on_hold=former)
    assert (await Client(REFUND).ask(app)).status == 202
    assert tool.ran == []


async def test_unavailable_gateway_is_503(
    fake_gateway: FakeGateway, caplog: pytest.LogCaptureFixture
) -> None:
    fake_gateway.allow("stripe.refund")
    tool = Tool()
    with fake_gateway.outage():
        client = await Client(REFUND).ask(guarded_app(tool))
    assert (client.status, client.headers["retry-after"], tool.ran) == (503, "5", [])
    assert "fake" not in client.body.decode()
    [told] = [each for each in caplog.records if each.__dict__.get("toolgate_event") == "request_failed"]
    assert (told.levelno, told.__dict__["toolgate_outcome"]) == (logging.ERROR, "GatewayUnavailable")
    assert "fake.invalid" in told.getMessage()


async def test_full_outbox_is_503(fake_gateway: FakeGateway, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    outbox, tool = tmp_path / "file" / "outbox", Tool()
    with Guard(
        "http://127.0.0.1:9", fake_gateway.api_key, "bot", transport=fake_gateway, outbox=outbox
    ) as guard:
        client = await Client(REFUND).ask(guarded_app(tool, guard=guard))
    assert (client.status, tool.ran) == (503, [])
    assert str(tmp_path) not in client.body.decode()
    fake_gateway.assert_not_checked()


async def test_rejected_api_key_is_500_without_details(fake_gateway: FakeGateway) -> None:
    tool = Tool()
    key = "ak_" + "0" * 37
    with Guard("http://127.0.0.1:9", key, "bot", transport=fake_gateway, outbox="memory") as guard:
        client = await Client(REFUND).ask(guarded_app(tool, guard=guard))
    assert (client.status, tool.ran, "retry-after" in client.headers) == (500, [], False)
    assert key not in client.body.decode()


async def test_agent_is_named_by_header_or_function(fake_gateway: FakeGateway) -> None:
    fake_gateway.allow("stripe.refund")

    async def looked_up(scope: Any) -> str | None:
        return {b"t-1": "bob"}.get(dict(scope["headers"]).get(b"authorization", b""))

    by_header, by_function = guarded_app(Tool(), agent="X-Agent"), guarded_app(Tool(), agent=looked_up)
    with acting_as("somebody"):
        await Client(REFUND, headers={"x-agent": "ann"}).ask(by_header)
        await Client(REFUND, headers={"authorization": "t-1"}).ask(by_function)
        await Client(REFUND).ask(guarded_app(Tool()))
    assert [each.agent_id for each in fake_gateway.checks] == ["ann", "bob", "somebody"]
    refused = [
        await Client(REFUND).ask(by_header),
        await Client(REFUND, headers={"authorization": "t-2"}).ask(by_function),
        await Client(REFUND, headers=[(b"x-agent", b"ann"), (b"x-agent", b"bob")]).ask(by_header),
        await Client(REFUND, headers={"x-agent": "a" * 256}).ask(by_header),
    ]
    assert [each.status for each in refused] == [403, 403, 400, 400]
    assert len(fake_gateway.checks) == 3


async def test_streamed_response_is_passed_on_piece_by_piece(fake_gateway: FakeGateway) -> None:
    fake_gateway.allow("stripe.refund")
    client = Client(REFUND)

    async def tool(_: Any, __: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for piece in (b"a", b"b"):
            await send({"type": "http.response.body", "body": piece, "more_body": True})
            assert client.body.endswith(piece)
        assert fake_gateway.entries == []
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        await client.ask(guarded_app(tool))
    assert client.body == b"ab"
    assert [each.status for each in fake_gateway.entries] == ["failed"]


async def test_amount_is_computed_from_the_query(fake_gateway: FakeGateway) -> None:
    fake_gateway.allow("stripe.refund", max_amount=100)
    tool = Tool()
    endpoint = Endpoint("stripe.refund", amount=lambda cents: int(cents) / 100)
    app = guarded_app(tool, actions={"POST /refunds?cents": endpoint})
    answers = [await Client(f"POST /refunds{query}").ask(app) for query in ("?cents=400", "?cents=40000", "")]
    assert [each.status for each in answers] == [200, 403, 400]
    assert "'cents'" in answers[2].json["detail"]
    assert len(tool.ran) == 1


async def test_hidden_arguments_reach_only_the_application(fake_gateway: FakeGateway) -> None:
    fake_gateway.allow("stripe.refund")
    tool = Tool()
    app = guarded_app(tool, actions={"POST /refunds": Endpoint("stripe.refund", exclude={"note"})})
    await Client("POST /refunds", {"password": "hunter22", "note": "so private"}).ask(app)
    assert b"hunter22" in tool.ran[0][2]
    [check] = fake_gateway.checks
    assert check.context.keys() == {"password", "note"}
    assert "hunter22" not in repr(check)
    assert "private" not in repr(check)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"actions": "stripe.refund"}, "actions"),
        ({"actions": {"POST /x": 3}}, "3"),
        ({"actions": {"POST /x": "two words"}}, "two words"),
        ({"actions": {"POST /x": Endpoint("a.b", exclude="note")}}, "exclude"),
        ({"unguarded": "GET /health"}, "unguarded"),
        ({"guard": "http://gateway"}, "guard"),
        ({"agent": 3}, "agent"),
        ({"on_hold": "raise"}, "on_hold"),
        ({"on_hold": "wait", "hold_timeout": 0}, "hold_timeout"),
        ({"max_body": -1}, "max_body"),
    ],
)
def test_invalid_argument_of_the_middleware_is_named(options: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigurationError, match=named):
        guarded_app(Tool(), **options)
