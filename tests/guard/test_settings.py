from __future__ import annotations

import logging

import pytest

from toolgate import ConfigurationError, Guard, _settings
from toolgate._settings import load_place, load_settings

KEY = "ak_" + "a1" * 18 + "z"


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("URL", "API_KEY", "AGENT_ID", "TIMEOUT", "HTTP"):
        monkeypatch.delenv(f"TOOLGATE_{name}", raising=False)


def test_arguments_before_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is passed wins over the environment, and the environment over the default."""
    monkeypatch.setenv("TOOLGATE_URL", "https://environment.example")
    monkeypatch.setenv("TOOLGATE_API_KEY", KEY)
    monkeypatch.setenv("TOOLGATE_AGENT_ID", "environment")
    monkeypatch.setenv("TOOLGATE_TIMEOUT", "2.5")
    found = load_settings(agent_id="argument")
    assert (found.url, found.agent_id, found.timeout) == ("https://environment.example", "argument", 2.5)
    assert load_settings("https://argument.example/", timeout=1).url == "https://argument.example"


@pytest.mark.parametrize(
    ("url", "secure"),
    [
        ("https://gateway.example", True),
        ("http://localhost:8000", True),
        ("http://127.0.0.1:8000/", True),
        ("http://[::1]:8000", True),
        ("http://gateway.example", False),
        ("http://127.0.0.1.evil.example", False),
        ("http://localhost.evil.example", False),
        ("http://0.0.0.0:8000", False),
        ("http://10.0.0.1", False),
    ],
)
def test_plain_http(url: str, secure: bool) -> None:
    """Plain http is for this machine only, unless it is asked for."""
    if not secure:
        with pytest.raises(ConfigurationError, match="allow_insecure"):
            load_settings(url, KEY)
    assert load_settings(url, KEY, allow_insecure=True).url == url.rstrip("/")


@pytest.mark.parametrize(
    "url",
    [
        "gateway.example",
        "ftp://gateway.example",
        "https://",
        "https://gateway.example/?a=1",
        "https://gateway.example/?",
        "https://gateway.example#x",
        "https://user:pw@gateway.example",
        "https://gateway.example:port",
        "http://127.0.0.1\\@evil.example",
        "https://gateway.example /",
        "https://[::1",
        "https://[::g]",
        "https://a..b",
        "https://.gateway.example",
        "https://-gateway.example",
        "https://gateway.example..",
        "https://gate*way.example",
        "https://xn--zzzzzzzz--.x",
        "https://" + "a" * 64 + ".example",
        "https://" + "a" * 300,
        "https://" + "a." * 127 + "example",
        "https://gateway.example/" + "a" * 70_000,
    ],
)
def test_bad_url(url: str) -> None:
    """An address with anything beyond scheme, host, port and path is refused without showing a password."""
    with pytest.raises(ConfigurationError) as raised:
        load_settings(url, KEY)
    assert "pw" not in str(raised.value)


@pytest.mark.parametrize(("name", "variable"), [("url", "TOOLGATE_URL"), ("api_key", "TOOLGATE_API_KEY")])
@pytest.mark.parametrize("value", [None, ""])
def test_missing(name: str, variable: str, value: str | None) -> None:
    """A missing value is an error that names the argument and the variable."""
    given: dict[str, str | None] = {"url": "https://gateway.example", "api_key": KEY, name: value}
    with pytest.raises(ConfigurationError, match=variable):
        load_settings(given["url"], given["api_key"])


@pytest.mark.parametrize(
    "timeout", [0, -1, float("nan"), float("inf"), True, "5 s", 0.0000001, 0.009, 86_401, 1e10]
)
def test_bad_timeout(timeout: float) -> None:
    """A deadline must be a number of seconds between a hundredth and a day."""
    with pytest.raises(ConfigurationError, match="TOOLGATE_TIMEOUT"):
        load_settings("https://gateway.example", KEY, timeout=timeout)


@pytest.mark.parametrize("key", [KEY + "\n", f" {KEY}", f"\t{KEY} \r\n"])
def test_white_space_around_a_key_is_ignored(monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    """As files and pages leave it, in the argument and in the environment."""
    assert load_settings("https://gateway.example", key).api_key == KEY
    monkeypatch.setenv("TOOLGATE_API_KEY", key)
    assert load_settings("https://gateway.example", None).api_key == KEY


@pytest.mark.parametrize("key", [f"{KEY} {KEY}", f"{KEY}\n{KEY}", "ak_ä" + KEY])
def test_bad_key(key: str) -> None:
    """A key with something inside that no key has is refused and not shown."""
    with pytest.raises(ConfigurationError) as raised:
        load_settings("https://gateway.example", key)
    assert key.strip() not in str(raised.value)


def test_bad_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the two libraries can be chosen."""
    monkeypatch.setenv("TOOLGATE_HTTP", "requests")
    with pytest.raises(ConfigurationError, match="requests"):
        load_settings("https://gateway.example", KEY)


def test_bad_agent_in_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong agent id in the environment is reported under the variable's name."""
    monkeypatch.setenv("TOOLGATE_AGENT_ID", "two\nlines")
    with pytest.raises(ConfigurationError, match="TOOLGATE_AGENT_ID"):
        load_settings("https://gateway.example", KEY)


@pytest.mark.parametrize("key", [KEY, "test_" + "b2" * 17 + "y", "short", "ak_" + "x" * 8])
def test_key_is_never_shown(key: str) -> None:
    """Neither a guard's nor the settings' form shows the key, beyond the last four of a long one."""
    shown = repr(Guard("https://gateway.example", key)) + repr(load_settings("https://gateway.example", key))
    assert key not in shown
    assert key[3:-4] not in shown or len(key) < 8


@pytest.mark.parametrize("timeout", [0.01, 86_400])
def test_shortest_and_longest_timeout(timeout: float) -> None:
    """The bounds themselves are deadlines."""
    assert load_settings("https://gateway.example", KEY, timeout=timeout).timeout == timeout


@pytest.mark.parametrize(
    "host", ["a", "a_b", "xn--bcher-kva.example", "gateway.example.", "10.0.0.1", "[::1]"]
)
def test_hosts(host: str) -> None:
    """Names, addresses and names of containers are hosts."""
    assert load_settings(f"https://{host}", KEY).url == f"https://{host}"


def test_a_library_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library that is chosen and missing is reported with the command that installs it."""
    monkeypatch.setenv("TOOLGATE_HTTP", "httpx2")
    monkeypatch.setattr("toolgate._settings.find_spec", lambda _: None)
    with pytest.raises(ConfigurationError, match="pip install httpx2"):
        load_settings("https://gateway.example", KEY)


OLD, NEW = "TOOLGATE_OUTBOX_EXIT", "TOOLGATE_OUTBOX_FLUSH_TIMEOUT"


@pytest.fixture
def unwarned(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """Log of a process that has not warned about former names yet."""
    monkeypatch.setattr(_settings, "_warned", set())
    monkeypatch.delenv(NEW, raising=False)
    caplog.set_level(logging.WARNING, "toolgate")
    return caplog


def test_the_former_name_of_a_variable_is_accepted(
    monkeypatch: pytest.MonkeyPatch, unwarned: pytest.LogCaptureFixture
) -> None:
    """With one warning for each process."""
    monkeypatch.setenv(OLD, "7")
    assert [load_place().flush_timeout for _ in range(2)] == [7, 7]
    assert unwarned.messages == [f"{OLD} is deprecated and accepted until version 0.2; set {NEW} instead"]
    monkeypatch.setenv(OLD, "never")
    with pytest.raises(ConfigurationError, match=f"^{OLD} is 'never'"):
        load_place()


def test_the_present_name_of_a_variable_wins(
    monkeypatch: pytest.MonkeyPatch, unwarned: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(OLD, "never")
    monkeypatch.setenv(NEW, "8")
    assert load_place().flush_timeout == 8
    assert unwarned.messages == [f"{OLD} is deprecated and ignored, because {NEW} is set; remove {OLD}"]


def test_without_the_former_name_nothing_is_logged(
    monkeypatch: pytest.MonkeyPatch, unwarned: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv(OLD, raising=False)
    assert load_place().flush_timeout == 3
    assert unwarned.messages == []
