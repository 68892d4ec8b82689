"""Background tasks that process button clicks from Slack and send replies to the users who clicked."""

import asyncio
import logging
from collections.abc import Awaitable
from urllib.parse import urlsplit

from toolgate_service.outbound.sender import Sender
from toolgate_service.outbound.ssrf import InvalidUrl, canonical_url
from toolgate_service.slack.messages import ephemeral_message

logger = logging.getLogger("toolgate.gateway")

SLACK_HOST = "hooks.slack.com"
#: Maximum seconds before the gateway responds to a button click. Slack stops waiting after three seconds.
RESPONSE_TIMEOUT = 2.0
#: Maximum number of tasks that run at the same time. Further replies are dropped.
MAX_TASKS = 64
#: Seconds that running tasks have to finish when the gateway stops.
STOP_TIMEOUT = 1


class Replies:
    """Background tasks that process button clicks in Slack and send replies. A failed reply is not retried."""

    def __init__(self, sender: Sender, *, allow_private: bool) -> None:
        self._sender = sender
        self._allow_private = allow_private
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, work: Awaitable[None]) -> None:
        """Start `work` and wait for it for at most `RESPONSE_TIMEOUT` seconds.

        Unfinished work continues in the background.
        """
        task = asyncio.ensure_future(_log_failure(work))
        self._keep(task)
        await asyncio.wait({task}, timeout=RESPONSE_TIMEOUT)

    def send(self, response_url: str, webhook_url: str, text: str) -> None:
        """Send a text that only the Slack user who clicked a button can see.

        The text is dropped if too many tasks are running. It is also dropped if `response_url` is not an allowed URL,
        or its host is neither Slack's host nor the host of the webhook.
        """
        url = self._allowed_url(response_url, webhook_url)
        if url is None or len(self._tasks) >= MAX_TASKS:
            return
        self._keep(asyncio.ensure_future(self._send(url, ephemeral_message(text))))

    async def stop(self) -> None:
        """Wait at most `STOP_TIMEOUT` seconds for running tasks, then cancel those that have not finished."""
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=STOP_TIMEOUT)
        left = set(self._tasks)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    async def _send(self, url: str, body: str) -> None:
        # Errors need no handling here, because the sender returns failures instead of raising them.
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
        logger.exception("could not process a button click from Slack")
