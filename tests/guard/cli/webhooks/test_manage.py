"""`toolgate webhooks list`, `show`, `create`, `update` and `delete`, in this process, at a live gateway."""

from typing import Any

import pytest
from support.gateway import PASSWORD, Owner
from support.shell import Shell
from support.team import Colleague

pytestmark = pytest.mark.sqlite_only("commands speak HTTP: which database is behind it they cannot see")

URL = "https://1.1.1.1/hooks"


def webhooks(owner: Owner) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = owner.http.get("/api/webhooks").json()
    return found


def test_webhook_is_created_changed_and_deleted(shell: Shell, owner: Owner) -> None:
    assert shell.done("webhooks", "list").startswith("no webhooks in the production environment at ")
    created = shell.run(
        *("webhooks", "create", URL, "--event", "approval.requested", "--description", "Pager"),
        "--password-stdin",
        typed=PASSWORD,
    )
    assert created.exit_code == 0, created.output
    assert created.stdout.startswith("whsec_")
    assert len(created.stdout.splitlines()) == 1
    (webhook,) = webhooks(owner)
    assert webhook["id"] in created.stderr
    assert (webhook["url"], webhook["events"], webhook["description"]) == (
        URL,
        ["approval.requested"],
        "Pager",
    )
    assert shell.json("webhooks", "list") == [webhook]
    assert shell.json("webhooks", "show", webhook["id"][:20]) == webhook
    table = shell.done("webhooks", "list")
    assert all(text in table for text in (webhook["id"], URL, "enabled", "approval.requested"))
    page = shell.allowed("webhooks", "update", webhook["id"], "--disable", "--all-events", "--no-description")
    assert page.startswith(f"Webhook {webhook['id']} · disabled\n")
    (changed,) = webhooks(owner)
    assert (changed["is_active"], changed["description"]) == (False, None)
    assert len(changed["events"]) > 5
    shell.allowed("webhooks", "update", webhook["id"], "--enable", "--include-context")
    (changed,) = webhooks(owner)
    assert (changed["is_active"], changed["include_context"]) == (True, True)
    assert "--yes" in shell.refused("webhooks", "delete", webhook["id"])
    shell.allowed("webhooks", "delete", webhook["id"], "--yes")
    assert webhooks(owner) == []


def test_stored_login_changes_no_webhook(shell: Shell, owner: Owner) -> None:
    webhook = owner.http.post("/api/webhooks", json={"url": URL}).json()
    before = webhooks(owner)
    for words in (
        ["create", URL],
        ["update", webhook["id"], "--disable"],
        ["delete", webhook["id"], "--yes"],
    ):
        line = shell.refused("webhooks", *words, "--password-stdin", typed="guessed wrong\n")
        assert line.startswith("nothing was changed: ")
    assert webhooks(owner) == before


def test_member_may_not_create_webhooks(home: Any, owner: Owner) -> None:
    with Colleague(owner, "member") as member:
        line = Shell.of(member).refused("webhooks", "create", URL, "--password-stdin", typed=PASSWORD)
    assert "admin" in line
    assert webhooks(owner) == []
