from __future__ import annotations

import pytest

from toolgate.capture.redaction import NameRule, looks_secret, scrub

PEM = "-----BEGIN PRIVATE KEY-----\nMIIabc\n-----END PRIVATE KEY-----"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl"


@pytest.mark.parametrize(
    "name",
    [
        "password",
        "passwd",
        "PASSWORD",
        "userPassword",
        "db_password",
        "secret",
        "client_secret",
        "clientSecret",
        "token",
        "accessToken",
        "api_key",
        "apikey",
        "apiKey",
        "X-API-Key",
        "Authorization",
        "cookie",
        "Set-Cookie",
        "private_key",
        "credential",
        "credentials",
        "card_number",
        "cardNumber",
        "cvv",
        "pan",
        "APIKey",
    ],
)
def test_secret_names(name: str) -> None:
    """Usual names of secrets are hidden in every way of writing them."""
    assert NameRule().hides(name)


@pytest.mark.parametrize(
    "name",
    [
        "amount",
        "panel",
        "company",
        "tokens",
        "max_tokens",
        "key",
        "keyboard",
        "secretary",
        "author",
        "authors",
        "charge_id",
        "to",
        "body",
    ],
)
def test_innocent_names(name: str) -> None:
    """Names that merely contain such a word are shown."""
    assert not NameRule().hides(name)


def test_more_names() -> None:
    """Additional names are hidden whatever their case and separators."""
    assert NameRule({"ibanCode"}).hides("IBAN-code")
    assert not NameRule({"ibanCode"}).hides("iban")


@pytest.mark.parametrize(
    "text",
    [
        "Authorization: Bearer abcdefgh12345",
        PEM,
        JWT,
        "ak_" + "a" * 37,
        "test_" + "b" * 35,
        "sk-proj-abcdefghijklmnop",
        "ghp_abcdefghijklmnop",
        "AKIAIOSFODNN7EXAMPLE",
        "pay with 4111-1111-1111-1111 please",
        "5555555555554444",
        "378282246310005",
    ],
)
def test_secret_forms(text: str) -> None:
    """Tokens, keys and card numbers are recognised by their form, and scrubbed."""
    assert looks_secret(text)
    assert "[redacted]" in scrub(text, ())
    assert not looks_secret(scrub(text, ()))


@pytest.mark.parametrize(
    "text",
    [
        "4111111111111112",
        "1763670000000",
        "order 123456789012345678",
        "bearer of news",
        "3.14159265358979323",
    ],
)
def test_innocent_forms(text: str) -> None:
    """Order numbers, times and sentences are not taken for secrets."""
    assert not looks_secret(text)


def test_scrub_longest_first() -> None:
    """A hidden value that contains another leaves nothing behind."""
    assert (
        scrub("got secret-and-more and secret", ["secret", "secret-and-more"])
        == "got [redacted] and [redacted]"
    )
