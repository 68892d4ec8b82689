"""Background tasks that process button presses from Slack and send replies."""

import asyncio
import logging
from collections.abc import Awaitable
from urllib.parse import urlsplit

from toolgate_service.outbound.sender import Sender
from toolgate_service.outbound.ssrf import InvalidUrl, canonical_url
from toolgate_service.slack.messages import ephemeral_message

logger = logging.getLogger("toolgate.gateway")

SLACK_HOST = "hooks.slack.com"
#: maximum seconds before the gateway responds to a button press; Slack's own timeout is three seconds
RESPONSE_TIMEOUT = 2.0
#: maximum number of concurrent tasks; further replies are dropped
MAX_TASKS = 64
#: seconds that running tasks have to finish when the gateway stops
STOP_TIMEOUT = 1


class Replies:
    """Background tasks that process button presses and send replies. A reply that fails is not retried."""

    def __init__(self, sender: Sender, *, allow_private: bool) -> None:
        self._sender = sender
        self._allow_private = allow_private
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, work: Awaitable[None]) -> None:
        """Run `work` and wait for it up to `RESPONSE_TIMEOUT`. After that, it continues in the background."""
        task = asyncio.ensure_future(_log_failure(work))
        self._keep(task)
        await asyncio.wait({task}, timeout=RESPONSE_TIMEOUT)

    def send(self, response_url: str, webhook_url: str, text: str) -> None:
        """Send a text that only the Slack user sees.

        The text is dropped if too many tasks are running. It is also dropped if `response_url` points neither to
        Slack's host nor to the host of the webhook.
        """
        url = self._allowed_url(response_url, webhook_url)
        if url is None or len(self._tasks) >= MAX_TASKS:
            return
        self._keep(asyncio.ensure_future(self._send(url, ephemeral_message(text))))

    async def stop(self) -> None:
        """Wait up to `STOP_TIMEOUT` for running tasks, then cancel the remaining ones."""
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=STOP_TIMEOUT)
        left = set(self._tasks)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    async def _send(self, url: str, body: str) -> None:
        # No error handling is needed: the sender returns failures instead of raising them.
        await self._sender.send(url, {}, body)

    def _allowed_url(self, response_url: str, webhook_url: str) -> str | None:
        try:
            url = canonical_url(response_url, allow_private=self._allow_private)
        except InvalidUrl:
            return None
        parts, own = urlsplit(url), urlsplit(webhook_url)
        is_slack = (parts.scheme, parts.netloc) == ("https", SLACK_HOST)
        return url if is_slack or (parts.scheme, parts.netloc) == (own.scheme, own.netloc) else None

    def _keep(self, task: "asyncio.Task[None]") -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _log_failure(work: Awaitable[None]) -> None:
    try:
        await work
    except Exception:
        logger.exception("a click in Slack could not be carried out")
