"""The gateway's parts, made once and shared by every request."""

from typing import Annotated

from fastapi import Depends, Request

from toolgate_service.accounts.passwords import Passwords
from toolgate_service.approvals.hub import DecisionHub
from toolgate_service.billing.signature import ProviderSignature
from toolgate_service.hearing import Hearing, listener_of, stalled_sessions_of
from toolgate_service.hotpath.recent_keys import RecentKeys
from toolgate_service.hotpath.stores import stores_of
from toolgate_service.hotpath.writer import LogWriter
from toolgate_service.mail.post import Post
from toolgate_service.mail.smtp import SmtpMailer
from toolgate_service.metrics.entries import CountedStore
from toolgate_service.metrics.figures import Figures
from toolgate_service.organizations.strangers import Strangers
from toolgate_service.sealed import refuse_other_secret
from toolgate_service.settings import Settings
from toolgate_service.slack.replies import Replies
from toolgate_service.storage.database import EXPORTS, open_database
from toolgate_service.storage.readiness import Readiness
from toolgate_service.turnstile import Turnstile
from toolgate_service.upkeep.loop import Upkeep
from toolgate_service.upkeep.steps import upkeep_steps, watch_steps
from toolgate_service.vault import Vault
from toolgate_service.web.auth_failures import AuthFailures
from toolgate_service.web.parsing import BodyParser
from toolgate_service.webhooks.outbox import equip
from toolgate_service.webhooks.sender import Sender
from toolgate_service.webhooks.worker import Worker


class Gateway:
    """Everything a request may need.

    Raises:
        StorageError: the database or the secret cannot be used.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.plans = settings.plans
        secret = settings.provider_webhook_secret
        self.provider_signature = ProviderSignature(secret.get_secret_value()) if secret else None
        self.database = open_database(settings.database_url)
        self.vault = Vault.of(settings)
        self.passwords = Passwords(settings.login_threads, settings.login_queue)
        self.parser = BodyParser()
        self.auth_failures = AuthFailures(settings.failed_authentications_per_minute)
        self.recent_keys = RecentKeys()
        self.hub = DecisionHub()
        self.strangers = Strangers(self.database)
        self.exports = Turnstile("exports", EXPORTS, EXPORTS // 2)
        self.post = _post(settings)
        self.reader, self.rates, self.log_store = stores_of(
            self.database,
            self.plans,
            shared=settings.workers > 1,
            redis_url=settings.redis_url.get_secret_value() if settings.redis_url else None,
        )
        self.figures = Figures() if settings.metrics_address else None
        counted = CountedStore(self.log_store, self.figures) if self.figures else self.log_store
        self.log_writer = LogWriter(counted)
        self.readiness = Readiness(self.database)
        steps = upkeep_steps(self.database, settings, self.plans)
        self.upkeep = Upkeep(self.database, settings.upkeep_seconds, steps, self.readiness.problem)
        self.watch = Upkeep(
            self.database,
            settings.approval_watch_seconds,
            watch_steps(self.database, settings),
            self.readiness.problem,
            alone=False,
        )
        sender = Sender(allow_private=settings.webhooks_allow_private)
        self.webhooks = Worker(self.database, self.vault, sender, settings.webhook_poll_seconds)
        self.slack = Replies(sender, allow_private=settings.webhooks_allow_private)
        equip(self.database, self.plans, self.webhooks.wake)
        self.listener = listener_of(self.database, Hearing(self.hub, self.webhooks.nudge))
        self.stalled_sessions = stalled_sessions_of(self.database)

    async def start(self) -> None:
        """Open the database, bring it up to date, and begin to take log entries.

        Raises:
            StorageError: the database cannot be used, or the secret does not open its keys.
        """
        await self.database.start(migrate=self.settings.migrate == "auto")
        await refuse_other_secret(self.database, self.settings, self.vault)
        await self.reader.open()
        await self.rates.open()
        await self.log_writer.start()
        self.upkeep.start()
        self.watch.start()
        self.webhooks.start()
        if self.listener is not None:
            self.listener.start()
        if self.stalled_sessions is not None:
            self.stalled_sessions.start()

    def leave(self) -> None:
        """Be ready no more, and send home whoever waits for news; everything else goes on until `stop`."""
        self.readiness.leaving = True
        self.hub.close()

    async def stop(self) -> None:
        """Write what waits, then close everything."""
        if self.listener is not None:
            await self.listener.stop()
        if self.stalled_sessions is not None:
            await self.stalled_sessions.stop()
        # Before the deliveries, whose connections it uses.
        await self.slack.stop()
        await self.webhooks.stop()
        await self.upkeep.stop()
        await self.watch.stop()
        await self.readiness.stop()
        if self.post is not None:
            await self.post.close()
        await self.log_writer.stop()
        await self.rates.close()
        await self.reader.close()
        await self.database.close()
        self.passwords.close()
        self.parser.close()


def _post(settings: Settings) -> Post | None:
    if settings.smtp_url is None or settings.mail_from is None:
        return None
    return Post(SmtpMailer.from_url(settings.smtp_url.get_secret_value(), settings.mail_from))


async def gateway_of(request: Request) -> Gateway:
    """Return the gateway that serves a request."""
    gateway: Gateway = request.app.state.gateway
    return gateway


GatewayDep = Annotated[Gateway, Depends(gateway_of)]
