"""What every plugin shares: names of actions, ids, who acts, and which versions of a framework will do."""

import importlib.util
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate import ApprovalPending, ConfigurationError, guarded
from toolgate._identity import valid_id
from toolgate._options import valid_action
from toolgate_integrations import _calls, _naming, _registry
from toolgate_integrations._naming import ToolNames, normalize_id
from toolgate_integrations._registry import INTEGRATIONS, Integration
from toolgate_integrations.base import Bridge, MissingFrameworkError, ToolCall, require

PLUGINS = [each for each in INTEGRATIONS if importlib.util.find_spec(f"toolgate_integrations.{each}")]
TEXT = st.text(st.characters(codec="utf-8"), min_size=1, max_size=300)
WITHOUT = """
import importlib.metadata, sys
real = importlib.metadata.version
def version(name):
    if name == {distribution!r}:
        raise importlib.metadata.PackageNotFoundError(name)
    return real(name)
importlib.metadata.version = version
import toolgate_integrations.{plugin}
"""


def here(what: str) -> str:
    """A tool of this process."""
    return what


def action(call: ToolCall, **given: Any) -> str:
    return Bridge(None, **given).action_of(call)


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (ToolCall("look", {}), "tools.look"),
        (ToolCall("look", {}, function=here), "tools.look"),
        (ToolCall("bank.look", {}, function=here), "bank.look"),
        (ToolCall("bank.look", {}), "tools.bank.look"),
        (ToolCall("look", {}, server="bank"), "bank.look"),
        (ToolCall("bank_look", {}, server="bank", own_name="look"), "bank.look"),
        (ToolCall("look me up", {}), "tools.look%20me%20up"),
        (ToolCall("look%20me", {}), "tools.look%2520me"),
    ],
)
def test_the_default_action_of_a_tool(call: ToolCall, expected: str) -> None:
    """Decisions §13: only a tool of this process may have a dotted name of its own; a server's tool bears its name."""
    assert action(call) == expected


@given(TEXT)
def test_every_name_makes_an_action(name: str) -> None:
    """Whatever a tool is called, there is an action that can be granted."""
    assert valid_action(action(ToolCall(name, {})))
    assert valid_action(action(ToolCall(name, {}, server="bank")))


@given(TEXT, TEXT)
def test_two_names_are_two_actions(one: str, other: str) -> None:
    """No name can be chosen that is granted with another."""
    same = action(ToolCall(one, {})) == action(ToolCall(other, {}))
    assert same == (one == other)


@pytest.mark.parametrize("actions", [{"look": "sky.look"}, {"look": "sky.look"}.get])
def test_tool_actions_come_first(actions: dict[str, str] | Callable[[str], str | None]) -> None:
    """A mapping or a function names a tool, also one of a server; what it does not know has the default."""
    assert action(ToolCall("look", {}, server="bank"), tool_actions=actions) == "sky.look"
    assert action(ToolCall("look", {}, server=""), tool_actions=actions) == "sky.look"
    assert action(ToolCall("pay", {}), tool_actions=actions) == "tools.pay"


def test_a_guarded_function_keeps_its_action() -> None:
    """What stands on the function wins over every name beside it."""
    call = ToolCall("look", {}, function=guarded("sky.look")(here))
    assert action(call, tool_actions={"look": "other.look"}) == "sky.look"


def test_two_tools_of_one_action_are_refused() -> None:
    """Whoever is granted one would have the other; the first goes on, and a name of its own helps the second."""
    bridge = Bridge(None, tool_actions={"other": "tools.other"})
    assert bridge.action_of(ToolCall("bank.look", {}, function=here)) == "bank.look"
    with pytest.raises(
        ConfigurationError, match=r"'bank\.look' and 'look' would have the same action 'bank\.look'"
    ):
        bridge.action_of(ToolCall("look", {}, server="bank"))
    assert bridge.action_of(ToolCall("bank.look", {}, function=here)) == "bank.look"
    assert bridge.action_of(ToolCall("other", {}, server="bank")) == "tools.other"


def test_names_that_a_model_makes_up_take_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many there are, few are remembered; the tools in use and the dotted names of functions always are."""
    monkeypatch.setattr(_naming, "_MOST", 8)
    names = ToolNames()
    assert names.action_of(ToolCall("tools.look", {}, function=here)) == "tools.look"
    for number in range(100):
        assert names.action_of(ToolCall(f"made up {number}", {})) == f"tools.made%20up%20{number}"
        assert names.action_of(ToolCall("b.c", {}, server="a")) == "a.b.c"
    assert len(names._others) == 8
    for clashing in (ToolCall("look", {}), ToolCall("c", {}, server="a.b")):
        with pytest.raises(ConfigurationError, match="would have the same action"):
            names.action_of(clashing)


def test_held_calls_that_nobody_comes_back_for_take_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest are remembered, one call of one run apart from another's, and each once."""
    monkeypatch.setattr(_calls, "_MAX_HELD", 3)
    held = _calls.HeldCalls()
    for number in range(10):
        call = ToolCall("pay", {}, call_id="call", run_id=f"run {number}")
        with pytest.raises(ApprovalPending), held.watching(call):
            raise ApprovalPending(action="a", agent_id="b", approval_id=f"appr {number}", reason="r")
    runs = [ToolCall("pay", {}, call_id="call", run_id=f"run {number}") for number in range(10)]
    assert [held.forget(each) for each in runs] == [None] * 7 + ["appr 7", "appr 8", "appr 9"]
    assert [held.forget(each) for each in runs] == [None] * 10
    with held.watching(runs[0]):
        pass
    assert held.forget(runs[0]) is None


@pytest.mark.parametrize(
    ("server", "why"),
    [("tools", "cannot have the name 'tools'"), ("", "has no name, which the tool's action must contain")],
)
def test_servers_that_need_a_name(server: str, why: str) -> None:
    """A server can neither pass for this process nor name itself."""
    with pytest.raises(ConfigurationError, match=why):
        action(ToolCall("look", {}, server=server))


@given(st.text(max_size=600))
def test_ids_fit(name: str) -> None:
    """Every id of a framework is one the gateway takes; short printable ones stay as they are."""
    found = normalize_id(name)
    if found is None:
        assert not name.strip()
    else:
        assert valid_id(found, "call_id") == found
        assert (found == name) == (len(name) <= 255 and name.isprintable())


def test_two_long_ids_stay_two() -> None:
    """What is cut is told apart by its end as well."""
    assert normalize_id("x" * 300 + "a") != normalize_id("x" * 300 + "b")
    assert normalize_id(None) is None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"guard": "yes"}, "guard is 'yes'"),
        ({"guard": None, "tool_actions": 3}, "tool_actions is 3"),
        ({"guard": None, "agents": ["a"]}, r"agents is \['a'\]"),
    ],
)
def test_wrong_arguments_are_refused(given: dict[str, Any], said: str) -> None:
    """The mistake is named."""
    with pytest.raises(ConfigurationError, match=said):
        Bridge(**given)


@pytest.mark.parametrize(
    ("found", "will_do"),
    [
        ("2.27.9", False),
        ("2.28.0b1", False),
        ("2.28.0.dev3", False),
        ("2.28rc1", False),
        ("2.28.0.post1.dev2", True),
        ("2.28+local", True),
        ("2.29.0b1", True),
        ("1!0.1", True),
        ("no version", False),
        ("2.28", True),
        ("2.28.0", True),
        ("2.100", True),
        ("10.0.1", True),
        ("1.99.0", False),
    ],
)
def test_versions_are_compared_as_numbers(monkeypatch: pytest.MonkeyPatch, found: str, will_do: bool) -> None:
    """The oldest that can be guarded is; one before it is refused in one line, with both versions and the cure."""
    monkeypatch.setattr(
        _registry, "INTEGRATIONS", {"some_agents": Integration("some_agents", "some-ai", "2.28", "2.30")}
    )
    monkeypatch.setattr(_registry, "version", lambda name: found)
    if will_do:
        require("some_agents")
        return
    with pytest.raises(MissingFrameworkError) as caught:
        require("some_agents")
    assert str(caught.value) == (
        f"'some-ai' is {found}, but the oldest supported version is 2.28; pip install 'toolgate[some-agents]'"
    )


def test_there_are_plugins() -> None:
    """The next test is about something."""
    assert {"langchain", "pydantic_ai"} <= set(PLUGINS)


@pytest.mark.parametrize(
    "plugin",
    [
        plugin if plugin in {"langchain", "pydantic_ai"} else pytest.param(plugin, marks=pytest.mark.slow)
        for plugin in PLUGINS
    ],
)
def test_a_plugin_without_its_framework_says_what_to_install(plugin: str) -> None:
    """Importing it is one line of error, an ImportError too, before anything of the framework is looked for."""
    distribution = INTEGRATIONS[plugin].distribution
    code = WITHOUT.format(distribution=distribution, plugin=plugin)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    extra = plugin.replace("_", "-")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "toolgate_integrations._registry.MissingFrameworkError: "
        f"{distribution!r} is not installed; pip install 'toolgate[{extra}]'"
    )


@pytest.mark.parametrize("plugin", PLUGINS)
def test_each_plugin_has_its_extra(plugin: str) -> None:
    """What the error tells to install is there to be installed, from the version on that the plugin takes."""
    from importlib.metadata import requires

    integration, extra = INTEGRATIONS[plugin], plugin.replace("_", "-")
    wanted = f"{integration.distribution}>={integration.minimum}; extra == '{extra}'"
    assert wanted in [each.replace('"', "'") for each in requires("toolgate") or []]


TOOLS = ["pay_invoice", "read_invoice", "look"]


@pytest.mark.parametrize(
    ("key", "meant"), [("pay_invoise", "pay_invoice"), ("Pay-Invoice", "pay_invoice"), ("lok", "look")]
)
def test_misspelt_tool_is_an_error_that_names_it(key: str, meant: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        ToolNames({"read_invoice": "invoices.read", key: "x"}).verify(TOOLS)
    assert f"contains the tool {key!r}, which does not exist; did you mean {meant!r}?" in str(error.value)
    assert "The tools are 'look', 'pay_invoice', 'read_invoice'" in str(error.value)


def test_tool_of_another_agent_is_a_warning_once(caplog: pytest.LogCaptureFixture) -> None:
    """A mapping may serve several agents: keys that resemble no tool, or a tool with a key of its own, are no error."""
    names = ToolNames({"delete_database": "db.drop", "read_invoice": "a.b", "read_invoices": "a.c"})
    for _ in range(3):
        names.verify(TOOLS)
    assert sorted(record.getMessage() for record in caplog.records) == [
        "tool_actions contains the tool 'delete_database', which this agent does not have; correct or remove the name",
        "tool_actions contains the tool 'read_invoices', which this agent does not have; correct or remove the name",
    ]


def test_call_of_similar_tool_is_a_warning_once(caplog: pytest.LogCaptureFixture) -> None:
    """Where the plugin does not know the tools, the first call of a tool with a similar name tells."""
    names = ToolNames({"pay_invoise": "invoices.pay"})
    for _ in range(3):
        assert names.action_of(ToolCall("pay_invoice", {})) == "tools.pay_invoice"
        assert names.action_of(ToolCall("look", {})) == "tools.look"
    (record,) = caplog.records
    assert "contains the tool 'pay_invoise', but the called tool is 'pay_invoice'" in record.getMessage()
