"""Guarantees about permissions, rules and the identity of agents."""

from typing import Any

from toolgate_cli.verify.client import Call
from toolgate_cli.verify.registry import NotTested, guarantee, require
from toolgate_cli.verify.trial import Agent, Trial, refused

_UNKNOWN_ID = "00000000-0000-7000-8000-000000000000"


@guarantee("access.default-deny", "A call without a permission is denied", "5.2.1", "9.5.1")
async def deny_by_default(t: Trial) -> None:
    agent = await t.agent()
    await t.permit(agent, t.action())
    await t.must_allow(agent, t.action())
    for action in (t.action("other"), t.action() + "x", t.action().upper(), t.prefix):
        decision = await t.must_not_allow(agent, action, what=f"the action {action!r} without a permission")
        require(not decision.requires_approval, "an action without a permission can be approved")


@guarantee("access.unknown-agent", "A call of an unknown agent is denied", "9.4.1")
async def deny_unknown_agents(t: Trial) -> None:
    agent = await t.agent()
    await t.permit(agent, t.action())
    for unknown in (_UNKNOWN_ID, agent.id.upper() + "0", "bot"):
        await t.must_not_allow(Agent(unknown, t.main.key), t.action(), what="a call of an unknown agent")


@guarantee("access.missing-key", "A check without a valid API key is rejected", "9.4.1", "10.2.1")
async def reject_missing_keys(t: Trial) -> None:
    agent = await t.agent()
    await t.permit(agent, t.action())
    wrong = t.main.key[:-1] + ("a" if t.main.key[-1] != "a" else "b")
    for key in ("", wrong, t.main.key[:-1], t.admin.token):
        answer = await t.api.send(t.check_call(Agent(agent.id, key), t.action()))
        refused(answer, "a check without a valid API key", 401)


@guarantee("access.agent-key", "The API key of an agent cannot act as another agent", "9.4.1")
async def bind_keys_to_agents(t: Trial) -> None:
    agent, other = await t.agent(), await t.agent()
    for one in (agent, other):
        await t.permit(one, t.action())
    key = (await t.admin.post(f"/api/agents/{agent.id}/keys"))["api_key"]
    await t.must_allow(Agent(agent.id, key), t.action())
    await t.must_not_allow(Agent(other.id, key), t.action(), what="a call with the API key of another agent")
    entry = {"agent_id": other.id, "action": t.action(), "status": "success"}
    answer = await t.api.send(Call("POST", "/sdk/log", entry, {"X-API-Key": key}))
    require(not answer.is_success, "the API key of an agent can write log entries of another agent")


@guarantee(
    "access.environments",
    "Keys, agents and permissions of the test environment are not valid in production",
    "5.2.1",
)
async def separate_environments(t: Trial) -> None:
    tested = await t.agent(key=t.main.test_key, query="?environment=test")
    await t.permit(tested, t.action(), query="?environment=test")
    await t.must_allow(tested, t.action())
    live = await t.agent()
    await t.permit(live, t.action())
    crossed = [Agent(tested.id, t.main.key), Agent(live.id, t.main.test_key)]
    for agent in crossed:
        await t.must_not_allow(
            agent,
            t.action(),
            what="a call with the API key of another environment than the environment of the agent",
        )


@guarantee(
    "access.amount", "A call with an amount above the limit of the permission is denied", "9.5.1", "9.1.2"
)
async def limit_amounts(t: Trial) -> None:
    agent = await t.agent()
    await t.permit(agent, t.action(), max_amount=100, amount_required=True)
    await t.must_allow(agent, t.action(), {"amount": 100})
    amounts: list[Any] = [100.01, 1e300, "1", None, True, [1], {"value": 1}]
    for amount in amounts:
        await t.must_not_allow(agent, t.action(), {"amount": amount}, what=f"the amount {amount!r}")
    await t.must_not_allow(agent, t.action(), {"sum": 1}, what="a call whose context has no amount")


@guarantee(
    "access.forbid",
    "A call that a rule forbids is denied, even if a permission allows the call",
    "9.5.1",
    "5.2.1",
)
async def forbid_by_rule(t: Trial) -> None:
    agent = await t.agent()
    for name in ("drop", "read"):
        await t.permit(agent, t.action(name))
    rule = {"name": t.prefix, "effect": "forbid", "actions": [t.action("drop*")]}
    await t.admin.post("/api/rules", rule)
    await t.must_not_allow(agent, t.action("drop"), what="a forbidden action")
    await t.must_allow(agent, t.action("read"))


@guarantee(
    "access.rule-approval", "A permitted call needs an approval if a rule requires one", "9.2.1", "9.5.1"
)
async def require_approval_by_rule(t: Trial) -> None:
    agent = await t.agent()
    await t.permit(agent, t.action())
    rule = {"name": t.prefix, "effect": "require_approval", "actions": [t.action()]}
    await t.admin.post("/api/rules", rule)
    approval_id = await t.hold(agent, t.action())
    await t.approve(approval_id)
    await t.must_allow(agent, t.action())


@guarantee(
    "access.condition",
    "Conditions of rules compare argument values, and a condition with an error never allows a call",
    "9.5.1",
)
async def decide_by_arguments(t: Trial) -> None:
    agent = await t.agent()
    await t.permit(agent, t.action("pay"))
    rules = [
        {"effect": "forbid", "actions": [t.action("pay")], "when": "args.country == 'XX'"},
        {"effect": "allow", "actions": [t.action("read")], "when": "args.path.startsWith('/public/')"},
    ]
    for number, rule in enumerate(rules):
        answer = await t.admin.send("POST", "/api/rules", {"name": f"{t.prefix}-{number}", **rule})
        if "pip install" in answer.text:
            raise NotTested(
                "the gateway is installed without the extra 'policy', which conditions of rules need"
            )
        require(answer.is_success, f"the gateway rejected a rule with a condition: {answer.text[:200]}")
    await t.must_allow(agent, t.action("pay"), {"country": "DE"})
    await t.must_not_allow(agent, t.action("pay"), {"country": "XX"}, what="a forbidden argument")
    await t.must_not_allow(
        agent,
        t.action("pay"),
        {},
        what="a call without the argument that the condition of a forbidding rule reads",
    )
    await t.must_allow(agent, t.action("read"), {"path": "/public/a"})
    for context in ({"path": "/private/a"}, {"path": 1}, {}):
        await t.must_not_allow(agent, t.action("read"), context, what=f"the arguments {context!r}")


@guarantee("access.malformed", "A malformed check is rejected and never allowed", "9.5.3")
async def reject_malformed_checks(t: Trial) -> None:
    agent = await t.agent()
    await t.permit(agent, t.action())
    valid = f'"agent_id": "{agent.id}", "action": "{t.action()}"'
    deep = "[" * 200 + "]" * 200
    bodies = [
        "",
        "[]",
        "{",
        f"{{{valid}, {valid}}}",
        f'{{{valid}, "context": []}}',
        f'{{{valid}, "context": {{"a": NaN}}}}',
        f'{{{valid}, "context": {{"a": {deep}}}}}',
        f'{{{valid}, "context": {{"a": 1, "a": 2}}}}',
        f'{{{valid}, "dry_run": "yes"}}',
    ]
    for body in bodies:
        answer = await t.api.send(Call("POST", "/sdk/check", body.encode(), agent.credential))
        require(
            answer.status == 400,
            f"the malformed check {body[:60]!r} got status {answer.status} instead of 400",
        )


@guarantee(
    "access.roles", "Viewers cannot change anything, and members cannot manage the team or keys", "5.2.1"
)
async def enforce_roles(t: Trial) -> None:
    agent = await t.agent()
    action = t.action()
    changes: list[tuple[str, str, dict[str, Any] | None]] = [
        ("POST", "/api/agents", {"name": f"{t.prefix}-v"}),
        ("POST", f"/api/agents/{agent.id}/permissions", {"action": action}),
        ("PUT", f"/api/agents/{agent.id}", {"status": "inactive"}),
        ("DELETE", f"/api/agents/{agent.id}", None),
        ("POST", "/api/freeze", {"reason": "test", "agent_id": agent.id}),
        ("POST", "/api/rules", {"name": t.prefix, "effect": "allow", "actions": [action]}),
    ]
    for method, path, body in changes:
        refused(await t.viewer.send(method, path, body), f"{method} {path} as a viewer", 403)
    managed: list[tuple[str, str, dict[str, Any] | None]] = [
        ("PUT", f"/api/team/{t.viewer.id}", {"role": "admin"}),
        ("DELETE", f"/api/team/{t.viewer.id}", None),
        ("POST", "/api/organization/regenerate-key", None),
        ("PUT", "/api/organization/allowed-networks", {"networks": ["192.0.2.0/24"]}),
    ]
    for method, path, body in managed:
        refused(await t.approver.send(method, path, body), f"{method} {path} as a member", 403)
    await t.must_not_allow(agent, action, what="an action for which a viewer created the permission")
