"""The standard logging tells what happened, and never a secret, at whatever level."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from support.gateway import LiveGateway, Owner

from toolgate import Guard

ALLOWED = {"allowed": True, "requires_approval": False, "reason": None, "approval_id": None}
BLOCKED = {"allowed": False, "requires_approval": False, "reason": "no permission", "approval_id": None}
HELD = {"allowed": False, "requires_approval": True, "reason": "needs a person", "approval_id": "appr-1"}
SECRETS = [
    "sesame-open-sesame",
    "body-that-is-excluded",
    "4111 1111 1111 1111",
    "sk-abcdefghijklmnopqrst",
    "trace-unbound",
]
ECHO = httpx.Response(400, json={"detail": "bad key ak_" + "k3y" * 12 + "z, Bearer abcdefghijklmnop"})


class Everything(logging.Handler):
    """Keeps every record of every logger."""

    def __init__(self) -> None:
        super().__init__(logging.NOTSET)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def told(self) -> str:
        """All there is in the records: messages, arguments, extra fields, tracebacks."""
        whole = logging.Formatter("%(message)s")
        return "\n".join(f"{whole.format(each)} {vars(each)!r}" for each in self.records)


@pytest.fixture
def everything() -> Iterator[Everything]:
    handler, root, ours = Everything(), logging.getLogger(), logging.getLogger("toolgate")
    levels = root.level, ours.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    ours.setLevel(logging.DEBUG)
    yield handler
    root.removeHandler(handler)
    root.setLevel(levels[0])
    ours.setLevel(levels[1])


def fails(**_: Any) -> None:
    raise ValueError("failed with " + " and ".join(SECRETS))


def runs(**_: Any) -> int:
    return 1


def outcomes(gateway: Any) -> list[tuple[str, Callable[..., Any], dict[str, Any]]]:
    """What the gateway does, which body runs, and how it is guarded."""

    def answers(check: list[Any], approval: list[Any] | None = None, log: list[Any] | None = None) -> None:
        gateway.check, gateway.approval, gateway.log = list(check), list(approval or []), list(log or [])

    noted = {"id": "appr-1", "status": "denied", "note": "no: sk-abcdefghijklmnopqrst"}
    down = [httpx.ConnectError("refused")] * 20
    return [
        ("allowed", runs, {"before": lambda: answers([ALLOWED])}),
        ("failed", fails, {"before": lambda: answers([ALLOWED])}),
        ("blocked", runs, {"before": lambda: answers([{**BLOCKED, "reason": "Bearer abcdefghijklmnop"}])}),
        ("held", runs, {"before": lambda: answers([HELD])}),
        ("waited", runs, {"before": lambda: answers([HELD, ALLOWED]), "on_hold": "wait"}),
        ("declined", runs, {"before": lambda: answers([HELD], [noted]), "on_hold": "wait"}),
        ("edited", runs, {"before": lambda: gateway.edit(n=2), "on_hold": "wait"}),
        # Before the gateway goes away: afterwards calls are refused at once for a moment.
        ("unrecorded", runs, {"before": lambda: answers([ALLOWED], log=[ECHO] * 3)}),
        ("unavailable", runs, {"before": lambda: answers(down)}),
        ("forgiven", runs, {"before": lambda: answers(down), "fail_open": True}),
        ("echo", runs, {"before": lambda: answers([ECHO] * 9)}),
    ]


async def test_no_outcome_logs_a_secret(make_guard: Any, gateway: Any, everything: Everything) -> None:
    """Keys, tokens, excluded, unbound and redacted values are in no record of any logger, at DEBUG."""
    given = {
        "password": SECRETS[0],
        "body": SECRETS[1],
        "card": SECRETS[2],
        "text": SECRETS[3],
        "trace": SECRETS[4],
    }
    for name, body, options in outcomes(gateway):
        before = options.pop("before")
        # One each: after an outage a guard holds its calls back for a while.
        guard = make_guard(timeout=0.2)
        for asynchronous in (False, True):
            before()

            def tool(
                password: str, body: str, card: str, text: str, trace: str, n: int, run: Any = body
            ) -> Any:
                return run()

            async def atool(
                password: str, body: str, card: str, text: str, trace: str, n: int, run: Any = body
            ) -> Any:
                return run()

            limits = {"exclude": {"body"}, "ignore": {"trace", "run"}, **options}
            guarded = guard.guarded(f"mail.{name}", **limits)(atool if asynchronous else tool)
            try:
                await guarded(**given, n=1) if asynchronous else guarded(**given, n=1)
            except Exception as error:
                everything.records.append(logging.makeLogRecord({"msg": f"{name}: {type(error).__name__}"}))
            await guard.aflush(5)
        assert any(record.name == "toolgate" for record in everything.records), name
    told = everything.told()
    for outcome in (
        "allowed",
        "blocked",
        "held",
        "failed",
        "record_failed",
        "declined: ApprovalDenied",
        "fail_open",
    ):
        assert outcome in told
    for secret in [*SECRETS, "k3yk3y", "abcdefghijklmnop"]:
        assert secret not in told


async def test_no_secret_is_logged_on_the_way_to_a_real_gateway(
    live_gateway: LiveGateway, owner: Owner, everything: Everything
) -> None:
    """The libraries below log at DEBUG too: neither the key nor an argument is in it."""
    agent_id = owner.agent()
    owner.permit(agent_id, "mail.send")
    with Guard(live_gateway.url, owner.key, agent_id) as guard:

        @guard.guarded("mail.send")
        async def send(password: str, to: str) -> None: ...

        @guard.guarded("mail.read")
        def read(token: str) -> None: ...

        await send(SECRETS[0], to="visible-argument")
        with pytest.raises(Exception, match="no permission"):
            read(SECRETS[0])
        assert await guard.aflush()
    told = everything.told()
    assert "decision: action 'mail.send'" in told
    assert any(record.name.startswith("httpcore") for record in everything.records)
    for secret in (SECRETS[0], owner.key, owner.key[3:20], "visible-argument"):
        assert secret not in told


def test_a_reason_begins_no_line_of_its_own(make_guard: Any, gateway: Any, everything: Everything) -> None:
    """What somebody else wrote cannot look like another record."""
    gateway.check = [{**BLOCKED, "reason": "no\nWARNING toolgate: all is well"}]
    with pytest.raises(Exception, match="no"):
        make_guard().guarded("a.b")(lambda: 1)()
    assert all("\n" not in record.getMessage() for record in everything.records if record.name == "toolgate")
