"""The commands of the pages about the command line, typed at a terminal in order, print what the pages show."""

import re
from pathlib import Path

import pytest
from support.command_line import CommandLine
from support.gateway import PASSWORD, LiveGateway, Owner
from support.ports import reserve_port
from support.readme import ROOT, blocks
from support.signing import SECRET

from toolgate_cli.layout import AMOUNT_WORDS, RECIPIENT_WORDS

pytestmark = pytest.mark.sqlite_only("commands speak HTTP: which database is behind it they cannot see")

PAGES = ("docs/guides/command-line.md", "docs/guides/deciding.md")
CONTEXT = (
    '{"reason": "damaged\\namount  1.00\\u202e", "card": {"$digest": "hmac-sha256:'
    + "0f" * 32
    + '", "bytes": 16}, "to": "ada@example.test", "amount": 250.00}'
)


def plain(text: str) -> list[str]:
    """Return lines without what differs from run to run: ids, spans, ports, and spaces that depend on them."""
    text = re.sub(r"\x1b\[[?0-9;]*[A-Za-z]", "", text)
    # A bar that is gone at the end.
    text = re.sub(r"exporting[^\n]*", "", text)
    text = re.sub(r"[0-9a-f]{8}-[0-9a-f]{4}(-[0-9a-f-]+)?", "ID", text)
    text = re.sub(r"(ak_…?)[a-z0-9]{4,}", r"\1KEY", text)
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "MOMENT", text)
    text = re.sub(r"\d+ (s|min|h|d)\b( \d+ (min|h)\b)?", "SPAN", text)
    text = re.sub(r"127\.0\.0\.1:\d+", "GATEWAY", text)
    lines = (re.sub(r" +", " ", line).strip() for line in text.splitlines())
    return [line for line in lines if line and set(line) != {"─"}]


def steps() -> list[tuple[str, str]]:
    """Return each command of the page with what follows it."""
    text = "".join(block for page in PAGES for block in blocks(page, "console"))
    return [
        (command, shown)
        for command, _, shown in (step.partition("\n") for step in text.split("$ toolgate ")[1:])
    ]


def words_of(command: str, owner: Owner, approval_id: str, folder: Path) -> list[str]:
    found = [word.strip('"') for word in re.findall(r'"[^"]*"|\S+', command)]
    real = {
        "http://127.0.0.1:8000": owner.url,
        "01a1fe97-76c5": approval_id[:13],
        "8400": str(reserve_port()),
        "log.csv": str(folder / "log.csv"),
    }
    return [real.get(word, word) for word in found]


def test_the_page_shows_what_is_printed(tmp_path: Path, live_gateway: LiveGateway) -> None:
    """Every command of the page, typed with its answers, prints what the page shows."""
    user = CommandLine(tmp_path / "home")
    user.env["TOOLGATE_WEBHOOK_SECRET"] = SECRET
    with Owner(live_gateway.url, email="ada@example.com") as owner:
        agent_id = owner.agent("support-bot")
        owner.permit(agent_id, "stripe.refund", requires_approval=True)
        body = f'{{"agent_id": "{agent_id}", "action": "stripe.refund", "context": {CONTEXT}}}'
        answer = owner.http.post("/sdk/check", content=body, headers={"X-API-Key": owner.key})
        approval_id = answer.json()["approval_id"]
        for command, shown in steps():
            if command.startswith("logs search"):
                # What the page's agent did meanwhile.
                (bot,) = (
                    one["id"] for one in owner.http.get("/api/agents").json() if one["name"] == "refund-bot"
                )
                owner.log(bot, "mail.send", context={"amount": 40, "to": "ada@example.test"})
                user.env |= {"TOOLGATE_API_KEY": owner.key, "TOOLGATE_AGENT_ID": bot}
            with user.at_terminal(*words_of(command, owner, approval_id, tmp_path), columns=200) as terminal:
                said = ""
                if "Password of" in shown:
                    said = terminal.wait_for("Password of") + terminal.wait_for(": ")
                    terminal.type(PASSWORD)
                if "^C" in shown:
                    said = terminal.wait_for("stop with Ctrl-C\n")
                    if "mail.send" in shown:
                        said += terminal.wait_for("ada@example.test\n")
                    terminal.interrupt()
                assert terminal.end() == (130 if "^C" in shown else 0), terminal.shown
                said += terminal.shown
            said = said.replace(f"{tmp_path}/", "")
            assert plain(said.replace("^C", "")) == plain(shown.replace("^C", "")), command


def test_words_that_decide_the_order_are_on_the_page() -> None:
    page = (ROOT / "docs/guides/deciding.md").read_text()
    for word in AMOUNT_WORDS | RECIPIENT_WORDS:
        assert f"`{word}`" in page, word
