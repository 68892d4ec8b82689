"""The console in Chromium: light and dark, wide and narrow, with and without scripts."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect
from support.browser import faults, overflows
from support.gateway import PASSWORD, Owner
from support.team import Colleague, invite

#: colours, width, and the step from one page to the next that is looked at
LOOKS = [
    ("dark", 390, 3),
    pytest.param("dark", 390, 1, marks=pytest.mark.slow),
    pytest.param("light", 1280, 1, marks=pytest.mark.slow),
    pytest.param("dark", 1280, 1, marks=pytest.mark.slow),
    pytest.param("light", 390, 1, marks=pytest.mark.slow),
]
#: text that breaks the page unless it is escaped
REASON = "<b>late</b>\u202egpj"


@pytest.fixture
def agent(newcomer: Owner) -> str:
    """An agent whose refunds need an approval."""
    agent = newcomer.agent("refund-bot")
    newcomer.permit(agent, "stripe.refund", requires_approval=True, max_amount=500)
    return agent


@pytest.fixture
def enter(browser: Browser, newcomer: Owner) -> Iterator[Callable[..., Page]]:
    """Open browser windows and sign in; an error in a script fails the test."""
    opened: list[BrowserContext] = []
    wrong: list[str] = []

    def open_window(email: str = "", **options: object) -> Page:
        context = browser.new_context(locale="en-GB", timezone_id="Europe/Berlin", **options)  # type: ignore[arg-type]  # handed on
        context.set_default_timeout(20_000)
        opened.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on(
            "console",
            lambda said: wrong.append(said.text) if "Content Security Policy" in said.text else None,
        )
        page.goto(f"{newcomer.url}/console/approvals")
        page.get_by_label("E-mail").fill(email or newcomer.email)
        page.get_by_label("Password").fill(PASSWORD)
        page.get_by_role("button", name="Sign in").click()
        page.get_by_role("heading", name="Approvals").wait_for()
        return page

    yield open_window
    for context in opened:
        context.close()
    assert wrong == []


def ask(owner: Owner, agent: str, amount: float, **more: object) -> str:
    context = {"amount": amount, "customer": "anna@example.test", "reason": REASON} | more
    reason = "<b>late</b> " * 60
    approval: str = owner.check(agent, "stripe.refund", context, reason=reason).json()["approval_id"]
    return approval


def status(owner: Owner, approval: str) -> str:
    found: str = owner.http.get(f"/api/approvals/{approval}").json()["status"]
    return found


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.slow)])
def test_a_narrow_navigation_shows_that_it_scrolls(enter: Callable[..., Page], scheme: str) -> None:
    """At 390 pixels an arrow points to hidden entries until the end is reached; at 1280 there is none."""
    page = enter(viewport={"width": 390, "height": 800}, color_scheme=scheme)
    navigation = page.get_by_role("navigation", name="Console")
    arrow = "getComputedStyle(document.querySelector('.side > nav'), '::after').content"
    assert page.evaluate(arrow) == '"\u203a"'
    assert faults(page) == []
    page.get_by_role("link", name="Settings").click()
    page.get_by_role("heading", name="Settings").wait_for()
    # The current page's link is visible, and none is hidden.
    expect(navigation.get_by_role("link", name="Settings")).to_be_in_viewport(ratio=1)
    assert page.evaluate(arrow) != '"\u203a"'
    assert faults(page) == []
    assert not overflows(page)
    page.set_viewport_size({"width": 1280, "height": 800})
    expect(page.locator(".side > nav[data-more]")).to_have_count(0)


def ready(page: Page) -> None:
    """Wait until the scripts have run, the event stream is open and no card is inert."""
    page.wait_for_load_state("load")
    expect(page.locator("[data-live-words]")).to_have_text("Live")
    expect(page.locator(".deeds[inert]")).to_have_count(0)


@pytest.mark.parametrize(("scheme", "width", "step"), LOOKS)
def test_every_page_is_accessible(
    newcomer: Owner, agent: str, enter: Callable[..., Page], scheme: str, width: int, step: int
) -> None:
    """axe-core finds no serious fault and nothing is wider than the window, with open sheets too."""
    approval = ask(newcomer, agent, 1.5, lines="a\nb", nested={"deep": [1, {"er": True}]})
    granted = ask(newcomer, agent, 2)
    newcomer.http.post(f"/api/approvals/{granted}/approve", json={"grant": {"uses": 3, "seconds": 900}})
    newcomer.http.post(f"/api/agents/{agent}/keys")
    for logged in ("success", "denied", "pending"):
        newcomer.log(agent, f"a.{'x' * 250}", logged)
    invite(newcomer, "a-long-name-of-somebody-who-is-invited@a-long-domain.example.test")
    webhook = newcomer.http.post("/api/webhooks", json={"url": f"https://example.com/{'x' * 200}"}).json()[
        "id"
    ]
    body = {
        "name": "r" * 100,
        "effect": "require_approval",
        "agents": [agent],
        "actions": ["stripe.*", "a" * 255],
    }
    rule = newcomer.http.post("/api/rules", json={**body, "when": f"args.text != '{'w' * 300}'"}).json()["id"]
    recorded = {"amount": 2, "error": {"type": "Timeout", "message": REASON * 20}, "word": "w" * 300}
    entry = newcomer.log(agent, "stripe.refund", "failed", context=recorded, approval_id=granted).json()["id"]
    page = enter(color_scheme=scheme, viewport={"width": width, "height": 800}, reduced_motion="reduce")
    ready(page)
    ways = ("", f"/{approval}", "/decided", "?environment=test")
    pages = [f"/console/approvals{way}" for way in ways] + [
        "/console/overview",
        "/console/overview?environment=test",
        "/console/grants",
        "/console/agents",
        f"/console/agents/{agent}",
        f"/console/agents/{agent}/keys",
        "/console/rules",
        "/console/rules/new",
        f"/console/rules/{rule}",
        "/console/settings",
        *(f"/console/settings/{one}" for one in ("keys", "team", "webhooks", "slack", "plan", "account")),
        f"/console/settings/webhooks/{webhook}",
        "/console/start",
        "/console/start?environment=test",
        "/console/logs",
        f"/console/logs?agent_id={agent}&status=failed&q=a",
        "/console/logs?status=nonsense",
        f"/console/logs/{entry}",
        "/console/shortcuts",
        "/console/nowhere",
    ]
    for way in pages[::step]:
        page.goto(newcomer.url + way)
        expect(page.locator(".deeds[inert]")).to_have_count(0)
        assert faults(page) == [], way
        assert not overflows(page), way
    page.goto(f"{newcomer.url}/console/agents/{agent}")
    page.locator("#try-action").fill("stripe.refund")
    page.locator("#try-amount").fill("9")
    page.get_by_role("button", name="Try", exact=True).click()
    page.get_by_role("heading", name="Approval required").wait_for()
    assert faults(page) == []
    assert not overflows(page)
    page.goto(f"{newcomer.url}/console/approvals")
    ready(page)
    for name in ("Reject…", "Edit…", "Approve temporarily…"):
        page.get_by_role("button", name=name).click()
        sheet = page.locator(".sheet:popover-open")
        sheet.wait_for()
        assert faults(page) == [], name
        assert not overflows(page), name
        page.keyboard.press("Escape")
        expect(sheet).to_have_count(0)
    page.context.clear_cookies()
    for way in ("sign-in", "register", "invitation", "password-reset", "forgotten"):
        page.goto(f"{newcomer.url}/console/{way}")
        assert faults(page) == [], way
        assert not overflows(page), way


def test_requests_are_decided_by_keyboard(newcomer: Owner, agent: str, enter: Callable[..., Page]) -> None:
    """The keys j, k, a, d, e and w act on the focused card."""
    ids = [ask(newcomer, agent, amount) for amount in (1, 2, 3, 4)]
    page = enter()
    ready(page)
    page.keyboard.press("a")
    page.keyboard.press("j")
    expect(page.locator(f"#card-{ids[3]}")).to_be_focused()
    page.keyboard.press("a")
    expect(page.locator(f"#card-{ids[3]} .outcome")).to_contain_text("Approved")
    expect(page.locator(f"#card-{ids[3]}")).to_be_focused()
    page.keyboard.press("j")
    page.keyboard.press("r")
    page.keyboard.type("Not j or a day")
    page.keyboard.press("Control+Enter")
    expect(page.locator(f"#card-{ids[2]} .outcome")).to_contain_text("Rejected")
    page.keyboard.press("j")
    page.keyboard.press("e")
    editor = page.locator(f"#context-{ids[1]}")
    expect(editor).to_be_focused()
    editor.fill('{"amount": 1000}')
    page.keyboard.press("Control+Enter")
    expect(page.locator(".sheet .problem")).to_contain_text("above the maximum")
    editor.fill('{"amount": 1, "customer": "anna@example.test"}')
    page.keyboard.press("Control+Enter")
    expect(page.locator(f"#card-{ids[1]} .outcome")).to_contain_text("Approved with changes")
    page.keyboard.press("j")
    page.keyboard.press("w")
    page.get_by_label("reason").check()
    page.get_by_role("button", name="Approve", exact=True).click()
    expect(page.locator(f"#card-{ids[0]} .outcome")).to_contain_text("Approved")
    assert [status(newcomer, one) for one in ids] == ["approved", "replaced", "denied", "approved"]
    assert newcomer.http.get(f"/api/approvals/{ids[2]}").json()["note"] == "Not j or a day"
    assert newcomer.check(agent, "stripe.refund", {"amount": 1, "customer": "anna@example.test"}).json()[
        "allowed"
    ]
    expect(page).to_have_title("Approvals · Toolgate")
    page.keyboard.press("?")
    page.get_by_role("heading", name="Keyboard shortcuts").wait_for()


def test_a_request_appears_by_itself(newcomer: Owner, agent: str, enter: Callable[..., Page]) -> None:
    """The first one appears within a second; further ones wait behind a button so that the page does not move."""
    page = enter()
    ready(page)
    page.evaluate(
        """() => { window.arrived = new Promise(resolve => new MutationObserver(() => {
             const card = document.querySelector(".card"); if (card) resolve(performance.now());
           }).observe(document.querySelector("[data-inbox]"), { childList: true })); }"""
    )
    first = ask(newcomer, agent, 1)
    began = page.evaluate("performance.now()")
    assert page.evaluate("window.arrived") - began < 1_000
    card = page.locator(f"#card-{first}")
    expect(card).to_contain_text(REASON.partition("\u202e")[0])
    expect(page).to_have_title("(1) Approvals · Toolgate")
    ready(page)
    page.keyboard.press("j")
    before = card.bounding_box()
    second = ask(newcomer, agent, 2)
    more = page.get_by_role("button", name="1 new")
    more.wait_for()
    expect(page.locator(".card")).to_have_count(1)
    expect(card).to_be_focused()
    assert card.bounding_box() == before
    expect(page).to_have_title("(2) Approvals · Toolgate")
    page.keyboard.press("n")
    fresh = page.locator(f"#card-{second}")
    expect(fresh).to_be_focused()
    expect(page.locator(".card")).to_have_count(2)
    expect(more).to_be_hidden()


@pytest.mark.slow
def test_a_new_card_ignores_input(newcomer: Owner, agent: str, enter: Callable[..., Page]) -> None:
    """For half a second neither keys nor clicks decide."""
    approval = ask(newcomer, agent, 1)
    page = enter()
    ready(page)
    page.evaluate("id => makeInert(cardOf(id))", approval)
    # All input within the half second.
    decided = page.evaluate(
        """id => { const card = cardOf(id); card.focus();
             for (const key of ["a", "r", "e", "t", "d", "w"]) card.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
             return "busy" in card.dataset || sheetIsOpen(); }""",
        approval,
    )
    assert decided is False
    assert status(newcomer, approval) == "pending"
    ready(page)
    page.keyboard.press("a")
    expect(page.locator(f"#card-{approval} .outcome")).to_contain_text("Approved")


def test_two_approvers_see_each_other(newcomer: Owner, agent: str, enter: Callable[..., Page]) -> None:
    """A decision appears on the other approver's open card and closes its sheet."""
    approval = ask(newcomer, agent, 1)
    with Colleague(newcomer) as ben:
        here, there = enter(), enter(ben.email)
        ready(here)
        ready(there)
        there.get_by_role("button", name="Reject…").click()
        here.get_by_role("button", name="Approve once").click()
        expect(there.locator(f"#card-{approval} .outcome")).to_contain_text(f"Approved by {newcomer.email}")
        expect(there.locator(".sheet:popover-open")).to_have_count(0)
        expect(there.locator(".deeds")).to_have_count(0)
    assert status(newcomer, approval) == "approved"


@pytest.mark.slow
def test_a_vote_appears_on_open_cards(newcomer: Owner, enter: Callable[..., Page]) -> None:
    """A card with an open sheet shows the vote when the sheet is closed."""
    agent = newcomer.agent()
    newcomer.permit(agent, "pay", requires_approval=True, required_approvals=2)
    approval = newcomer.check(agent, "pay", {"amount": 1}).json()["approval_id"]
    with Colleague(newcomer) as ben:
        page = enter()
        ready(page)
        card = page.locator(f"#card-{approval}")
        expect(card).to_contain_text("0 of them have approved so far")
        page.get_by_role("button", name="Reject…").click()
        page.get_by_label("Note").locator("visible=true").fill("Half a no")
        with page.expect_response(lambda answer: "/cards?" in answer.url):
            assert ben.http.post(f"/api/approvals/{approval}/approve").status_code == 200
        expect(page.get_by_label("Note").locator("visible=true")).to_have_value("Half a no")
        page.keyboard.press("Escape")
        expect(card).to_contain_text(f"1 of them have approved so far. Approved so far by {ben.email}")
        ready(page)
        page.get_by_role("button", name="Approve once").click()
        expect(card.locator(".outcome")).to_contain_text("Approved")


@pytest.mark.slow
def test_the_card_shows_whether_a_call_waits(newcomer: Owner, agent: str, enter: Callable[..., Page]) -> None:
    """The line is replaced without disabling the buttons."""
    context = {"amount": 3}
    approval = newcomer.check(agent, "stripe.refund", context, reason="<b>late</b>").json()["approval_id"]
    page = enter()
    ready(page)
    card = page.locator(f"#card-{approval}")
    expect(card.locator(".reason")).to_contain_text("Reason given by the agent (not verified)")
    expect(card.locator(".reason")).to_contain_text("<b>late</b>")
    expect(card.locator(".call")).to_contain_text("No call is waiting for this decision now.")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(
            newcomer.http.get,
            f"/sdk/approvals/{approval}",
            params={"wait": "30"},
            headers={"X-API-Key": newcomer.key},
        )
        expect(card.locator(".call")).to_have_text("A call is waiting for this decision now.")
        card.get_by_role("button", name="Approve once").click()
        expect(card.locator(".outcome")).to_be_visible()
        assert waiting.result().json()["status"] == "approved"
    expect(card.locator(".call")).to_have_count(0)


def test_an_agent_is_disabled(newcomer: Owner, agent: str, enter: Callable[..., Page]) -> None:
    """One button and a confirmation; pending requests are cancelled."""
    approval = ask(newcomer, agent, 1)
    page = enter(viewport={"width": 390, "height": 800})
    page.get_by_role("link", name="Agents").click()
    page.get_by_role("link", name="refund-bot").click()
    page.get_by_role("button", name="Disable…").click()
    page.get_by_role("button", name="Disable now").click()
    expect(page.get_by_text("The agent is disabled")).to_be_visible()
    assert status(newcomer, approval) == "cancelled"
    assert newcomer.check(agent, "stripe.refund", {"amount": 1}).json()["reason"] == "Agent is inactive"


def test_an_open_page_reports_an_ended_session(
    newcomer: Owner, agent: str, enter: Callable[..., Page]
) -> None:
    """After a password change elsewhere the page says so and disables its buttons."""
    ask(newcomer, agent, 1)
    page = enter()
    ready(page)
    body = {"current_password": PASSWORD, "new_password": "a new correct horse"}
    assert newcomer.http.post("/auth/password", json=body).status_code == 200
    expect(page.locator("[data-signed-out]")).to_be_visible(timeout=15_000)
    expect(page.locator(".deeds[inert]")).to_have_count(1)


@pytest.mark.slow
def test_pages_of_one_browser_share_a_stream(newcomer: Owner, agent: str, enter: Callable[..., Page]) -> None:
    """Eight pages get events although a browser opens six connections to a host."""
    first = enter()
    pages = [first] + [first.context.new_page() for _ in range(7)]
    for page in pages[1:]:
        page.goto(f"{newcomer.url}/console/approvals")
    approval = ask(newcomer, agent, 1)
    for page in pages:
        expect(page.locator(f"#card-{approval}")).to_have_count(1)


def test_the_log_is_followed(newcomer: Owner, agent: str, enter: Callable[..., Page]) -> None:
    """New entries appear on top, wait while the user reads, and end with the session; times are local."""

    def write(action: str = "crm.read") -> str:
        entry: str = newcomer.log(agent, action, context={"customer": REASON}).json()["id"]
        return entry

    old = write()
    page = enter()
    page.goto(f"{newcomer.url}/console/logs?action=crm.read&from=2026-01-31T12:00")
    expect(page.get_by_label("From")).to_have_value("2026-01-31T13:00")
    page.get_by_label("Status").select_option("success")
    page.get_by_role("button", name="Show").click()
    page.wait_for_url("**/console/logs?action=crm.read&status=success&from=2026-01-31T12%3A00%3A00.000Z")
    page.get_by_role("switch", name="Live").click()
    expect(page.locator("[data-live-words]")).to_have_text("Live")
    write("other.action")
    first = write()
    rows = page.locator("tbody tr")
    expect(rows.first).to_have_id(f"entry-{first}")
    expect(rows).to_have_count(2)
    expect(rows.first).to_contain_text("U+202E")
    reading = page.locator(f"#entry-{old} a").first
    reading.focus()
    before = reading.bounding_box()
    second = write()
    more = page.get_by_role("button", name="1 new")
    more.wait_for()
    expect(rows).to_have_count(2)
    expect(reading).to_be_focused()
    assert reading.bounding_box() == before
    more.click()
    expect(rows.first).to_have_id(f"entry-{second}")
    expect(page.locator(f"#entry-{second} a").first).to_be_focused()
    body = {"current_password": PASSWORD, "new_password": "a new correct horse"}
    assert newcomer.http.post("/auth/password", json=body).status_code == 200
    expect(page.locator("[data-signed-out]")).to_be_visible(timeout=15_000)
    expect(page.get_by_role("switch", name="Live")).to_be_disabled()


def test_without_scripts_everything_but_live_updates_works(
    newcomer: Owner, agent: str, enter: Callable[..., Page]
) -> None:
    """Forms approve, reject, edit, approve temporarily and sign out; times are UTC."""
    ids = [ask(newcomer, agent, amount) for amount in (1, 2, 3, 4)]
    page = enter(java_script_enabled=False)
    inbox = f"{newcomer.url}/console/approvals"
    expect(page.locator(".card").first.locator("time").first).to_contain_text("UTC")

    def card(approval: str) -> Page:
        page.goto(f"{inbox}/{approval}")
        return page

    card(ids[0]).get_by_role("button", name="Approve once").click()
    expect(page.locator(".outcome")).to_contain_text("Approved")
    card(ids[1]).get_by_role("button", name="Reject…").click()
    page.get_by_label("Note").locator("visible=true").fill("No")
    page.get_by_role("button", name="Reject", exact=True).click()
    expect(page.locator(".outcome")).to_contain_text("Rejected")
    card(ids[2]).get_by_role("button", name="Edit…").click()
    page.get_by_label("Arguments").fill('{"amount": 1}')
    page.get_by_role("button", name="Approve with these arguments").click()
    expect(page.locator(".outcome")).to_contain_text("Approved with changes")
    card(ids[3]).get_by_role("button", name="Approve temporarily…").click()
    page.get_by_role("button", name="Approve", exact=True).click()
    expect(page.locator(".outcome")).to_contain_text("Approved")
    assert [status(newcomer, one) for one in ids] == ["approved", "denied", "replaced", "approved"]
    page.locator("details.me summary").click()
    page.get_by_role("button", name="Sign out").click()
    page.get_by_role("heading", name="Sign in").wait_for()


def test_an_invitations_link_fills_its_form(newcomer: Owner, browser: Browser) -> None:
    """The token moves from the fragment into the form and leaves the address."""
    link = newcomer.http.post(
        "/api/team/invitations", json={"email": "i@example.test", "role": "member"}
    ).json()["link"]
    with browser.new_context() as context:
        page = context.new_page()
        page.goto(link)
        page.get_by_label("Password").fill(PASSWORD)
        assert "token" not in page.url
        page.get_by_role("button", name="Join").click()
        page.get_by_role("heading", name="Approvals").wait_for()


@pytest.mark.slow
def test_keys_and_secrets_in_settings(newcomer: Owner, enter: Callable[..., Page]) -> None:
    """A key is shown, copied and replaced after a confirmation; a double click creates one webhook."""
    page = enter(viewport={"width": 390, "height": 800}, reduced_motion="reduce")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("link", name="Settings").click()
    expect(
        page.get_by_role("navigation", name="Console").get_by_role("link", name="Settings")
    ).to_be_in_viewport()
    page.get_by_role("navigation", name="Settings").get_by_role("link", name="Keys").click()
    page.get_by_role("button", name="Show the key").click()
    copied = page.get_by_role("button", name="Copy")
    copied.click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == newcomer.key
    page.get_by_role("button", name="Replace…").click()
    sheet = page.locator(".sheet:popover-open")
    sheet.wait_for()
    assert faults(page) == []
    assert not overflows(page)
    expect(page.get_by_role("button", name="Replace now")).to_be_focused()
    page.keyboard.press("Escape")
    expect(sheet).to_have_count(0)
    page.get_by_role("button", name="Replace…").click()
    page.get_by_role("button", name="Replace now").click()
    expect(page.get_by_text("The key was replaced")).to_be_visible()
    shown = page.locator("#secret").inner_text()
    assert (shown == newcomer.key, shown.startswith("ak_")) == (False, True)
    page.reload()
    expect(page.get_by_text("nothing was changed now")).to_be_visible()
    assert shown not in page.content()
    page.get_by_role("link", name="Webhooks", exact=True).click()
    page.get_by_label("URL").fill("https://example.com/hook")
    page.get_by_role("button", name="Add").dblclick()
    expect(page.locator("#secret")).to_contain_text("whsec_")
    assert len(newcomer.http.get("/api/webhooks").json()) == 1
