"""Words to whoever pressed a button, sent in the background to where Slack said; best effort."""

import asyncio
import json
import logging
from collections.abc import Awaitable
from urllib.parse import urlsplit

from toolgate_service.slack.code import slack_escaped
from toolgate_service.webhooks.sender import Sender
from toolgate_service.webhooks.urls import RefusedUrl, canonical_url

logger = logging.getLogger("toolgate.gateway")

HOST = "hooks.slack.com"
#: seconds that a click may take until Slack is answered: it waits for three
PATIENCE = 2.0
#: replies at once; whoever clicks meanwhile finds the outcome in Slack's own messages
MOST = 64
#: seconds that what is under way has to end when the gateway does
GRACE = 1


class Replies:
    """Sends words, and lets go of what takes longer than Slack waits.

    Args:
        sender: reaches Slack; it judges addresses and follows no redirects.
        allow_private: whether the operator allows private addresses.
    """

    def __init__(self, sender: Sender, *, allow_private: bool) -> None:
        self._sender = sender
        self._allow_private = allow_private
        self._running: set[asyncio.Task[None]] = set()

    async def in_time(self, work: Awaitable[None]) -> None:
        """Wait for some work as long as Slack waits; it goes on afterwards."""
        task = asyncio.ensure_future(_finished(work))
        self._keep(task)
        await asyncio.wait({task}, timeout=PATIENCE)

    def say(self, response_url: str, own_url: str, words: str) -> None:
        """Say something to whoever pressed a button, and to nobody else.

        Args:
            response_url: where Slack wants it.
            own_url: the webhook's: its host may be answered as well as Slack's.
            words: plain ones.
        """
        url = self._allowed(response_url, own_url)
        if url is None or len(self._running) >= MOST:
            return
        self._keep(asyncio.ensure_future(self._send(url, reply(words))))

    async def stop(self) -> None:
        """End; what is under way has a moment."""
        if self._running:
            await asyncio.wait(set(self._running), timeout=GRACE)
        left = set(self._running)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    async def _send(self, url: str, body: str) -> None:
        # Nothing raises, and what is lost is only words.
        await self._sender.send(url, {}, body)

    def _allowed(self, response_url: str, own_url: str) -> str | None:
        try:
            url = canonical_url(response_url, allow_private=self._allow_private)
        except RefusedUrl:
            return None
        parts, own = urlsplit(url), urlsplit(own_url)
        slack = (parts.scheme, parts.netloc) == ("https", HOST)
        return url if slack or (parts.scheme, parts.netloc) == (own.scheme, own.netloc) else None

    def _keep(self, task: "asyncio.Task[None]") -> None:
        self._running.add(task)
        task.add_done_callback(self._running.discard)


def reply(words: str) -> str:
    """Return words as Slack takes them: for one person alone, the message with the buttons left as it is."""
    return json.dumps({"response_type": "ephemeral", "replace_original": False, "text": slack_escaped(words)})


async def _finished(work: Awaitable[None]) -> None:
    try:
        await work
    except Exception:
        # Slack is told that it arrived; the operator finds here what became of it.
        logger.exception("a click in Slack could not be carried out")
