"""`toolgate slack link`, as a user types it."""

from pathlib import Path

import pytest
from support.command_line import CommandLine
from support.gateway import PASSWORD, Owner
from support.slack import SlackHook


@pytest.fixture
def user(tmp_path: Path, owner: Owner) -> CommandLine:
    user = CommandLine(tmp_path / "home")
    user.log_in(owner)
    return user


def test_it_prints_what_to_type_in_slack(user: CommandLine, owner: Owner) -> None:
    """The line, pasted behind its slash, links; and the login that made it has ended."""
    hook = SlackHook(owner)
    said = user.done("slack", "link", "--password-stdin", typed=f"{PASSWORD}\n")
    assert said.startswith("type this in Slack within ten minutes:  /toolgate link ")
    typed = said.rpartition("/toolgate ")[2]
    assert hook.say(typed).startswith("Linked")
    [link] = owner.http.get("/api/slack/links").json()
    assert link["user_id"] == owner.user["id"]


def test_without_the_password_there_is_no_code(user: CommandLine, owner: Owner) -> None:
    """The stored login alone links nobody."""
    line = user.refused("slack", "link", "--password-stdin", typed="not the password\n")
    assert line.startswith("no code was created: ")
    assert "not the password" not in line
