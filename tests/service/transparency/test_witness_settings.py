"""The setting `TOOLGATE_WITNESSES`."""

import pytest
from support.transparency_logs import verifier_key

from toolgate_service.core.errors import StartError
from toolgate_service.core.settings import Settings, load_settings
from toolgate_service.core.witness_settings import read_witnesses

FIRST = verifier_key("example.com/w1", 4, bytes([1] * 32))
SECOND = verifier_key("example.com/w2", 4, bytes([2] * 32))


def test_witnesses_are_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Settings().witnesses == ()
    monkeypatch.setenv("TOOLGATE_WITNESSES", f"https://one.test/ {FIRST}, http://[::1]:7380/prefix {SECOND},")
    one, two = Settings().witnesses
    assert (one.url, one.name, one.verifier_key) == ("https://one.test", "example.com/w1", FIRST)
    assert (two.url, two.public_key, str(two)) == (
        "http://[::1]:7380/prefix",
        bytes([2] * 32),
        f"http://[::1]:7380/prefix {SECOND}",
    )


def test_line_breaks_separate_witnesses() -> None:
    witnesses = read_witnesses(f"https://one.test {FIRST}\n\nhttps://two.test\t{SECOND}\n")
    assert [witness.name for witness in witnesses] == ["example.com/w1", "example.com/w2"]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("https://geheim@one.test", "not a URL, a space and a verifier key; write for example https://"),
        (f"https://one.test {FIRST} {SECOND}", "not a URL, a space and a verifier key"),
        (f"one.test {FIRST}", "an entry without a valid URL"),
        (f"https://user:geheim@one.test {FIRST}", "an entry without a valid URL"),
        (f"https://one.test?geheim {FIRST}", "an entry without a valid URL"),
        ("https://one.test example.com/w1", "not a verifier key; copy the line"),
        (f"https://one.test {FIRST[:-4]}", r"\(signature type 0x04\)"),
        (f"https://one.test {verifier_key('example.com/log', 1, bytes(32))}", "not that of a log"),
        (f"https://one.test {FIRST.replace('w1', 'w9')}", "does not match its name and key"),
        (f"https://one.test {FIRST},https://two.test {FIRST}", "list each witness once"),
        (
            f"https://one.test {FIRST},https://two.test {verifier_key('other', 4, bytes([1] * 32))}",
            "list each witness once",
        ),
        (
            f"https://one.test {FIRST},https://two.test {verifier_key('example.com/w1', 4, bytes(32))}",
            "list each witness once",
        ),
    ],
)
def test_invalid_setting_is_rejected(monkeypatch: pytest.MonkeyPatch, value: str, message: str) -> None:
    monkeypatch.setenv("TOOLGATE_WITNESSES", value)
    with pytest.raises(StartError, match=f"^TOOLGATE_WITNESSES: .*{message}") as rejection:
        load_settings({})
    assert "geheim" not in str(rejection.value)
