"""The mail queue: off the request path, with retries, and every failure is logged."""

import asyncio
import logging

import pytest
from support.waiting import until

from toolgate_service import mail
from toolgate_service.mail import Email, MailQueue, NotSent

EMAIL = Email("greeting", "anna@example.test", "subject", "a secret link\n")


class Scripted:
    """Mailer that raises the given errors in order and then sends.

    Attributes:
        sent: what was sent.
        attempts: how often it was tried.
    """

    def __init__(self, *failures: Exception) -> None:
        self._failures = list(failures)
        self.sent: list[Email] = []
        self.attempts = 0

    async def send(self, email: Email) -> None:
        self.attempts += 1
        if self._failures:
            raise self._failures.pop(0)
        self.sent.append(email)


class Stuck:
    """Mailer whose server does not answer until the end of the test."""

    def __init__(self) -> None:
        self.over = asyncio.Event()
        self.begun = asyncio.Event()

    async def send(self, email: Email) -> None:
        self.begun.set()
        await self.over.wait()


def later() -> NotSent:
    return NotSent("the server responded with error 451", final=False)


async def all_gone(mails: MailQueue) -> None:
    while mails._tasks:
        await asyncio.wait(mails._tasks)


def said(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == level]


async def test_what_fails_for_now_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    """Two failures and a success: the mail is sent once, and the log has two warnings without its text."""
    mailer = Scripted(later(), later())
    mails = MailQueue(mailer, backoff=(0, 0, 0))
    assert mails.send(EMAIL)
    await all_gone(mails)
    assert (mailer.sent, mailer.attempts) == ([EMAIL], 3)
    told = "Email('greeting' to an address at 'example.test') was not sent and is retried: "
    assert said(caplog, logging.WARNING) == [told + "the server responded with error 451"] * 2
    assert "secret" not in caplog.text


async def test_what_fails_too_often_is_given_up_aloud(caplog: pytest.LogCaptureFixture) -> None:
    """After the last attempt an error with the kind of mail and the reason is logged."""
    mailer = Scripted(*[later() for _ in range(9)])
    mails = MailQueue(mailer, backoff=(0, 0))
    mails.send(EMAIL)
    await all_gone(mails)
    assert mailer.attempts == 3
    [line] = said(caplog, logging.ERROR)
    assert line.endswith("was not sent and is not retried: the server responded with error 451")


async def test_what_is_refused_for_good_is_not_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    """A final refusal costs one attempt."""
    mailer = Scripted(NotSent("the server rejected the login (535)", final=True))
    mails = MailQueue(mailer, backoff=(0, 0))
    mails.send(EMAIL)
    await all_gone(mails)
    assert mailer.attempts == 1
    assert len(said(caplog, logging.ERROR)) == 1


async def test_a_failing_mail_delays_no_other() -> None:
    """While one mail waits for its next attempt, others are sent."""
    mailer = Scripted(later())
    mails = MailQueue(mailer, backoff=(3600,))
    first, second = [Email("greeting", "a@example.test", number, "") for number in "12"]
    mails.send(first)
    await asyncio.to_thread(until, lambda: mailer.attempts == 1)
    mails.send(second)
    await asyncio.to_thread(until, lambda: mailer.sent == [second])


async def test_closing_waits_for_what_is_on_its_way() -> None:
    """A mail that was queued before the shutdown is sent before the end."""
    mailer = Scripted()
    mails = MailQueue(mailer)
    mails.send(EMAIL)
    await mails.close()
    assert mailer.sent == [EMAIL]


async def test_closing_gives_up_on_a_stuck_server_aloud(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that does not answer delays the shutdown only briefly, and the number of lost mails is logged."""
    monkeypatch.setattr(mail, "SHUTDOWN_SECONDS", 0.1)
    mailer = Stuck()
    mails = MailQueue(mailer)
    for _ in range(3):
        mails.send(EMAIL)
    await asyncio.wait_for(mailer.begun.wait(), 30)
    await asyncio.wait_for(mails.close(), 5)
    mailer.over.set()
    assert said(caplog, logging.ERROR) == ["3 e-mails were not sent before the gateway stopped"]


async def test_more_than_can_be_carried_is_refused_aloud(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queue is bounded: further mails are refused, which is logged."""
    monkeypatch.setattr(mail, "MAX_QUEUED", 2)
    monkeypatch.setattr(mail, "SHUTDOWN_SECONDS", 0.1)
    mailer = Stuck()
    mails = MailQueue(mailer)
    assert [mails.send(EMAIL) for _ in range(3)] == [True, True, False]
    assert said(caplog, logging.ERROR) == [
        f"{EMAIL!r} is not sent: the queue is full, because 2 e-mails wait to be sent"
    ]
    await mails.close()
    mailer.over.set()


async def test_a_mail_that_cannot_be_written_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """An error while a mail is made is logged, and the queue continues."""

    async def failing() -> Email:
        raise RuntimeError("no database")

    async def nobody() -> None:
        return None

    mailer = Scripted(ValueError("a line break in a header"))
    mails = MailQueue(mailer)
    mails.make_and_send(failing)
    mails.make_and_send(nobody)
    mails.send(EMAIL)
    await all_gone(mails)
    assert (
        said(caplog, logging.ERROR) == ["an e-mail is not sent, because its message could not be created"] * 2
    )
    assert mailer.sent == []
    mails.send(EMAIL)
    await all_gone(mails)
    assert mailer.sent == [EMAIL]
