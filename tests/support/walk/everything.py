"""Everything that is ever said to a database, on one live gateway: every route, every filter, every job."""

import re
from contextlib import suppress
from html import unescape
from itertools import combinations

import httpx

from support.admin import done, run_admin
from support.bulk import write_entries
from support.console import Reader
from support.gateway import LiveGateway, Owner
from support.provider import DAY, fresh, invoice, seconds, subscription, tell
from support.provider import SECRET as PROVIDER_SECRET
from support.tables import execute, rows
from support.team import Colleague, fresh_email, invite
from support.upkeep import ago_text
from support.waiting import until
from support.walk.asking import ask, ask_rightly
from support.walk.stage import Stage
from support.walk.table import WALK
from toolgate_service.logs.repository import SCAN_LIMIT

#: what a gateway needs for it
ENV = {
    "TOOLGATE_WEBHOOKS_ALLOW_PRIVATE": "true",
    "TOOLGATE_MANAGEMENT_REQUESTS_PER_MINUTE": "1000000",
    "TOOLGATE_DENIALS_BEFORE_BLOCK": "1",
    "TOOLGATE_STRIPE_WEBHOOK_SECRET": PROVIDER_SECRET,
    "TOOLGATE_MAINTENANCE_INTERVAL_SECONDS": "1",
    "TOOLGATE_APPROVAL_WATCH_SECONDS": "1",
    "TOOLGATE_METRICS_ADDRESS": "127.0.0.1:0",
}
#: every list that is paged, and its filters
LISTS = {
    "/api/agents": (),
    "/api/agents/{agent_id}/permissions": (),
    "/api/logs": ("agent_id", "action", "status=success"),
    "/api/logs/export": ("agent_id", "action", "status=success", "from=2020-01-01", "to=2100-01-01"),
    "/api/decisions": (
        "agent_id",
        "run_id=r",
        "outcome=denied",
        "action",
        "reason_code=frozen",
        "from=2020-01-01",
    ),
    "/api/decisions/export": ("agent_id", "run_id=r", "outcome=allowed", "to=2100-01-01"),
    "/api/approvals": ("agent_id", "action", "status=denied", "status=pending", "status=expired"),
    "/api/grants": ("agent_id", "status=active", "status=expired", "status=used_up"),
    "/api/freeze": ("status=lifted",),
    "/api/budgets": (),
    "/api/budgets/{budget_id}/usage": (),
    "/api/budgets/reservations": ("state=unsettled", "budget_id"),
    "/api/audit": ("kind=agent.created", "user_id"),
    "/api/webhooks/{webhook_id}/deliveries": ("status=failed",),
}
#: what is old enough to be removed: a table, and its columns that say so
AGED = {
    "log_entries": "created_at",
    "decisions": "created_at",
    "approvals": "created_at expires_at decided_at",
    "grants": "created_at expires_at",
    "freezes": "created_at",
    "rules": "created_at",
    "budgets": "created_at",
    "budget_totals": "created_at ends_at",
    "budget_reservations": "created_at",
    "audit_entries": "created_at",
    "deliveries": "created_at",
    "events": "created_at",
    "idempotency_keys": "expires_at",
    "sessions": "created_at expires_at",
    "password_resets": "created_at expires_at",
    "invitations": "expires_at",
    "webhook_secrets": "expires_at",
    "access_request_items": "expires_at",
    "access_requests": "expires_at",
}


def do_everything(gateway: LiveGateway, *, filters: int | None = None) -> None:
    """Use every route, list, page and job. The last steps delete what the other steps created.

    Args:
        gateway: the gateway.
        filters: of how many filters a list is read by every combination; None for any number. All at once are combined
            in any case.
    """
    with Stage(gateway) as stage:
        _routes(stage)
        _lists(stage, filters)
        _pages(stage)
        _people(stage)
        _approvals(stage)
        _callback(stage)
        _rules(stage)
        _budgets(stage)
        _policies(stage)
        _console(stage)
        _settings(stage)
        _entries(stage)
        _erasures(stage)
        _operator(stage)
        _payments(stage)
    assert httpx.get(gateway.metrics_url, timeout=30).status_code == 200
    _age(gateway)


def _routes(stage: Stage) -> None:
    for route, stop in WALK.items():
        for _ in range(2):
            people, sealed = "{user_id}" in route or "{invitation_id}" in route, "/receipt" in route
            things = stage.things(people=people, sealed=sealed)
            if stop.right == "none":
                ask(stage, route, stop, things, {})
                break
            if ask_rightly(stage, route, stop, things).status_code == stop.success:
                break
            # Somebody before has used them up.
            stage.used_up()
    stage.read_keys()


def _lists(stage: Stage, most: int | None) -> None:
    things = stage.things() | {"user_id": stage.owner.user["id"]}
    write_entries(stage.gateway, stage.owner, [things["agent_id"]], 5)
    for path, filters in LISTS.items():
        for many in range(len(filters) + 1):
            if most is not None and most < many < len(filters):
                continue
            for chosen in combinations(filters, many):
                pairs = [one.partition("=") for one in chosen]
                params = {name: value or things[name] for name, _, value in pairs}
                answer = stage.owner.http.get(path.format(**things), params=params | {"limit": "1"})
                if "next" in answer.links:
                    stage.owner.http.get(answer.links["next"]["url"])


def _pages(stage: Stage) -> None:
    """The console's log: by every filter, from its beginning and behind a cursor, and one entry; more than is looked at."""
    owner = stage.owner
    owner.key = stage.key
    agent = owner.agent()
    owner.permit(agent, "pay", requires_approval=True)
    write_entries(stage.gateway, owner, [agent], SCAN_LIMIT + 1)
    answer = owner.check(agent, "pay", {})
    held, decision = answer.json()["approval_id"], answer.headers["X-Decision-ID"]
    logged = owner.log(agent, "action.0", approval_id=held, decision_id=decision, context={"text": "x"})
    entry = logged.json()["id"]
    filters = (f"agent_id={agent}", "action=action.0", "status=success", "from=2020-01-01&to=2100-01-01")
    assert httpx.get(f"{stage.gateway.url}/console/sign-in").status_code == 200
    with Reader.of(stage.gateway.url, owner.email) as reader:
        for many in range(len(filters) + 1):
            for chosen in combinations(filters, many):
                for more in ("", "&q=x" if filters[-1] in chosen else "&q=x&when=24h"):
                    page = reader.page(f"/console/logs?{'&'.join(chosen)}{more}")
                    further = re.search(r'href="([^"]*cursor=[^"]*)"', page)
                    if further:
                        reader.page(unescape(further[1]))
        reader.page(f"/console/logs/{entry}")
        reader.page(f"/console/logs?agent_id={entry}")
        reader.page(f"/console/decisions?agent_id={agent}&action=pay")
        reader.page(f"/console/decisions/{decision}")


def _erasures(stage: Stage) -> None:
    http, where = stage.owner.http, {"environment": "test"}
    agent = http.post("/api/agents", json={"name": "eraser"}, params=where).json()["id"]
    headers = {
        "X-API-Key": http.get("/api/organization/test-key").json()["api_key"],
        "Idempotency-Key": "erased",
    }
    body = {"agent_id": agent, "action": "a.b", "status": "success", "context": {"name": "Ada"}}
    entry = httpx.post(f"{stage.gateway.url}/sdk/log", json=body, headers=headers, timeout=30).json()["id"]
    assert http.post(f"/api/logs/{entry}/erase", params=where).status_code == 204


def _people(stage: Stage) -> None:
    with Colleague(stage.owner, "member") as colleague:
        email = fresh_email()
        for _ in range(2):
            invite(stage.owner, email)
        for password in ("wrong wrong wrong", "correct horse battery"):
            colleague.login(password=password)
        stage.owner.http.put(f"/api/team/{colleague.id}", json={"role": "viewer"})
        stage.owner.http.delete(f"/api/team/{colleague.id}")


def _approvals(stage: Stage) -> None:
    owner = stage.owner
    owner.key = stage.key
    agent = owner.agent()
    owner.permit(agent, "pay", requires_approval=True)
    asked = {"1": ("approve", {}), "2": ("approve", {"context": {"to": "Bob"}}), "3": ("deny", {})}
    for call, (verdict, body) in asked.items():
        held = owner.check(agent, "pay", {"to": "Ann"}, call_id=call, run_id="r").json()["approval_id"]
        owner.check(agent, "pay", {"to": "Ann"}, call_id=call, run_id="r", dry_run=True)
        wait = {"wait": "1"} if call == "3" else {}
        owner.http.get(f"/sdk/approvals/{held}", params=wait, headers={"X-API-Key": owner.key})
        answer = owner.http.post(f"/api/approvals/{held}/{verdict}", json=body)
        assert answer.status_code == 200, answer.text
        for _ in range(2):
            owner.check(agent, "pay", {"to": "Ann"}, call_id=call, run_id="r")
        owner.http.get(f"/api/approvals/{held}")
    permission = owner.permit(agent, "wait", requires_approval=True)
    late = owner.check(agent, "wait", {"to": "Cid"}).json()["approval_id"]
    _hang_up(owner, late)
    execute(stage.gateway, "UPDATE approvals SET expires_at = ? WHERE id = ?", ago_text(seconds=1), late)
    status = "SELECT status FROM approvals WHERE id = ?"
    until(lambda: rows(stage.gateway, status, late) == [("expired",)])
    owner.check(agent, "wait", {"to": "Dan"})
    owner.http.put(f"/api/permissions/{permission}", json={"required_approvals": 2})
    owner.check(agent, "wait", {"to": "Dan"})
    owner.http.put(f"/api/agents/{agent}", json={"status": "inactive"})


def _rules(stage: Stage) -> None:
    """Rules with agents and approvers by name: evaluated, shown, changed, and with an agent that was deleted since."""
    owner = stage.owner
    owner.key = stage.key
    agents = [owner.agent(f"ruled {number}") for number in range(2)]
    body = {
        "name": "walked with terms",
        "effect": "require_approval",
        "agents": ["ruled 0", "ruled 1"],
        "actions": ["ruled.*"],
        "when": "args.amount > 1",
        "approval": {"quorum": 2, "ttl": 600, "approvers": [owner.email]},
    }
    rule = owner.http.post("/api/rules", json=body).json()["id"]
    held = owner.check(agents[0], "ruled.pay", {"amount": 2}).json()["approval_id"]
    assert held is not None
    owner.http.delete(f"/api/agents/{agents[1]}")
    with Reader.of(owner.url, owner.email) as reader:
        for path in (
            "/console/rules",
            "/console/rules/new",
            f"/console/rules/{rule}",
            f"/console/approvals/{held}",
        ):
            reader.page(path)
        fields = {"action": "ruled.pay", "arguments": '{"amount": 2}'}
        assert (
            reader.submit(f"/console/agents/{agents[0]}/try", token=reader.token(), **fields).status_code
            == 200
        )
    assert owner.http.put(f"/api/rules/{rule}", json={"enabled": False}).status_code == 200


def _budgets(stage: Stage) -> None:
    """A calendar and a rolling window: reserved, repeated, tried, settled, left behind, and over the limit."""
    owner = stage.owner
    owner.key = stage.key
    agent = owner.agent()
    owner.permit(agent, "spend")
    budgets = []
    for window in ("day", "rolling(3600)"):
        body = {
            "name": f"walked {window}",
            "agents": [agent],
            "actions": ["spend"],
            "window": window,
            "limit": 3,
        }
        answer = owner.http.post("/api/budgets", json=body | {"at_limit": "require_approval"})
        assert answer.status_code == 201, answer.text
        budgets.append(answer.json()["id"])
    body = {"agent_id": agent, "action": "spend"}
    headers = {"X-API-Key": owner.key, "Idempotency-Key": "spend once"}
    for _ in range(2):
        checked = owner.http.post("/sdk/check", json=body, headers=headers)
    owner.check(agent, "spend", dry_run=True)
    owner.log(agent, "spend", decision_id=checked.headers["x-decision-id"])
    old = "UPDATE budget_reservations SET created_at = ? WHERE budget_id = ?"
    execute(stage.gateway, old, ago_text(hours=2), budgets[1])
    for _ in range(2):
        owner.check(agent, "spend")
    held = owner.check(agent, "spend").json()["approval_id"]
    assert held is not None
    with Reader.of(owner.url, owner.email) as reader:
        reader.page(f"/console/approvals/{held}")
        reader.page("/console/budgets")
    for budget in budgets:
        assert owner.http.get(f"/api/budgets/{budget}/usage").json()
    assert owner.http.get("/api/budgets/reservations").json()


def _policies(stage: Stage) -> None:
    """A policy with approvers, applied for a base that is no longer current."""
    owner = stage.owner
    state = owner.http.get("/api/policy").json()
    terms = {"approvers": [owner.email]}
    rule = {"name": "walked by", "effect": "require_approval", "actions": ["walked.by"], "approval": terms}
    policy = state["policy"] | {"rules": [*state["policy"]["rules"], rule]}
    body = {"policy": policy, "base": state["digest"]}
    assert owner.http.post("/api/policy/apply", json=body).status_code == 200
    assert owner.http.get("/api/policy").json()["policy"]["rules"]
    body = {"policy": state["policy"], "base": state["digest"]}
    assert owner.http.post("/api/policy/apply", json=body).status_code == 409
    _shadows(owner)
    assert owner.http.get("/api/policy/suggestions?minimum=1").status_code == 200


def _shadows(owner: Owner) -> None:
    """A shadow policy with a sample, which is replaced, discarded, and promoted."""
    agent = owner.agent("shadowed")
    policy = owner.http.get("/api/policy").json()["policy"]
    policy["agents"][-1]["permissions"] = [{"action": "walked.shadow"}]
    for method, path in (("PUT", ""), ("DELETE", ""), ("POST", "/promote")):
        assert owner.http.put("/api/policy/shadow", json={"policy": policy}).status_code == 200
        owner.check(agent, "walked.shadow")
        until(lambda: owner.http.get("/api/policy/shadow").json()["samples"])
        base = owner.http.get("/api/policy").json()["digest"]
        body = {"PUT": {"policy": policy}, "POST": {"base": base}}.get(method)
        assert owner.http.request(method, f"/api/policy/shadow{path}", json=body).is_success


def _hang_up(owner: Owner, approval: str) -> None:
    with suppress(httpx.ReadTimeout):
        poll = f"/sdk/approvals/{approval}?wait=30"
        owner.http.get(poll, headers={"X-API-Key": owner.key}, timeout=1)
    until(lambda: not owner.http.get(f"/api/approvals/{approval}").json()["waiting"])


def _console(stage: Stage) -> None:
    """What the console asks and the API does not."""
    owner = stage.owner
    agent = owner.agent()
    owner.permit(agent, "pay", requires_approval=True, required_approvals=2)
    held = owner.check(agent, "pay").json()["approval_id"]
    assert owner.http.post(f"/api/approvals/{held}/approve").status_code == 200
    with Reader.of(owner.url, owner.email) as reader:
        for path in (
            "/console/start",
            "/console/start?environment=test",
            "/console/budgets",
            "/console/freezes",
            f"/console/agents/{agent}",
        ):
            reader.page(path)
        for wanted in ("hour", "day", "month"):
            reader.page(f"/console/overview?range={wanted}")
        for arguments in ("", '{"to": "Ann"}'):
            fields = {"action": "pay", "arguments": arguments}
            tried = reader.submit(f"/console/agents/{agent}/try", token=reader.token(), **fields)
            assert tried.status_code == 200, tried.text
        with reader.http.stream("GET", "/console/approvals/events") as news:
            assert any("votes" in line for line in news.iter_lines())


def _settings(stage: Stage) -> None:
    """What the console's settings ask and the API does not."""
    things = stage.things()
    with Reader.of(stage.owner.url, stage.owner.email) as reader:
        reader.page(f"/console/settings/webhooks/{things['webhook_id']}")
        reader.page(f"/console/agents/{things['agent_id']}/keys")


def _callback(stage: Stage) -> None:
    """Notify a webhook about the end of an access request."""
    url = f"http://127.0.0.1:9/{fresh('callback')}"
    hook = {"url": url, "events": ["agent.deleted"]}
    assert stage.owner.http.post("/api/webhooks", json=hook).status_code == 201
    agent = stage.owner.agent()
    stage.owner.permit(agent, "pay", requires_approval=True)
    call = {"subject": {"type": "agent", "id": agent}, "action": {"name": "call"}}
    call["resource"] = {"type": "tool", "id": "pay"}
    headers = {"Authorization": f"Bearer {stage.key}"}
    context = stage.anybody.post("/access/v1/evaluation", json=call, headers=headers).json()["context"]
    denial = {
        "evaluation_id": context["evaluation_id"],
        "expires_at": context["access_request"]["expires_at"],
    }
    submission = call | {"denial": denial, "callback": {"endpoint": url}}
    answer = stage.anybody.post("/access/v1/requests", json=submission, headers=headers)
    task = answer.raise_for_status().json()["task"]
    stage.anybody.post(task["links"]["cancel"], headers=headers).raise_for_status()
    query = "SELECT callback FROM access_requests WHERE id = ?"
    until(lambda: rows(stage.gateway, query, task["id"]) == [(None,)])


def _entries(stage: Stage) -> None:
    """Entries that are repeated, that webhooks hear of, and of the test environment."""
    told = {"url": "http://127.0.0.1:9/", "events": ["log.created"]}
    assert stage.owner.http.post("/api/webhooks", json=told).status_code == 201
    for key, environment in ((stage.key, "production"), (stage.test_key, "test")):
        entry = {"agent_id": stage.things(environment)["agent_id"], "action": "pay"}
        for path, more in (("/sdk/log", {"status": "success"}), ("/sdk/check", {})):
            for headers in ({}, *[{"Idempotency-Key": "once"}] * 2):
                stage.anybody.post(path, json=entry | more, headers={"X-API-Key": key} | headers)
        other = {
            "json": entry | {"status": "failed"},
            "headers": {"X-API-Key": key, "Idempotency-Key": "once"},
        }
        assert stage.anybody.post("/sdk/log", **other).headers["Idempotency-Mismatch"] == "true"


def _payments(stage: Stage) -> None:
    customer = fresh("cus")
    done(stage.gateway, "link-customer", stage.owner.email, customer)
    tell(stage.gateway.url, "customer.subscription.updated", subscription(customer, status="past_due"))
    late = seconds() - 8 * DAY
    tell(stage.gateway.url, "invoice.payment_failed", invoice(customer), created=late)
    # The upkeep looks every second.
    until(lambda: not stage.owner.http.get("/api/organization").json()["is_active"])


def _operator(stage: Stage) -> None:
    for command in (("set-plan", "business"), ("deactivate",), ("activate",)):
        done(stage.gateway, command[0], stage.owner.email, *command[1:])


def _age(gateway: LiveGateway) -> None:
    """Make everything old, and have it removed."""
    moment = ago_text(days=400)
    for table, columns in AGED.items():
        # Also what is null: it stands for a moment that has not come yet.
        changed = ", ".join(f"{column} = ?" for column in columns.split())
        execute(gateway, f"UPDATE {table} SET {changed}", *[moment] * len(columns.split()))
    fine = "SELECT 1 FROM log_counts WHERE span = 1"
    execute(gateway, "UPDATE log_counts SET starts = starts - ?", 400 * 24 * 60)
    until(lambda: not rows(gateway, fine))
    assert run_admin(gateway, "prune", "--force").returncode == 0
