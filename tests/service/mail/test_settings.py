"""Settings of the mail server: checked at the start, and errors contain no secrets."""

import pytest
from pydantic import ValidationError

from toolgate_service.core.settings import Settings

GOOD = {
    "TOOLGATE_SECRET": "a secret for tests, long enough",
    "TOOLGATE_SMTP_URL": "smtp://gate:hush-hush@mail.example.test",
    "TOOLGATE_MAIL_FROM": "Toolgate <toolgate@example.test>",
    "TOOLGATE_PUBLIC_URL": "https://gate.example.test/",
}


def read(monkeypatch: pytest.MonkeyPatch, **changes: str | None) -> Settings:
    for name, value in (GOOD | {f"TOOLGATE_{name}": value for name, value in changes.items()}).items():
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, value)
    return Settings()


def test_good_settings_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """The public URL loses its last slash; the password is not in the representation."""
    settings = read(monkeypatch)
    assert settings.public_url == "https://gate.example.test"
    assert "hush-hush" not in repr(settings)


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("SMTP_URL", "mail.example.test:25/hush-hush", "smtp://USER:PASSWORD@HOST:PORT"),
        ("MAIL_FROM", None, "TOOLGATE_MAIL_FROM: is required with TOOLGATE_SMTP_URL"),
        ("PUBLIC_URL", None, "TOOLGATE_PUBLIC_URL: is required with TOOLGATE_SMTP_URL"),
        ("MAIL_FROM", "nobody", "is not a sender"),
        ("MAIL_FROM", "Anna <a@example.test>\nBcc: b@example.test", "is not a sender"),
        ("PUBLIC_URL", "gate.example.test", "not a web address"),
        ("PUBLIC_URL", "https://gate.example.test/?x=1", "not a web address"),
        ("PUBLIC_URL", "https://user@gate.example.test", "not a web address"),
        ("PUBLIC_URL", "javascript:alert(1)", "not a web address"),
        ("REGISTRATION", "sometimes", "'open', 'invite' or 'closed'"),
        ("MANAGEMENT_REQUESTS_PER_MINUTE", "0", "greater than 0"),
    ],
)
def test_a_setting_that_cannot_work_is_refused(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str | None, says: str
) -> None:
    """The message contains the fix and not the password."""
    with pytest.raises(ValidationError) as refusal:
        read(monkeypatch, **{name: value})
    assert says in str(refusal.value)
    assert "hush-hush" not in str(refusal.value)


def test_without_mail_nothing_else_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a mail server the sender and the public URL are optional."""
    assert read(monkeypatch, SMTP_URL=None, MAIL_FROM=None, PUBLIC_URL=None).smtp_url is None
