"""`toolgate policy replay`, `shadow` and `suggest`, in this process, at a live gateway."""

from pathlib import Path
from typing import Any

import pytest
from support.gateway import PASSWORD, Owner
from support.shell import Shell
from support.waiting import until

pytestmark = pytest.mark.sqlite_only("commands speak HTTP: which database is behind it they cannot see")

POLICY = """\
version: toolgate.policy/v1
agents:
  - name: refund-bot
    permissions:
      - action: stripe.refund   # refunds
        max_amount: 50
      - action: mail.send
        requires_approval: true
"""


@pytest.fixture
def agent_id(shell: Shell, owner: Owner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The id of the agent of the applied policy, which is in `policy.yaml` of the working folder."""
    monkeypatch.chdir(tmp_path)
    Path("policy.yaml").write_text(POLICY)
    shell.allowed("policy", "apply", "--yes")
    [agent] = owner.http.get("/api/agents").json()
    return str(agent["id"])


def write(old: str, new: str) -> None:
    assert old in POLICY
    Path("policy.yaml").write_text(POLICY.replace(old, new))


def lines(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines()]


def test_shadow_shows_differences_and_is_promoted(shell: Shell, owner: Owner, agent_id: str) -> None:
    assert "has no shadow" in shell.refused("policy", "shadow", "show")
    write("max_amount: 50", "max_amount: 20")
    started = shell.allowed("policy", "shadow", "start", "--yes", "--message", "Lower limit")
    assert started.splitlines() == [
        "~ permission refund-bot stripe.refund: max_amount 50 → 20",
        "1 change: 0 to create, 1 to change, 0 to delete",
        "the shadow policy is active; see its results with: toolgate policy shadow show",
    ]
    for amount in (10, 30):
        assert owner.check(agent_id, "stripe.refund", {"amount": amount}).status_code == 200

    def shown() -> list[str] | None:
        found = lines(shell.done("policy", "shadow", "show"))
        return found if found[-1].startswith("2 decisions") else None

    found = until(shown)
    assert found[-1] == (
        "2 decisions: 1 unchanged, 0 newly allowed, 0 newly held for approval, 1 newly denied, 0 not replayable"
    )
    assert "message Lower limit" in found
    [sample] = [line for line in found if line.startswith("newly denied: ")]
    assert (
        "refund-bot stripe.refund: Amount 30 is above the maximum of 20 for action 'stripe.refund', decision "
    ) in sample
    promoted = shell.allowed("policy", "shadow", "promote", "--yes").splitlines()
    assert promoted[0] == "~ permission refund-bot stripe.refund: max_amount 50 → 20"
    assert promoted[-1] == "applied as revision 3"
    assert shell.done("policy", "plan") == "no changes\n"
    assert "has no shadow" in shell.refused("policy", "shadow", "show")


@pytest.mark.usefixtures("agent_id")
def test_shadow_is_discarded(shell: Shell) -> None:
    write("max_amount: 50", "max_amount: fifty")
    ended = shell.run("policy", "shadow", "start", "--yes")
    assert ended.stderr.startswith("policy.yaml:6:9: agents.0.permissions.0.max_amount: ")
    write("max_amount: 50", "max_amount: 60")
    assert shell.run("policy", "shadow", "start").exit_code == 1
    assert shell.json("policy", "shadow", "start", "--yes", "--password-stdin", typed=f"{PASSWORD}\n")[
        "counts"
    ]
    assert shell.allowed("policy", "shadow", "discard", "--yes") == "the shadow policy is discarded\n"
    assert "has no shadow" in shell.refused("policy", "shadow", "show")


def test_replay_counts_differences(shell: Shell, owner: Owner, agent_id: str) -> None:
    for amount in (10, 30, 60):
        owner.check(agent_id, "stripe.refund", {"amount": amount})
    owner.check(agent_id, "mail.send")
    write("max_amount: 50", "max_amount: 20")

    def replayed() -> list[str] | None:
        found = lines(shell.done("policy", "replay", "--since", "1h"))
        return found if found[-1].startswith("4 decisions") else None

    found = until(replayed)
    assert found[-1] == (
        "4 decisions: 3 unchanged, 0 newly allowed, 0 newly held for approval, 1 newly denied, 0 not replayable"
    )
    assert "refund-bot stripe.refund 2 0 0 1 0" in found
    assert "refund-bot mail.send 1 0 0 0 0" in found
    [example] = [line for line in found if line.startswith("newly denied, allowed before: ")]
    assert (
        "refund-bot stripe.refund: Amount 30 is above the maximum of 20 for action 'stripe.refund', decision "
    ) in example
    only = shell.json("policy", "replay", "--agent", "refund-bot", "--action", "mail.send")
    assert (only["judged"], only["totals"]["unchanged"]) == (1, 1)
    assert shell.done("policy", "replay", "--until", "1h").startswith("0 decisions: ")
    assert "invalid --since" in shell.refused("policy", "replay", "--since", "soon")


def approve(owner: Owner, agent_id: str, number: int) -> None:
    for amount in range(number):
        context = {"to": "ann@example.com", "part": amount}
        approval = owner.check(agent_id, "mail.send", context).json()["approval_id"]
        owner.http.post(f"/api/approvals/{approval}/approve").raise_for_status()


def test_suggestion_is_written_to_the_file(shell: Shell, owner: Owner, agent_id: str) -> None:
    approve(owner, agent_id, 3)
    assert "0 suggestions" in shell.done("policy", "suggest")
    shown = shell.done("policy", "suggest", "--min", "3", "--since", "12h").splitlines()
    assert shown[0] == "refund-bot mail.send: 3 approved requests, all of which meet this condition:"
    assert "args.to" in shown[1]
    assert shown[-3].strip().startswith("replay: 0 unchanged, 3 newly allowed, 0 newly held")
    assert shown[-2].strip() == "proven: only calls that meet this condition are treated more leniently"
    assert shown[-1] == "1 suggestion"
    raw: dict[str, Any] = shell.json("policy", "suggest", "--min", "3")
    [suggestion] = raw["suggestions"]
    assert (suggestion["approvals"], suggestion["allowed"]) == (3, 3)
    assert suggestion["first_at"] < suggestion["last_at"]
    assert suggestion["replay"]["newly_allowed"] == 3
    assert suggestion["proof"]["status"] == "proven"
    assert "0 suggestions" in shell.done("policy", "suggest", "--min", "3", "--agent", "other")
    ended = shell.run("policy", "suggest", "--min", "3", "--action", "other", "--write", "policy.yaml")
    assert "--write needs one suggestion, not 0" in ended.stderr
    assert Path("policy.yaml").read_text() == POLICY
    # A part of the file that is not applied yet stays.
    write("max_amount: 50", "max_amount: 60")
    shell.done("policy", "suggest", "--min", "3", "--write", "policy.yaml")
    text = Path("policy.yaml").read_text()
    assert "action: stripe.refund   # refunds\n        max_amount: 60\n" in text
    assert "args.to" in text
    assert len(shell.json("policy", "plan", "--no-proof")["changes"]) == 1 + len(
        raw["suggestions"][0]["changes"]
    )
    shell.allowed("policy", "apply", "--yes")
    context = {"to": "ann@example.com", "part": 1}
    assert owner.check(agent_id, "mail.send", context).status_code == 200
    assert "--since: invalid duration" in shell.refused("policy", "suggest", "--since", "x")
