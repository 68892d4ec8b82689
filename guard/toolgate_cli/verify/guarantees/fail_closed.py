"""Guarantees while the gateway or a replica is stopped by the command of `--kill-hook`."""

import asyncio
import contextlib
import tempfile
from pathlib import Path
from typing import Final

from toolgate._guard import Guard
from toolgate.errors import GuardError
from toolgate_cli.verify.client import GatewayUnreachable
from toolgate_cli.verify.registry import NotTested, Violation, guarantee, require
from toolgate_cli.verify.trial import Agent, Decision, Trial

_HOOK_SECONDS: Final = 60.0
#: seconds within which the gateway must respond again after `--restore-hook`
_RESTORE_SECONDS: Final = 60.0
_NO_HOOK: Final = "the test needs a command that stops the gateway or a replica; give it with --kill-hook CMD"


async def _run(command: str, option: str) -> None:
    process = await asyncio.create_subprocess_shell(command, stdout=asyncio.subprocess.DEVNULL)
    try:
        status = await asyncio.wait_for(process.wait(), _HOOK_SECONDS)
    except TimeoutError:
        process.kill()
        raise NotTested(f"the command of {option} did not end within {_HOOK_SECONDS:.0f} s") from None
    if status:
        raise NotTested(f"the command of {option} ended with status {status}")


async def _kill(t: Trial) -> None:
    if t.options.kill_hook is None:
        raise NotTested(_NO_HOOK)
    await _run(t.options.kill_hook, "--kill-hook")


async def _restore(t: Trial) -> None:
    if t.options.restore_hook is None:
        return
    await _run(t.options.restore_hook, "--restore-hook")

    async def responds() -> bool:
        for place in range(len(t.api.urls)):
            try:
                if not (await t.admin.send("GET", "/health/ready", replica=place)).is_success:
                    return False
            except GatewayUnreachable:
                return False
        return True

    await t.wait_for(
        responds,
        seconds=_RESTORE_SECONDS,
        missing="the gateway does not respond after the command of --restore-hook",
    )


async def _try_check(t: Trial, agent: Agent, action: str, replica: int, key: str) -> Decision | None:
    """Return the decision of a replica; None if it does not respond."""
    call = t.check_call(agent, action, {"a": 1}, replica=replica, idempotency_key=key)
    try:
        return Decision.of(await t.api.send(call, retries=0))
    except GatewayUnreachable:
        return None


@guarantee(
    "fail_closed.sdk",
    "While the gateway does not respond, the SDK does not run guarded tools",
    "9.2.1",
    exclusive=True,
)
async def stop_guarded_tools(t: Trial) -> str:
    if t.options.kill_hook is None:
        raise NotTested(_NO_HOOK)
    agent, action = await t.agent(), t.action()
    await t.permit(agent, action)
    ran: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        guards = [Guard(url, agent.key, agent.id, timeout=2, outbox=Path(folder) / str(place))
                  for place, url in enumerate(t.api.urls)]  # fmt: skip
        await t.must_allow(agent, action)
        await _kill(t)
        stopped = 0
        try:
            for place, guard in enumerate(guards):
                responds = await _try_check(t, agent, action, place, f"{t.prefix}-{place}") is not None
                before = len(ran)

                async def tool() -> None:
                    ran.append("ran")

                with contextlib.suppress(GuardError):
                    await guard.guarded(action)(tool)()
                if not responds:
                    stopped += 1
                    require(
                        len(ran) == before, "the SDK ran a guarded tool although the gateway did not respond"
                    )
        finally:
            for guard in guards:
                guard.close()
            await _restore(t)
    if not stopped:
        raise NotTested("all replicas still respond after the command of --kill-hook")
    return f"{stopped} of {len(t.api.urls)} replicas stopped"


@guarantee(
    "fail_closed.approval",
    "An approval allows at most one call, even if a replica stops during parallel calls",
    "9.2.8",
    exclusive=True,
)
async def keep_single_use(t: Trial) -> str:
    if t.options.kill_hook is None:
        raise NotTested(_NO_HOOK)
    agent, action = await t.held_agent()
    await t.approved(agent, action, {"a": 1})
    places = [number % len(t.api.urls) for number in range(16)]
    calls = [
        _try_check(t, agent, action, place, f"{t.prefix}-{number}") for number, place in enumerate(places)
    ]
    killing = asyncio.create_task(_kill(t))
    decisions = list(await asyncio.gather(*calls))
    await killing
    try:
        for number, place in enumerate(places):
            decisions.append(await _try_check(t, agent, action, place, f"{t.prefix}-late-{number}"))
    finally:
        await _restore(t)
    if t.options.restore_hook is not None:
        decisions.append(await _try_check(t, agent, action, 0, f"{t.prefix}-restored"))
    allowed = sum(one is not None and one.allowed for one in decisions)
    require(allowed <= 1, f"{allowed} calls were allowed by one approval while a replica was stopped")
    return f"{sum(one is None for one in decisions)} of {len(decisions)} calls got no response"


@guarantee(
    "fail_closed.durable",
    "Changes that the gateway acknowledged before it was stopped are in effect after its restart",
    "12.1.2",
    "9.5.6",
    exclusive=True,
)
async def keep_acknowledged_changes(t: Trial) -> None:
    if t.options.kill_hook is None:
        raise NotTested(_NO_HOOK)
    if t.options.restore_hook is None:
        raise NotTested(
            "the test needs a command that starts the gateway again; give it with --restore-hook CMD"
        )
    agent, action = await t.held_agent()
    other = await t.agent()
    await t.permit(other, action)
    for context in ({"a": 1}, {"a": 2}):
        await t.approved(agent, action, context)
    await t.must_allow(agent, action, {"a": 1})
    await t.admin.post("/api/freeze", {"agent_id": other.id, "reason": "test"})
    await _kill(t)
    await _restore(t)
    await t.must_not_allow(agent, action, {"a": 1}, what="a second call with a used approval after a restart")
    await t.must_not_allow(other, action, what="a call of a frozen agent after a restart")
    decision = await t.check(agent, action, {"a": 2})
    if not decision.allowed:
        raise Violation(f"an approved call got the decision {decision.code!r} after a restart")
