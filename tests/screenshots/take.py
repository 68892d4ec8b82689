"""Take the pictures of the console in docs/screenshots: of a real gateway, in a real browser.

python tests/screenshots/take.py
"""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
from month import COLLEAGUES, DAYS, OWNER, Shop, live_through, refund
from playwright.sync_api import Browser, Page, sync_playwright
from support.browser import chromium
from support.gateway import PASSWORD, LiveGateway
from support.inside import Clock, InsideGateway
from support.readme import ROOT
from support.tables import execute

from toolgate_service.core.clock import wire

FOLDER = ROOT / "docs" / "screenshots"
WIDE = {"width": 1280, "height": 800}
PHONE = {"width": 390, "height": 844}
#: no picture may be larger: they are kept with the source
MOST_BYTES = 200_000


def main() -> None:
    """Live through a month, then look at it in each colour scheme."""
    FOLDER.mkdir(exist_ok=True)
    with TemporaryDirectory() as folder:
        clock = Clock()
        with InsideGateway(Path(folder), management_requests_per_minute=1_000_000) as gateway, clock.ruling():
            shop = live_through(gateway, clock)
        with LiveGateway(Path(folder), prefix=()) as live, sync_playwright() as playwright:
            for days, email in enumerate((*COLLEAGUES, OWNER), DAYS - len(COLLEAGUES)):
                joined = wire(datetime.now(UTC) - timedelta(days=days, hours=days))
                execute(live, "UPDATE users SET created_at = ? WHERE email = ?", joined, email)
            ask(live.url, shop)
            browser = playwright.chromium.launch(executable_path=chromium())
            for scheme in ("light", "dark"):
                for name, page in pictures(browser, live.url, shop, scheme):
                    keep(page, f"{name}-{scheme}")
            phone = entered(browser, live.url, "dark", PHONE)
            keep(phone, "inbox-phone-dark")
            browser.close()


def pictures(browser: Browser, url: str, shop: Shop, scheme: str) -> Iterator[tuple[str, Page]]:
    """Yield each page with its name, as soon as it is fit to be seen."""
    page = entered(browser, url, scheme, WIDE)
    yield "inbox", page
    go(page, f"{url}/console/overview?range=week")
    yield "overview", page
    go(page, f"{url}/console/agents/{shop.agents['refund-bot']}")
    yield "agent", page
    go(page, f"{url}/console/agents/{shop.agents['refund-bot']}/try")
    page.locator("#try-action").fill("stripe.refund")
    page.locator("#try-amount").fill("640")
    page.locator("#try-arguments").fill('{"currency": "EUR", "order": "NW-20481"}')
    page.get_by_role("button", name="Try", exact=True).click()
    page.get_by_role("heading", name="Denied").wait_for()
    yield "try-a-check", page
    go(page, f"{url}/console/logs")
    yield "activity-log", page
    go(page, f"{url}/console/settings/team")
    yield "settings", page
    page.context.close()


def go(page: Page, address: str) -> None:
    """Go to a page that is there."""
    answer = page.goto(address)
    assert answer is not None
    assert answer.ok, f"{answer.status} {address}"


def entered(browser: Browser, url: str, scheme: str, viewport: dict[str, int]) -> Page:
    """Sign in, and go to the inbox."""
    context = browser.new_context(
        color_scheme=scheme,  # type: ignore[arg-type]  # one of the words it takes
        viewport=viewport,  # type: ignore[arg-type]  # likewise
        locale="en-GB",
        timezone_id="Europe/Berlin",
        reduced_motion="reduce",
    )
    page = context.new_page()
    page.goto(f"{url}/console/sign-in")
    page.get_by_label("E-mail").fill(OWNER)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    page.goto(f"{url}/console/approvals")
    page.locator(".card").first.wait_for()
    page.locator(".deeds[inert]").first.wait_for(state="detached")
    page.get_by_text("Live", exact=True).wait_for()
    return page


def ask(url: str, shop: Shop) -> None:
    """Have agents ask for what waits in the pictures."""
    waiting = (
        ("deploy-helper", "db.migrate", {"service": "orders", "revision": "2f41c", "rows": 48_210}),
        (
            "support-triage",
            "mail.send",
            {"to": "priya@example.com", "subject": "Your parcel", "ticket": 8_113},
        ),
        ("refund-bot", "stripe.refund", refund(189.90, "Zoë Hartmann", "arrived broken")),
    )
    for agent, action, context in waiting:
        body = {"agent_id": shop.agents[agent], "action": action, "context": context}
        answer = httpx.post(f"{url}/sdk/check", json=body, headers={"X-API-Key": shop.key}, timeout=30)
        assert answer.json()["requires_approval"] is True, answer.text


def keep(page: Page, name: str) -> None:
    """Write a picture down."""
    path = FOLDER / f"{name}.png"
    page.screenshot(path=path, animations="disabled", caret="hide")
    # A third of the size, where it is at hand.
    if tool := shutil.which("pngquant"):
        subprocess.run(
            [tool, "--force", "--strip", "--speed", "1", "--output", path, "256", path], check=True
        )
    size = path.stat().st_size
    if size > MOST_BYTES:
        sys.exit(f"{path} has {size:,} bytes, and may have {MOST_BYTES:,}; make its viewport smaller")
    sys.stdout.write(f"{path.relative_to(ROOT)}  {size // 1024} KiB\n")


if __name__ == "__main__":
    main()
