"""A tool whose function wraps a guarded one is asked about by the plugin, and the guarded one does not ask again."""

import functools
from typing import Any

import pytest

from toolgate import ActionDenied, ConfigurationError
from toolgate.testing import FakeGateway
from toolgate_integrations.base import Bridge, ToolCall


def test_wrapper_is_asked_about_once_and_at_each_call() -> None:
    gateway = FakeGateway(allow=["pay"])
    guard, ran = gateway.guard(), list[str]()
    cached = functools.cache(guard.guarded("pay")(ran.append))
    bridge, call = Bridge(guard), ToolCall("cached", {"object": "eve"}, function=cached)

    def run(arguments: dict[str, Any]) -> None:
        cached(*arguments.values())

    bridge.run(call, run)
    assert (ran, [each.action for each in gateway.checks]) == (["eve"], ["pay"])
    bridge.run(call, run)
    assert (ran, len(gateway.checks)) == (["eve"], 2)
    gateway.block("pay")
    with pytest.raises(ActionDenied):
        bridge.run(call, run)
    assert guard.flush()
    assert [each.status for each in gateway.entries] == ["success", "success", "denied"]


async def test_wrapper_begun_between_callbacks_is_asked_about_once() -> None:
    gateway = FakeGateway(allow=["pay"])
    guard, ran = gateway.guard(), list[str]()
    cached = functools.cache(guard.guarded("pay")(ran.append))
    begun = await Bridge(guard).abegin(ToolCall("cached", {"object": "eve"}, function=cached))

    async def run() -> None:
        cached(*begun.arguments.values())

    await begun.arun(run)
    assert (ran, len(gateway.checks)) == (["eve"], 1)


@pytest.mark.parametrize(
    "options", [{"redact": {"to"}}, {"amount": "sum"}, {"exclude": {"to"}}, {"ignore": {"to"}}]
)
def test_wrapper_of_a_function_that_hides_or_derives_arguments_is_refused(options: dict[str, Any]) -> None:
    gateway = FakeGateway(allow=["pay"])
    guard = gateway.guard()

    @guard.guarded("pay", **options)
    def pay(to: str, sum: int = 5) -> None: ...  # noqa: A002 - the argument's name does not matter

    call = ToolCall("pay", {"to": "eve"}, function=functools.cache(pay))
    with pytest.raises(ConfigurationError, match="wraps a guarded function with options"):
        Bridge(guard).run(call, lambda arguments: pay(**arguments))
    assert not gateway.checks
