"""Guarantees about the decision log, the audit log and the transparency log."""

import asyncio
import itertools
import time
from collections.abc import Sequence
from typing import Any

from toolgate_cli.client import GatewayClient, GatewayError
from toolgate_cli.log.online import verify_online
from toolgate_cli.log.status import read_content
from toolgate_cli.log.tiles import TileError, Tiles
from toolgate_cli.log.verification.merkle import is_consistent
from toolgate_cli.log.verification.notes import Checkpoint, Key, VerificationError, open_checkpoint
from toolgate_cli.log.verification.receipts import verify_receipt
from toolgate_cli.log.verification.state import State
from toolgate_cli.options import Environment
from toolgate_cli.verify.client import Answer, Call
from toolgate_cli.verify.organizations import expect
from toolgate_cli.verify.registry import Violation, guarantee, require
from toolgate_cli.verify.trial import Agent, Trial

#: seconds within which a row must be part of the transparency log
_SEALED = 60.0


@guarantee("records.decisions", "Each decision is recorded with its outcome and reason", "12.1.2")
async def record_decisions(t: Trial) -> None:
    agent, _action = await t.held_agent(max_amount=10)
    await t.permit(agent, t.action("read"))
    expected = {}
    for name, context in (("read", {}), ("run", {"amount": 1}), ("run", {"amount": 11}), ("none", {})):
        decision = await t.check(agent, t.action(name), context)
        outcome = (
            "approval_required" if decision.requires_approval else "allowed" if decision.allowed else "denied"
        )
        expected[decision.id] = (outcome, decision.code, t.action(name))

    async def are_recorded() -> bool:
        found = await t.admin.get(f"/api/decisions?agent_id={agent.id}")
        recorded = {one["id"]: (one["outcome"], one["reason_code"], one["action"]) for one in found}
        wrong = [one for one in expected if recorded.get(one, expected[one]) != expected[one]]
        require(not wrong, "the decision log shows another outcome or reason than the response to the check")
        return expected.keys() <= recorded.keys()

    await t.wait_for(are_recorded, seconds=_SEALED, missing="a decision is not in the decision log")


async def _audited(t: Trial, *wanted: tuple[str, str, str]) -> None:
    """Require that the audit log contains events, each given by kind, resource and user."""
    found = await t.admin.get("/api/audit?limit=100")
    present = {(one["kind"], one["resource_id"], one["user_id"]) for one in found}
    for kind, resource, user in wanted:
        require((kind, resource, user) in present, f"the audit log does not contain the event {kind!r}")


@guarantee(
    "records.approvals", "Approvals and rejections are recorded with user, time and arguments", "12.4.2"
)
async def record_approvals(t: Trial) -> None:
    agent, action = await t.held_agent()
    for verb, kind, user in (("approve", "approved", t.approver), ("reject", "denied", t.second)):
        approval_id = await t.hold(agent, action, {"verb": verb})
        await user.post(f"/api/approvals/{approval_id}/{verb}", {"note": "seen"})
        await _audited(t, (f"approval.{kind}", approval_id, user.id))
        shown = await t.admin.get(f"/api/approvals/{approval_id}")
        require(
            shown["decided_by"] == user.id and shown["decided_at"], "a request does not show who decided it"
        )
        votes = [(one["user_id"], one["decision"], one["note"]) for one in shown["votes"]]
        require(votes == [(user.id, kind, "seen")], f"a request shows other votes than expected: {votes!r}")
        require(
            shown["context"] == {"verb": verb},
            "a decided request shows other arguments than the check contained",
        )


@guarantee(
    "records.changes",
    ("Changes of permissions, rules and keys are recorded with the user who made them"),
    "12.4.2",
)
async def record_changes(t: Trial) -> None:
    agent, action = await t.agent(), t.action()
    permission = await t.permit(agent, action)
    rule = await t.admin.post("/api/rules", {"name": t.prefix, "effect": "forbid", "actions": [action]})
    key = await t.admin.post(f"/api/agents/{agent.id}/keys")
    require(bool(key["id"]), "a new API key of an agent has no id")
    user = t.admin.id
    await _audited(
        t,
        ("agent.created", agent.id, user),
        ("permission.created", permission, user),
        ("rule.created", rule["id"], user),
        ("agent.key_created", agent.id, user),
    )


@guarantee("records.freezes", "The audit log shows which users created and lifted a freeze", "12.4.3")
async def record_freezes(t: Trial) -> None:
    agent = await t.agent()
    freeze = await t.approver.post("/api/freeze", {"agent_id": agent.id, "reason": "test"})
    await t.admin.post(f"/api/freeze/{freeze['id']}/lift")
    await _audited(
        t, ("freeze.created", freeze["id"], t.approver.id), ("freeze.lifted", freeze["id"], t.admin.id)
    )


async def _key(t: Trial) -> Key:
    async def status() -> Any:
        answer = await t.admin.send("GET", "/api/transparency")
        return answer.json() if answer.is_success else None

    found = await t.wait_for(status, seconds=_SEALED, missing="the organization has no transparency log")
    require(not found["problem"], f"the transparency log has a problem: {found['problem']}")
    return Key.parse(found["vkey"])


async def _receipt(t: Trial, path: str) -> bytes:
    async def read() -> bytes | None:
        answer = await t.admin.send("GET", f"{path}/receipt")
        if answer.status == 409:
            return None
        expect(answer, path)
        return answer.body

    found: bytes = await t.wait_for(read, seconds=_SEALED, missing=f"{path} is not in the transparency log")
    return found


async def _verified_leaf(t: Trial, path: str) -> dict[str, Any]:
    """Return the leaf in a valid receipt."""
    try:
        result = verify_receipt(await _receipt(t, path), key=await _key(t))
    except VerificationError as error:
        raise Violation(f"the receipt of {path} cannot be verified: {error}") from None
    require(not result.findings, f"the receipt of {path} is invalid: {result.findings[:1]}")
    of_organization = result.origin.endswith(f"/tlog/{t.main.id}/production")
    require(of_organization, f"the receipt of {path} belongs to another log: {result.origin}")
    leaf: dict[str, Any] = result.leaf
    return leaf


@guarantee("records.receipts", "Decisions, approvals and log entries have valid receipts", "12.1.2", "9.4.2")
async def prove_rows(t: Trial) -> None:
    agent, action = await t.held_agent()
    approval_id = await t.approved(agent, action, {"a": 1})
    decision = await t.must_allow(agent, action, {"a": 1})
    entry = {"agent_id": agent.id, "action": action, "status": "success", "decision_id": decision.id}
    logged = expect(await t.api.send(Call("POST", "/sdk/log", entry, agent.credential)), "/sdk/log")
    rows = (
        (f"/api/approvals/{approval_id}", approval_id, "approval"),
        (f"/api/decisions/{decision.id}", decision.id, "decision"),
        (f"/api/logs/{logged['id']}", logged["id"], "log_entry"),
    )
    for path, row_id, kind in rows:
        leaf = await _verified_leaf(t, path)
        require(
            (leaf["kind"], leaf["id"]) == (kind, row_id),
            f"the receipt of {path} describes another database row",
        )
    approval = await _verified_leaf(t, f"/api/approvals/{approval_id}")
    require(
        approval.get("state") == "consumed",
        f"the receipt of a used approval shows the state {approval.get('state')!r}",
    )


@guarantee(
    "records.lag", "A signed checkpoint of the transparency log covers each decision within seconds", "12.1.2"
)
async def seal_soon(t: Trial) -> str:
    agent = await t.agent()
    decision = await t.check(agent, t.action())

    async def is_recorded() -> bool:
        return (await t.admin.send("GET", f"/api/decisions/{decision.id}")).is_success

    began = time.monotonic()
    await t.wait_for(is_recorded, seconds=_SEALED, missing="a decision is not in the decision log")
    await _receipt(t, f"/api/decisions/{decision.id}")
    return f"{time.monotonic() - began:.1f} s"


async def _checkpoint(t: Trial, key: Key, replica: int) -> Checkpoint:
    answer = await t.api.send(Call("GET", f"/tlog/{t.main.id}/production/checkpoint", replica=replica))
    require(answer.is_success, f"a replica publishes no checkpoint: status {answer.status}")
    try:
        return open_checkpoint(answer.text, key, ())
    except VerificationError as error:
        raise Violation(f"the published checkpoint is invalid: {error}") from None


async def _require_consistent(t: Trial, old: Checkpoint, new: Checkpoint) -> None:
    await t.api.throttle.acquire(8)

    def prove() -> Sequence[bytes]:
        with GatewayClient(t.api.urls[0]) as public:

            def read(path: str) -> bytes:
                return read_content(public.send("GET", f"/tlog/{t.main.id}/production/{path}"), path)

            return Tiles(new.size, read).consistency_proof(old.size)

    try:
        proof = await asyncio.to_thread(prove)
    except (GatewayError, TileError) as error:
        raise Violation(f"the files of the transparency log (tiles) cannot be read: {error}") from None
    require(
        is_consistent(old.size, old.root, new.size, new.root, proof),
        f"the checkpoint with {new.size} leaves is not a continuation of the checkpoint with {old.size} leaves",
    )


@guarantee(
    "records.consistency",
    ("Each checkpoint of each replica contains all records of the earlier checkpoints"),
    "12.1.2",
)
async def grow_consistently(t: Trial) -> str:
    agent, key = await t.agent(), await _key(t)
    seen = [await _checkpoint(t, key, place) for place in range(len(t.api.urls))]
    for _ in range(2):
        size = seen[-1].size
        await t.check(agent, t.action())

        async def has_grown(size: int = size) -> bool:
            return (await _checkpoint(t, key, 0)).size > size

        await t.wait_for(has_grown, seconds=_SEALED, missing="the transparency log does not grow")
        seen += [await _checkpoint(t, key, place) for place in range(len(t.api.urls))]
    seen.sort(key=lambda one: one.size)
    for old, new in itertools.pairwise(seen):
        await _require_consistent(t, old, new)
    return f"{seen[-1].size} leaves"


@guarantee(
    "records.erasure",
    "After arguments are erased, no list contains them, and the receipt of the log entry is still valid",
    "12.1.2",
)
async def erase_contexts(t: Trial) -> None:
    agent, action = await t.agent(), t.action()
    canary = f"canary-{t.prefix}"
    entry = {"agent_id": agent.id, "action": action, "status": "success", "context": {"secret": canary}}
    logged = expect(await t.api.send(Call("POST", "/sdk/log", entry, agent.credential)), "/sdk/log")
    path = f"/api/logs/{logged['id']}"
    await _verified_leaf(t, path)
    await t.admin.post(f"{path}/erase")
    for listed in (
        f"/api/logs?agent_id={agent.id}",
        f"/api/logs/export?agent_id={agent.id}",
        "/api/audit?limit=100",
    ):
        answer: Answer = await t.admin.send("GET", listed)
        require(canary not in answer.text, f"GET {listed} contains erased arguments")
    await _verified_leaf(t, path)


@guarantee(
    "records.export",
    "The export of the transparency log is valid, and matches the database rows of the test",
    "12.1.2",
    "12.4.2",
    exclusive=True,
)
async def verify_exports(t: Trial) -> str:
    agent, action = await t.held_agent()
    await t.approved(agent, action, {"a": 1})
    decision = await t.must_allow(agent, action, {"a": 1})
    await _receipt(t, f"/api/decisions/{decision.id}")
    key = await _key(t)
    await t.api.throttle.acquire(8)

    def verify() -> Any:
        with GatewayClient(t.api.urls[0], t.admin.token) as client:
            return verify_online(client, Environment.PRODUCTION, key, State(), [], 0)

    try:
        result = await asyncio.to_thread(verify)
    except (GatewayError, VerificationError) as error:
        raise Violation(f"the export cannot be verified: {error}") from None
    require(
        not result.findings,
        f"the verification of the export has findings: {[one['message'] for one in result.findings[:3]]}",
    )
    return f"{result.checkpoint.size} leaves" if result.checkpoint else "no checkpoint"


@guarantee(
    "records.attributed",
    "A log entry shows the agent whose API key wrote the entry, and the decision about the call",
    "12.1.2",
    "9.4.2",
)
async def attribute_entries(t: Trial) -> None:
    agent, action = await t.agent(), t.action()
    await t.permit(agent, action)
    decision = await t.must_allow(agent, action)
    key = (await t.admin.post(f"/api/agents/{agent.id}/keys"))["api_key"]
    keyed = Agent(agent.id, key)
    entry = {"agent_id": agent.id, "action": action, "status": "success", "decision_id": decision.id}
    expect(await t.api.send(Call("POST", "/sdk/log", entry, keyed.credential)), "/sdk/log")
    [found] = await t.admin.get(f"/api/logs?agent_id={agent.id}")
    shown = (found["agent_id"], found["action"], found["status"], found["decision_id"])
    require(
        shown == (agent.id, action, "success", decision.id),
        f"a log entry shows other values than the SDK sent: {shown!r}",
    )
