"""`toolgate evidence`, in this process, at a live gateway: the content of the archive."""

import json
import subprocess
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from support.gateway import LiveGateway, Owner
from support.leaks import assert_none
from support.policies import apply, current
from support.shell import Shell
from support.team import Colleague
from support.verified_log import until_sealed

from toolgate_cli import client

pytestmark = pytest.mark.sqlite_only("commands speak HTTP: which database is behind it they cannot see")

ARGUMENTS: dict[str, object] = {"to": "ann@example.com", "amount": 40}
REPORT = {
    "urls": ["https://operator:hunter2@gate.example.test"],
    "version": "0.0.1",
    "seconds": 2.5,
    "requests": 10,
    "counts": {"PASS": 1},
    "notes": [],
    "unknown": "not a member of a report",
    "results": [
        {
            "id": "freeze.agent",
            "title": "A freeze denies",
            "aisvs": ["9.1.3"],
            "outcome": "PASS",
            "detail": "",
            "seconds": 0.1,
        },
        {
            "id": "binding.run",
            "title": "Bound",
            "aisvs": ["9.2.8"],
            "outcome": "FAIL",
            "detail": "x",
            "seconds": 0,
        },
    ],
}


class Archive:
    """Extracted archive."""

    def __init__(self, path: Path, folder: Path) -> None:
        self.folder = folder
        with zipfile.ZipFile(path) as file:
            self.names = file.namelist()
            file.extractall(folder)

    def text(self, name: str) -> str:
        return (self.folder / name).read_text()

    def json(self, name: str) -> Any:
        return json.loads(self.text(name))

    def lines(self, name: str) -> list[Any]:
        return [json.loads(line) for line in self.text(name).splitlines()]


def collect(shell: Shell, folder: Path, *options: str) -> Archive:
    """Make an archive about the last hour and extract it."""
    shell.done("evidence", "--from", "1h", "--output", str(folder / "evidence.zip"), *options)
    return Archive(folder / "evidence.zip", folder / "extracted")


@dataclass(frozen=True)
class Made:
    """Archive about an organization, with what it must contain, and secrets that it must not contain."""

    archive: Archive
    owner: Owner
    agent: str
    approval: str
    policy: dict[str, Any]
    secrets: tuple[str, ...]


@pytest.fixture(scope="module")
def made(live_gateway: LiveGateway, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    """An archive whose lists have several pages."""
    folder = tmp_path_factory.mktemp("evidence")
    with Owner(live_gateway.url) as owner, pytest.MonkeyPatch.context() as patch:
        agent, approval, key = act(owner)
        state = current(owner)["policy"]
        apply(owner, state | {"agents": [one | {"description": "Refunds"} for one in state["agents"]]}, "One")
        hook = {"url": "https://hooks.example.com/x", "events": ["agent.created"]}
        secret = owner.http.post("/api/webhooks", json=hook).raise_for_status().json()["secret"]
        invitation = {"email": "a@example.test", "role": "viewer"}
        link = owner.http.post("/api/team/invitations", json=invitation).raise_for_status().json()["link"]
        until_sealed(owner)
        (folder / "report.json").write_text(json.dumps(REPORT))
        patch.setenv("XDG_CONFIG_HOME", str(folder))
        patch.setattr(client, "PAGE_SIZE", 2)
        shell = Shell.of(owner)
        archive = collect(shell, folder, "--verify-report", str(folder / "report.json"))
        secrets = (owner.key, key, secret, str(link).partition("token=")[2])
        yield Made(archive, owner, agent, approval, current(owner)["policy"], secrets)


def act(owner: Owner) -> tuple[str, str, str]:
    """Let an agent make calls, approve one of them, and freeze the agent; return the ids of agent and approval, and a key."""
    agent = owner.agent("support-bot")
    owner.permit(agent, "stripe.refund", max_amount=100)
    owner.permit(agent, "mail.send", requires_approval=True)
    owner.check(agent, "stripe.refund", {"amount": 40})
    request: str = owner.check(agent, "mail.send", ARGUMENTS).json()["approval_id"]
    owner.http.post(f"/api/approvals/{request}/approve", json={"note": "known customer"}).raise_for_status()
    owner.check(agent, "mail.send", ARGUMENTS)
    key: str = owner.http.post(f"/api/agents/{agent}/keys").raise_for_status().json()["api_key"]
    freeze = {"agent_id": agent, "action": "stripe.*", "reason": "Refunds were paid twice"}
    made = owner.http.post("/api/freeze", json=freeze).raise_for_status().json()
    assert not owner.check(agent, "stripe.refund", {"amount": 41}).json()["allowed"]
    owner.http.post(f"/api/freeze/{made['id']}/lift").raise_for_status()
    assert owner.check(agent, "stripe.refund", {"amount": 42}).json()["allowed"]
    return agent, request, key


def test_archive_contains_the_records_of_the_period(made: Made) -> None:
    archive = made.archive
    *_, revision = archive.lines("policy/revisions.jsonl")
    assert (revision["message"], revision["policy"]) == ("One", made.policy)
    [approval] = archive.lines("approvals/requests.jsonl")
    [vote] = approval["votes"]
    assert (approval["id"], approval["status"], approval["context"]) == (made.approval, "consumed", ARGUMENTS)
    assert (vote["user_id"], vote["note"]) == (made.owner.user["id"], "known customer")
    kinds = [event["type"] for event in archive.lines("audit/events.jsonl")]
    assert {"agent.created", "permission.created", "approval.approved", "freeze.created"} <= {*kinds}
    assert archive.json("log/counts.json")["decisions"]["denied: frozen"] == 1


def test_access_review_lists_rights_without_keys(made: Made) -> None:
    review = made.archive.json("access/review.json")
    assert [(one["email"], one["role"]) for one in review["users"]] == [(made.owner.email, "admin")]
    assert {one["action"] for one in review["permissions"]} == {"stripe.refund", "mail.send"}
    assert [(one["agent_id"], "api_key" in one) for one in review["keys"]] == [(made.agent, False)]
    assert [one["email"] for one in review["open_invitations_at_collection"]] == ["a@example.test"]
    assert review["undone_changes"] == 0


def test_freeze_has_its_time_to_effect(made: Made) -> None:
    [freeze] = made.archive.json("freezes/freezes.json")
    effect = freeze["effect"]
    assert (effect["refused"], effect["allowed"], effect["is_complete"]) == (1, 0, True)
    assert effect["seconds_to_effect"] == 0
    assert 0 <= effect["seconds_to_first_refusal"] < 30


@pytest.mark.usefixtures("home")
def test_log_and_receipts_are_verified_without_a_login(made: Made) -> None:
    shell, archive = Shell(), made.archive
    key = archive.text("log/key.txt").strip()
    export = str(archive.folder / "log/export.jsonl")
    assert "verified: export" in shell.done("log", "verify", export, "--key", key)
    receipt = str(archive.folder / f"log/receipts/{made.approval}.txt")
    assert "verified: receipt" in shell.done("log", "verify", receipt, "--key", key)
    assert archive.text("log/checkpoint.txt").startswith(key.partition("+")[0])
    assert archive.json("log/verification.json")["verified"] is True


def test_manifest_and_checksums_cover_all_files(made: Made) -> None:
    archive = made.archive
    assert archive.names == sorted(archive.names)
    manifest = archive.json("manifest.json")
    listed = {one["name"]: one["sha256"] for one in manifest["files"]}
    assert {*archive.names} - {*listed} == {"manifest.json", "SHA256SUMS"}
    for name, digest in listed.items():
        assert sha256((archive.folder / name).read_bytes()).hexdigest() == digest
        assert name in archive.text("index.md") or name.startswith(("index", "log/receipts/"))
    subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=archive.folder, check=True)
    assert manifest["period"]["to"] <= datetime.now(UTC).isoformat()


def test_archive_contains_no_secrets(made: Made) -> None:
    for name in made.archive.names:
        text = made.archive.text(name)
        assert_none(text)
        assert [one for one in made.secrets if one in text] == []
        # The gateway masks a key as its last four characters.
        assert "ak_…" not in text
        assert "ak_\\u2026" not in text


def test_report_of_verify_is_included_and_mapped(made: Made) -> None:
    archive = made.archive
    report = archive.json("verify/report.json")
    assert report["urls"] == ["https://gate.example.test"]
    assert "unknown" not in report
    index = archive.text("index.md")
    assert "1 PASS, 1 FAIL, 0 NOT TESTED" in index
    assert "about https://gate.example.test, the archive about" in index
    assert "broken guarantees: binding.run" in index
    results = {row["requirement"]: row["verify"] for row in archive.json("requirements.json")}
    assert results["9.2.8, 9.2.9 approvals bound to the call"] == [{"id": "binding.run", "outcome": "FAIL"}]


def test_each_requirement_names_what_is_not_covered(made: Made) -> None:
    archive = made.archive
    for page in ("index.md", "requirements.md"):
        assert "It is not a certification" in archive.text(page)
    rows = archive.json("requirements.json")
    assert len(rows) > 20
    assert all(row["not_covered"] for row in rows)
    files = {name for row in rows for name in row["files"]}
    assert [one for one in files if not any(name.startswith(one) for name in archive.names)] == []


def test_absent_report_and_unsafe_names_are_shown(shell: Shell, owner: Owner, tmp_path: Path) -> None:
    owner.agent("<img src=x>|`bot`")
    until_sealed(owner)
    archive = collect(shell, tmp_path)
    assert archive.text("verify/NOT-INCLUDED.txt").startswith("NOT INCLUDED: no report was given")
    assert "NOT INCLUDED" in archive.text("index.md")
    assert "verify/ (NOT INCLUDED)" in archive.text("requirements.md")
    assert "\\<img src=x\\>\\|\\`bot\\`" in archive.text("access/review.md")


def test_access_review_undoes_changes_after_the_end(shell: Shell, owner: Owner, tmp_path: Path) -> None:
    agent, gone = owner.agent("support-bot"), owner.agent("old-bot")
    kept = owner.permit(agent, "stripe.refund", max_amount=100)
    deleted = owner.permit(gone, "mail.send")
    key = owner.http.post(f"/api/agents/{gone}/keys").json()["id"]
    rule = {"name": "No drops", "effect": "forbid", "actions": ["db.drop"]}
    rule_id = owner.http.post("/api/rules", json=rule).raise_for_status().json()["id"]
    with Colleague(owner, "viewer") as colleague:
        end = datetime.now(UTC).isoformat()
        owner.http.put(f"/api/permissions/{kept}", json={"max_amount": 500}).raise_for_status()
        owner.http.put(f"/api/rules/{rule_id}", json={"actions": ["db.*"]}).raise_for_status()
        owner.http.delete(f"/api/agents/{gone}").raise_for_status()
        owner.http.put(f"/api/agents/{agent}", json={"description": "New"}).raise_for_status()
        owner.http.put(f"/api/team/{colleague.user['id']}", json={"role": "admin"}).raise_for_status()
        owner.permit(agent, "later.action")
        owner.agent("later-bot")
        until_sealed(owner)
        archive = collect(shell, tmp_path, "--to", end)
        review = archive.json("access/review.json")
        assert {one["email"]: one["role"] for one in review["users"]} == {
            owner.email: "admin",
            colleague.email: "viewer",
        }
    assert {one["name"] for one in review["agents"]} == {"support-bot", "old-bot"}
    limits = {one["id"]: one.get("max_amount") for one in review["permissions"]}
    assert limits == {kept: 100, deleted: None}
    assert [one["id"] for one in review["keys"]] == [key]
    assert [one["actions"] for one in review["rules"]] == [["db.drop"]]
    [changed] = [one for one in review["agents"] if one["id"] == agent]
    assert (changed["description"], changed["unknown"]) == (None, ["description"])
    assert review["undone_changes"] == len(archive.lines("access/changes-after-end.jsonl")) == 7
