"""Onboarding: from registration to the first guarded call."""

import ast
import html
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from playwright.sync_api import Browser, Page, expect
from support.browser import faults
from support.console import Reader, text_of
from support.gateway import PASSWORD, LiveGateway, Owner
from support.team import Colleague
from support.waiting import until

from toolgate_service.console.start import Snippet, function_name

START = "/console/start"
#: text of the inbox while no call has arrived
INVITATION = "Make the first guarded call"
ACTIONS = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=40)


def lines_in(page: str) -> str:
    """Return the commands that a page shows."""
    found = re.search(r'aria-label="Commands">(.*?)</pre>', page, re.DOTALL)
    assert found, page
    return html.unescape(found[1])


def paste(lines: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run commands as a terminal does, without settings of Toolgate in the environment."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TOOLGATE_")}
    path = f"{Path(sys.executable).parent}{os.pathsep}{kept['PATH']}"
    command = [shutil.which("sh") or "sh", "-c", lines]
    env = kept | {"PATH": path, "XDG_STATE_HOME": str(folder)}
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def reader(newcomer: Owner) -> Iterator[Reader]:
    """Browser of the administrator of an empty organization."""
    with Reader.of(newcomer.url, newcomer.email) as reader:
        yield reader


def test_from_registration_to_the_first_call(gateway: LiveGateway, browser: Browser, tmp_path: Path) -> None:
    """Register, create, show the key, paste: the page turns green by itself."""
    with browser.new_context() as context:
        page = context.new_page()
        wrong: list[str] = []
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda said: wrong.append(said.text) if "Policy" in said.text else None)
        page.goto(f"{gateway.url}/console/register")
        page.get_by_label("Organization").fill("First")
        page.get_by_label("E-mail").fill(f"first-{time.time_ns()}@example.test")
        page.get_by_label("Password").fill(PASSWORD)
        page.get_by_role("button", name="Create").click()
        page.get_by_role("heading", name="The first guarded call").wait_for()
        page.get_by_role("button", name="Create").click()
        page.get_by_role("button", name="Show the API key").click()
        page.get_by_role("button", name="Show the API key").wait_for(state="detached")
        expect(page.get_by_text("Waiting for the first call")).to_be_visible()
        assert faults(page) == []
        done = paste(page.locator("#snippet").inner_text(), tmp_path)
        assert (done.returncode, done.stdout) == (0, "done: first\n"), done.stderr
        expect(page.get_by_text("The first call has arrived")).to_be_visible()
        expect(page.get_by_text("refund-bot called stripe.refund: success")).to_be_visible()
        assert faults(page) == []
        page.goto(f"{gateway.url}/console/approvals")
        expect(page.get_by_role("link", name="Make the first guarded call")).to_have_count(0)
    assert wrong == []


@pytest.mark.slow
def test_the_copy_button_copies_a_working_key(newcomer: Owner, browser: Browser, tmp_path: Path) -> None:
    """On a narrow screen; copying is recorded once in the audit log."""
    kind = {"kind": "organization.key_shown"}
    wrong: list[str] = []
    with browser.new_context(viewport={"width": 390, "height": 800}) as context:
        context.grant_permissions(["clipboard-read", "clipboard-write"])
        page = context.new_page()
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda said: wrong.append(said.text) if "Policy" in said.text else None)
        sign_in(page, newcomer)
        page.get_by_role("link", name="Get started").click()
        page.get_by_role("button", name="Create").click()
        page.goto(f"{newcomer.url}/console/overview")
        page.get_by_role("link", name="Get started").click()
        page.locator("#snippet").wait_for()
        before = len(newcomer.http.get("/api/audit", params=kind).json())
        page.get_by_role("button", name="Copy with the key").click()
        expect(page.get_by_role("button", name="Copied")).to_be_visible()
        lines = page.evaluate("navigator.clipboard.readText()")
        assert lines == page.locator("#snippet").inner_text()
        assert newcomer.key in lines
        expect(page.get_by_role("button", name="Show the API key")).to_have_count(0)
        assert faults(page) == []
        page.get_by_role("button", name="Copied").click()
        assert page.evaluate("navigator.clipboard.readText()") == lines
        assert len(newcomer.http.get("/api/audit", params=kind).json()) == before + 1
    assert wrong == []
    done = paste(lines, tmp_path)
    assert (done.returncode, done.stdout) == (0, "done: first\n"), done.stderr


@pytest.mark.slow
def test_a_refused_copy_is_reported(newcomer: Owner, browser: Browser) -> None:
    """Without the key or without a clipboard nothing is copied, and the page says why."""
    with browser.new_context() as context:
        page = context.new_page()
        sign_in(page, newcomer)
        page.goto(f"{newcomer.url}{START}")
        page.get_by_role("button", name="Create").click()
        page.locator("#snippet").wait_for()
        copied = "void (navigator.clipboard.writeText = async (text) => { window.copied = text; })"
        page.evaluate(copied)
        page.evaluate("document.querySelector('form[data-reveal] [name=token]').value = 'stale'")
        page.get_by_role("button", name="Copy with the key").click()
        expect(page.locator("[data-problem]")).to_contain_text("This form is out of date")
        assert page.evaluate("window.copied") is None
        page.reload()
        page.locator("#snippet").wait_for()
        page.evaluate("void (navigator.clipboard.writeText = () => Promise.reject(new Error('no')))")
        page.get_by_role("button", name="Copy with the key").click()
        expect(page.get_by_role("button", name="Selected")).to_be_visible()
        assert newcomer.key in page.evaluate("window.getSelection().toString()")


def test_the_commands_can_be_found_again(reader: Reader, newcomer: Owner) -> None:
    """From the navigation and from the agent's own page."""
    agents = [newcomer.agent(), newcomer.agent()]
    for agent in agents:
        newcomer.permit(agent, "mail.send")
    newcomer.log(agents[0], "mail.send")
    for path in ("/console/overview", "/console/approvals", "/console/logs", "/console/settings"):
        assert f'href="{START}"' in reader.page(path)
    for agent in agents:
        way = f"{START}?agent={agent}"
        assert way in reader.page(f"/console/agents/{agent}")
        assert f"export TOOLGATE_AGENT_ID={agent}" in lines_in(reader.page(way))


@pytest.mark.sqlite_only("a row is changed in the file")
def test_a_key_that_cannot_be_decrypted_is_not_copied(
    gateway: LiveGateway, newcomer: Owner, reader: Reader
) -> None:
    """The page says so and does not offer the masked key."""
    reader.submit(START, token=reader.token(), name="bot", action="mail.send")
    with closing(sqlite3.connect(gateway.database, timeout=30)) as database, database:
        database.execute(
            "UPDATE api_keys SET ciphertext = x'00' WHERE organization_id = ?",
            (newcomer.user["organization_id"],),
        )
    page = reader.submit(f"{START}/key", token=reader.token()).text
    assert "This key cannot be shown" in page
    assert "Copy with the key" in page
    assert "data-reveal" in page


def sign_in(page: Page, owner: Owner) -> None:
    """Sign in and wait for the next page."""
    page.goto(f"{owner.url}/console/sign-in")
    page.get_by_label("E-mail").fill(owner.email)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("heading", name="Approvals").wait_for()


def test_an_empty_inbox_leads_to_the_onboarding(reader: Reader, newcomer: Owner) -> None:
    """Until a call has arrived in the environment; a pending request counts too."""
    assert INVITATION in reader.page("/console/approvals")
    agent = newcomer.agent()
    newcomer.permit(agent, "pay", requires_approval=True)
    newcomer.check(agent, "pay")
    newcomer.http.post(
        f"/api/approvals/{newcomer.http.get('/api/approvals').json()[0]['id']}/deny"
    ).raise_for_status()
    assert INVITATION not in reader.page("/console/approvals")
    assert "approval required" in text_of(reader.page(START))
    assert INVITATION in reader.page("/console/approvals?environment=test")


def test_agent_and_permission_are_created_together(reader: Reader, newcomer: Owner) -> None:
    """If one is refused, neither is created and the typed values are kept."""
    wrong = {"name": "kept", "action": "a b", "max_amount": "x"}
    for fields in (wrong, wrong | {"max_amount": ""}, wrong | {"action": "a"}, {"name": "", "action": "a"}):
        answer = reader.submit(START, token=reader.token(), **fields)
        assert (answer.status_code, 'class="problem"' in answer.text) == (400, True)
    assert newcomer.http.get("/api/agents").json() == []
    answer = reader.submit(START, token=reader.token(), name="bot", action="mail.send")
    assert answer.status_code == 303
    [agent] = newcomer.http.get("/api/agents").json()
    assert answer.headers["Location"] == f"{START}?agent={agent['id']}"
    # Without scripts the user reloads the page of the same agent.
    assert f'<a href="{answer.headers["Location"]}">Reload' in reader.page(answer.headers["Location"])
    [permission] = newcomer.http.get(f"/api/agents/{agent['id']}/permissions").json()
    assert (permission["action"], permission["requires_approval"]) == ("mail.send", False)


def test_the_plans_limit_is_shown(free_gateway: LiveGateway, frugal: Owner) -> None:
    for _ in range(2):
        frugal.agent()
    with Reader.of(free_gateway.url, frugal.email) as reader:
        answer = reader.submit(START, token=reader.token(), name="bot", action="mail.send")
        assert (answer.status_code, 'class="problem"' in answer.text) == (403, True)


@pytest.mark.parametrize("environment", ["production", "test"])
def test_the_key_is_shown_on_request(
    gateway: LiveGateway, newcomer: Owner, reader: Reader, environment: str
) -> None:
    """Masked before; the response is not cached, and showing is recorded in the audit log."""
    query = f"?environment={environment}"
    reader.submit(f"{START}{query}", token=reader.token(), name="bot", action="mail.send")
    shown = newcomer.http.get("/api/organization/test-key").json()["api_key"]
    key = newcomer.key if environment == "production" else shown
    assert key not in reader.page(f"{START}{query}")
    kind = {"kind": "organization.key_shown", "environment": environment}
    before = len(newcomer.http.get("/api/audit", params=kind).json())
    answer = reader.submit(f"{START}/key{query}", token=reader.token())
    assert f"export TOOLGATE_API_KEY={key}" in lines_in(answer.text)
    assert answer.headers["Cache-Control"] == "no-store"
    assert len(newcomer.http.get("/api/audit", params=kind).json()) == before + 1


def test_no_key_is_shown_without_commands(newcomer: Owner, reader: Reader) -> None:
    """Without a permission nothing is shown or recorded."""
    kind = {"kind": "organization.key_shown"}
    before = len(newcomer.http.get("/api/audit", params=kind).json())
    newcomer.agent()
    answer = reader.submit(f"{START}/key", token=reader.token())
    assert (answer.status_code, newcomer.key in answer.text) == (200, False)
    assert len(newcomer.http.get("/api/audit", params=kind).json()) == before


def test_a_member_does_not_see_the_key(newcomer: Owner, reader: Reader) -> None:
    """A member can neither create nor show it."""
    reader.submit(START, token=reader.token(), name="bot", action="mail.send")
    with Colleague(newcomer) as colleague, Reader.of(newcomer.url, colleague.email) as member:
        page = member.page(START)
        assert "Only admins can display the API key" in page
        assert "Copy without the key" in page
        assert "data-reveal" not in page
        assert member.submit(f"{START}/key", token=member.token()).status_code == 403
        assert member.submit(START, token=member.token(), name="a", action="b").status_code == 403


@pytest.mark.parametrize(
    "action",
    [
        "$(touch${IFS}x)`y`'\"",
        *(
            pytest.param(action, marks=pytest.mark.slow)
            for action in ('it\'s."quoted"', "END", "a.class", "x\\n{y}", "flush")
        ),
    ],
)
def test_commands_run_for_any_action(newcomer: Owner, reader: Reader, tmp_path: Path, action: str) -> None:
    """Whatever visible characters the action has."""
    reader.submit(START, token=reader.token(), name="bot", action=action, max_amount="0.5")
    page = reader.submit(f"{START}/key", token=reader.token()).text
    done = paste(lines_in(page), tmp_path)
    assert (done.returncode, done.stdout) == (0, "done: first\n"), done.stderr
    assert [(one["action"], one["status"]) for one in newcomer.entries()] == [(action, "success")]
    assert list(tmp_path.glob("x")) == []


def test_a_held_call_waits_for_its_approval(newcomer: Owner, reader: Reader, tmp_path: Path) -> None:
    """The commands continue after the approval."""
    reader.submit(START, token=reader.token(), name="bot", action="mail.send", requires_approval="on")
    lines = lines_in(reader.submit(f"{START}/key", token=reader.token()).text)
    with ThreadPoolExecutor(1) as pool:
        pasted = pool.submit(paste, lines, tmp_path)
        until(lambda: newcomer.http.get("/api/approvals").json())
        [asked] = newcomer.http.get("/api/approvals").json()
        assert reader.decide(asked["id"], "approve").status_code == 303
        done = pasted.result()
    assert (done.returncode, done.stdout) == (0, "done: first\n"), done.stderr


@given(ACTIONS, st.none() | st.decimals("0", "1e6", places=3), st.booleans())
def test_the_program_is_valid_for_any_action(action: str, maximum: Decimal | None, held: bool) -> None:
    """Python parses it; it guards the action and calls the function."""
    lines = Snippet("http://127.0.0.1:8000", "ak_x", "id", action, maximum, held).text
    head, _, rest = lines.partition("<<'END'\n")
    program, _, after = rest.rpartition("\nEND")
    assert (after, "\nEND\n" in program, head.count("\n")) == ("", False, 4)
    tree = ast.parse(program)
    [function] = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    [guard] = function.decorator_list
    assert isinstance(guard, ast.Call)
    assert ast.literal_eval(guard.args[0]) == action
    assert [word.arg for word in guard.keywords] == (["on_hold"] if held else [])
    assert function.name == function_name(action)


@pytest.mark.parametrize(
    ("url", "readable"),
    [
        ("http://127.0.0.1:8000", False),
        ("http://localhost", False),
        ("http://[::1]:8000", False),
        ("https://gate.example", False),
        ("http://gate.example", True),
        ("http://10.0.0.1", True),
    ],
)
def test_plain_http_to_another_machine_is_reported(url: str, readable: bool) -> None:
    """It would send the key unencrypted."""
    assert Snippet(url, "ak_x", "id", "a", None, requires_approval=False).is_readable is readable
