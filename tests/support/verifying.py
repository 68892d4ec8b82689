"""Runs of `toolgate verify` in the process of the tests, and gateways with a seeded fault."""

import asyncio
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.gateway import LiveGateway
from support.leaks import KNOWN
from toolgate_cli.verify.receiver import WebhookReceiver
from toolgate_cli.verify.registry import load_guarantees
from toolgate_cli.verify.report import Report
from toolgate_cli.verify.runner import Runner
from toolgate_cli.verify.trial import Options

OPERATOR_TOKEN = "the token of an operator in tests"
KNOWN.learn(OPERATOR_TOKEN)
#: settings of a gateway that `toolgate verify` can test completely
ENV = {
    "TOOLGATE_OPERATOR_TOKEN": OPERATOR_TOKEN,
    "TOOLGATE_WEBHOOKS_ALLOW_PRIVATE": "true",
}
FAULTS = Path(__file__).parents[1] / "guard" / "cli" / "verify" / "faults.toml"
SERVICE = Path(__file__).parents[2] / "service" / "toolgate_service"
#: requests per second: the gateway is the tests' own
RATE = 10_000


@dataclass(frozen=True)
class Fault:
    """A changed line of the gateway, and a guarantee that it breaks."""

    name: str
    file: str
    line: str
    replacement: str
    found: str
    fast: bool = False

    def gateway(self, folder: Path, env: Mapping[str, str] | None = None) -> "FaultyGateway":
        """Return a gateway with this fault."""
        return FaultyGateway(folder, self, env={**ENV, **(env or {})})


def read_faults() -> list[Fault]:
    """Return all faults of the list."""
    return [Fault(**one) for one in tomllib.loads(FAULTS.read_text(encoding="utf-8"))["fault"]]


class FaultyGateway(LiveGateway):
    """A gateway with one changed line."""

    def __init__(self, folder: Path, fault: Fault, **options: Any) -> None:
        super().__init__(folder, prefix=(), **options)
        self._fault = fault

    def command(self, *arguments: str) -> list[str]:
        """Return the command that starts it."""
        script = Path(__file__).with_name("faulty_gateway.py")
        changed = (self._fault.file, self._fault.line, self._fault.replacement)
        return [sys.executable, str(script), *changed, *arguments]


def verify(urls: Sequence[str], *only: str, rate: float = RATE, **options: Any) -> Report:
    """Test guarantees at a gateway and return the report."""

    async def run() -> Report:
        receiver = WebhookReceiver("127.0.0.1", 0).start()
        try:
            given = Options(receiver=receiver, **options)
            runner = Runner(urls, OPERATOR_TOKEN, rate, 600, given, lambda _: None)
            return await runner.run(load_guarantees(only))
        finally:
            receiver.close()

    return asyncio.run(run())
