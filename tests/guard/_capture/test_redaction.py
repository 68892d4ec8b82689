from __future__ import annotations

import time

import pytest

from toolgate._capture.context import Rules, capture
from toolgate._capture.jsontext import dumps
from toolgate._capture.redaction import SecretRule, looks_secret, scrub
from toolgate._capture.serializer import Fingerprinter

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
        "tokens",
        "access_tokens",
        "ssh_key",
        "stripe_key",
        "openaiKey",
        "license_key",
        "pin",
        "card_pin",
        "iban",
        "customer_iban",
        "pass",
        "dbpass",
        "smtp_pass",
        "dsn",
        "sentry_dsn",
        "connection_string",
        "session",
        "sessionid",
        "session_id",
    ],
)
def test_secret_names(name: str) -> None:
    """Usual names of secrets are hidden in every way of writing them."""
    assert SecretRule().hides(name)


@pytest.mark.parametrize(
    "name",
    [
        "amount",
        "panel",
        "company",
        "max_tokens",
        "prompt_tokens",
        "key",
        "key_id",
        "primary_key",
        "foreign_key",
        "sort_key",
        "cacheKey",
        "idempotency_key",
        "spinner",
        "boarding_pass",
        "session_count",
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
    assert not SecretRule().hides(name)


def test_more_names() -> None:
    """Additional names are hidden whatever their case and separators."""
    assert SecretRule({"ibanCode"}).hides("IBAN-code")
    assert not SecretRule({"ibanCode"}).hides("code")


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
        "postgresql://user:hunter2secret@db/x",
        "https://:hunter2secret@host/",
        "AIzaSyDaGmWKa4JsXZ-HjGw7ISLn_3namBGewQe",
        "hf_abcdefghijklmnopqrstuvwxyzABCDEFGH",
        "npm_" + "a" * 36,
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "SG.abcdefghijklmnop.qrstuvwxyz0123456789",
        "ya29.a0AfH6SMBabcdefghijk",
        "login with password=hunter2secret please",
        '{"password": "hunter2secret"}',
        "aws_secret_access_key: wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
        "Authorization: Basic dXNlcjpwYXNzd29yZA==",
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
        "https://host:8080/path?mail=a@b.c",
        "the password: required",
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


def test_short_hidden_values_take_the_message_away() -> None:
    """A hidden value too short to be cut out, and one whose forms are not known, leave no message."""
    assert scrub("pin 123 is wrong", ["123"]) == "[redacted]"
    assert scrub("pin 1234 is wrong", ["123"]) == "pin 1234 is wrong"
    assert scrub("anything at all", [""]) == "[redacted]"


def test_a_secret_across_the_cut() -> None:
    """A secret that begins within the first 1,000 characters leaves no beginning behind."""
    for secret in ("sesame-open-sesame", "sk-" + "a" * 40):
        assert scrub("." * 990 + secret, ["sesame-open-sesame"]) == "." * 990 + "[redacted]"
        assert len(scrub(secret * 5000, ["sesame-open-sesame"])) <= 1100


@pytest.mark.parametrize(
    "piece",
    [
        "-eyJ",
        "eyJ",
        "eyJaaaaaaaa.",
        ".eyJaaaaaaaaa",
        "bearer ",
        "sk-",
        "-----BEGIN A",
        "a://",
        "password=",
        "4 ",
    ],
)
def test_takes_linear_time(piece: str) -> None:
    """No text makes the search for secrets slow."""
    text = piece * (200_000 // len(piece))
    began = time.process_time()
    looks_secret(text)
    scrub(text, ["hidden"])
    assert time.process_time() - began < 1


@pytest.mark.parametrize(
    "text",
    [
        "curl -u bob:hunter22 https://api.example.com",
        "curl -ubob:hunter22 https://api.example.com",
        'curl https://api.example.com --user "bob:hunter22"',
        '{"body": "{\\"password\\": \\"hunter22\\"}"}',
    ],
)
def test_credentials_of_a_command_and_json_within_json(text: str) -> None:
    """They are found, and cut out of a message."""
    assert looks_secret(text)
    assert "hunter22" not in scrub(text, ())


@pytest.mark.parametrize("text", ["docker run -u 1000:1000 image", "curl -u bob https://a.example:8080"])
def test_other_commands(text: str) -> None:
    """A user without a password is none."""
    assert not looks_secret(text)


@pytest.mark.parametrize("name", ["name", "key", "header"])
def test_a_header_as_a_mapping(name: str) -> None:
    """A name beside its value hides it as a pair does."""
    headers = [{name: "Authorization", "value": "abcd1234efgh"}, {"value": "text/html", name: "Accept"}]
    shown = dumps(capture({"headers": headers}, Rules(), Fingerprinter("ak_" + "q" * 37)).context)
    assert "abcd1234efgh" not in shown
    assert "text/html" in shown


def test_a_card_number_with_a_sign() -> None:
    """A refund's number is one as well."""
    assert SecretRule().found_in_number(-4111111111111111)
