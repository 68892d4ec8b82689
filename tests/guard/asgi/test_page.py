"""The examples and the table of docs/guides/asgi.md."""

from __future__ import annotations

from typing import Any

import pytest
from support.asgi import Client
from support.readme import blocks, section

from toolgate.asgi import GuardMiddleware
from toolgate.testing import FakeGateway


async def test_examples_of_the_page_run(
    fake_gateway: FakeGateway, capsys: pytest.CaptureFixture[str]
) -> None:
    page: dict[str, Any] = {"__name__": "page"}
    for block in blocks("docs/guides/asgi.md", "python"):
        exec(compile(block, "docs/guides/asgi.md", "exec", dont_inherit=True), page)
    assert capsys.readouterr().out == blocks("docs/guides/asgi.md", "text")[0]
    page["gateway"].assert_logged("charges.search", "success", q="ch_1")
    page["app"].get("/health")(lambda: "here")
    assert (await Client("GET /health").ask(page["app"])).status == 200

    async def tool(_: Any, __: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})

    fake_gateway.allow("stripe.refund", max_amount=100)
    guarded = GuardMiddleware(tool, actions=page["actions"], agent=page["agent_of"])
    client = await Client("POST /refunds/ch_1?cents=400", headers={"authorization": "t-1"}).ask(guarded)
    assert client.status == 200
    assert fake_gateway.assert_checked("stripe.refund", amount=4).agent_id == "ann"


def test_table_contains_every_outcome() -> None:
    table = section("docs/guides/asgi.md", "Responses")
    for outcome in (
        "blocked",
        "declined",
        "expired",
        "pending",
        "unavailable",
        "fault",
        "refused",
        "unnamed",
    ):
        assert f"`{outcome}`" in table
