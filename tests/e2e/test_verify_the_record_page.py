"""The commands of the page "Verify the record", in order, print what the page shows."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.command_line import CommandLine
from support.gateway import LiveGateway, Owner
from support.ports import reserve_port
from support.readme import ROOT, blocks
from support.verified_log import until_sealed
from support.waiting import until
from support.witness_server import NAME, ServedWitness

from toolgate_cli.witness.keys import create_key, read_key

pytestmark = pytest.mark.sqlite_only("the commands use HTTP, whichever database the gateway has")

PAGE = "docs/guides/verify-the-record.md"
HOST = "toolgate.example.com"
WITNESS_ON_PAGE = "auditor.example.org/witness"
MAIL: dict[str, object] = {"to": "ann@example.com"}


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[Owner]:
    """Admin of an organization with a log that a witness cosigns, with the calls of the page."""
    key = create_key(NAME, tmp_path / "witness.key").vkey
    port = reserve_port()
    env = {
        "TOOLGATE_PUBLIC_URL": f"https://{HOST}",
        "TOOLGATE_WITNESSES": f"http://127.0.0.1:{port} {key}",
    }
    with LiveGateway(tmp_path / "gateway", env=env) as gateway, Owner(gateway.url) as owner:
        agent = owner.agent("support-bot")
        owner.permit(agent, "stripe.refund", max_amount=100)
        owner.permit(agent, "mail.send", requires_approval=True)
        until_sealed(owner)
        with ServedWitness(tmp_path, options=("--log", read_log_key(owner), "--port", str(port))):
            call(owner, agent, "stripe.refund", {"amount": 40, "charge_id": "ch_1"})
            request = owner.check(agent, "mail.send", MAIL).json()["approval_id"]
            owner.http.post(f"/api/approvals/{request}/approve").raise_for_status()
            call(owner, agent, "mail.send", MAIL)
            until_sealed(owner)
            until(lambda: is_cosigned(owner))
            yield owner


def call(owner: Owner, agent: str, action: str, context: dict[str, object]) -> None:
    """Check a call and log its outcome, as the SDK does."""
    decision = owner.check(agent, action, context).headers["X-Decision-ID"]
    owner.log(agent, action, context=context, decision_id=decision)


def read_log_key(owner: Owner) -> str:
    key: str = owner.http.get("/api/transparency").json()["vkey"]
    return key


def is_cosigned(owner: Owner) -> bool:
    note: str = owner.http.get("/api/transparency").json()["checkpoint"]
    return f"— {NAME} " in note


def read_steps() -> list[tuple[str, str]]:
    """Return each command of the page with the output that the page shows."""
    text = "".join(blocks(PAGE, "console"))
    steps = (step.partition("\n") for step in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:])
    return [(command, shown) for command, _, shown in steps]


def hide_values(text: str) -> list[str]:
    """Return lines without ids, keys, hashes, times and numbers."""
    text = re.sub(r"production\+[0-9a-f]{8}\+[\w+/=]+", "KEY", text)
    text = re.sub(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]+|[0-9a-f]{64}|[\w+/]{43}=", "VALUE", text)
    text = re.sub(r"\d[\d,:-]*", "N", text.replace(WITNESS_ON_PAGE, NAME))
    return [re.sub(r" +", " ", line).rstrip() for line in text.splitlines()]


def is_shown(shown: list[str], printed: list[str]) -> bool:
    """Return whether the page shows the output, where an ellipsis replaces any number of lines."""
    if "…" not in shown:
        return shown == printed
    first = shown.index("…")
    last = shown[first + 1 :]
    return printed[:first] == shown[:first] and printed[len(printed) - len(last) :] == last


def test_commands_of_the_page_print_what_the_page_shows(tmp_path: Path, owner: Owner) -> None:
    user = CommandLine(tmp_path / "home")
    user.log_in(owner)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = user.env | {"PATH": path, "COLUMNS": "200"}
    real = {
        r"toolgate\.example\.com/tlog/\S+": read_log_key(owner),
        rf"{WITNESS_ON_PAGE}\S+": read_key(tmp_path / "witness.key").vkey,
        r"(?<=entry )\S+": owner.entries()[0]["id"],
        r"^python toolgate/": f"{sys.executable} {ROOT}/",
    }
    steps = read_steps()
    assert len(steps) > 5
    for command, shown in steps:
        if command.startswith("toolgate login"):
            continue
        script = command
        for pattern, value in real.items():
            script = re.sub(pattern, value.replace("\\", r"\\"), script)
        done = subprocess.run(
            ["sh", "-c", script], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == ("NOT VERIFIED" in shown), done
        if shown:
            assert is_shown(hide_values(shown), hide_values(done.stdout)), done.stdout
