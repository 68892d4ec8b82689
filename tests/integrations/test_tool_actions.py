"""A misspelt key of `tool_actions` is an error where a plugin is given the tools of an agent."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from toolgate import ConfigurationError

Guarding = Callable[[Mapping[str, str]], Any]


def pay_invoice(number: str) -> str:
    """Pay an invoice.

    Args:
        number: Which one.
    """
    return number


def _openai(tool_actions: Mapping[str, str]) -> Any:
    from agents import Agent, function_tool

    from toolgate_integrations.openai_agents import guard_agent

    return guard_agent(Agent(name="a", tools=[function_tool(pay_invoice)]), tool_actions=tool_actions)


def _dspy(tool_actions: Mapping[str, str]) -> Any:
    from toolgate_integrations.dspy import guard_tools

    return guard_tools([pay_invoice], tool_actions=tool_actions)


def _llamaindex(tool_actions: Mapping[str, str]) -> Any:
    from toolgate_integrations.llamaindex import guard_tools

    return guard_tools([pay_invoice], tool_actions=tool_actions)


def _anthropic(tool_actions: Mapping[str, str]) -> Any:
    from anthropic import beta_tool

    from toolgate_integrations.anthropic import guard_tools

    return guard_tools([beta_tool(pay_invoice)], tool_actions=tool_actions)


def _smolagents(tool_actions: Mapping[str, str]) -> Any:
    from smolagents import Model, ToolCallingAgent
    from smolagents import tool as smol_tool

    from toolgate_integrations.smolagents import guard_agent

    agent = ToolCallingAgent(tools=[smol_tool(pay_invoice)], model=Model())
    return guard_agent(agent, tool_actions=tool_actions)


@pytest.mark.parametrize(
    "guarding",
    [
        pytest.param(each, id=each.__name__.strip("_"))
        for each in (_openai, _dspy, _llamaindex, _anthropic, _smolagents)
    ],
)
def test_misspelt_tool_is_an_error(guarding: Guarding) -> None:
    with pytest.raises(
        ConfigurationError, match="'pay_invoise', which does not exist; did you mean 'pay_invoice'"
    ):
        guarding({"pay_invoise": "invoices.pay"})
    assert guarding({"pay_invoice": "invoices.pay"})
