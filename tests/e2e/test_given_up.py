"""A call that is given up while it asks a live gateway leaves nothing for a person to decide."""

import asyncio
import contextlib

from support.gateway import Owner

from toolgate import Guard


async def test_cancelled_at_any_moment(owner: Owner, agent_id: str, guard: Guard) -> None:
    """Whenever a waiting call is cancelled: before it asks, while the gateway decides, or once it is held."""
    owner.permit(agent_id, "bank.pay", requires_approval=True)
    given_up = 0

    @guard.guarded("bank.pay", on_hold="wait")
    async def pay(number: int) -> None:
        raise AssertionError(number)

    loop = asyncio.get_running_loop()
    for number in range(40):
        task = asyncio.create_task(pay(number))
        # From before the first byte is sent until well after the answer.
        loop.call_later(number / 2000, task.cancel)
        with contextlib.suppress(asyncio.CancelledError):
            await task
        given_up += task.cancelled()
    assert given_up == 40
    requests = owner.http.get("/api/approvals", params={"status": "pending"})
    assert requests.json() == []
