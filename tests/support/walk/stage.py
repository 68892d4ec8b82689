"""Who and what the walk is about: an organization, its people and its things, and strangers."""

import re
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Self

import httpx

from support.gateway import PASSWORD, LiveGateway, Owner
from support.insight import set_active
from support.slack import linked
from support.tables import contents
from support.team import Colleague, fresh_email, invite
from support.waiting import until
from toolgate_service.migrations.metadata import METADATA

#: tables that count requests and changes, also changes that a test undoes
COUNTERS = {"rate_windows", "epochs"}
#: tables of the transparency log, which contain nothing but digests of other rows and grow after each request
TREES = {"transparency_logs", "transparency_chunks", "transparency_leaves", "transparency_tiles"}
#: what belongs to the organization as a whole
OF_NO_ENVIRONMENT = {
    *("organization_id", "email", "user_id", "invitation_id", "link_id", "freeze_id"),
    # Parts of paths that name nothing.
    *("tree", "level", "position"),
}
TABLES = [
    table.name
    for table in METADATA.sorted_tables
    if table.name not in COUNTERS | TREES
    and (table.name == "organizations" or "organization_id" in table.columns)
]
_TELLTALE = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|marker-[0-9a-f]+|[\w.+-]+@[\w.-]+")


def marker() -> str:
    """Return a word that stands nowhere else."""
    return f"marker-{secrets.token_hex(6)}"


@dataclass(frozen=True, slots=True)
class People:
    """The credentials of the walked organization's people, good ones and spent ones."""

    viewer: Colleague
    member: Colleague
    removed: Colleague
    cli_token: str
    ended_token: str


class Stage:
    """The organization that is walked around in, and another."""

    def __init__(self, gateway: LiveGateway) -> None:
        self.gateway = gateway
        self._webhooks: dict[str, str] = {}
        self._made: dict[tuple[str, str], dict[str, str]] = {}
        with ExitStack() as stack:
            self.owner = stack.enter_context(
                Owner(gateway.url, email=f"{marker()}@example.test", organization=marker())
            )
            self.stranger = stack.enter_context(Owner(gateway.url, organization="Strangers"))
            self.anybody = stack.enter_context(httpx.Client(base_url=gateway.url, timeout=30))
            self.people = self._people(stack)
            self.spent_key = self.owner.key
            self._post("/api/organization/regenerate-key", 200)
            self.read_keys()
            self.other_agents_key = self._key_of(self.owner.agent("another agent"))
            self.strangers_agent = self.stranger.agent("agent")
            self.strangers_agents_key = self._key_of(self.strangers_agent, self.stranger)
            self._stack = stack.pop_all()

    def things(
        self, environment: str = "production", *, people: bool = False, sealed: bool = False
    ) -> dict[str, str]:
        """Return what stands for things of an environment in the walk's table; they serve until they are used up.

        Args:
            environment: whose things.
            people: also a new member and a new invitation.
            sealed: wait until the transparency log contains the decision; its sealer works about once a second.
        """
        things = {
            "tree": environment,
            "level": "0",
            "position": "000.p/1",
            "organization_id": self.owner.user["organization_id"],
            "email": self.owner.email,
        }
        for kind, make in self._makers().items():
            made = self._made.get((environment, kind))
            if made is None:
                made = self._made[environment, kind] = make(environment)
            things |= made
        if sealed:
            receipt, scope = f"/api/decisions/{things['decision_id']}/receipt", {"environment": environment}
            until(lambda: self.owner.http.get(receipt, params=scope).status_code == 200)
        return things | (self._newcomers() if people else {})

    def used_up(self, named: str | None = None, *, in_test: bool = False) -> None:
        """Have new things of production made the next time.

        Args:
            named: a request with placeholders; only the kinds of things that it names are made again.
            in_test: also those of the test environment.
        """
        for (environment, kind), made in list(self._made.items()):
            if (in_test or environment == "production") and (
                named is None or any(f"{{{name}}}" in named for name in made)
            ):
                del self._made[environment, kind]
        if named is None or "key" in named:
            self.read_keys()

    def _makers(self) -> dict[str, Callable[[str], dict[str, str]]]:
        """Return what makes the things of each kind; those of one kind exist only together."""
        return {
            "agent": self._agent,
            "webhook": self._webhook,
            "revision": self._revision,
            "rule": self._rule,
            "budget": self._budget,
            "freeze": self._freeze,
            "link": self._link,
        }

    def _agent(self, environment: str) -> dict[str, str]:
        """Make an agent, and what exists only with one."""
        scope = {"environment": environment}
        agent = self._post("/api/agents", 201, {"name": marker(), "description": marker()}, scope)["id"]
        action, denied = marker(), marker()
        permission = self._permit(agent, action, scope)
        self._permit(agent, denied, scope)
        request, denial = self._access_request(agent, action, environment)
        approval = self._held(agent, action, environment)
        self._post(
            f"/api/approvals/{self._held(agent, denied, environment)}/deny", 200, {"note": marker()}, scope
        )
        granted = self._held(agent, action, environment)
        self._post(f"/api/approvals/{granted}/approve", 200, {"grant": {"uses": 2, "seconds": 3600}}, scope)
        [grant] = self.owner.http.get("/api/grants", params=scope | {"agent_id": agent}).json()
        key = self._post(f"/api/agents/{agent}/keys", 201, None, scope)
        entry = {"agent_id": agent, "action": action, "status": "success", "context": {"said": marker()}}
        logged = self._call("/sdk/log", entry, environment)
        assert logged.status_code == 200
        return {
            "agent_id": agent,
            "action": action,
            "denied_action": denied,
            "permission_id": permission,
            "approval_id": approval,
            "access_request_id": request,
            **denial,
            "decision_id": self._decision(agent, action, environment),
            "grant_id": grant["id"],
            "key_id": key["id"],
            "entry_id": logged.json()["id"],
        }

    def _rule(self, environment: str) -> dict[str, str]:
        body = {"name": marker(), "effect": "allow", "actions": ["a.ruled"]}
        return {"rule_id": self._post("/api/rules", 201, body, {"environment": environment})["id"]}

    def _budget(self, environment: str) -> dict[str, str]:
        body = {"name": marker(), "actions": ["a.counted"], "window": "day", "limit": 10}
        return {"budget_id": self._post("/api/budgets", 201, body, {"environment": environment})["id"]}

    def _freeze(self, _environment: str) -> dict[str, str]:
        return {"freeze_id": self._post("/api/freeze", 201, {"action": "a.frozen", "reason": marker()})["id"]}

    def _revision(self, environment: str) -> dict[str, str]:
        scope = {"environment": environment}
        state = self.owner.http.get("/api/policy", params=scope).json()
        agents = [*state["policy"]["agents"], {"name": marker()}]
        body = {"policy": state["policy"] | {"agents": agents}, "base": state["digest"], "message": marker()}
        self._post("/api/policy/apply", 200, body, scope)
        revisions = self.owner.http.get("/api/policy/revisions", params=scope).json()
        return {"revision_id": revisions[0]["id"]}

    def _decision(self, agent: str, action: str, environment: str) -> str:
        """Return the id of a decision that requires an approval, so that it is stored before the response."""
        body = {"agent_id": agent, "action": action, "context": {"said": marker()}, "run_id": marker()}
        answer = self._call("/sdk/check", body, environment)
        assert answer.json()["requires_approval"], answer.text
        return answer.headers["X-Decision-ID"]

    def telltales(self) -> set[str]:
        """Return every identifier, e-mail address and marked word of the organization that nobody else has, and keys."""
        mine, theirs = (
            set(_TELLTALE.findall(repr(contents(self.gateway, TABLES, owner.user["organization_id"]))))
            for owner in (self.owner, self.stranger)
        )
        keys = {self.key, self.test_key, self.spent_key, self.other_agents_key}
        # The end of a key is shown to whoever may know that it exists, and to nobody else.
        return (mine - theirs) | {key[:-8] for key in keys} | {key[-8:] for key in keys}

    @staticmethod
    def in_environment(named: Mapping[str, str]) -> set[str]:
        """Return those of the things that nobody sees who asks about the other environment."""
        return {value for name, value in named.items() if name not in OF_NO_ENVIRONMENT}

    def known_to(self, headers: Mapping[str, str]) -> set[str]:
        """Return what a credential may be told wherever it goes: a key, whose it is."""
        own = headers.get("X-API-Key") in {self.key, self.test_key, self.other_agents_key}
        return {self.owner.user["organization_id"]} if own else set()

    def contents(self) -> dict[str, list[str]]:
        """Return everything that the organization has."""
        found = contents(self.gateway, TABLES, self.owner.user["organization_id"])
        # A deleted one's row is removed when the upkeep comes by. The last column says when it was deleted.
        found["webhooks"] = [row for row in found["webhooks"] if row.endswith("None)")]
        # A denied check leaves a record too, after its response.
        del found["decisions"]
        return found

    @contextmanager
    def inactive(self) -> Iterator[None]:
        """Deactivate the organization for the duration of a `with` block."""
        set_active(self.gateway, self.owner, active=False)
        try:
            yield
        finally:
            set_active(self.gateway, self.owner, active=True)

    def close(self) -> None:
        """Hang up."""
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _people(self, stack: ExitStack) -> People:
        viewer, member, removed = (
            stack.enter_context(Colleague(self.owner, role)) for role in ("viewer", "member", "admin")
        )
        assert self.owner.http.delete(f"/api/team/{removed.id}").status_code == 204
        with self.owner.login() as ended:
            token = ended.headers["Authorization"].removeprefix("Bearer ")
            assert ended.post("/auth/logout").status_code == 204
        login = {"email": self.owner.email, "password": PASSWORD, "scope": "cli"}
        cli = self.owner.http.post("/auth/login", json=login).json()["access_token"]
        return People(viewer, member, removed, cli, token)

    def read_keys(self) -> None:
        """Read the keys of the organization, which a request may have replaced."""
        paths = ("/api/organization", "/api/organization/test-key")
        self.key, self.test_key = (str(self.owner.http.get(path).json()["api_key"]) for path in paths)

    def _newcomers(self) -> dict[str, str]:
        with Colleague(self.owner, "member") as colleague:
            invitation = invite(self.owner, fresh_email(marker()), "viewer").json()
            return {"user_id": colleague.id, "invitation_id": invitation["id"]}

    def _permit(self, agent: str, action: str, scope: Mapping[str, str]) -> str:
        body = {"action": action, "requires_approval": True}
        made: str = self._post(f"/api/agents/{agent}/permissions", 201, body, scope)["id"]
        return made

    def _held(self, agent: str, action: str, environment: str) -> str:
        body = {"agent_id": agent, "action": action, "context": {"said": marker()}}
        approval: str = self._call("/sdk/check", body, environment).json()["approval_id"]
        assert approval
        return approval

    def _access_request(self, agent: str, action: str, environment: str) -> tuple[str, dict[str, str]]:
        """Return the id of an access request, and a denied evaluation for which another one can be submitted."""
        call = {
            "subject": {"type": "agent", "id": agent},
            "action": {"name": "call"},
            "resource": {"type": "tool", "id": action},
        }
        denials = []
        for _ in range(2):
            context = self._call("/access/v1/evaluation", call, environment).json()["context"]
            expires = context["access_request"]["expires_at"]
            denials.append({"evaluation_id": context["evaluation_id"], "expires_at": expires})
        retried = {"Idempotency-Key": marker()}
        submitted = self._call("/access/v1/requests", call | {"denial": denials[0]}, environment, **retried)
        assert submitted.status_code == 202, submitted.text
        named = {"evaluation_id": denials[1]["evaluation_id"], "denial_expires_at": denials[1]["expires_at"]}
        return submitted.json()["task"]["id"], named

    def _webhook(self, environment: str) -> dict[str, str]:
        scope = {"environment": environment}
        # Nobody listens there, and it hears of nothing by itself: once the one delivery has failed, nothing moves.
        # An environment has twenty: the former one goes.
        former = self._webhooks.pop(environment, None)
        if former is not None:
            self.owner.http.delete(former, params=scope)
        body = {
            "url": f"http://127.0.0.1:9/{marker()}",
            "events": ["approval.reminder"],
            "description": marker(),
        }
        webhook: str = self._post("/api/webhooks", 201, body, scope)["id"]
        path = f"/api/webhooks/{webhook}"
        delivery: str = self._post(f"{path}/test", 202, None, scope)["id"]

        def failed() -> bool:
            answer = self.owner.http.get(f"{path}/deliveries", params={**scope, "status": "failed"})
            return len(answer.json()) == 1

        until(failed)
        self._webhooks[environment] = path
        return {"webhook_id": webhook, "delivery_id": delivery}

    def _link(self, _environment: str) -> dict[str, str]:
        # A member has one link, in both environments.
        links = self.owner.http.get("/api/slack/links").json()
        return {"link_id": str(links[0]["id"]) if links else linked(self.owner)}

    def _key_of(self, agent: str, owner: Owner | None = None) -> str:
        answer = (owner or self.owner).http.post(f"/api/agents/{agent}/keys")
        assert answer.status_code == 201, answer.text
        key: str = answer.json()["api_key"]
        return key

    def _call(self, path: str, body: object, environment: str, **headers: str) -> httpx.Response:
        key = self.test_key if environment == "test" else self.key
        return self.owner.http.post(path, json=body, headers={"X-API-Key": key, **headers})

    def _post(
        self, path: str, status: int, body: object = None, params: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        answer = self.owner.http.post(path, json=body, params=params)
        assert answer.status_code == status, answer.text
        made: dict[str, Any] = answer.json()
        return made
