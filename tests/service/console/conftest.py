"""Fixtures: browsers of users with different roles."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright
from support.browser import chromium
from support.console import Reader
from support.gateway import LiveGateway, Owner
from support.team import Colleague


@pytest.fixture(scope="module")
def maya(acme: Owner) -> Iterator[Reader]:
    """Browser of the administrator of the module's organization."""
    with Reader.of(acme.url, acme.email) as reader:
        yield reader


@pytest.fixture(scope="module")
def viewer(acme: Owner) -> Iterator[Reader]:
    """Browser of a colleague with the role viewer."""
    with Colleague(acme, "viewer") as colleague, Reader.of(acme.url, colleague.email) as reader:
        yield reader


@pytest.fixture
def stranger(gateway: LiveGateway) -> Iterator[Reader]:
    """Browser without a session."""
    with Reader(gateway.url) as reader:
        yield reader


@pytest.fixture(scope="module")
def refunder(acme: Owner) -> str:
    """An agent whose refunds need an approval."""
    agent = acme.agent("refund-bot")
    acme.permit(agent, "stripe.refund", requires_approval=True, max_amount=500)
    return agent


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium, shared by a module's tests."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium())
        yield browser
        browser.close()
