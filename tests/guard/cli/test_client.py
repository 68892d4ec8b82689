"""A gateway that is asked too often is waited for as it says, and not for ever."""

from typing import Any

import pytest
import typer
from support.pretend_gateway import PretendGateway

from toolgate._http.exchange import Response
from toolgate_cli import client
from toolgate_cli.client import MAX_RATE_LIMIT_WAIT, GatewayError, RateLimitWait


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that were waited, none of which pass."""
    seconds: list[float] = []
    monkeypatch.setattr(client.time, "sleep", seconds.append)
    return seconds


def busy(after: str | None) -> Response:
    return Response(429, {} if after is None else {"retry-after": after}, b"{}")


def test_it_waits_as_told_and_a_minute_in_all(slept: list[float]) -> None:
    """Each pause is the gateway's; once the next would go beyond the bound it is not begun."""
    waiting = RateLimitWait()
    assert [waiting.wait(busy("25")) for _ in range(3)] == [True, True, False]
    assert slept == [25, 25]
    assert waiting.wait(Response(200, {}, b"")) is False
    assert waiting.wait(busy("25")) is True, "an answer between begins anew"
    assert sum(slept[:2]) <= MAX_RATE_LIMIT_WAIT


@pytest.mark.parametrize("after", [None, "soon", "61", "999999999999"])
def test_it_does_not_wait_for_nothing(slept: list[float], after: str | None) -> None:
    """Without a time, or for longer than anybody bears, the refusal is told at once."""
    assert RateLimitWait().wait(busy(after)) is False
    assert slept == []


def test_no_pause_is_a_pause(slept: list[float]) -> None:
    """A gateway that says 0 is asked again a bounded number of times."""
    waiting = RateLimitWait()
    tries = 0
    while waiting.wait(busy("0")):
        tries += 1
    assert tries <= MAX_RATE_LIMIT_WAIT
    assert min(slept) >= 1


def test_a_command_goes_on_when_there_is_room(gateway: PretendGateway, run: Any, slept: list[float]) -> None:
    """The same request is sent again, and the waiting is told on standard error alone."""
    answers = [(429, {"detail": "too many"})] * 2 + [(200, [])]
    gateway.headers["GET", "/api/agents"] = {"Retry-After": "7"}
    gateway.answers["GET", "/api/agents"] = lambda: answers.pop(0)
    ended = run("agents", "list", "--json")
    assert (ended.exit_code, ended.stdout) == (0, "[]\n")
    assert slept == [7, 7]
    assert ended.stderr.count("waiting 7 s") == 2


def test_a_command_gives_up(gateway: PretendGateway, run: Any, slept: list[float]) -> None:
    """Beyond the bound the gateway's own words end it."""
    gateway.headers["GET", "/api/agents"] = {"Retry-After": "600"}
    gateway.answers["GET", "/api/agents"] = (429, {"detail": "retry after 600 seconds"})
    ended = run("agents", "list")
    assert ended.exit_code == 1
    assert "retry after 600 seconds" in ended.stderr
    assert slept == []


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (
            503,
            "it is unknown whether the gateway made the change: the gateway refused POST '/api/agents?environment=production' with 503: full",
        ),
        (409, "the gateway refused POST '/api/agents?environment=production' with 409: full"),
        (401, "your login has expired or was revoked; log in again: toolgate login"),
    ],
)
def test_unfinished_change_is_reported_as_unknown(
    gateway: PretendGateway, run: Any, status: int, message: str
) -> None:
    gateway.answers["POST", "/api/agents"] = (status, {"detail": "full"})
    ended = run("agents", "create", "bot")
    assert (ended.exit_code, ended.stdout) == (1, "")
    assert ended.stderr.startswith(f"toolgate: {message}")
    assert len(ended.stderr.splitlines()) == 1


def test_outage_is_reported_once(capsys: pytest.CaptureFixture[str]) -> None:
    outage, error = client.Outage(), GatewayError("no response", unavailable=True)
    outage.end()
    for _ in range(2):
        outage.report(error, "not printed")
    outage.end()
    outage.end()
    assert capsys.readouterr().err.splitlines() == [
        "toolgate: no response; retrying",
        "toolgate: the gateway is available again",
    ]
    with pytest.raises(typer.Exit):
        outage.report(GatewayError("refused", status=403), "refused: ask an admin")
    assert capsys.readouterr().err == "toolgate: refused: ask an admin\n"
