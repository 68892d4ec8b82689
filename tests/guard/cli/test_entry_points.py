"""Commands of plugins, where what they need is not installed."""

from importlib.metadata import EntryPoint

import pytest
import typer

from toolgate import ConfigurationError
from toolgate_cli import entry_points


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("module_that_is_absent:serve", "needs an optional package ('module_that_is_absent' is missing)"),
        ("toolgate_integrations.absent:serve", "'toolgate_integrations.absent' is missing"),
    ],
)
def test_what_to_install_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], entry: str, said: str
) -> None:
    """One line, with the command that installs it."""
    found = (EntryPoint("mcp_proxy", entry, entry_points.PLUGIN_GROUP),)
    monkeypatch.setattr(entry_points, "entry_points", lambda **_: found)
    with pytest.raises(typer.Exit) as ended:
        entry_points.load_plugin("mcp_proxy", "mcp")
    assert ended.value.exit_code == 1
    line = capsys.readouterr().err
    assert said in line
    assert line.endswith("pip install 'toolgate[mcp]'\n")


def test_what_the_plugin_misses_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The plugin's own words, such as that a framework is too old."""

    class Refused:
        def load(self) -> None:
            raise ConfigurationError("'mcp' is 1.30.0; pip install 'toolgate[mcp]'")

    monkeypatch.setattr(entry_points, "entry_points", lambda **_: (Refused(),))
    with pytest.raises(typer.Exit):
        entry_points.load_plugin("mcp_proxy", "mcp")
    assert capsys.readouterr().err == "toolgate: 'mcp' is 1.30.0; pip install 'toolgate[mcp]'\n"


@pytest.mark.parametrize("name", ["mcp_proxy", "mcp_command", "mcp_address", "mcp_pins"])
def test_the_plugins_are_there(name: str) -> None:
    """What this distribution says it has can be loaded."""
    pytest.importorskip("mcp", reason="the MCP plugins need the extra 'mcp', which is not installed")
    assert callable(entry_points.load_plugin(name, "mcp"))
