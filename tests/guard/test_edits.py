"""What a person edited reaches the tool, exactly, or the tool does not run."""

from __future__ import annotations

import dataclasses
import datetime as dt
import inspect
from collections.abc import Callable
from decimal import Decimal
from enum import Enum
from typing import Any

import pytest

from toolgate import ActionDenied, ConfigurationError, Guard

HIDDEN = {"$digest": "hmac-sha256:" + "0" * 64, "bytes": 8}


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@pytest.fixture(params=["sync", "async"])
def twin(request: pytest.FixtureRequest, guard: Guard) -> Callable[..., Any]:
    """Guard a function, or its asynchronous twin of the same signature; call either with `run`."""

    def make(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
        options = {"on_hold": "wait", "hold_timeout": 30, **options}
        if request.param == "sync":
            return guard.guarded("a.b", **options)(function)

        async def twin(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        twin.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]  # as wraps would
        twin.__wrapped__ = function  # type: ignore[attr-defined]  # likewise
        return guard.guarded("a.b", **options)(twin)

    return make


async def run(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    value = function(*args, **kwargs)
    return await value if inspect.isawaitable(value) else value


def never(*args: Any, **kwargs: Any) -> None:
    pytest.fail(f"the tool ran with {args!r} and {kwargs!r}")


async def test_the_tool_gets_the_edit(twin: Any, gateway: Any) -> None:
    """The tool runs once with the edited argument; check and entry tell the edited context and the new id."""
    gateway.edit(amount=25.5)
    tool = twin(lambda charge, amount: (charge, amount))
    assert await run(tool, "ch_1", 100.0) == ("ch_1", 25.5)
    assert [each.get("approval_id") for each in gateway.checks] == [None, "appr-2"]
    assert gateway.context == {"charge": "ch_1", "amount": Decimal("25.5")}
    entry = gateway.logs[-1]
    assert (entry["status"], entry["approval_id"], entry["context"]["amount"]) == ("success", "appr-2", 25.5)


def everything(
    a: int, b: Decimal = Decimal("1.5"), /, c: str = "c", *rest: int, d: str | None = None, **more: float
) -> Any:
    return a, b, c, rest, d, more


@pytest.mark.parametrize(
    ("args", "kwargs", "changes", "expected"),
    [
        ((1,), {}, {"a": 2}, (2, Decimal("1.5"), "c", (), None, {})),
        ((1,), {}, {"b": 2.25}, (1, Decimal("2.25"), "c", (), None, {})),
        ((1,), {}, {"c": "x"}, (1, Decimal("1.5"), "x", (), None, {})),
        ((1,), {"c": "y"}, {"c": "x"}, (1, Decimal("1.5"), "x", (), None, {})),
        ((1,), {}, {"rest": [7, 8]}, (1, Decimal("1.5"), "c", (7, 8), None, {})),
        ((1, Decimal(2), "y", 7, 8), {}, {"rest": [8]}, (1, Decimal(2), "y", (8,), None, {})),
        ((1,), {}, {"d": "x"}, (1, Decimal("1.5"), "c", (), "x", {})),
        ((1,), {"d": "x"}, {"d": None}, (1, Decimal("1.5"), "c", (), None, {})),
        ((1,), {"x": 1.5, "y": 2.5}, {"y": 3}, (1, Decimal("1.5"), "c", (), None, {"x": 1.5, "y": 3.0})),
        ((1,), {"a": 1.5}, {"a_": 2.5}, (1, Decimal("1.5"), "c", (), None, {"a": 2.5})),
        ((1,), {"a": 1.5}, {"a": 5}, (5, Decimal("1.5"), "c", (), None, {"a": 1.5})),
        (
            (1,),
            {"a": 1.5, "z": 9.5},
            {"a": 2, "b": 3, "c": "4", "rest": [5], "d": "6", "a_": 7.5},
            (2, Decimal(3), "4", (5,), "6", {"a": 7.5, "z": 9.5}),
        ),
    ],
)
async def test_every_kind_of_parameter(
    twin: Any, gateway: Any, args: Any, kwargs: Any, changes: Any, expected: Any
) -> None:
    """Positional-only and keyword arguments, defaults, *args and **kwargs: each can be edited by its name."""
    gateway.edit(**changes)
    found = await run(twin(everything), *args, **kwargs)
    assert repr(found) == repr(expected)


def tools(guard: Guard) -> Any:
    options: dict[str, Any] = {"on_hold": "wait", "hold_timeout": 30}

    class Guarded:
        @guard.guarded("a.b", **options)
        def method(self, n: int) -> Any:
            return type(self).__name__, n

        @classmethod
        @guard.guarded("a.b", **options)
        def under(cls, n: int) -> Any:
            return cls.__name__, n

        @guard.guarded("a.b", **options)
        @classmethod
        def above(cls, n: int) -> Any:
            return cls.__name__, n

        @guard.guarded("a.b", **options)
        @staticmethod
        def static(n: int) -> Any:
            return "Guarded", n

        @guard.guarded("a.b", **options)
        async def amethod(self, n: int) -> Any:
            return type(self).__name__, n

        @classmethod
        @guard.guarded("a.b", **options)
        async def aunder(cls, n: int) -> Any:
            return cls.__name__, n

    return Guarded


@pytest.mark.parametrize("name", ["method", "under", "above", "static", "amethod", "aunder"])
@pytest.mark.parametrize("through", ["instance", "class"])
async def test_methods(guard: Guard, gateway: Any, name: str, through: str) -> None:
    """Methods, class- and static methods get the edit beside their own instance or class."""
    guarded = tools(guard)
    owner = guarded() if through == "instance" or name in {"method", "amethod"} else guarded
    gateway.edit(n=2)
    assert await run(getattr(owner, name), 1) == ("Guarded", 2)
    if name in {"method", "amethod"}:
        gateway.edit(n=3)
        assert await run(getattr(guarded, name), owner, n=1) == ("Guarded", 3)


async def test_the_callers_objects_stay(twin: Any, gateway: Any) -> None:
    """An edit is a new value: lists, dictionaries and keyword arguments of the caller are as they were."""
    order = {"items": [{"sku": "a", "n": 1}], "password": "hunter22"}
    seen: list[Any] = []
    hidden: list[Any] = []

    def tool(order: dict[str, Any], **more: Any) -> None:
        seen.append(order["items"])
        hidden.append(order["password"])

    def edited() -> dict[str, Any]:
        context = gateway.context
        context["order"]["items"] = [{"sku": "a", "n": 2}, {"sku": "b", "n": 1}]
        return {"id": "appr-2", "status": "approved", "approved_context": context}

    gateway.edit()
    gateway.approval[1] = edited
    await run(twin(tool), order, note="x")
    assert seen == [[{"sku": "a", "n": 2}, {"sku": "b", "n": 1}]]
    assert hidden == ["hunter22"]
    assert order == {"items": [{"sku": "a", "n": 1}], "password": "hunter22"}


async def test_own_types_arrive(twin: Any, gateway: Any) -> None:
    """Decimals, enumerations and moments arrive as what they were."""
    gateway.edit(price=12, colour="blue", at="2026-03-04T05:06:07+00:00")
    tool = twin(lambda price, colour, at: (price, colour, at))
    assert await run(tool, Decimal("9.99"), Colour.RED, dt.datetime(2026, 1, 2, tzinfo=dt.UTC)) == (
        Decimal(12),
        Colour.BLUE,
        dt.datetime(2026, 3, 4, 5, 6, 7, tzinfo=dt.UTC),
    )


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"secret": "other"}, "secret"),
    ({"secret": HIDDEN}, "secret"),
    ({"body": "new"}, "body"),
    ({"body": HIDDEN}, "body"),
    ({"n": "2"}, "n"),
    ({"n": 2.5}, "n"),
    ({"n": None}, "n"),
    ({"n": HIDDEN}, "n"),
    ({"note": "Bearer abcdefghijklmnopqrstuvwxyz0123456789"}, "note"),
    ({"new": 1}, "new"),
    ({"client": {"$object": "x", "$digest": "y"}}, "client"),
    ({"order": {"token": "new"}}, "order"),
    ({"$cut": HIDDEN}, "$cut"),
    ({"n": 2, "secret": "other"}, "secret"),
]


@pytest.mark.parametrize(("changes", "field"), REFUSED, ids=repr)
async def test_refused(twin: Any, gateway: Any, changes: dict[str, Any], field: str) -> None:
    """What is hidden, of another type or nowhere in the call cannot be edited: refused, recorded, nothing checked."""

    def tool(n: int, secret: str, body: str, client: bytes, order: dict[str, str], note: str = "x") -> None:
        never(n)

    gateway.edit(**changes)
    with pytest.raises(ActionDenied) as refused:
        await run(twin(tool, exclude={"body"}), 1, "hunter22", "text", b"certificate", {"token": "hunter23"})
    assert repr(field) in refused.value.reason
    assert refused.value.approval_id == "appr-2"
    assert len(gateway.checks) == 1
    entry = gateway.logs[-1]
    assert (entry["status"], entry["approval_id"]) == ("denied", "appr-2")
    assert repr(field) in entry["context"]["reason"]
    sent = b"".join(each.content for each in gateway.requests)
    assert b"hunter2" not in sent
    assert "hunter2" not in str(refused.value)


async def test_left_out(twin: Any, gateway: Any) -> None:
    """An argument cannot be edited away: a call without it would be another call."""

    def edited() -> dict[str, Any]:
        return {"id": "appr-2", "status": "approved", "approved_context": {"n": 1}}

    gateway.edit()
    gateway.approval[1] = edited
    with pytest.raises(ActionDenied, match="'m'"):
        await run(twin(lambda n, m=None: never(n)), 1)
    assert len(gateway.checks) == 1


@pytest.mark.parametrize("context", [None, [], "n=1", 5])
async def test_no_context(twin: Any, gateway: Any, context: Any) -> None:
    """An edit that is not told, or is no context, lets nothing run."""
    gateway.edit()
    gateway.approval[1] = {"id": "appr-2", "status": "approved", "approved_context": context}
    with pytest.raises(Exception, match=r"does not contain the new values|approved_context"):
        await run(twin(never), 1)
    assert len(gateway.checks) == 1


@pytest.mark.parametrize(
    ("changes", "result"),
    [
        ({"cents": 5, "amount": 5}, 5),
        ({"cents": 5}, None),
        ({"amount": 5}, None),
        ({"cents": 5, "amount": 6}, None),
    ],
    ids=repr,
)
async def test_amount(twin: Any, gateway: Any, changes: dict[str, Any], result: int | None) -> None:
    """Where an argument stands as `amount` too, an edit must say the same of both."""
    gateway.edit(**changes)
    ran: list[int] = []
    tool = twin(lambda cents: ran.append(cents), amount="cents")  # noqa: PLW0108 - a signature to bind to
    if result is None:
        with pytest.raises(ActionDenied, match="give both fields the same value"):
            await run(tool, 9)
        assert (ran, len(gateway.checks)) == ([], 1)
    else:
        await run(tool, 9)
        assert ran == [result]
        assert gateway.context == {"cents": 5, "amount": 5}


async def test_unbound_arguments_pass(twin: Any, gateway: Any) -> None:
    """What is not sent at all is passed as it is, beside what was edited."""
    session = object()
    gateway.edit(n=2)
    assert await run(twin(lambda n, session: (n, session), ignore={"session"}), 1, session) == (2, session)


async def test_changed_meanwhile(twin: Any, gateway: Any) -> None:
    """An argument that changes under the call while it waits is none that was approved."""
    order = {"n": 1}

    def edited() -> dict[str, Any]:
        order["n"] = 3
        return {
            "id": "appr-2",
            "status": "approved",
            "approved_context": {**gateway.context, "note": "b"},
        }

    gateway.edit()
    gateway.approval[1] = edited
    with pytest.raises(ActionDenied, match="'order'"):
        await run(twin(lambda order, note: never(order)), order, "a")
    assert len(gateway.checks) == 1


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("edits", [True, False])
async def test_blocks(guard: Guard, gateway: Any, kind: str, edits: bool) -> None:
    """A block made with edits=True finds the edit in act.context; any other refuses it, and is not entered."""
    table = {"name": "users", "rows": [1]}
    given = {"table": table, "limit": 5, "password": "hunter22"}
    gateway.edit(limit=3, table={"name": "users", "rows": [1, 2]})
    act = guard.action("a.b", given, on_hold="wait", hold_timeout=30, edits=edits)
    entered = False

    async def enter() -> None:
        nonlocal entered
        if kind == "sync":
            with act:
                entered = True
        else:
            async with act:
                entered = True

    if edits:
        await enter()
    else:
        with pytest.raises(ActionDenied, match=r"'limit'.*edits=True"):
            await enter()
    assert entered is edits
    if edits:
        assert act.context == {
            "table": {"name": "users", "rows": [1, 2]},
            "limit": 3,
            "password": "hunter22",
        }
        entry = gateway.logs[-1]["context"]
        assert (entry["limit"], entry["table"]["rows"]) == (3, [1, 2])
        assert "limit_" not in entry
    else:
        assert act.context == given
    assert given["limit"] == 5
    assert table == {"name": "users", "rows": [1]}


async def test_blocks_that_cannot(guard: Guard, gateway: Any) -> None:
    """A block refuses what a call refuses."""
    gateway.edit(password="other")
    act = guard.action("a.b", {"password": "hunter22"}, on_hold="wait", edits=True)
    with pytest.raises(ActionDenied, match="'password'"), act:
        pytest.fail("the block ran")


def test_blocked_with_the_edit(guard: Guard, gateway: Any) -> None:
    """The deciding check has the last word on an edit; the call is then asked about as it was given."""
    blocked = {"allowed": False, "requires_approval": False, "reason": "used up", "approval_id": None}
    gateway.edit(n=2)
    gateway.check += [blocked, blocked]
    with pytest.raises(ActionDenied, match="used up"):
        guard.guarded("a.b", on_hold="wait")(lambda n: never(n))(1)  # noqa: PLW0108 - a signature to bind to
    assert [each["context"] for each in gateway.checks] == [{"n": 1}, {"n": 2}, {"n": 1}]


def test_edits_must_be_asked_for_by_a_bool(guard: Guard) -> None:
    """Whatever is not True or False is no answer to whether a block reads its context."""
    wrong: Any = "no"
    with pytest.raises(ConfigurationError, match="edits"):
        guard.action("a.b", edits=wrong)


@dataclasses.dataclass(frozen=True)
class Refund:
    charge: str
    amount: Decimal
    api_key: str = "sesame-open"


async def test_objects_and_sets(twin: Callable[..., Any], gateway: Any) -> None:
    """A dataclass and a set are given to the tool as the person edited them, secrets as they were."""
    ran: list[Any] = []

    def tool(refund: Refund, tags: set[str]) -> None:
        ran.append((refund, tags))

    given = Refund("ch_1", Decimal(40)), {"a", "c"}
    asked = {"charge": "ch_1", "amount": 25, "api_key": {**HIDDEN, "bytes": 11}}
    guarded = twin(tool)
    gateway.edit(tags=["b", "c"])
    await run(guarded, *given)
    asked["api_key"] = gateway.context["refund"]["api_key"]
    gateway.edit(refund=asked)
    await run(guarded, *given)
    assert ran == [(given[0], {"b", "c"}), (Refund("ch_1", Decimal(25)), {"a", "c"})]
    gateway.edit(tags=["c", "b"])
    with pytest.raises(
        ActionDenied, match="'tags': the value is a set; write the members of the set in sorted order"
    ):
        await run(guarded, *given)
