"""What the gateway is asked about is what the tool gets, as the types it was written for."""

import datetime as dt
from dataclasses import dataclass, field
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field, HttpUrl, SecretStr
from pydantic_ai import RunContext
from pydantic_ai.capabilities import AbstractCapability, WrapToolExecuteHandler
from support.frameworks.harness import Call, Scene
from support.frameworks.pydantic_ai import agent, read, resumed

from toolgate_integrations.pydantic_ai import GuardCapability


class Item(BaseModel):
    sku: str
    due: dt.date
    code: SecretStr


@dataclass
class Shop:
    """A tool with arguments of many kinds."""

    ran: list[tuple[Any, ...]] = field(default_factory=list)

    def order(self, item: Item, on: dt.date, count: Annotated[int, Field(le=10)] = 1) -> str:
        """Order something."""
        self.ran.append((item, on, count))
        return "ordered"


ORDER = Call(
    "order",
    {"item": {"sku": "a-1", "due": "2026-05-01", "code": "hush"}, "on": "2026-04-01"},
    "call-order",
)


def ordering(scene: Scene, shop: Shop) -> Any:
    scene.owner.permit(scene.agent_id, "tools.order", requires_approval=True)
    return agent(scene, ORDER, tools=[shop.order])


async def test_arguments_of_every_kind_are_shown_and_reach_the_tool(scene: Scene) -> None:
    """Models, dates and defaults are shown to the person, secrets are not, and the tool gets the very objects."""
    shop = Shop()
    asking = ordering(scene, shop)
    first = await asking.run("go")
    [request] = scene.owner.http.get("/api/approvals").json()
    shown = request["context"]
    assert (shown["on"], shown["count"]) == ("2026-04-01", 1)
    assert (shown["item"]["sku"], shown["item"]["due"]) == ("a-1", "2026-05-01")
    assert "hush" not in str(request)
    scene.approve(request["id"])
    await resumed(asking, first, order=True)
    [(item, on, count)] = shop.ran
    assert (item.sku, item.due, item.code.get_secret_value()) == ("a-1", dt.date(2026, 5, 1), "hush")
    assert (on, count) == (dt.date(2026, 4, 1), 1)


async def test_edited_arguments_are_the_tools_own_types(scene: Scene) -> None:
    """What a person changed reaches the tool as it was declared; what is hidden stays as it was."""
    shop = Shop()
    asking = ordering(scene, shop)
    first = await asking.run("go")
    [request] = scene.owner.http.get("/api/approvals").json()
    edited = {**request["context"], "on": "2026-06-01", "count": 3}
    edited["item"] = {**edited["item"], "sku": "b-2"}
    scene.approve(request["id"], context=edited)
    await resumed(asking, first, order=True)
    [(item, on, count)] = shop.ran
    assert isinstance(item, Item)
    assert (item.sku, item.code.get_secret_value()) == ("b-2", "hush")
    assert (on, count) == (dt.date(2026, 6, 1), 3)


async def test_an_edit_that_the_tool_does_not_take(scene: Scene) -> None:
    """The tool's own rules hold for the approver too: it does not run, and the model is told why."""
    shop = Shop()
    asking = ordering(scene, shop)
    first = await asking.run("go")
    [request] = scene.owner.http.get("/api/approvals").json()
    scene.approve(request["id"], context={**request["context"], "count": 11})
    last = await resumed(asking, first, order=True)
    assert shop.ran == []
    outcome, text = read(last)["call-order"]
    assert outcome == "denied"
    assert "count: Input should be less than or equal to 10" in text


@pytest.mark.parametrize("edited", [False, True])
async def test_addresses_are_shown_and_stay_what_they_are(scene: Scene, edited: bool) -> None:
    """A held call with addresses of pydantic's own kind can be approved and edited, and its tool gets that kind."""
    ran = []

    def fetch(page: HttpUrl, others: list[HttpUrl]) -> str:
        ran.append((page, others))
        return "fetched"

    scene.owner.permit(scene.agent_id, "tools.fetch", requires_approval=True)
    given = {"page": "https://a.example/1", "others": ["https://b.example/2"]}
    asking = agent(scene, Call("fetch", given, "call-fetch"), tools=[fetch])
    first = await asking.run("go")
    [request] = scene.owner.http.get("/api/approvals").json()
    assert request["context"] == given
    given = {**given, "others": ["https://c.example/3"]} if edited else given
    scene.approve(request["id"], **({"context": given} if edited else {}))
    await resumed(asking, first, fetch=True)
    assert ran == [(HttpUrl(given["page"]), [HttpUrl(each) for each in given["others"]])]


async def test_a_tool_of_one_model_can_be_edited(scene: Scene) -> None:
    """Where the model's fields stand in place of the argument, an edit reaches it all the same."""
    ran = []

    def order(item: Item) -> str:
        ran.append(item)
        return "ordered"

    scene.owner.permit(scene.agent_id, "tools.order", requires_approval=True)
    asking = agent(scene, Call("order", ORDER.arguments["item"], "call-order"), tools=[order])
    first = await asking.run("go")
    [request] = scene.owner.http.get("/api/approvals").json()
    edited = {"item": {**request["context"]["item"], "sku": "b-2"}}
    scene.approve(request["id"], context=edited)
    await resumed(asking, first, order=True)
    assert [(each.sku, each.code.get_secret_value()) for each in ran] == [("b-2", "hush")]


class Before(AbstractCapability[Any]):
    """Changes an argument right before the tool."""

    async def before_tool_execute(self, ctx: RunContext[Any], **given: Any) -> dict[str, Any]:
        return {**given["args"], "what": "sea"}


class Around(AbstractCapability[Any]):
    """Changes an argument on the way to the tool."""

    async def wrap_tool_execute(
        self, ctx: RunContext[Any], *, args: dict[str, Any], handler: WrapToolExecuteHandler, **given: Any
    ) -> Any:
        return await handler({**args, "what": "sea"})


@pytest.mark.parametrize("first", [True, False])
async def test_other_capabilities_cannot_change_what_was_asked_about(scene: Scene, first: bool) -> None:
    """What ran is what the gateway was asked about; changed after its answer, the arguments do not reach the tool."""
    look, guard = Call("look", {"what": "sky"}, "call-look"), GuardCapability(scene.guard)
    for other in (Before(), Around()):
        result = await agent(scene, look, capabilities=[guard, other] if first else [other, guard]).run("go")
        # Older versions of the framework have the one come before the gateway is asked, too.
        if not scene.ran:
            assert "changed the arguments" in read(result)["call-look"][1]
    assert {what for _, what in scene.ran} == {"sea"}
    assert scene.guard.flush(30)
    asked = [each["context"]["what"] for each in scene.owner.entries() if each["status"] == "success"]
    assert asked == ["sea"] * len(scene.ran)


async def test_arguments_that_do_not_fit_are_not_asked_about(scene: Scene) -> None:
    """What the framework refuses by itself reaches neither gateway nor tool."""
    calls = [Call("pay", {"to": "eve", "amount": "much"}, "call-pay")]
    assert (await agent(scene, *calls).run("go")).output == "done"
    assert (scene.ran, scene.requests(), scene.logged()) == ([], 0, [])
