"""What the behaviour suite asks of a framework's harness, and the scene it plays in."""

import asyncio
import functools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from support.gateway import Owner
from support.waiting import eventually
from toolgate import Guard

Mode = Literal["sync", "async", "stream"]
#: reaction to a call that requires an approval, as for the option `on_hold` of the plugins
OnHold = Literal["pause", "wait", "notify_model", "raise"]


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call that the model is scripted to make.

    Attributes:
        tool: `look`, `pay`, `drop` or `burn`.
        arguments: by name.
        id: the framework's id of it.
    """

    tool: str
    arguments: Mapping[str, Any]
    id: str


@dataclass(frozen=True, slots=True)
class Seen:
    """What has come of a run so far.

    Attributes:
        held: calls the run is paused for, by id, and the approval each waits for.
        read: what the model read of calls, by id, once it is asked again.
        text: the model's last word; None while the run is paused.
    """

    held: Mapping[str, str] = field(default_factory=dict)
    read: Mapping[str, str] = field(default_factory=dict)
    text: str | None = None


@dataclass
class Scene:
    """Four tools, an agent that may use three of them, and the people behind the gateway.

    `look(what)` is allowed; `pay(to, amount)` is held for a person; `drop(table)` is not granted; `burn(what)` is
    allowed and raises. Their actions are `tools.<name>`, or `bank.<name>` where the framework reaches them over MCP.

    Attributes:
        owner: the organization's admin, who decides.
        guard: speaks for the agent.
        agent_id: the agent.
        prefix: of the actions: `tools` or `bank`.
        ran: what the tools were called with, in order.
        more: whether there are `send` and `tag` too: `send(to, amount=5000)` is allowed up to an amount of 100, and
            `tag(labels)` is allowed.
        cached: whether `look` is a function that caches what a guarded function returned.
        permissions: ids of the agent's permissions, by tool.
    """

    owner: Owner
    guard: Guard
    agent_id: str
    prefix: str = "tools"
    ran: list[tuple[Any, ...]] = field(default_factory=list)
    more: bool = False
    cached: bool = False
    permissions: dict[str, str] = field(default_factory=dict)

    def look(self, what: str) -> str:
        """Look at something."""
        self.ran.append(("look", what))
        return f"seen {what}"

    def pay(self, to: str, amount: int) -> str:
        """Pay somebody."""
        self.ran.append(("pay", to, amount))
        return f"paid {amount} to {to}"

    def drop(self, table: str) -> str:
        """Drop a table."""
        self.ran.append(("drop", table))
        return f"dropped {table}"

    def burn(self, what: str) -> str:
        """Fail."""
        self.ran.append(("burn", what))
        raise RuntimeError(f"{what} does not burn")

    def send(self, to: str, amount: int = 5000) -> str:
        """Send money."""
        self.ran.append(("send", to, amount))
        return f"sent {amount} to {to}"

    def tag(self, labels: list[str]) -> str:
        """Add labels."""
        self.ran.append(("tag", *labels))
        return f"tagged {labels}"

    @property
    def tools(self) -> Mapping[str, Any]:
        """The tools, by name."""
        look = self.cached_look if self.cached else self.look
        found: dict[str, Any] = {"look": look, "pay": self.pay, "drop": self.drop, "burn": self.burn}
        return {**found, "send": self.send, "tag": self.tag} if self.more else found

    @functools.cached_property
    def cached_look(self) -> Any:
        """A function around a guarded one, which answers a call that came before by itself."""
        guarded = self.guard.guarded(f"{self.prefix}.look")(self.look)
        cached = functools.cache(guarded)

        @functools.wraps(guarded)
        def look(what: str) -> str:
            return str(cached(what))

        return look

    def revoke(self, tool: str) -> None:
        """Delete the agent's permission for a tool."""
        answer = self.owner.http.delete(f"/api/agents/{self.agent_id}/permissions/{self.permissions[tool]}")
        assert answer.status_code in (200, 204), answer.text

    def approve(self, approval_id: str, **body: Any) -> None:
        """Approve a request, as the admin."""
        answer = self.owner.http.post(f"/api/approvals/{approval_id}/approve", json=body)
        assert answer.status_code == 200, answer.text

    def deny(self, approval_id: str, note: str) -> None:
        """Decline a request, as the admin."""
        answer = self.owner.http.post(f"/api/approvals/{approval_id}/deny", json={"note": note})
        assert answer.status_code == 200, answer.text

    def status(self, approval_id: str) -> str:
        """What has become of a request."""
        return str(self.owner.http.get(f"/api/approvals/{approval_id}").json()["status"])

    def requests(self) -> int:
        """How many requests were ever made."""
        return len(self.owner.http.get("/api/approvals").json())

    async def asked(self, number: int) -> dict[str, str]:
        """Wait until so many requests were made; returns their ids by the recipient of the payment."""

        async def all_of_them() -> list[dict[str, Any]]:
            found = (await asyncio.to_thread(self.owner.http.get, "/api/approvals")).json()
            return found if len(found) >= number else []

        return {each["context"]["to"]: each["id"] for each in await eventually(all_of_them)}

    def let_go(self) -> None:
        """Decline whatever waits."""
        for each in self.owner.http.get("/api/approvals", params={"status": "pending"}).json():
            self.deny(each["id"], "the test has ended")

    def logged(self) -> list[tuple[str, str]]:
        """Each log entry's action, without its prefix, and status; sorted."""
        assert self.guard.flush(30)
        return sorted((each["action"].split(".")[-1], each["status"]) for each in self.owner.entries())


@contextmanager
def set_scene(
    owner: Owner, prefix: str, timeout: float | None = None, *, more: bool = False
) -> Iterator[Scene]:
    """Give a new agent its permissions, and a guard that speaks for it until the block ends.

    Args:
        owner: decides who may do what.
        prefix: of the actions: `tools` or `bank`.
        timeout: the guard's; None: as it comes.
        more: whether there are `send` and `tag` too.
    """
    agent_id = owner.agent()
    allowed: dict[str, dict[str, Any]] = {
        "look": {},
        "burn": {},
        "pay": {"requires_approval": True},
    }
    if more:
        # Other tests have tools of these names.
        allowed |= {"send": {"max_amount": 100}, "tag": {}}
    permissions = {tool: owner.permit(agent_id, f"{prefix}.{tool}", **each) for tool, each in allowed.items()}
    with Guard(owner.url, owner.key, agent_id, timeout=timeout) as guard:
        yield Scene(owner, guard, agent_id, prefix, more=more, permissions=permissions)


def error_texts(error: BaseException) -> str:
    """Return the texts of an exception, and of those it was raised from."""
    left: list[BaseException | None] = [error]
    seen: list[BaseException] = []
    while left:
        each = left.pop(0)
        if each is not None and each not in seen:
            seen.append(each)
            left += [each.__cause__, each.__context__, *getattr(each, "exceptions", ())]
    return "\n".join(map(str, seen))


class Session(Protocol):
    """One run of an agent that is scripted to make its calls in one turn, then to say "done"."""

    async def start(self, *calls: Call) -> Seen:
        """Begin, and go on until the run ends or pauses; once more is the conversation's next turn."""
        ...

    async def resume(self, answer: Literal["go", "reject"] = "go", only: Sequence[str] | None = None) -> Seen:
        """Answer the calls the run is paused for, all or `only` these, in the framework's own way."""
        ...

    def restarted(self) -> "Session":
        """The same run in a new process: everything is gone but what the framework keeps durably."""
        ...

    async def close(self) -> None:
        """End what runs."""
        ...


class Harness(Protocol):
    """One framework.

    Attributes:
        name: as in the table of the docs.
        prefix: of the tools' actions.
        modes: in which it can be run.
        holds: what held calls can do.
        cannot: cells of the suite that it has no way to do, by the test's name, and why.

    It may have `slow`: cells that are run in full runs alone, since others hold the same of a program that starts slowly.
    """

    name: str
    prefix: str
    modes: Sequence[Mode]
    holds: Sequence[OnHold]
    cannot: Mapping[str, str]

    def session(self, scene: Scene, mode: Mode, folder: Any, on_hold: OnHold = "pause") -> Session:
        """A new run; what is durable goes into `folder`, and a held call does as `on_hold` says."""
        ...
