"""Tools with which a guarantee is tested: an agent, checks, approvals and settings of the command."""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from toolgate_cli.verify.client import Answer, ApiClient, Call, UnexpectedResponse
from toolgate_cli.verify.organizations import Organization, User
from toolgate_cli.verify.receiver import WebhookReceiver
from toolgate_cli.verify.registry import NotTested, Violation, require

#: seconds between two requests of a test that waits for an event
_POLL: Final = 0.25


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the command that guarantees use.

    Attributes:
        kill_hook: command that stops the gateway or a replica; None if it is not given.
        restore_hook: command that starts what `kill_hook` stopped; None if it is not given.
        receiver: receiver of webhooks; None if the gateway cannot reach this machine.
        receiver_problem: reason why there is no receiver.
        gateway_logs: log files of the gateway, in which secrets are searched.
    """

    kill_hook: str | None = None
    restore_hook: str | None = None
    receiver: WebhookReceiver | None = None
    receiver_problem: str = ""
    gateway_logs: Sequence[Path] = ()


@dataclass(frozen=True, slots=True)
class Decision:
    """Response to a check."""

    answer: Answer
    allowed: bool
    requires_approval: bool
    approval_id: str | None
    reason: str
    code: str
    id: str

    @classmethod
    def of(cls, answer: Answer) -> "Decision":
        """Read the response to a check; a response that is not a decision does not allow the call."""
        content = answer.json()
        body = content if isinstance(content, dict) and answer.is_success else {}
        return cls(
            answer,
            body.get("allowed") is True,
            body.get("requires_approval") is True,
            body.get("approval_id"),
            str(body.get("reason")),
            answer.headers.get("x-reason-code", f"status {answer.status}"),
            answer.headers.get("x-decision-id", ""),
        )


@dataclass(frozen=True, slots=True)
class Agent:
    """Agent of a scratch organization, and the API key with which it sends checks."""

    id: str
    key: str = field(repr=False)

    @property
    def credential(self) -> Mapping[str, str]:
        """Headers that authenticate the agent."""
        return {"X-API-Key": self.key}


class Trial:
    """Test of one guarantee.

    Attributes:
        api: client of all replicas.
        main: organization in which the guarantee is tested.
        other: another organization on the same gateway.
        admin: admin of `main` who creates the agent and its permissions.
        approver: another user of `main`, who may approve.
        second: a third user of `main`, who may approve.
        viewer: user of `main` who may only read.
        prefix: beginning of the actions of this test, which no other test uses.
    """

    def __init__(
        self,
        api: ApiClient,
        main: Organization,
        other: Organization,
        options: Options,
        number: int = 0,
    ) -> None:
        self.api, self.main, self.other, self.options = api, main, other, options
        admins, members = main.with_role("admin"), main.with_role("member")
        self.admin = admins[number % len(admins)]
        self.approver = members[number % len(members)]
        self.second = members[(number + 1) % len(members)]
        self.viewer = main.with_role("viewer")[0]
        self.prefix = f"verify-{secrets.token_hex(4)}"
        self._created = 0

    def action(self, name: str = "run") -> str:
        """Return an action that no other test uses."""
        return f"{self.prefix}.{name}"

    async def agent(self, *, owner: User | None = None, key: str | None = None, query: str = "") -> Agent:
        """Create an agent; it uses the API key of the organization, or `key`."""
        self._created += 1
        body = {"name": f"{self.prefix}-{self._created}"}
        created = await (owner or self.admin).post(f"/api/agents{query}", body)
        return Agent(created["id"], key or self.main.key)

    async def permit(
        self, agent: Agent, action: str, *, owner: User | None = None, query: str = "", **terms: object
    ) -> str:
        """Create a permission and return its id; `terms` are the fields of the permission."""
        path = f"/api/agents/{agent.id}/permissions{query}"
        created: dict[str, str] = await (owner or self.admin).post(path, {"action": action, **terms})
        return created["id"]

    async def held_agent(self, **terms: Any) -> tuple[Agent, str]:
        """Create an agent and return it with an action that requires an approval."""
        agent, action = await self.agent(), self.action()
        await self.permit(agent, action, requires_approval=True, **terms)
        return agent, action

    def check_call(
        self,
        agent: Agent,
        action: str,
        context: Mapping[str, Any] | None = None,
        *,
        idempotency_key: str | None = None,
        replica: int | None = None,
        **fields: object,
    ) -> Call:
        """Return the request of a check."""
        body = {"agent_id": agent.id, "action": action, "context": dict(context or {}), **fields}
        # As the SDK does, each call has its own key, so that the repetition of a request that was lost uses no second
        # approval.
        headers = {"Idempotency-Key": idempotency_key or f"{self.prefix}-{secrets.token_hex(8)}"}
        return Call("POST", "/sdk/check", body, agent.credential, headers, replica)

    async def check(
        self, agent: Agent, action: str, context: Mapping[str, Any] | None = None, **fields: Any
    ) -> Decision:
        """Send a check and return the decision; `fields` are those of `check_call`."""
        return Decision.of(await self.api.send(self.check_call(agent, action, context, **fields)))

    async def check_everywhere(
        self, agent: Agent, action: str, context: Mapping[str, Any] | None = None, **fields: Any
    ) -> list[Decision]:
        """Send a check to each replica and return the decisions."""
        calls = [
            self.check_call(agent, action, context, replica=place, **fields)
            for place in range(len(self.api.urls))
        ]
        return [Decision.of(answer) for answer in await self.api.together(calls)]

    async def race(self, calls: Sequence[Call]) -> list[Decision]:
        """Send checks at the same time and return the decisions."""
        return [Decision.of(answer) for answer in await self.api.together(calls)]

    async def hold(
        self, agent: Agent, action: str, context: Mapping[str, Any] | None = None, **fields: Any
    ) -> str:
        """Send a check that must require an approval, and return the id of the approval request.

        Raises:
            Violation: the check does not require an approval.
        """
        decision = await self.check(agent, action, context, **fields)
        require(
            decision.requires_approval and not decision.allowed and decision.approval_id,
            f"a call that needs an approval got the decision {decision.code!r}",
        )
        return str(decision.approval_id)

    async def approve(self, approval_id: str, user: User | None = None, **decision: object) -> dict[str, Any]:
        """Approve a request and return it.

        Raises:
            UnexpectedResponse: the gateway refuses the approval.
        """
        approver = user or self.approver
        found: dict[str, Any] = await approver.post(f"/api/approvals/{approval_id}/approve", decision)
        return found

    async def approved(
        self, agent: Agent, action: str, context: Mapping[str, Any] | None = None, **fields: Any
    ) -> str:
        """Create an approval request, approve it, and return its id."""
        approval_id = await self.hold(agent, action, context, **fields)
        await self.approve(approval_id)
        return approval_id

    async def must_allow(
        self, agent: Agent, action: str, context: Mapping[str, Any] | None = None, **fields: Any
    ) -> Decision:
        """Send a check that must be allowed.

        Raises:
            Violation: the call is not allowed.
        """
        decision = await self.check(agent, action, context, **fields)
        require(decision.allowed, f"a call that must be allowed got the decision {decision.code!r}")
        return decision

    async def must_not_allow(
        self,
        agent: Agent,
        action: str,
        context: Mapping[str, Any] | None = None,
        *,
        what: str,
        **fields: Any,
    ) -> Decision:
        """Send a check to each replica; none may allow the call, which `what` describes. Return the first decision.

        Raises:
            Violation: a replica allows the call.
        """
        decisions = await self.check_everywhere(agent, action, context, **fields)
        require(not any(one.allowed for one in decisions), f"{what} was allowed")
        for one in decisions:
            if not one.answer.is_success:
                raise UnexpectedResponse(f"/sdk/check: status {one.answer.status}, {one.answer.text[:300]}")
        return decisions[0]

    async def wait_for(self, read: Callable[[], Awaitable[Any]], *, seconds: float, missing: str) -> Any:
        """Call `read` until its result is true, and return the result.

        Raises:
            Violation: the result is not true within the time; the message is `missing`.
        """
        ends = time.monotonic() + seconds
        while True:
            found = await read()
            if found:
                return found
            if time.monotonic() > ends:
                raise Violation(f"{missing} (waited {seconds:.0f} s)")
            await asyncio.sleep(_POLL)

    def take_spare(self) -> User:
        """Return a member whose role the test may change.

        Raises:
            NotTested: there is none left.
        """
        if not self.main.spares:
            raise NotTested("the scratch organization has no member left whose role this test can change")
        return self.main.spares.pop()


def count_allowed(decisions: Sequence[Decision]) -> int:
    """Return the number of allowed calls."""
    return sum(one.allowed for one in decisions)


def refused(answer: Answer, what: str, *statuses: int) -> None:
    """Raise a violation unless the gateway refused a request with one of the statuses.

    Raises:
        Violation: the gateway responded with another status.
    """
    require(
        answer.status in statuses,
        f"{what}: status {answer.status} instead of {' or '.join(map(str, statuses))}",
    )
