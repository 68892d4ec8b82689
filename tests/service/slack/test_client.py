"""Words in the background: Slack is answered in time, whatever a click takes, and words go to Slack alone."""

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest
from support.receiver import Receiver

from toolgate_service.outbound.sender import Sender
from toolgate_service.slack import client as module
from toolgate_service.slack.client import Replies

MASKED = "https://hooks.slack-gov.com/…"


@pytest.fixture
async def replies() -> AsyncIterator[Replies]:
    """Sends to this machine too."""
    sender = Sender(allow_private=True, seconds=2)
    made = Replies(sender, allow_private=True)
    yield made
    await made.stop()
    await sender.close()


async def test_slack_does_not_wait_for_what_takes_long(
    replies: Replies, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is answered, and the work goes on to its end."""
    monkeypatch.setattr(module, "RESPONSE_TIMEOUT", 0.01)
    free, done = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        await free.wait()
        done.set()

    await replies.run(work())
    assert not done.is_set()
    free.set()
    await done.wait()


async def test_work_that_is_done_in_time_is_waited_for(replies: Replies) -> None:
    """What was decided is decided when Slack is answered."""
    done: list[int] = []

    async def work() -> None:
        await asyncio.sleep(0)
        done.append(1)

    await replies.run(work())
    assert done == [1]


async def test_a_failure_is_told_to_the_operator_alone(
    replies: Replies, caplog: pytest.LogCaptureFixture
) -> None:
    """Slack is answered all the same."""

    async def work() -> None:
        raise RuntimeError("the disk is full")

    with caplog.at_level(logging.ERROR, "toolgate.gateway"):
        await replies.run(work())
    assert "could not process a button click from Slack" in caplog.text


@pytest.mark.parametrize(
    ("response_url", "allowed"),
    [
        ("https://hooks.slack.com/actions/T1/2/3", True),
        ("https://HOOKS.slack.com/actions/T1/2/3", True),
        ("https://hooks.slack-gov.com/actions/T1/2/3", True),
        ("http://hooks.slack.com/actions/T1/2/3", False),
        ("http://hooks.slack-gov.com/actions/T1/2/3", False),
        ("https://hooks.slack.com:8443/actions", False),
        ("https://hooks.slack.com@evil.example/", False),
        ("https://evil.example/hooks.slack.com", False),
        ("https://hooks.slack.com.evil.example/", False),
        ("https://hooks.slack.com\\@evil.example/", False),
        ("https://169.254.169.254/latest", False),
        ("", False),
    ],
)
async def test_only_slack_is_answered(replies: Replies, response_url: str, allowed: bool) -> None:
    """https at Slack, or the host of the webhook's own URL."""
    assert (replies._allowed_url(response_url, MASKED) is not None) is allowed


async def test_so_many_at_once_and_no_more(
    replies: Replies, slack: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What comes beyond is not said; nobody can make the gateway hold more."""
    monkeypatch.setattr(module, "MAX_TASKS", 3)
    for number in range(5):
        replies.send(f"http://127.0.0.1:{slack.port}/{number}", slack.url, "<words> & more")
    await replies.stop()
    assert sorted(got.path for got in slack.got) == ["/0", "/1", "/2"]
    assert {got.event["text"] for got in slack.got} == {"&lt;words&gt; &amp; more"}
