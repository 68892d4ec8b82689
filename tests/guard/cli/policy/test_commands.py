"""`toolgate policy pull`, `plan`, `apply`, `revisions` and `rollback`, in this process, at a live gateway."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.gateway import PASSWORD, Owner
from support.shell import Shell
from support.team import Colleague

pytestmark = pytest.mark.sqlite_only("commands speak HTTP: which database is behind it they cannot see")

POLICY = """\
# Policy of the shop.
version: toolgate.policy/v1

agents:
  - name: refund-bot   # refunds
    permissions:
      - action: stripe.refund
        max_amount: 50

rules:
  - name: No refunds abroad
    effect: forbid
    actions: [stripe.*]
    when: args.country != "DE"
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with the file `policy.yaml`."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "policy.yaml").write_text(POLICY)
    return tmp_path


def write(old: str, new: str) -> None:
    path = Path("policy.yaml")
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def applied(shell: Shell, *options: str) -> str:
    return shell.allowed("policy", "apply", "--yes", *options)


@pytest.mark.usefixtures("folder")
def test_policy_is_applied_and_read(shell: Shell, owner: Owner) -> None:
    printed = applied(shell, "--message", "First policy")
    assert printed.splitlines() == [
        '+ agent "refund-bot"',
        "+ permission refund-bot stripe.refund: max_amount 50",
        '+ rule "No refunds abroad": effect forbid, actions ["stripe.*"], when args.country != "DE"',
        "3 changes: 3 to create, 0 to change, 0 to delete",
        "applied as revision 2",
    ]
    [agent] = owner.http.get("/api/agents").json()
    assert owner.check(agent["id"], "stripe.refund", {"amount": 50, "country": "DE"}).status_code == 200
    assert shell.done("policy", "plan") == "no changes\n"
    assert applied(shell) == "no changes\n"
    assert shell.done("policy", "pull") == "policy.yaml is current: 1 agent, 1 rule, 0 budgets\n"
    assert Path("policy.yaml").read_text() == POLICY
    assert shell.done("policy", "pull", "new.yaml").startswith("new.yaml was written")
    lines = Path("new.yaml").read_text().splitlines()
    assert lines[0].startswith("# yaml-language-server: $schema=https://")
    assert lines[1:] == [line for line in POLICY.replace("   # refunds", "").splitlines() if line][1:]
    shell.done("policy", "pull", "new.json")
    assert json.loads(Path("new.json").read_text())["rules"][0]["name"] == "No refunds abroad"


@pytest.mark.usefixtures("folder")
def test_pull_changes_only_the_differences(shell: Shell, owner: Owner) -> None:
    applied(shell)
    [agent] = owner.http.get("/api/agents").json()
    owner.permit(agent["id"], "mail.send", requires_approval=True)
    owner.agent("reader")
    assert shell.json("policy", "pull")["written"] is True
    assert Path("policy.yaml").read_text() == POLICY.replace(
        "max_amount: 50\n",
        "max_amount: 50\n      - action: mail.send\n        requires_approval: true\n  - name: reader\n",
    )
    assert shell.done("policy", "plan") == "no changes\n"
    Path("notes.yaml").write_text("a: 1\n")
    assert "is not a policy" in shell.refused("policy", "pull", "notes.yaml")
    assert Path("notes.yaml").read_text() == "a: 1\n"


@pytest.mark.usefixtures("folder")
def test_pull_repairs_an_invalid_file(shell: Shell) -> None:
    applied(shell)
    write("effect: forbid", "effect: deny")
    ended = shell.run("policy", "pull")
    assert ended.exit_code == 0
    assert "the present content of policy.yaml is invalid: policy.rules.0.effect" in ended.stderr
    assert Path("policy.yaml").read_text() == POLICY


@pytest.mark.usefixtures("folder")
def test_plan_shows_each_difference(shell: Shell) -> None:
    applied(shell)
    write("max_amount: 50", "max_amount: 80.5")
    write("[stripe.*]\n", "[stripe.*]\n    enabled: false\n")
    write("rules:", "budgets:\n  - {name: Day, actions: ['*'], window: day, limit: 5}\n\nrules:")
    assert shell.done("policy", "plan", "--no-proof").splitlines() == [
        "~ permission refund-bot stripe.refund: max_amount 50 → 80.5",
        '~ rule "No refunds abroad": enabled true → false',
        '+ budget "Day": actions ["*"], window day, limit 5',
        "3 changes: 1 to create, 2 to change, 0 to delete",
    ]
    assert shell.run("policy", "plan", "--no-proof", "--exit-code").exit_code == 2
    made = shell.json("policy", "plan", "--no-proof")
    assert (len(made["changes"]), made["proof"]) == (3, None)
    Path("policy.yaml").write_text("version: toolgate.policy/v1\n")
    shown = shell.done("policy", "plan", "--no-proof")
    assert '- agent "refund-bot"\n- rule "No refunds abroad"\nwarning: Deleting agent' in shown
    assert shell.run("policy", "plan", "--exit-code", "--no-proof", "policy.yaml").exit_code == 2


@pytest.mark.usefixtures("folder")
def test_problems_that_the_gateway_finds_have_positions(shell: Shell) -> None:
    write("effect: forbid", "effect: deny")
    for command in ("plan", "apply"):
        ended = shell.run("policy", command)
        assert (ended.exit_code, ended.stdout) == (1, "")
        assert ended.stderr.startswith("policy.yaml:12:5: rules.0.effect: Input should be")
    write("effect: deny", "effect: forbid")
    write("- name: refund-bot", "- id: 019c6d1e-2f07-7c3e-b6a8-64e1f0c2d935\n    name: refund-bot")
    assert shell.run("policy", "plan").stderr.startswith("policy.yaml:5:5: agents.0.id: ")


@pytest.mark.usefixtures("folder")
def test_only_the_stored_plan_is_applied(shell: Shell, owner: Owner) -> None:
    shell.done("policy", "plan", "--no-proof", "--out", "plan.json")
    stored = json.loads(Path("plan.json").read_text())
    assert stored["policy"]["agents"][0]["name"] == "refund-bot"
    write("max_amount: 50", "max_amount: 60")
    options = ("policy", "apply", "--plan", "plan.json", "--yes")
    assert "policy.yaml differs from the policy of the plan; plan again" in shell.refused(*options)
    write("max_amount: 60", "max_amount: 50")
    assert "the plan is for the production environment" in shell.refused(*options, "--environment", "test")
    owner.agent("other")
    conflict = shell.run(*options, "--password-stdin", typed=f"{PASSWORD}\n")
    assert conflict.exit_code == 1
    assert "The policy changed since it was planned" in conflict.stderr
    assert "plan again" in conflict.stderr
    shell.done("policy", "plan", "--no-proof", "--out", "plan.json")
    assert "applied as revision" in shell.allowed(*options)
    for content in ("{}", "x"):
        Path("plan.json").write_text(content)
        assert "is not a plan" in shell.refused(*options)
    assert "cannot read" in shell.refused("policy", "apply", "--plan", "missing.json")


@pytest.mark.usefixtures("folder")
def test_earlier_revision_is_restored(shell: Shell, owner: Owner) -> None:
    assert shell.done("policy", "revisions").startswith("no revisions in the production environment at http")
    applied(shell, "--message", "First policy")
    write("max_amount: 50", "max_amount: 80")
    applied(shell)
    listed = shell.done("policy", "revisions")
    assert "First policy" in listed
    assert "Apply policy.yaml" in listed
    numbers = [one["number"] for one in shell.json("policy", "revisions")]
    assert numbers == [3, 2, 1]
    shown = shell.done("policy", "revisions", "3")
    assert shown.startswith("Revision 3\n")
    assert owner.email in shown
    assert "~ permission refund-bot stripe.refund: max_amount 50 → 80" in shown
    printed = shell.allowed("policy", "rollback", "2", "--yes")
    assert printed.splitlines() == [
        "~ permission refund-bot stripe.refund: max_amount 80 → 50",
        "1 change: 0 to create, 1 to change, 0 to delete",
        "applied as revision 4",
    ]
    assert shell.json("policy", "revisions", "4")["restores"] == 2
    assert shell.done("policy", "rollback", "2") == "no changes\n"
    assert "has no revision 99" in shell.refused("policy", "rollback", "99")
    shell.done("policy", "pull")
    assert Path("policy.yaml").read_text() == POLICY


@pytest.mark.usefixtures("folder")
def test_change_is_confirmed_and_needs_an_admin(shell: Shell, owner: Owner) -> None:
    ended = shell.run("policy", "apply")
    assert ended.exit_code == 1
    assert "Apply policy.yaml to the production environment?" in ended.stderr
    assert "add --yes" in ended.stderr
    with Colleague(owner) as member:
        other = Shell.of(member)
        assert "3 changes" in other.done("policy", "plan", "--no-proof")
        ended = other.run("policy", "apply", "--yes", "--password-stdin", typed=f"{PASSWORD}\n")
        assert ended.exit_code == 1
        assert "only an admin may do that" in ended.stderr
    assert owner.http.get("/api/agents").json() == []


@pytest.mark.usefixtures("folder")
def test_environments_have_their_own_policies(shell: Shell) -> None:
    applied(shell, "--environment", "test")
    made: dict[str, Any] = shell.json("policy", "plan", "--no-proof")
    assert len(made["changes"]) == 3
    assert shell.done("policy", "plan", "--environment", "test") == "no changes\n"


def fake_proof(monkeypatch: pytest.MonkeyPatch, result: dict[str, Any] | Exception) -> None:
    def prove_change(*_: object) -> dict[str, Any]:
        if isinstance(result, Exception):
            raise result
        return result

    gateway = SimpleNamespace(prove_change=prove_change)
    monkeypatch.setattr("toolgate_cli.policy.proofs.import_gateway", lambda _: gateway)


@pytest.mark.usefixtures("folder")
def test_plan_without_the_extra_is_not_proven(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_proof(monkeypatch, ModuleNotFoundError(name="z3"))
    last = shell.done("policy", "plan").splitlines()[-1]
    assert last == "not proven: 'z3' is missing; install it with: pip install 'toolgate[prove]'"
    assert shell.run("policy", "plan", "--require-proof").exit_code == 1
    assert "exclude each other" in shell.refused("policy", "plan", "--require-proof", "--no-proof")


@pytest.mark.usefixtures("folder")
def test_counterexample_is_printed_only_if_the_gateway_confirms_it(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    denied = {"outcome": "denied", "reason": "Agent not found", "approval": None}
    call = {
        "agent": "refund-bot",
        "agent_id": "refund-bot",
        "action": "stripe.refund",
        "context": {"amount": 40, "country": "DE"},
        "run_id": None,
        "now": "2026-01-31T12:00:00Z",
    }
    found = {"status": "widened", "reasons": [], "call": call, "old": denied, "new": denied}
    fake_proof(monkeypatch, found)
    shown = shell.done("policy", "plan")
    assert "the new policy is more lenient for this call" in shown
    assert shown.endswith(
        "current policy: denied: the current policy does not contain this agent\n  new policy:     allowed\n"
    )
    call["context"] = {"amount": 40, "country": "FR"}
    last = shell.done("policy", "plan").splitlines()[-1]
    assert (
        last
        == "not proven: a call was found for which the new policy may be more lenient, but the gateway decides it as before"
    )
    assert shell.json("policy", "plan")["proof"]["status"] == "not_proven"
