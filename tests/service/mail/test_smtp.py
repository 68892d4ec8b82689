"""Mails through a real SMTP server: TLS, logins, refusals, time-outs."""

import asyncio
import gc
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.mailbox import MAIL_PASSWORD, USER, Mailbox, certificate, misbehaving
from support.ports import refusing_port

from toolgate_service import mail
from toolgate_service.core import mail_settings
from toolgate_service.core.mail_settings import SmtpServer
from toolgate_service.mail import Email, NotSent, SmtpMailer, compose, invitation, password_reset

SENDER = "Toolgate <toolgate@example.test>"
EMAIL = Email("greeting", "anna@example.test", "Grüße", "Guten Tag — https://example.test/#token=abc\n")


# asyncio closes TLS connections in the background, and leaves the rest to the garbage collector when its loop ends first.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(autouse=True)
def collect_transports() -> Iterator[None]:
    """Collect the transports of each test within the test, so that no later test reports them."""
    yield
    gc.collect()


@pytest.fixture
def tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
    """Certificate for 127.0.0.1 that this process trusts."""
    context, chain = certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(chain))
    return context


def send(url: str, email: Email = EMAIL) -> None:
    asyncio.run(SmtpMailer(SmtpServer.from_url(url), SENDER).send(email))


def not_sent(url: str) -> NotSent:
    with pytest.raises(NotSent) as failure:
        send(url)
    assert MAIL_PASSWORD not in str(failure.value)
    assert failure.value.__cause__ is None
    assert failure.value.__suppress_context__ or failure.value.__context__ is None
    return failure.value


def test_a_mail_arrives_as_it_was_written() -> None:
    """Sender, recipient, subject, text in any script, and a header that marks automatic mail."""
    with Mailbox() as mailbox:
        send(mailbox.url())
        [mail] = mailbox.mails
    assert (mail["From"], mail["To"], mail["Subject"]) == (SENDER, EMAIL.to, EMAIL.subject)
    assert mail["Auto-Submitted"] == "auto-generated"
    assert mail["Message-ID"].endswith("@example.test>")
    assert mail["Date"]
    assert mail.get_content().replace("\r\n", "\n") == EMAIL.text


def test_starttls_and_a_login_with_special_characters(tls: ssl.SSLContext) -> None:
    """`smtp://` begins TLS where it is offered and logs in after it; the password is percent-decoded."""
    with Mailbox(tls=tls, login=True) as mailbox:
        send(mailbox.url(login=True))
        assert (mailbox.over_tls, mailbox.logins) == ([True], [USER])


def test_tls_from_the_start(tls: ssl.SSLContext) -> None:
    """`smtps://` uses TLS from the first byte."""
    with Mailbox(tls=tls, implicit=True, login=True) as mailbox:
        send(mailbox.url(login=True, scheme="smtps"))
        assert (len(mailbox.mails), mailbox.logins) == (1, [USER])


@pytest.mark.parametrize("implicit", [True, False])
def test_a_certificate_that_nobody_trusts_is_refused(tmp_path: Path, implicit: bool) -> None:
    """A server without a valid certificate receives neither mail nor password, and the error is final."""
    context, _ = certificate(tmp_path)
    with Mailbox(tls=context, implicit=implicit, login=True) as mailbox:
        failure = not_sent(mailbox.url(login=True, scheme="smtps" if implicit else "smtp"))
        assert failure.final
        assert "certificate is not valid" in str(failure)
        assert (mailbox.mails, mailbox.logins) == ([], [])


def test_a_certificate_of_another_name_is_refused(tls: ssl.SSLContext) -> None:
    """The name in the URL is the one that the certificate must have."""
    with Mailbox(tls=tls) as mailbox:
        failure = not_sent(mailbox.url(host="localhost"))
        assert "certificate is not valid" in str(failure)
        assert mailbox.mails == []


def test_a_distant_server_without_tls_gets_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without TLS only this machine's server is used, or one whose URL ends in ?tls=off."""
    with Mailbox() as mailbox:
        distant = SmtpServer.from_url(mailbox.url(host="mail.example.test"))
        assert distant.require_tls
        assert not SmtpServer.from_url(mailbox.url(host="mail.example.test") + "?tls=off").require_tls
        monkeypatch.setattr(mail_settings, "is_loopback", lambda _: False)
        failure = not_sent(mailbox.url())
        assert failure.final
        assert "does not support TLS" in str(failure)
        assert mailbox.mails == []
        send(mailbox.url() + "?tls=off")
        assert len(mailbox.mails) == 1


def test_a_refused_login_is_final_and_tells_no_password(tls: ssl.SSLContext) -> None:
    """A wrong password is not tried again."""
    with Mailbox(tls=tls, login=True) as mailbox:
        failure = not_sent(f"smtp://gate:guessed@127.0.0.1:{mailbox.port}")
        assert (str(failure), failure.final) == ("the server rejected the login (535)", True)
        assert "guessed" not in str(failure)


def test_a_server_without_logins_is_told_so() -> None:
    """A server without logins is a wrong setting, so the error is final."""
    with Mailbox() as mailbox:
        assert not_sent(mailbox.url(login=True)).final


@pytest.mark.parametrize(("answer", "final"), [("451 later", False), ("554 never", True)])
def test_what_the_server_refuses_for_now_may_be_tried_again(answer: str, final: bool) -> None:
    """SMTP codes 4xx are temporary, 5xx are final."""
    with Mailbox() as mailbox:
        mailbox.answers.append(answer)
        assert not_sent(mailbox.url()).final is final


def test_a_server_that_is_down_may_come_back() -> None:
    """A refused connection is temporary."""
    with refusing_port() as port:
        failure = not_sent(f"smtp://127.0.0.1:{port}")
    assert not failure.final
    assert "cannot be reached" in str(failure)


def _silent(_connection: socket.socket, over: threading.Event) -> None:
    over.wait(30)


def _trickling(connection: socket.socket, over: threading.Event) -> None:
    connection.sendall(b"220-")
    while not over.wait(0.02):
        connection.sendall(b"x")


def _vanishing(connection: socket.socket, _over: threading.Event) -> None:
    connection.sendall(b"220 hello\r\n")
    connection.recv(1000)


def test_a_silent_server_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing response is a temporary error."""
    monkeypatch.setattr(mail, "RESPONSE_SECONDS", 0.2)
    with misbehaving(_silent) as port:
        failure = not_sent(f"smtp://127.0.0.1:{port}")
    assert (str(failure), failure.final) == ("the server did not respond in time", False)


def test_a_server_that_trickles_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that sends single characters cannot exceed the time for a whole mail."""
    monkeypatch.setattr(mail, "TOTAL_SECONDS", 0.5)
    with misbehaving(_trickling) as port:
        assert not not_sent(f"smtp://127.0.0.1:{port}").final


def _closing(connection: socket.socket, _over: threading.Event) -> None:
    """Accept a mail, and close the connection instead of answering QUIT."""
    connection.sendall(b"220 hello\r\n")
    lines = connection.makefile("rb")
    for line in lines:
        match line.split()[0].upper():
            case b"DATA":
                connection.sendall(b"354 go on\r\n")
                while next(lines) != b".\r\n":
                    pass
                connection.sendall(b"250 taken\r\n")
            case b"QUIT":
                return
            case _:
                connection.sendall(b"250 OK\r\n")


def test_an_accepted_mail_is_sent_whatever_happens_at_the_end() -> None:
    """A failed QUIT is no failure: another attempt would send the mail twice."""
    with misbehaving(_closing) as port:
        send(f"smtp://127.0.0.1:{port}")


def test_a_server_that_closes_at_once_may_come_back() -> None:
    with misbehaving(lambda _connection, _over: None) as port:
        failure = not_sent(f"smtp://127.0.0.1:{port}")
    assert not failure.final


def test_a_server_that_hangs_up_is_not_believed() -> None:
    """A connection that ends before the mail was accepted is an error."""
    with misbehaving(_vanishing) as port:
        failure = not_sent(f"smtp://127.0.0.1:{port}")
    assert not failure.final
    assert "connection to the server failed" in str(failure)


@pytest.mark.parametrize(
    "email",
    [
        Email("x", "a@example.test\r\nBcc: b@example.test", "subject", "text"),
        Email("x", "a@example.test", "subject\nBcc: b@example.test", "text"),
    ],
    ids=["recipient", "subject"],
)
def test_no_header_can_be_smuggled_in(email: Email) -> None:
    """A line break in a header is an error, never another header."""
    with pytest.raises(ValueError, match=r"(?i)linefeed|newline|carriage|invalid"):
        compose(email, SENDER)


def test_a_name_with_line_breaks_stays_in_the_text() -> None:
    """Values that users choose, such as an organization's name, are in no header."""
    email = invitation("a@example.test", "Evil\nBcc: b@example.test", "member", "https://x.test/#token=t")
    message = compose(email, SENDER)
    assert "Bcc" not in message
    assert set(message.keys()) == set(compose(EMAIL, SENDER).keys())


def test_nothing_shows_a_secret() -> None:
    """Neither the mailer's nor a mail's representation contains the password, the link, or the recipient's name."""
    assert repr(SmtpServer.from_url("smtp://gate:p%40ss@mail.test")) == "SmtpServer('mail.test', 587)"
    shown = repr(password_reset("anna@example.test", "https://x.test/#token=secret"))
    assert shown == "Email('password reset' to an address at 'example.test')"


@pytest.mark.parametrize(
    ("url", "host", "port"),
    [
        ("smtp://mail.example.test", "mail.example.test", 587),
        ("smtps://mail.example.test/", "mail.example.test", 465),
        ("smtp://mail.example.test:25", "mail.example.test", 25),
        ("smtp://[::1]:2525", "::1", 2525),
    ],
)
def test_a_url_names_server_and_port(url: str, host: str, port: int) -> None:
    """The default port depends on the scheme."""
    server = SmtpServer.from_url(url)
    assert (server.host, server.port) == (host, port)


@pytest.mark.parametrize(
    "url",
    [
        "mail.example.test",
        "http://mail.example.test",
        "smtp://",
        "smtp://mail.example.test:99999",
        "smtp://mail.example.test/path",
        "smtp://mail.example.test?tls=maybe",
        "smtp://mail.example.test#x",
        "smtp://user@mail.example.test",
        "smtp://user:secret@mail.example.test?tls=off",
        "smtps://mail.example.test?tls=off",
        "smtp://user:se#cret@mail.example.test",
        "smtp://[",
    ],
)
def test_a_url_that_is_none_is_refused(url: str) -> None:
    """The message shows the form of a URL, and neither user nor password."""
    with pytest.raises(ValueError, match=r"\w") as refusal:
        SmtpServer.from_url(url)
    assert "secret" not in str(refusal.value)
    assert "se#cret" not in str(refusal.value)
