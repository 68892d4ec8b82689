"""Rules of the log: written, repeated, read."""

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from support.machine.driver import ACTIONS, refused, told
from support.machine.grants import GrantRules
from support.machine.paging import Wanted, compare_list, wanted
from support.machine.wording import contexts
from support.reference.facts import Agent, Entry, Tenant, meaning, read

STATUSES = ("success", "failed", "pending", "denied")
KEYS = st.sampled_from([None, None, None, "entry-1", "entry-2", "key-1"])
NOBODY = "0199b2c4-7c1e-7000-8000-000000000000"


class LogRules(GrantRules):
    """What was done."""

    def __init__(self) -> None:
        super().__init__()
        #: every request that had a key
        self.keyed: list[tuple[Tenant, str, str, bytes]] = []

    @rule(
        data=st.data(),
        action=st.sampled_from(ACTIONS),
        status=st.sampled_from([*STATUSES, *STATUSES, "done"]),
        context=contexts(),
        key=KEYS,
    )
    def log(
        self, data: st.DataObject, action: str, status: str, context: str | None, key: str | None
    ) -> None:
        """Record something; inactive agents may, deleted and foreign ones are not found."""
        agent = self.choose(data, self.world.agents, "agent")
        agent_id = self.choose(data, [agent.id] * 9 + [NOBODY], "named")
        facts = "" if context is None else f',"context":{context}'
        body = f'{{"agent_id":"{agent_id}","action":"{action}","status":"{status}"{facts}}}'.encode()
        self._log_as_someone(data, agent, agent_id, key, body)

    @precondition(lambda self: self.world.reservations)
    @rule(data=st.data(), status=st.sampled_from(STATUSES), context=contexts(), same=st.booleans())
    def log_reserved(self, data: st.DataObject, status: str, context: str | None, same: bool) -> None:
        """Record what became of a call that counts towards budgets."""
        one = self.choose(data, self.world.reservations, "reservation")
        agent = self.world.named(one.agent_id) if same else self.choose(data, self.world.agents, "agent")
        facts = "" if context is None else f',"context":{context}'
        body = (
            f'{{"agent_id":"{agent.id}","action":"{one.action}","status":"{status}",'
            f'"decision_id":"{one.decision_id}"{facts}}}'
        )
        self._log_as_someone(data, agent, agent.id, None, body.encode())
        self.counts.seen[f"outcome: {status}"] += 1

    def _log_as_someone(
        self, data: st.DataObject, agent: Agent, agent_id: str, key: str | None, body: bytes
    ) -> None:
        caller = self.whoever(data, agent.tenant)
        if key is not None:
            self.keyed.append((caller, agent_id, key, body))
        self.record(caller, agent_id, key, body)
        self.look(data, agent.id)

    @precondition(lambda self: self.keyed)
    @rule(data=st.data(), how=st.sampled_from(["as it was", "spaced", "changed"]))
    def log_again(self, data: st.DataObject, how: str) -> None:
        """Repeat a request with its key, as it was or with another body; the first answer comes back."""
        tenant, agent_id, key, body = self.choose(data, self.keyed, "recorded before")
        match how:
            case "spaced":
                body = body.replace(b'{"agent', b'{ "agent')
            case "changed":
                body = body.replace(b'"success"', b'"failed"')
        self.record(tenant, agent_id, key, body)
        self.look(data)

    def record(self, tenant: Tenant, agent_id: str, key: str | None, body: bytes) -> None:
        """Record at both and compare."""
        answer = self.call("POST", tenant, "/sdk/log", body, key)
        sent: Any = read(body)
        repeated = self.world.repeat(tenant, key, self.now())
        if repeated is not None:
            assert answer.content == repeated.entry.answer
            assert answer.headers["Idempotency-Replayed"] == "true"
            mismatch = None if _said(body) == _said(repeated.body) else "true"
            assert answer.headers.get("Idempotency-Mismatch") == mismatch
            self.counts.seen["entry repeated" if mismatch is None else "entry mismatched"] += 1
        elif sent["status"] not in STATUSES:
            assert list(told(answer, 400)["detail"]) == ["status"]  # type: ignore[index]  # an object, or it fails
        elif self.world.agent(tenant, agent_id) is None:
            refused(answer, 404, "Agent not found")
        else:
            assert "Idempotency-Replayed" not in answer.headers
            context = sent.get("context")
            kept = None if context is None else meaning(context)
            entry = Entry(tenant, agent_id, sent["action"], sent["status"], kept, self.now())
            shown: Any = told(answer)
            entry.id, entry.answer = shown["id"], answer.content
            self.world.log(entry, key, body)
            if "decision_id" in sent:
                self.world.settle(tenant, sent["decision_id"], entry, context)
            _shows(entry, shown)
            self.counts.seen["entry"] += 1

    @rule(
        data=st.data(),
        status=st.none() | st.sampled_from(STATUSES),
        action=st.none() | st.sampled_from(ACTIONS),
        page=wanted(),
    )
    def list_logs(self, data: st.DataObject, status: str | None, action: str | None, page: Wanted) -> None:
        """Lists hold what matches, newest first, page by page; deleted agents' entries too."""
        tenant = self.tenant(data)
        agent = self.choose(data, [None, None, *self.world.agents], "agent")
        self.compare_logs(tenant, {"status": status, "action": action, "agent_id": agent and agent.id}, page)
        self.look(data)

    def compare_logs(self, tenant: Tenant, filters: dict[str, str | None], page: Wanted) -> None:
        """Compare a list of entries."""
        expected = [
            one
            for one in reversed(self.world.entries)
            if one.tenant == tenant
            and filters["status"] in {None, one.status}
            and filters["action"] in {None, one.action}
            and filters["agent_id"] in {None, one.agent_id}
        ]
        by_id = {one.id: one for one in expected}
        for one in compare_list(self.manage, tenant, "/api/logs", filters, page, list(by_id)):
            _shows(by_id[one["id"]], one)
            assert one["agent_name"] == self.world.named(one["agent_id"]).name
            # The address of whoever recorded it: in this process it is always the same.
            assert one["ip_address"] == "127.0.0.1"


def _said(body: bytes) -> object:
    """Return what a body says, however it is written."""
    sent: Any = read(body)
    return meaning({name: value for name, value in sent.items() if value is not None})


def _shows(entry: Entry, shown: Any) -> None:
    for name in ("id", "agent_id", "action", "status"):
        assert shown[name] == getattr(entry, name)
    assert shown["organization_id"] == entry.tenant.organization
    kept = None if shown["context"] is None else meaning(shown["context"])
    assert kept == entry.context
