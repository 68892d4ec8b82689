"""A person approves something else than was asked: the call does exactly that, or nothing."""

import asyncio
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from support.gateway import Owner
from support.team import Colleague
from support.waiting import until

from toolgate import ActionDenied, ApprovalDenied, ApprovalPending, Guard

both = pytest.mark.parametrize("kind", ["sync", "async"])


class Refunds:
    """A tool that notes what it really did, with an asynchronous twin."""

    def __init__(self, guard: Guard, **options: Any) -> None:
        self.done: list[tuple[Any, ...]] = []
        options = {"on_hold": "wait", "hold_timeout": 60, **options}

        @guard.guarded("stripe.refund", **options)
        def refund(charge_id: str, amount: Decimal, *, secret: str = "hunter22", note: str = "") -> str:
            self.done.append((charge_id, amount, secret, note))
            return f"refunded {charge_id}"

        @guard.guarded("stripe.refund", **options)
        async def arefund(
            charge_id: str, amount: Decimal, *, secret: str = "hunter22", note: str = ""
        ) -> str:
            self.done.append((charge_id, amount, secret, note))
            return f"refunded {charge_id}"

        self._twins = {"sync": refund, "async": arefund}

    async def call(self, kind: str, *args: Any, **kwargs: Any) -> Any:
        if kind == "async":
            return await self._twins[kind](*args, **kwargs)  # type: ignore[misc]  # the asynchronous one
        return await asyncio.to_thread(self._twins[kind], *args, **kwargs)


def waiting(owner: Owner) -> dict[str, Any]:
    """The one request that waits."""
    found: list[dict[str, Any]] = until(
        lambda: owner.http.get("/api/approvals", params={"status": "pending"}).json()
    )
    assert len(found) == 1
    return found[0]


def approve(http: Any, approval_id: str, context: dict[str, Any] | None = None) -> dict[str, Any]:
    body = {} if context is None else {"context": context}
    answer = http.post(f"/api/approvals/{approval_id}/approve", json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def deciding(call: Any, decide: Callable[[], object]) -> Any:
    """Run a call while a person decides about it in a thread."""
    task = asyncio.create_task(call)
    await asyncio.to_thread(decide)
    return await task


def one_by_status(owner: Owner) -> dict[str, dict[str, Any]]:
    return {each["status"]: each for each in owner.http.get("/api/approvals").json()}


@both
async def test_a_waiting_call_does_what_was_approved(kind, guard, owner, agent_id):
    """The person changes the amount: the tool runs once with theirs, and everything on record says so."""
    owner.permit(agent_id, "stripe.refund", requires_approval=True)
    refunds = Refunds(guard)

    def edit() -> None:
        asked = waiting(owner)
        approve(owner.http, asked["id"], {**asked["context"], "amount": 12.5, "note": "half of it"})

    result = await deciding(refunds.call(kind, "ch_1", Decimal("25.00")), edit)
    assert result == "refunded ch_1"
    assert refunds.done == [("ch_1", Decimal("12.5"), "hunter22", "half of it")]
    found = one_by_status(owner)
    assert found.keys() == {"replaced", "consumed"}
    entry = owner.entries()[0]
    assert (entry["status"], entry["context"]["amount"], entry["approval_id"]) == (
        "success",
        12.5,
        found["consumed"]["id"],
    )
    assert found["replaced"]["replaced_by"] == found["consumed"]["id"]


@both
async def test_an_edit_the_call_cannot_take(kind, guard, owner, agent_id):
    """What is no amount is refused by the call: the tool does not run, the record says why, nothing is used up."""
    owner.permit(agent_id, "stripe.refund", requires_approval=True)
    refunds = Refunds(guard)

    def edit() -> None:
        asked = waiting(owner)
        approve(owner.http, asked["id"], {**asked["context"], "charge_id": 7})

    with pytest.raises(ActionDenied, match="'charge_id'"):
        await deciding(refunds.call(kind, "ch_1", Decimal(25)), edit)
    assert refunds.done == []
    assert one_by_status(owner).keys() == {"replaced", "approved"}
    assert "'charge_id'" in owner.entries()[0]["context"]["reason"]


@both
async def test_an_edit_that_a_second_person_approves(kind, guard, owner, agent_id):
    """With a quorum the call waits on, behind the edit, for the person who is missing; edits of edits are followed."""
    owner.permit(agent_id, "stripe.refund", requires_approval=True, required_approvals=2)
    colleague = Colleague(owner)
    refunds = Refunds(guard)

    def edit() -> None:
        asked = waiting(owner)
        approve(owner.http, asked["id"], {**asked["context"], "amount": 12})
        second = waiting(owner)
        approve(colleague.http, second["id"], {**asked["context"], "amount": 11})
        third = waiting(owner)
        assert len({asked["id"], second["id"], third["id"]}) == 3
        approve(owner.http, third["id"])

    await deciding(refunds.call(kind, "ch_1", Decimal(25)), edit)
    assert [each[1] for each in refunds.done] == [Decimal(11)]
    colleague.http.close()


@both
async def test_an_edit_that_a_second_person_declines(kind, guard, owner, agent_id):
    """A no behind an edit is a no."""
    owner.permit(agent_id, "stripe.refund", requires_approval=True, required_approvals=2)
    colleague = Colleague(owner)
    refunds = Refunds(guard)

    def edit() -> None:
        asked = waiting(owner)
        approve(owner.http, asked["id"], {**asked["context"], "amount": 12})
        second = waiting(owner)
        answer = colleague.http.post(f"/api/approvals/{second['id']}/deny", json={"note": "not even that"})
        assert answer.status_code == 200

    with pytest.raises(ApprovalDenied, match="not even that"):
        await deciding(refunds.call(kind, "ch_1", Decimal(25)), edit)
    assert refunds.done == []
    colleague.http.close()


@both
async def test_a_resumed_call_does_what_was_approved(kind, guard, owner, agent_id):
    """An edit made while nobody waited reaches the call that resumes, by the id it was told."""
    owner.permit(agent_id, "stripe.refund", requires_approval=True)
    refunds = Refunds(guard, on_hold="raise", hold_timeout=None)
    with pytest.raises(ApprovalPending) as pending:
        await refunds.call(kind, "ch_1", Decimal(25))
    asked = waiting(owner)
    assert asked["id"] == pending.value.approval_id
    approve(owner.http, asked["id"], {**asked["context"], "amount": 0.1})
    with pytest.raises(ActionDenied, match="'charge_id'"), guard.resume(asked["id"]):
        await refunds.call(kind, "ch_2", Decimal(25))
    assert refunds.done == []
    with guard.resume(asked["id"]):
        await refunds.call(kind, "ch_1", Decimal(25))
    assert [each[:2] for each in refunds.done] == [("ch_1", Decimal("0.1"))]
    with pytest.raises(ActionDenied, match="used"), guard.resume(asked["id"]):
        await refunds.call(kind, "ch_1", Decimal(25))
    assert len(refunds.done) == 1


@both
async def test_a_block_does_what_was_approved(kind, guard, owner, agent_id):
    """A block made with edits=True finds the edit in its context; without, it is refused and not entered."""
    owner.permit(agent_id, "db.drop", requires_approval=True)
    dropped: list[Any] = []

    async def drop(edits: bool) -> None:
        act = guard.action("db.drop", {"tables": ["users", "orders"]}, on_hold="wait", edits=edits)
        if kind == "async":
            async with act:
                dropped.append(act.context["tables"])
        else:
            await asyncio.to_thread(act.__enter__)
            dropped.append(act.context["tables"])
            await asyncio.to_thread(act.__exit__, None, None, None)

    def edit() -> None:
        approve(owner.http, waiting(owner)["id"], {"tables": ["orders"]})

    await deciding(drop(True), edit)
    assert dropped == [["orders"]]
    with pytest.raises(ActionDenied, match="edits=True"):
        await deciding(drop(False), edit)
    assert dropped == [["orders"]]
