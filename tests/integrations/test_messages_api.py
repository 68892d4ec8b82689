"""The scripted Messages API that agents of Anthropic's kits talk to in these tests, driven by Anthropic's own client."""

from typing import Any

import anthropic
import pytest
from anthropic import Anthropic, beta_tool
from support.frameworks.harness import Call
from support.frameworks.messages_api import MessagesAPI, Read

TURNS = (
    [Call("look", {"what": "a"}, "call-1"), Call("look", {"what": "b"}, "call-2")],
    [Call("burn", {}, "call-3")],
)


def client(api: MessagesAPI) -> Anthropic:
    return Anthropic(api_key="sk-none", base_url=api.url, max_retries=0)


def tools() -> list[Any]:
    @beta_tool
    def look(what: str) -> str:
        """Look at something."""
        return f"seen {what}"

    @beta_tool
    def burn() -> str:
        """Fail."""
        raise RuntimeError("does not burn")

    return [look, burn]


def words(prompt: str) -> list[Any]:
    return [{"role": "user", "content": prompt}]


@pytest.mark.parametrize("thread", [True, False])
@pytest.mark.parametrize("stream", [False, True])
def test_a_loop_runs_through_its_turns(thread: bool, stream: bool) -> None:
    """Streamed or not, with the conversation kept by the server or sent whole: each turn's calls, and what came of them."""
    with MessagesAPI(*TURNS) as api, client(api) as http:
        options: Any = {} if thread else {"thread": False}
        runner = http.beta.messages.tool_runner(
            model="m", max_tokens=9, messages=words("go"), tools=tools(), stream=stream, **options
        )
        last = runner.until_done()
        [said] = last.content
        assert said.type == "text"
        assert said.text == "done"
        assert api.read == {
            "call-1": Read("seen a", is_error=False),
            "call-2": Read("seen b", is_error=False),
            "call-3": Read("RuntimeError('does not burn')", is_error=True),
        }
        assert [len(each["messages"]) for each in api.requests] == ([1, 1, 1] if thread else [1, 3, 5])


def test_conversations_go_on_beside_one_another_by_their_first_words() -> None:
    """Each has a script of its own, and one to which no script belongs has the script of all; turns may be added."""
    with MessagesAPI(TURNS[1]) as api, client(api) as http:
        mine = api.script("for me", TURNS[0])
        runners = {
            prompt: http.beta.messages.tool_runner(
                model="m", max_tokens=9, messages=words(prompt), tools=tools()
            )
            for prompt in ("this is for me", "this is not")
        }
        steps = [iter(each) for each in runners.values()]
        for each in steps:
            next(each)
        api.say([Call("look", {"what": "c"}, "call-4")])
        for each in steps:
            next(each)
        assert set(mine.read) == {"call-1", "call-2"}
        assert set(api.read) == {"call-1", "call-2", "call-3"}
        assert [next(each).stop_reason for each in steps[1:]] == ["end_turn"]
        assert api.read["call-4"] == Read("seen c", is_error=False)


def test_what_the_api_would_refuse_is_refused() -> None:
    """A call without its result, and a thread that nobody holds: the client is told as Anthropic's API tells it."""
    call = {"type": "tool_use", "id": "call-1", "name": "look", "input": {}}
    history = [*words("go"), {"role": "assistant", "content": [call]}, *words("go on")]
    with MessagesAPI() as api, client(api) as http:
        with pytest.raises(anthropic.BadRequestError, match="call-1"):
            http.messages.create(model="m", max_tokens=9, messages=history)
        thread: Any = {"type": "continue", "previous_message_id": "msg_0"}
        with pytest.raises(anthropic.NotFoundError, match="thread_not_found"):
            http.beta.messages.create(model="m", max_tokens=9, messages=words("go"), thread=thread)


def test_a_request_that_offers_no_tools_gets_a_word() -> None:
    """Nobody can call what was not offered."""
    with MessagesAPI(*TURNS) as api, client(api) as http:
        assert (
            http.messages.create(model="m", max_tokens=9, messages=words("a title?")).content[0].type
            == "text"
        )
