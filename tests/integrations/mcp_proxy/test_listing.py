"""What the client is shown of the server's tools."""

from mcp import Client
from support.proxies import Bank, text_of


def names(listed: object) -> list[str]:
    return [each.name for each in listed.tools]  # type: ignore[attr-defined]  # a list of tools


async def test_all_pages_are_one(bank: Bank) -> None:
    """A server that lists two tools at a time is listed whole, as it lists them."""
    async with bank.client() as client:
        listed = await client.list_tools()
    assert len(names(listed)) == 12
    assert listed.next_cursor is None
    assert listed.tools[0].description == "Does look."


async def test_only_granted_tools_are_shown(bank: Bank) -> None:
    """Whatever a permission exists for: within an amount, or with a person; the rest is asked about all the same."""
    bank.permit("look")
    bank.permit("pay", max_amount=10, amount_required=True)
    bank.permit("burn", requires_approval=True)
    bank.owner.permit(bank.agent_id, "stripe.charge")
    async with bank.client("--only-granted", "--tool-action", "ask=stripe.charge") as client:
        assert names(await client.list_tools()) == ["look", "pay", "burn", "ask"]
        blocked = await client.call_tool("drop", {})
        bank.permit("drop")
        assert "drop" in names(await client.list_tools())
        dropped = await client.call_tool("drop", {})
    assert "'bank.drop' is blocked" in text_of(blocked)
    assert text_of(dropped) == "drop {}"
    assert bank.ran() == [("drop", {})]


async def test_what_is_shown_while_nobody_can_say(bank: Bank) -> None:
    """Every tool: a client that lists once would keep an empty list for good. No call goes through."""
    proxy = bank.proxy(
        "--only-granted", env={"TOOLGATE_URL": "http://127.0.0.1:9", "TOOLGATE_TIMEOUT": "0.2"}
    )
    async with Client(proxy.spoken()) as client:
        assert len(names(await client.list_tools())) == 12
        assert (await client.call_tool("look", {})).is_error
    assert bank.ran() == []
