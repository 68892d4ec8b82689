"""Guarantees about secrets in responses, records and log files."""

from pathlib import Path

from toolgate_cli.verify.client import Call
from toolgate_cli.verify.registry import NotTested, guarantee, require
from toolgate_cli.verify.trial import Trial

#: maximum bytes at the end of a log file that are searched
_MAX_LOG = 64 * 1024 * 1024


def _secrets(t: Trial) -> dict[str, str]:
    found = {
        "the API key of the organization": t.main.key,
        "the API key of the test environment": t.main.test_key,
    }
    return found | {f"the session token of {user.email}": user.token for user in t.main.users}


@guarantee(
    "secrecy.responses",
    "Responses contain no API keys or session tokens, except the responses that issue them",
    "9.5.4",
)
async def hide_secrets(t: Trial) -> None:
    agent, action = await t.held_agent()
    agent_key = (await t.admin.post(f"/api/agents/{agent.id}/keys"))["api_key"]
    secrets = _secrets(t) | {"the API key of an agent": agent_key}
    approval_id = await t.approved(agent, action, {"a": 1})
    await t.must_allow(agent, action, {"a": 1})
    paths = [
        *(
            "/api/agents",
            "/api/approvals",
            "/api/logs",
            "/api/decisions",
            "/api/audit?limit=100",
            "/api/team",
        ),
        *("/api/rules", "/api/budgets", "/api/webhooks", "/api/policy", "/api/transparency"),
        *("/api/logs/export", "/api/decisions/export", "/openapi.json", "/health", "/health/ready"),
        *(f"/api/agents/{agent.id}", f"/api/approvals/{approval_id}", f"/sdk/approvals/{approval_id}"),
    ]
    for path in paths:
        credential = agent.credential if path.startswith("/sdk") else t.admin.credential
        answer = await t.api.send(Call("GET", path, None, credential))
        text = answer.text + str(dict(answer.headers))
        leaked = next((name for name, secret in secrets.items() if secret in text), None)
        require(leaked is None, f"GET {path} contains {leaked}")


@guarantee("secrecy.errors", "Error responses do not repeat credentials", "9.5.4")
async def hide_credentials_in_errors(t: Trial) -> None:
    canary = f"canary{t.prefix.replace('-', '')}"
    agent = await t.agent()
    credentials = [
        {"X-API-Key": f"ak_{canary}".ljust(40, "x")},
        {"Authorization": f"Bearer {canary}.{canary}.{canary}"},
        {"Authorization": f"Bearer {t.admin.token}{canary}"},
        {"Authorization": f"Basic {canary}"},
        {"Cookie": f"session={canary}"},
    ]
    for credential in credentials:
        for call in (
            Call("GET", "/api/agents", None, credential),
            Call("POST", "/sdk/check", {"agent_id": agent.id, "action": t.action()}, credential),
            Call("POST", f"/api/operator/{canary[:6]}", {}, credential),
        ):
            answer = await t.api.send(call)
            require(not answer.is_success, f"{call.method} {call.path} accepted an invalid credential")
            text = answer.text + str(dict(answer.headers))
            require(canary not in text, f"the error of {call.method} {call.path} repeats the credential")
    login = {"email": t.admin.email, "password": canary}
    answer = await t.api.send(Call("POST", "/auth/login", login))
    require(not answer.is_success and canary not in answer.text, "the error of a login repeats the password")
    registration = {"email": "not an address", "password": canary, "organization_name": ""}
    answer = await t.api.send(Call("POST", "/auth/register", registration))
    require(
        not answer.is_success and canary not in answer.text,
        "the error of a registration repeats the password",
    )


@guarantee("secrecy.masked", "Members and viewers see only masked API keys", "9.2.9", "9.5.4")
async def mask_keys(t: Trial) -> None:
    agent = await t.agent()
    key = (await t.admin.post(f"/api/agents/{agent.id}/keys"))["api_key"]
    for user in (t.viewer, t.approver):
        for path in ("/api/organization", "/api/organization/test-key", f"/api/agents/{agent.id}/keys"):
            text = (await user.send("GET", path)).text
            shown = [one for one in (key, t.main.key, t.main.test_key) if one in text]
            require(not shown, f"GET {path} shows an API key to a {user.role}")


@guarantee("secrecy.agents", "Agents cannot read which user approved a request", "9.2.9")
async def hide_approvers(t: Trial) -> None:
    agent, action = await t.held_agent(separation_of_duties=True)
    approval_id = await t.approved(agent, action, {"a": 1})
    answer = await t.api.send(Call("GET", f"/sdk/approvals/{approval_id}", None, agent.credential))
    require(answer.is_success, f"the agent cannot read its approval request: status {answer.status}")
    for user in (t.approver, t.admin):
        require(
            user.id not in answer.text and user.email not in answer.text,
            "the agent can read which user approved its request",
        )


@guarantee("secrecy.headers", "Responses that contain secrets forbid caching and content sniffing", "9.5.4")
async def forbid_caching(t: Trial) -> None:
    answer = await t.admin.send("GET", "/api/organization")
    require(answer.is_success and t.main.key in answer.text, "the admin cannot read the API key")
    control = answer.headers.get("cache-control", "")
    require(
        "no-store" in control or "private" in control,
        f"the response with the API key may be cached: Cache-Control is {control!r}",
    )


@guarantee("secrecy.gateway-log", "The log files of the gateway contain no secrets", "9.5.4", "12.1.2")
async def keep_logs_clean(t: Trial) -> str:
    if not t.options.gateway_logs:
        raise NotTested("the test needs the log files of the gateway; name each one with --gateway-log FILE")
    canary = f"canary-{t.prefix}"
    agent, action = await t.held_agent()
    await t.approved(agent, action, {"secret": canary})
    await t.must_allow(agent, action, {"secret": canary})
    await t.api.send(Call("GET", "/auth/me", None, {"Authorization": f"Bearer {canary}"}))
    await t.api.send(Call("POST", "/auth/login", {"email": t.admin.email, "password": canary}))
    secrets = _secrets(t) | {"an argument, a token or a password": canary}
    for path in t.options.gateway_logs:
        text = _tail(path)
        leaked = next((name for name, secret in secrets.items() if secret.encode() in text), None)
        require(leaked is None, f"{path.name} contains {leaked}")
    return f"{len(t.options.gateway_logs)} files"


def _tail(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - _MAX_LOG))
            return file.read()
    except OSError as error:
        raise NotTested(f"cannot read {path.name!r}: {error.strerror}") from None
