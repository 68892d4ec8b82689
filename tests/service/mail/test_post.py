"""The post: off the request's path, tried again, never lost in silence."""

import asyncio
import logging
import threading

import pytest
from support.waiting import until

from toolgate_service.mail import post as post_module
from toolgate_service.mail.letters import Letter
from toolgate_service.mail.post import Post
from toolgate_service.mail.smtp import NotSent

LETTER = Letter("greeting", "anna@example.test", "subject", "a secret link\n")


class Scripted:
    """A mailer that fails as told, in order, and then sends.

    Attributes:
        sent: what was sent.
        attempts: how often it was tried.
    """

    def __init__(self, *failures: Exception) -> None:
        self._failures = list(failures)
        self.sent: list[Letter] = []
        self.attempts = 0

    def send(self, letter: Letter) -> None:
        self.attempts += 1
        if self._failures:
            raise self._failures.pop(0)
        self.sent.append(letter)


class Stuck:
    """A mailer whose server does not answer until the test is over."""

    def __init__(self) -> None:
        self.over = threading.Event()
        self.begun = threading.Event()

    def send(self, letter: Letter) -> None:
        self.begun.set()
        self.over.wait(30)


def later() -> NotSent:
    return NotSent("the server refused (451)", final=False)


async def all_gone(post: Post) -> None:
    while post._on_their_way:
        await asyncio.wait(post._on_their_way)


def said(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == level]


async def test_what_fails_for_now_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    """Two failures and a success: the letter is sent once, and the log has two warnings without its text."""
    mailer = Scripted(later(), later())
    post = Post(mailer, pauses=(0, 0, 0))
    assert post.send(LETTER)
    await all_gone(post)
    assert (mailer.sent, mailer.attempts) == ([LETTER], 3)
    told = "Letter('greeting' to an address at 'example.test') did not go, another attempt follows: "
    assert said(caplog, logging.WARNING) == [told + "the server refused (451)"] * 2
    assert "secret" not in caplog.text


async def test_what_fails_too_often_is_given_up_aloud(caplog: pytest.LogCaptureFixture) -> None:
    """After the last attempt an error says which kind of letter did not go, and why."""
    mailer = Scripted(*[later() for _ in range(9)])
    post = Post(mailer, pauses=(0, 0))
    post.send(LETTER)
    await all_gone(post)
    assert mailer.attempts == 3
    [line] = said(caplog, logging.ERROR)
    assert line.endswith("is given up: the server refused (451)")


async def test_what_is_refused_for_good_is_not_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    """A final refusal costs one attempt."""
    mailer = Scripted(NotSent("the server refused the login (535)", final=True))
    post = Post(mailer, pauses=(0, 0))
    post.send(LETTER)
    await all_gone(post)
    assert mailer.attempts == 1
    assert len(said(caplog, logging.ERROR)) == 1


async def test_a_failing_letter_holds_up_no_other() -> None:
    """While one waits for its next attempt, others go."""
    mailer = Scripted(later())
    post = Post(mailer, pauses=(3600,))
    first, second = [Letter("greeting", "a@example.test", number, "") for number in "12"]
    post.send(first)
    await asyncio.to_thread(until, lambda: mailer.attempts == 1)
    post.send(second)
    await asyncio.to_thread(until, lambda: mailer.sent == [second])


async def test_closing_waits_for_what_is_on_its_way() -> None:
    """A letter that was taken before the end is sent before the end."""
    mailer = Scripted()
    post = Post(mailer)
    post.send(LETTER)
    await post.close()
    assert mailer.sent == [LETTER]


async def test_closing_gives_up_on_a_stuck_server_aloud(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that does not answer keeps the gateway no longer than a moment, and the log counts the loss."""
    monkeypatch.setattr(post_module, "GRACE", 0.1)
    mailer = Stuck()
    post = Post(mailer)
    for _ in range(3):
        post.send(LETTER)
    await asyncio.to_thread(mailer.begun.wait, 30)
    await asyncio.wait_for(post.close(), 5)
    mailer.over.set()
    assert said(caplog, logging.ERROR) == ["3 mails were not sent before the gateway stopped"]


async def test_more_than_can_be_carried_is_refused_aloud(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crowd of letters fills no memory: beyond the bound they are refused, which is logged."""
    monkeypatch.setattr(post_module, "MOST", 2)
    monkeypatch.setattr(post_module, "GRACE", 0.1)
    mailer = Stuck()
    post = Post(mailer)
    assert [post.send(LETTER) for _ in range(3)] == [True, True, False]
    assert said(caplog, logging.ERROR) == [f"{LETTER!r} is not sent: 2 are on their way already"]
    await post.close()
    mailer.over.set()


async def test_a_letter_that_cannot_be_written_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever goes wrong in writing one is in the log, and the post goes on."""

    async def failing() -> Letter:
        raise RuntimeError("no database")

    async def nobody() -> None:
        return None

    mailer = Scripted(ValueError("a line break in a header"))
    post = Post(mailer)
    post.write_and_send(failing)
    post.write_and_send(nobody)
    post.send(LETTER)
    await all_gone(post)
    assert said(caplog, logging.ERROR) == ["a mail could not be written"] * 2
    assert mailer.sent == []
    post.send(LETTER)
    await all_gone(post)
    assert mailer.sent == [LETTER]
