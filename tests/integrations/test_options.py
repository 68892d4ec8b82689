"""All plugins have the same options, and accept the names that they had before."""

import ast
import warnings
from pathlib import Path

import pytest
from support.readme import ROOT

from toolgate import ApprovalPending, ConfigurationError
from toolgate_integrations._options import valid_on_hold
from toolgate_integrations._registry import INTEGRATIONS
from toolgate_integrations.base import Bridge, ToolCall

FOLDER = ROOT / "integrations" / "toolgate_integrations"
#: the public entry point of each plugin
ENTRIES = {
    "adk": "GuardPlugin",
    "agent_framework": "GuardMiddleware",
    "agno": "guard_agent",
    "anthropic": "guard_tools",
    "autogen": "GuardedWorkbench",
    "claude_agent_sdk": "guard_options",
    "crewai": "GuardHooks",
    "dspy": "guard_tools",
    "fastmcp": "GuardMiddleware",
    "haystack": "guard_hooks",
    "langchain": "GuardMiddleware",
    "llamaindex": "guard_agent",
    "mcp": "GuardExtension",
    "openai_agents": "guard_agent",
    "pydantic_ai": "GuardCapability",
    "semantic_kernel": "guard_kernel",
    "smolagents": "guard_agent",
    "strands": "GuardPlugin",
}
#: entry points besides these, which have the same options
FURTHER = [("llamaindex", "guard_tools"), ("haystack", "GuardHook")]
SHARED = ["guard", "tool_actions", "agents", "on_hold", "hold_timeout"]
#: seconds after which most MCP clients stop waiting for a response
MCP_HOLD_TIMEOUT = 50.0


def modules(identifier: str) -> list[ast.Module]:
    """The syntax trees of a plugin's modules; the one with the entry point is the first."""
    module, package = FOLDER / f"{identifier}.py", FOLDER / identifier
    found = [module] if module.exists() else [package / "__init__.py", *sorted(package.glob("[a-z]*.py"))]
    return [ast.parse(each.read_text()) for each in found]


def entry(identifier: str, name: str) -> ast.FunctionDef:
    """The function, or the constructor of the class, that is an entry point of a plugin."""
    [found] = [each for each in modules(identifier)[0].body if getattr(each, "name", None) == name]
    if isinstance(found, ast.ClassDef):
        [found] = [each for each in found.body if getattr(each, "name", None) == "__init__"]
    assert isinstance(found, ast.FunctionDef)
    return found


def default_on_hold(identifier: str) -> str:
    """The default of `on_hold` by the rule: pause if the behaviour suite has shown that the framework can."""
    rows = [
        [cell.strip() for cell in line.split("|")]
        for line in (ROOT / "docs" / "frameworks.md").read_text().splitlines()
        if line.startswith("| ")
    ]
    column = next(row.index("pauses") for row in rows if "pauses" in row)
    link = f"(frameworks/{identifier.replace('_', '-')}.md)"
    [pauses] = {row[column] for row in rows if row[1].endswith(link)}
    return "pause" if pauses == "✓" else "notify_model"


def test_every_plugin_is_here() -> None:
    assert ENTRIES.keys() == INTEGRATIONS.keys()


@pytest.mark.parametrize(("identifier", "name"), [*ENTRIES.items(), *FURTHER])
def test_every_plugin_has_the_same_options(identifier: str, name: str) -> None:
    """In the same order, and with defaults by the same rule; `guard` may be passed by position, the others only by name."""
    arguments = entry(identifier, name).args
    positional, keywords = arguments.args, arguments.kwonlyargs
    names = [each.arg for each in (*positional, *keywords)]
    assert [each for each in names if each in SHARED] == SHARED
    assert [each.arg for each in positional if each.arg in SHARED] == ["guard"]
    assert ast.literal_eval(arguments.defaults[-1]) is None
    given = zip(keywords, arguments.kw_defaults, strict=True)
    defaults = {each.arg: default for each, default in given if default is not None}
    expected = {
        "tool_actions": None,
        "agents": None,
        "on_hold": default_on_hold(identifier),
        "hold_timeout": MCP_HOLD_TIMEOUT if identifier in ("mcp", "fastmcp") else None,
    }
    # The name of an agent or a server is optional too.
    expected |= dict.fromkeys(defaults.keys() & {"agent"})
    if identifier in ("mcp", "fastmcp"):
        expected["name"] = None
    assert {each: ast.literal_eval(defaults[each]) for each in expected} == expected


def test_a_guarded_toolset_has_the_same_options() -> None:
    """It is a dataclass, so its options are its fields."""
    [toolset] = [
        each for each in modules("pydantic_ai")[0].body if getattr(each, "name", None) == "GuardToolset"
    ]
    assert isinstance(toolset, ast.ClassDef)
    fields = [each for each in toolset.body if isinstance(each, ast.AnnAssign)]
    names = [each.target.id for each in fields if isinstance(each.target, ast.Name)]
    assert [each for each in names if each in SHARED] == SHARED


@pytest.mark.parametrize("identifier", ENTRIES)
def test_resuming_has_the_same_names_and_parameters(identifier: str) -> None:
    """A plugin that resumes runs has `aresume`, and `resume` if its framework has synchronous runs."""
    found = {
        each.name: each
        for tree in modules(identifier)
        for each in tree.body
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and each.name in ("resume", "aresume")
    }
    if not found:
        return
    assert isinstance(found["aresume"], ast.AsyncFunctionDef)
    if isinstance(found["resume"], ast.FunctionDef):
        assert ast.dump(found["resume"].args) == ast.dump(found["aresume"].args)
    else:
        # The deprecated name of `aresume`.
        assert identifier == "semantic_kernel"


@pytest.mark.parametrize(
    "name", ["approval", "confirmation", "defer", "elicit", "event", "interrupt", "stop", "terminate"]
)
def test_former_names_of_pause_warn(name: str) -> None:
    with pytest.warns(DeprecationWarning, match=f"on_hold='{name}' is deprecated; use 'pause'"):
        assert valid_on_hold(name, can_pause=True) == "pause"
    with pytest.raises(ConfigurationError, match="use 'wait', 'raise' or 'notify_model'"):
        valid_on_hold(name)


def test_the_former_name_of_notify_model_warns() -> None:
    with pytest.warns(DeprecationWarning, match="on_hold='tell' is deprecated; use 'notify_model'") as caught:
        assert Bridge(None, on_hold="tell").on_hold == "notify_model"
    # The warning shows the code of the plugin's user: this test is the plugin.
    assert Path(caught[0].filename).name != "_options.py"


@pytest.mark.parametrize("name", ["pause", "wait", "raise", "notify_model"])
def test_current_names_do_not_warn(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert valid_on_hold(name, can_pause=True) == name


def test_raise_ends_the_run_with_the_pending_approval() -> None:
    """As a setup error does; with the other reactions the model may read of it."""
    pending = ApprovalPending(action="a", agent_id="b", approval_id="c", reason="d")
    with pytest.raises(ApprovalPending):
        Bridge(None, on_hold="raise").refusal(pending)
    assert "waits for a person" in Bridge(None, on_hold="wait").refusal(pending)
    assert not Bridge(None, on_hold="raise").pauses_for(pending)


@pytest.mark.parametrize(
    ("options", "call_id"),
    [
        ({"on_hold": "pause", "can_pause": True}, "call-1"),
        ({"on_hold": "wait"}, "call-1"),
        ({"on_hold": "wait", "hold_timeout": 5.0}, None),
        ({"on_hold": "raise"}, None),
        ({"on_hold": "notify_model"}, None),
    ],
)
def test_calls_that_the_model_repeats_have_no_id(options: dict[str, object], call_id: str | None) -> None:
    """An approval of a call with an id covers no call with another id."""
    call: ToolCall = Bridge(None, **options).call("pay", {}, "call-1")  # type: ignore[arg-type]  # of several types
    assert call.call_id == call_id
