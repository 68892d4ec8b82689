"""Tools of every kind, and whoever calls them."""

import asyncio
import json
import warnings
from collections.abc import AsyncIterator, Iterator
from typing import Any

import dspy
import pytest
from dspy.adapters.types.tool import ToolCalls
from dspy.predict import CodeAct
from dspy.utils import DummyLM
from dspy.utils.callback import BaseCallback
from pydantic import BaseModel
from support.frameworks.dspy import react
from support.frameworks.harness import Call, Scene
from support.waiting import until

from toolgate import ConfigurationError, acting_as
from toolgate_integrations.dspy import GuardedTool, guard_tools

LOOK = Call("look", {"what": "sky"}, "call-look")
PAY = Call("pay", {"to": "eve", "amount": 40}, "call-pay")
DROP = Call("drop", {"table": "users"}, "call-drop")
BURN = Call("burn", {"what": "water"}, "call-burn")


class Payment(BaseModel):
    """An argument with fields."""

    to: str
    amount: int


class Seeing(BaseCallback):  # type: ignore[misc]  # the framework comes without types
    """Notes what it is told."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def on_tool_start(self, call_id: str, instance: Any, inputs: Any) -> None:
        self.seen.append(instance.name)
        raise RuntimeError("it may say what it wants")

    def on_tool_end(self, call_id: str, outputs: Any, exception: Any = None) -> None:
        self.seen.append(outputs)


def run(tools: list[GuardedTool], *calls: Call) -> list[str]:
    """What the model of a `ReAct` read of the calls."""
    with dspy.context(lm=react(*calls)):
        said = dspy.ReAct("question -> answer", tools=tools)(question="go")
    return [str(said.trajectory[f"observation_{at}"]) for at in range(len(calls))]


def test_a_refusal_is_no_error(scene: Scene) -> None:
    """Raised, it would be a traceback in the prompt, with the paths of files; so is a tool's own, as ever."""
    tools = guard_tools(scene.tools.values(), scene.guard)
    blocked, burnt = run(tools, DROP, BURN)
    assert blocked.startswith("Not done: 'tools.drop' is blocked")
    assert burnt.startswith("Execution error in burn")
    assert scene.ran == [("burn", "water")]


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
async def test_traceback_of_a_tool_shows_the_tools_own_frames(scene: Scene, asynchronous: bool) -> None:
    """DSPy shows the model five frames: the guard's must not take the tool's place."""

    def burn(what: str) -> str:
        raise RuntimeError(f"{what} does not burn")

    async def aburn(what: str) -> str:
        raise RuntimeError(f"{what} does not burn")

    tools = guard_tools([dspy.Tool(aburn if asynchronous else burn, name="burn")], scene.guard)
    program = dspy.ReAct("question -> answer", tools=tools)
    with dspy.context(lm=react(BURN)):
        said = await program.acall(question="go") if asynchronous else program(question="go")
    read = str(said.trajectory["observation_0"])
    assert 'raise RuntimeError(f"{what} does not burn")' in read
    assert "_carrying.py" not in read


@pytest.mark.parametrize("as_a", ["list", "mapping"])
def test_a_call_that_is_carried_out_by_hand_is_guarded(scene: Scene, as_a: str) -> None:
    """`ToolCall.execute` calls a tool's function past the tool."""
    [drop] = guard_tools([scene.drop], scene.guard)
    call = ToolCalls.from_dict_list([{"name": "drop", "args": {"table": "users"}}]).tool_calls[0]
    said = call.execute([drop] if as_a == "list" else {"drop": drop})
    assert said.startswith("Not done")
    assert drop.func("users").startswith("Not done")
    assert scene.ran == []


def test_source_is_not_shipped(scene: Scene) -> None:
    """`CodeAct` runs the source of functions elsewhere, and of a guarded one that is what lies behind the guard."""
    tools = guard_tools([scene.look], scene.guard)
    with warnings.catch_warnings():
        # It says of itself that it is going to be removed.
        warnings.simplefilter("ignore", DeprecationWarning)
        with pytest.raises(ValueError, match="only accepts functions"):
            CodeAct("question -> answer", tools=tools)


async def test_asynchronous_tools(scene: Scene) -> None:
    """A coroutine function is awaited, recorded by what became of it, and not run where it is blocked."""

    async def look(what: str) -> str:
        return scene.look(what)

    async def drop(table: str) -> str:
        return scene.drop(table)

    async def burn(what: str) -> str:
        return scene.burn(what)

    looking, dropping, burning = guard_tools([look, drop, burn], scene.guard)
    assert await looking.acall(what="sky") == "seen sky"
    assert (await dropping.acall(table="users")).startswith("Not done")
    with pytest.raises(RuntimeError, match="does not burn"):
        await burning.acall(what="water")
    with dspy.context(allow_tool_async_sync_conversion=True):
        assert await asyncio.to_thread(looking, what="sea") == "seen sea"
        with pytest.raises(RuntimeError, match="does not burn"):
            await asyncio.to_thread(burning, what="sand")
    assert scene.ran == [("look", "sky"), ("burn", "water"), ("look", "sea"), ("burn", "sand")]
    assert scene.logged() == [
        ("burn", "failed"),
        ("burn", "failed"),
        ("drop", "denied"),
        ("look", "success"),
        ("look", "success"),
    ]


def test_a_plain_function_that_makes_a_coroutine(scene: Scene) -> None:
    """Its coroutine is finished before the call is recorded: DSPy would await it after."""

    async def burn(what: str) -> str:
        return scene.burn(what)

    def wrapped(what: str) -> Any:
        return burn(what)

    [burning] = guard_tools([dspy.Tool(wrapped, name="burn")], scene.guard)
    with dspy.context(allow_tool_async_sync_conversion=True), pytest.raises(RuntimeError, match="not burn"):
        burning(what="water")
    with pytest.raises(ValueError, match="'burn' is asynchronous"):
        burning(what="sand")
    assert scene.ran == [("burn", "water")]
    assert scene.logged() == [("burn", "failed"), ("burn", "failed")]


def test_arguments_by_position(scene: Scene) -> None:
    """None is dropped without a word, and none given twice."""
    [paying] = guard_tools([scene.pay], scene.guard)
    for args, kwargs in ((("eve", 40, "now"), {}), (("eve", 40), {"amount": 7})):
        with pytest.raises(TypeError, match="with one argument twice"):
            paying.func(*args, **kwargs)
    assert paying.func("eve", amount=40).startswith("Not done yet")
    assert scene.logged() == [("pay", "pending")]


async def test_waiting_does_not_hold_up_the_loop(scene: Scene) -> None:
    """A plain function that is called asynchronously would wait on the loop's own thread."""
    [paying] = guard_tools([scene.pay], scene.guard, on_hold="wait")
    run = asyncio.create_task(paying.acall(to="eve", amount=40))
    asked = await asyncio.wait_for(scene.asked(1), 30)
    scene.approve(asked["eve"])
    assert await run == "paid 40 to eve"


async def test_callbacks_see_guarded_calls(scene: Scene) -> None:
    """As they see others; what they raise is swallowed by the framework, and changes nothing."""
    seeing = Seeing()
    [drop] = guard_tools([scene.drop], scene.guard)
    with dspy.context(callbacks=[seeing]):
        said = [drop(table="users"), await drop.acall(table="users")]
    assert seeing.seen == ["drop", said[0], "drop", said[1]]
    assert scene.ran == []


def test_the_model_sees_the_same_tools(scene: Scene) -> None:
    """Name, description and arguments stay; and so do the tools that were given."""
    plain = dspy.Tool(scene.pay, name="pay_somebody", desc="Pays.", arg_desc={"to": "whom"})
    [guarded] = guard_tools([plain], scene.guard)
    assert str(guarded) == str(plain)
    assert guarded.format_as_litellm_function_call() == plain.format_as_litellm_function_call()
    assert (type(plain), plain.func) == (dspy.Tool, scene.pay)
    with pytest.raises(ValueError, match="Arg more is not in the tool's args"):
        guarded(to="eve", amount=40, more=1)
    assert scene.logged() == []


def test_arguments_have_the_types_the_tool_declares(scene: Scene) -> None:
    """Those that the approver changed too."""
    got: list[Payment] = []

    def pay(payment: Payment) -> str:
        got.append(payment)
        return "paid"

    [paying] = guard_tools([pay], scene.guard)
    assert paying(payment={"to": "eve", "amount": 40}).startswith("Not done yet")
    [request] = scene.owner.http.get("/api/approvals").json()
    scene.approve(request["id"])
    assert paying(payment={"to": "eve", "amount": 40}) == "paid"
    assert got == [Payment(to="eve", amount=40)]


def test_edited_fields(scene: Scene) -> None:
    """An argument that is a model is made anew, with what the approver wrote."""
    got: list[Payment] = []

    def pay(payment: Payment) -> str:
        got.append(payment)
        return "paid"

    async def waiting() -> str:
        [paying] = guard_tools([pay], scene.guard, on_hold="wait")
        run = asyncio.create_task(paying.acall(payment={"to": "eve", "amount": 40}))
        [request] = await asyncio.to_thread(until, lambda: scene.owner.http.get("/api/approvals").json())
        await asyncio.to_thread(
            scene.approve, request["id"], context={"payment": {"to": "eve", "amount": 25}}
        )
        return str(await run)

    assert asyncio.run(waiting()) == "paid"
    assert got == [Payment(to="eve", amount=25)]


def test_copies_of_a_program_are_guarded(scene: Scene) -> None:
    """Optimizers copy programs."""
    program = dspy.ReAct("question -> answer", tools=guard_tools([scene.drop], scene.guard))
    with dspy.context(lm=react(DROP)):
        said = program.deepcopy()(question="go")
    assert said.trajectory["observation_0"].startswith("Not done")
    assert scene.ran == []


def test_a_program_is_not_saved_with_its_guard(scene: Scene, tmp_path: Any) -> None:
    """The guard belongs to the process, and would not be there where the program is loaded."""
    program = dspy.ReAct("question -> answer", tools=guard_tools([scene.drop], scene.guard))
    with pytest.raises(Exception, match="the tool 'drop' is guarded and cannot be saved"):
        program.save(tmp_path / "program", save_program=True)
    program.save(tmp_path / "program.json")


def test_a_function_that_is_guarded_itself_is_asked_once(scene: Scene) -> None:
    """By its own action; its refusal is told as others are."""
    scene.owner.permit(scene.agent_id, "bank.look")
    guarded = [
        scene.guard.guarded("bank.look")(scene.look),
        scene.guard.guarded("bank.drop")(scene.drop),
    ]
    seen, blocked = run(guard_tools(guarded, scene.guard), LOOK, DROP)
    assert (seen, scene.ran) == ("seen sky", [("look", "sky")])
    assert blocked.startswith("Not done: 'bank.drop' is blocked")
    assert scene.guard.flush(30)
    assert sorted(each["action"] for each in scene.owner.entries()) == ["bank.drop", "bank.look"]


def test_identity(scene: Scene) -> None:
    """Whoever acts around the program is asked about, for the run that is named there."""
    other = scene.owner.agent("other")
    scene.owner.permit(other, "sky.look")
    tools = guard_tools([scene.look], scene.guard, tool_actions={"look": "sky.look"})
    with acting_as(other, run_id="INV-7"):
        run(tools, LOOK)
    assert scene.guard.flush(30)
    [entry] = scene.owner.entries()
    assert (entry["agent_id"], entry["action"], entry["run_id"]) == (other, "sky.look", "INV-7")


class Interpreter:
    """Runs no code, and calls the tools that code would."""

    def __init__(self) -> None:
        self.tools: dict[str, Any] = {}
        self.output_fields: Any = None

    def start(self) -> None: ...

    def shutdown(self) -> None: ...

    def execute(self, code: str, variables: Any = None) -> Any:
        if "drop" in code:
            return self.tools["drop"](table="users")
        return dspy.primitives.FinalOutput({"answer": "done"})


def test_code_of_an_rlm_calls_guarded_tools(scene: Scene) -> None:
    """Its interpreter calls back, through the tool."""
    turns = [
        {"reasoning": "next", "code": "print(drop(table='users'))"},
        {"reasoning": "next", "code": "end"},
    ]
    program = dspy.RLM(
        "question -> answer", tools=guard_tools([scene.drop], scene.guard), interpreter_factory=Interpreter
    )
    with dspy.context(lm=DummyLM(turns)):
        said = program(question="go")
    assert "is blocked" in json.dumps([dict(each) for each in said.trajectory], default=str)
    assert scene.ran == []


@pytest.mark.parametrize("given", [None, "look", 7, dspy.Tool(lambda: "one")])
def test_tools_are_a_list(scene: Scene, given: Any) -> None:
    """The argument is named."""
    with pytest.raises(ConfigurationError, match="; pass a list of functions"):
        guard_tools(given, scene.guard)


class Traced(dspy.Tool):  # type: ignore[misc]  # the framework comes without types
    """Is called in a way of its own."""

    def __call__(self, **kwargs: Any) -> Any:
        return self.func(**kwargs)


def lines(what: str) -> Iterator[str]:
    """Yield some."""
    yield what


async def pages(what: str) -> AsyncIterator[str]:
    """Yield some."""
    yield what


def test_tools_that_would_run_past_the_guard(scene: Scene) -> None:
    """What is called in a way of its own, or runs after it is recorded, is refused; and what would be unguarded."""
    with pytest.raises(ConfigurationError, match="Traced'>, whose own code for calls would be skipped"):
        guard_tools([Traced(scene.look)], scene.guard)
    for each in (lines, pages):
        with pytest.raises(ConfigurationError, match=f"'{each.__name__}' is a generator function"):
            guard_tools([each], scene.guard)
    with pytest.raises(ConfigurationError, match="create a GuardedTool with guard_tools"):
        GuardedTool(scene.drop)
    for made in (GuardedTool.from_mcp_tool, GuardedTool.from_langchain):
        with pytest.raises(ConfigurationError, match=f"dspy.Tool.{made.__name__}"):
            made(scene.drop)


@pytest.mark.parametrize("given", ["look", Scene, None])
def test_misuse(scene: Scene, given: Any) -> None:
    """Each wrong argument is named."""
    with pytest.raises(ConfigurationError, match=r"pass a function or a dspy\.Tool"):
        guard_tools([given], scene.guard)
    with pytest.raises(ConfigurationError, match="that is not guarded yet"):
        guard_tools(guard_tools([scene.look], scene.guard), scene.guard)
    with pytest.raises(ConfigurationError, match="that is not guarded yet"):
        guard_tools([dspy.Tool(guard_tools([scene.look], scene.guard)[0].func)], scene.guard)
    with pytest.raises(ConfigurationError, match="on_hold is 'pause'; use 'wait', 'raise' or 'notify_model'"):
        guard_tools([scene.look], scene.guard, on_hold="pause")  # type: ignore[arg-type]  # what it is about
