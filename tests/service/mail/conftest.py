"""Fixtures for mail: a gateway that sends it, and an SMTP server that receives it."""

from collections.abc import Iterator

import pytest
from support.gateway import LiveGateway, Owner
from support.mailbox import Mailbox

PUBLIC_URL = "https://gate.example.test/toolgate"


def mail_env(mailbox: Mailbox) -> dict[str, str]:
    """Return the settings of a gateway that sends through a server."""
    return {
        "TOOLGATE_SMTP_URL": mailbox.url(),
        "TOOLGATE_MAIL_FROM": "Toolgate <toolgate@gate.example.test>",
        "TOOLGATE_PUBLIC_URL": PUBLIC_URL,
    }


@pytest.fixture(scope="module")
def mailbox() -> Iterator[Mailbox]:
    """SMTP server that receives the gateway's mails."""
    with Mailbox() as mailbox:
        yield mailbox


@pytest.fixture(scope="module")
def mailing(tmp_path_factory: pytest.TempPathFactory, mailbox: Mailbox) -> Iterator[LiveGateway]:
    """Gateway that sends mail."""
    with LiveGateway(tmp_path_factory.mktemp("mailing"), env=mail_env(mailbox)) as gateway:
        yield gateway


@pytest.fixture
def anna(mailing: LiveGateway) -> Iterator[Owner]:
    """Administrator of an organization for one test."""
    with Owner(mailing.url, organization="Acme") as owner:
        yield owner
