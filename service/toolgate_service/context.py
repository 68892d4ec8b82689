"""Dependencies of the service functions. They are created once per process."""

from toolgate_service.core.concurrency import ConcurrencyLimiter, Notifier
from toolgate_service.core.crypto import Passwords, Vault
from toolgate_service.core.mail_settings import SmtpServer
from toolgate_service.core.settings import Settings
from toolgate_service.db.database import EXPORTS, open_database
from toolgate_service.mail.queue import MailQueue


class AppContext:
    """Dependencies that service functions use: settings, database, cryptography, notifier, mail queue and export limit.

    Raises:
        StorageError: The database URL or the secret is invalid.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.plans = settings.plans
        self.database = open_database(settings.database_url)
        self.vault = Vault.of(settings)
        self.passwords = Passwords(settings.login_threads, settings.login_queue)
        self.notifier = Notifier()
        self.exports = ConcurrencyLimiter("exports", EXPORTS, EXPORTS // 2)
        self.mail = _open_mail_queue(settings)


def _open_mail_queue(settings: Settings) -> MailQueue | None:
    if settings.smtp_url is None or settings.mail_from is None:
        return None
    # Imported late, because most gateways send no mail, and the import of the client library takes 20 ms.
    from toolgate_service.mail.smtp import SmtpMailer

    server = SmtpServer.from_url(settings.smtp_url.get_secret_value())
    return MailQueue(SmtpMailer(server, settings.mail_from))
