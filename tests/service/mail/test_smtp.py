"""Sending by a real SMTP server: TLS, logins, refusals, silence (decisions §9)."""

import socket
import ssl
import threading
from pathlib import Path

import pytest
from support.mailbox import MAIL_PASSWORD, USER, Mailbox, certificate, free_port, misbehaving

from toolgate_service.mail import smtp
from toolgate_service.mail.letters import Letter, invitation, password_reset
from toolgate_service.mail.smtp import NotSent, SmtpMailer, compose

SENDER = "Toolgate <toolgate@example.test>"
LETTER = Letter("greeting", "anna@example.test", "Grüße", "Guten Tag — https://example.test/#token=abc\n")


@pytest.fixture
def tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
    """A certificate for 127.0.0.1 that this process trusts."""
    context, chain = certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(chain))
    return context


def send(url: str, letter: Letter = LETTER) -> None:
    SmtpMailer.from_url(url, SENDER).send(letter)


def not_sent(url: str) -> NotSent:
    with pytest.raises(NotSent) as failure:
        send(url)
    assert MAIL_PASSWORD not in str(failure.value)
    assert failure.value.__cause__ is None
    assert failure.value.__suppress_context__ or failure.value.__context__ is None
    return failure.value


def test_a_letter_arrives_as_it_was_written() -> None:
    """Sender, recipient, subject and text; marked as made by a machine; text of any script."""
    with Mailbox() as mailbox:
        send(mailbox.url())
        [mail] = mailbox.mails
    assert (mail["From"], mail["To"], mail["Subject"]) == (SENDER, LETTER.to, LETTER.subject)
    assert mail["Auto-Submitted"] == "auto-generated"
    assert mail["Message-ID"].endswith("@example.test>")
    assert mail["Date"]
    assert mail.get_content().replace("\r\n", "\n") == LETTER.text


def test_starttls_and_a_login_with_odd_letters(tls: ssl.SSLContext) -> None:
    """`smtp://` begins TLS where it is offered and logs in after it; the password is percent-decoded."""
    with Mailbox(tls=tls, login=True) as mailbox:
        send(mailbox.url(login=True))
        assert (mailbox.over_tls, mailbox.logins) == ([True], [USER])


def test_tls_from_the_start(tls: ssl.SSLContext) -> None:
    """`smtps://` speaks TLS from the first byte."""
    with Mailbox(tls=tls, implicit=True, login=True) as mailbox:
        send(mailbox.url(login=True, scheme="smtps"))
        assert (len(mailbox.mails), mailbox.logins) == (1, [USER])


@pytest.mark.parametrize("implicit", [True, False])
def test_a_certificate_that_nobody_trusts_is_refused(tmp_path: Path, implicit: bool) -> None:
    """Neither mail nor password is given to a server that cannot prove its name; trying again is of no use."""
    context, _ = certificate(tmp_path)
    with Mailbox(tls=context, implicit=implicit, login=True) as mailbox:
        failure = not_sent(mailbox.url(login=True, scheme="smtps" if implicit else "smtp"))
        assert failure.final
        assert "certificate is not good" in str(failure)
        assert (mailbox.mails, mailbox.logins) == ([], [])


def test_a_certificate_of_another_name_is_refused(tls: ssl.SSLContext) -> None:
    """The name in the URL is the one that the certificate must have."""
    with Mailbox(tls=tls) as mailbox:
        failure = not_sent(mailbox.url(host="localhost"))
        assert "certificate is not good" in str(failure)
        assert mailbox.mails == []


def test_a_distant_server_without_tls_gets_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only this machine's own server, or one of which the URL says so, is spoken to in the clear."""
    with Mailbox() as mailbox:
        distant = SmtpMailer.from_url(mailbox.url(host="mail.example.test"), SENDER)
        assert distant.demand_tls
        assert not SmtpMailer.from_url(mailbox.url(host="mail.example.test") + "?tls=off", SENDER).demand_tls
        monkeypatch.setattr(smtp, "is_loopback", lambda _: False)
        failure = not_sent(mailbox.url())
        assert failure.final
        assert "offers no TLS" in str(failure)
        assert mailbox.mails == []
        send(mailbox.url() + "?tls=off")
        assert len(mailbox.mails) == 1


def test_a_refused_login_is_final_and_tells_no_password(tls: ssl.SSLContext) -> None:
    """A wrong password is not tried again."""
    with Mailbox(tls=tls, login=True) as mailbox:
        failure = not_sent(f"smtp://gate:guessed@127.0.0.1:{mailbox.port}")
        assert (str(failure), failure.final) == ("the server refused the login (535)", True)
        assert "guessed" not in str(failure)


def test_a_server_without_logins_is_told_so() -> None:
    """A login that the server does not know is a setting to mend, not a reason to try again."""
    with Mailbox() as mailbox:
        assert not_sent(mailbox.url(login=True)).final


@pytest.mark.parametrize(("answer", "final"), [("451 later", False), ("554 never", True)])
def test_what_the_server_refuses_for_now_may_be_tried_again(answer: str, final: bool) -> None:
    """Answers of the kind 4xx are for now, 5xx for good."""
    with Mailbox() as mailbox:
        mailbox.answers.append(answer)
        assert not_sent(mailbox.url()).final is final


def test_a_server_that_is_down_may_come_back() -> None:
    """Nobody listens: the letter may be tried again."""
    failure = not_sent(f"smtp://127.0.0.1:{free_port()}")
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
    """No answer within the time for one: not sent, to be tried again."""
    monkeypatch.setattr(smtp, "PATIENCE", 0.2)
    with misbehaving(_silent) as port:
        failure = not_sent(f"smtp://127.0.0.1:{port}")
    assert (str(failure), failure.final) == ("the server did not answer in time", False)


def test_a_server_that_trickles_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A letter now and then keeps no connection alive for longer than a whole mail may take."""
    monkeypatch.setattr(smtp, "IN_ALL", 0.5)
    with misbehaving(_trickling) as port:
        assert not not_sent(f"smtp://127.0.0.1:{port}").final


def test_a_server_that_hangs_up_is_not_believed() -> None:
    """A connection that ends before the mail was taken is no success."""
    with misbehaving(_vanishing) as port:
        failure = not_sent(f"smtp://127.0.0.1:{port}")
    assert not failure.final
    assert "hung up" in str(failure)


@pytest.mark.parametrize(
    "letter",
    [
        Letter("x", "a@example.test\r\nBcc: b@example.test", "subject", "text"),
        Letter("x", "a@example.test", "subject\nBcc: b@example.test", "text"),
    ],
    ids=["recipient", "subject"],
)
def test_no_header_can_be_smuggled_in(letter: Letter) -> None:
    """A line break in a header is an error, never another header."""
    with pytest.raises(ValueError, match=r"(?i)linefeed|newline|carriage|invalid"):
        compose(letter, SENDER)


def test_a_name_with_line_breaks_stays_in_the_text() -> None:
    """What others chose, an organization's name for instance, stands in no header."""
    letter = invitation("a@example.test", "Evil\nBcc: b@example.test", "member", "https://x.test/#token=t")
    message = compose(letter, SENDER)
    assert "Bcc" not in message
    assert set(message.keys()) == set(compose(LETTER, SENDER).keys())


def test_nothing_shows_a_secret() -> None:
    """Neither the mailer's nor a letter's representation has the password, the link, or the reader's name."""
    assert MAIL_PASSWORD not in repr(SmtpMailer.from_url("smtp://gate:p%40ss@mail.test", SENDER))
    assert "p@ss" not in repr(SmtpMailer.from_url("smtp://gate:p%40ss@mail.test", SENDER))
    shown = repr(password_reset("anna@example.test", "https://x.test/#token=secret"))
    assert shown == "Letter('password reset' to an address at 'example.test')"


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
    """Without a port it is the usual one of the scheme."""
    mailer = SmtpMailer.from_url(url, SENDER)
    assert (mailer.host, mailer.port) == (host, port)


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
    """The message says how to write one, and repeats neither user nor password."""
    with pytest.raises(ValueError, match=r"\w") as refusal:
        SmtpMailer.from_url(url, SENDER)
    assert "secret" not in str(refusal.value)
    assert "se#cret" not in str(refusal.value)
