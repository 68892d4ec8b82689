"""What the server asks and tells the client: its questions pass only if the operator lets them."""

import asyncio
from typing import Any

import pytest
from mcp_types import (
    CreateMessageResult,
    ElicitResult,
    ListRootsResult,
    LoggingMessageNotificationParams,
    Root,
    TextContent,
    ToolListChangedNotification,
)
from support.proxies import ERAS, Bank, text_of


async def user(_: object, question: Any) -> ElicitResult:
    return ElicitResult(action="accept", content={"said": question.message})


async def model(_: object, question: Any) -> CreateMessageResult:
    return CreateMessageResult(
        role="assistant", content=TextContent(type="text", text="from the model"), model="m"
    )


async def folders(_: object) -> ListRootsResult:
    return ListRootsResult(roots=[Root(uri="file:///work")])


ANSWERS: dict[str, Any] = {
    "elicitation_callback": user,
    "sampling_callback": model,
    "list_roots_callback": folders,
}
ASKED = ("ask", "sample", "roots")


async def test_questions_do_not_pass(bank: Bank) -> None:
    """The server reads that they are refused; the client, which would answer, is not asked."""
    bank.permit(*ASKED)
    async with bank.client(mode="legacy", **ANSWERS) as client:
        told = [text_of(await client.call_tool(each, {})) for each in ASKED]
    assert ["not supported" in each for each in told] == [True, True, True]
    assert bank.logged() == [(each, "failed") for each in sorted(ASKED)]


async def test_questions_pass_where_allowed(bank: Bank) -> None:
    """Each kind by its own option, and the answers come back as the client gave them."""
    bank.permit(*ASKED)
    options = ("--allow-elicitation", "--allow-sampling", "--allow-roots")
    async with bank.client(*options, mode="legacy", **ANSWERS) as client:
        told = [text_of(await client.call_tool(each, {})) for each in ASKED]
    assert ["Sure?" in told[0], "from the model" in told[1], "file:///work" in told[2]] == [True] * 3
    assert bank.logged() == [(each, "success") for each in sorted(ASKED)]


async def test_a_client_that_cannot_be_asked_within_a_call(bank: Bank) -> None:
    """Protocol 2026-07-28 in front, a handshake behind: the server reads why nobody answers."""
    bank.permit("ask")
    async with bank.client("--allow-elicitation", mode="auto", **ANSWERS) as client:
        told = await client.call_tool("ask", {})
    assert "no requests to the client during a call" in text_of(told)


async def test_a_client_that_cannot_answer(bank: Bank) -> None:
    """What it did not declare is not asked of it."""
    bank.permit("ask")
    async with bank.client("--allow-elicitation", mode="legacy") as client:
        assert "not supported" in text_of(await client.call_tool("ask", {}))


@pytest.mark.parametrize("era", ERAS)
async def test_whatever_else_passes(bank: Bank, era: str) -> None:
    """Prompts, resources and completions, and how far a call is."""
    bank.permit("work")
    progress: list[float] = []

    async def at(done: float, _total: float | None, _message: str | None) -> None:
        progress.append(done)

    async with bank.client(mode=era) as client:
        assert [each.name for each in (await client.list_prompts()).prompts] == ["greet"]
        assert (await client.get_prompt("greet")).messages[0].content.text == "hello"
        assert [each.name for each in (await client.list_resources()).resources] == ["one"]
        assert (await client.read_resource("small://one")).contents[0].text == "the one"
        worked = await client.call_tool("work", {}, progress_callback=at)
    assert text_of(worked) == "work {}"
    assert progress == [1]


@pytest.mark.filterwarnings("ignore:The logging capability is deprecated")
async def test_news_of_the_server_pass(bank: Bank) -> None:
    """What it logs, and that its tools changed."""
    bank.permit("work", "change")
    logged: list[Any] = []
    changed = asyncio.Event()

    async def log(params: LoggingMessageNotificationParams) -> None:
        logged.append(params.data)

    async def heard(message: Any) -> None:
        if isinstance(message, ToolListChangedNotification):
            changed.set()

    options: Any = {"logging_callback": log, "message_handler": heard}
    async with bank.client(mode="legacy", **options) as client:
        await client.set_logging_level("info")
        await client.call_tool("work", {}, progress_callback=ignored)
        await client.call_tool("change", {"title": "else"})
        await changed.wait()
    assert logged == ["at work"]


async def test_changes_reach_a_client_that_listens(bank: Bank) -> None:
    """Protocol 2026-07-28 in front: on the stream it opened for them."""
    bank.permit("change")
    async with bank.client() as client, client.listen(tools_list_changed=True) as changes:
        await client.call_tool("change", {"title": "else"})
        assert await anext(aiter(changes))


async def ignored(*_: object) -> None:
    pass
