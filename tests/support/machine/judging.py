"""People decide what is held: one of several, as it was asked, otherwise, or for a while."""

import json
from typing import Any

from hypothesis import strategies as st

from support.machine.asking import Asking
from support.machine.driver import refused, told
from support.machine.showing import Showing
from support.reference.checking import Question
from support.reference.deciding import Terms, approve, deny, refusal
from support.reference.facts import Approval, Grant, Tenant, read

EDITS = ('{"amount":1}', '{"amount":99.99,"n":1}', '{"amount":100.5}', '{"to":"Zoë"}', "{}")
MOST_USES = 4


class Judging(Showing, Asking):
    """The machine without its rules, able to ask and to decide."""

    def judge(self, data: st.DataObject, approval: Approval, approves: bool, note: str | None) -> Approval:
        """Approve or deny something at both, now and then as somebody who may not; return what is decided."""
        caller = self.whoever(data, approval.tenant)
        path = f"/api/approvals/{approval.id}/{'approve' if approves else 'deny'}"
        if caller != approval.tenant:
            refused(self.manage("POST", caller, path), 404, "Approval not found")
            return approval
        person = self.choose(data, self.people(caller), "person")
        if not approves:
            self._deny(caller, path, approval, person, note)
            return approval
        how = self.choose(data, ["plain", "plain", "plain", "edit", "grant"], "how")
        edit = data.draw(st.sampled_from(EDITS), label="edit") if how == "edit" else None
        terms = self._terms(data, approval) if how == "grant" else None
        return self.approve_as(person, approval, note, edit, terms)

    def _deny(self, tenant: Tenant, path: str, approval: Approval, person: str, note: str | None) -> None:
        answer = self.manage_as("POST", person, tenant, path, None if note is None else {"note": note})
        state = approval.state(self.now())
        status = deny(self.world, approval, person, note, self.now())
        if status is None:
            self.counts.seen["denied"] += 1
            self.shows_approval(approval, told(answer), for_people=True)
        elif status == 409:
            refused(answer, 409, f"Approval is no longer pending: it is {state}")
        else:
            assert answer.status_code == status, answer.text

    def approve_as(
        self,
        person: str,
        approval: Approval,
        note: str | None = None,
        edit: str | None = None,
        terms: Terms | None = None,
    ) -> Approval:
        """Approve at both as one of the people; return what is approved then."""
        tenant, path = approval.tenant, f"/api/approvals/{approval.id}/approve"
        body = _body(note, edit, terms)
        answer = self.manage_as("POST", person, tenant, path, body)
        facts = _facts(edit)
        now = self.now()
        self._count_terms(approval)
        status = refusal(self.world, approval, person, now, edit=facts, terms=terms)
        if status is not None:
            assert answer.status_code == status, (answer.text, status)
            self.counts.seen[f"approval refused: {status}"] += 1
            if status == 409 and approval.state(now) != "pending":
                refused(answer, 409, f"Approval is no longer pending: it is {approval.state(now)}")
            return approval
        known = set(map(id, self.world.grants))
        asked = approve(self.world, approval, person, note, now, edit=facts, terms=terms)
        shown: Any = told(answer)
        if asked is not approval:
            asked.id = shown["replaced_by"]
            self.questions[asked.id] = (tenant, _question(asked, edit))
            self.counts.seen["edited"] += 1
        for grant in self.world.grants:
            if id(grant) not in known:
                self._name(tenant, grant)
        self.counts.seen["approved" if asked.status == "approved" else "voted"] += 1
        self.shows_approval(approval, shown, for_people=True)
        return asked

    def _count_terms(self, approval: Approval) -> None:
        owner, terms = self.world.owner_of(approval.permission_id), self.world.terms(approval)
        if owner is not None and terms is not None and approval.state(self.now()) == "pending":
            agent, permission = owner
            now = agent.terms(permission)
            if (terms.required, terms.separated) != (now.required, now.separated):
                self.counts.seen["stored terms"] += 1
            elif approval.terms != terms:
                self.counts.seen["current terms"] += 1

    def _name(self, tenant: Tenant, grant: Grant) -> None:
        shown: Any = self.manage("GET", tenant, "/api/grants", agent_id=grant.agent_id, limit=1).json()[0]
        assert all(one.id != shown["id"] for one in self.world.grants)
        assert shown["approval_id"] == grant.approval_id
        grant.id = shown["id"]
        self.counts.seen[f"grant {grant.state(self.now())}"] += 1

    def _terms(self, data: st.DataObject, approval: Approval) -> Terms:
        proposed = [
            Terms(one.uses, one.seconds, one.free)
            for one in self.world.grants
            if one.approval_id == approval.id
        ]
        if proposed and data.draw(st.integers(0, 3), label="same terms") > 0:
            return proposed[0]
        names = sorted(approval.facts.keys() - {"amount"})
        free = data.draw(st.sets(st.sampled_from(names)), label="free") if names else set()
        uses = data.draw(st.integers(1, MOST_USES), label="uses")
        return Terms(
            uses, data.draw(st.sampled_from([60, 3600, 86400]), label="seconds"), tuple(sorted(free))
        )

    def revoke(self, data: st.DataObject, grant: Grant) -> None:
        """Revoke at both, now and then as somebody who may not; then ask for what it allowed."""
        caller = self.whoever(data, grant.tenant)
        path = f"/api/grants/{grant.id}/revoke"
        if caller != grant.tenant:
            refused(self.manage("POST", caller, path), 404, "Grant not found")
            return
        self.revoke_as(self.choose(data, self.people(caller), "person"), grant)

    def revoke_as(self, person: str, grant: Grant) -> None:
        """Revoke at both as one of the people; then ask for what it allowed."""
        answer = self.manage_as("POST", person, grant.tenant, f"/api/grants/{grant.id}/revoke", None)
        state = grant.state(self.now())
        if person in self.world.viewers:
            assert answer.status_code == 403, answer.text
        elif self.world.revoke(grant, person, self.now()):
            self.shows_grant(grant, told(answer))
            self.counts.seen["grant: revoked"] += 1
            self.put(*self.questions[grant.approval_id])
        else:
            refused(answer, 409, f"Grant is no longer active: it is {state}")


def _body(note: str | None, edit: str | None, terms: Terms | None) -> dict[str, object] | None:
    body: dict[str, object] = {} if note is None else {"note": note}
    if edit is not None:
        body["context"] = json.loads(edit)
    if terms is not None:
        body["grant"] = {
            "uses": terms.uses,
            "seconds": terms.seconds,
            "except_fields": list(terms.free),
        }
    return body or None


def _facts(edit: str | None) -> dict[str, object] | None:
    if edit is None:
        return None
    facts = read(edit)
    assert isinstance(facts, dict)
    return facts


def _question(approval: Approval, edit: str | None) -> Question:
    # Only with its id does it pass; without it is another question.
    return Question(
        approval.agent_id,
        approval.action,
        edit,
        approval_id=approval.id,
        call_id=approval.call_id,
        run_id=approval.run_id,
    )
