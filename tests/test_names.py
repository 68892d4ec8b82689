"""What everything is called (decisions §1)."""

from importlib import import_module
from importlib.metadata import entry_points, metadata
from pathlib import Path

import pytest
from support.readme import ROOT


def test_distribution_and_command_are_called_toolgate() -> None:
    """One name for what is installed and for what is typed."""
    assert metadata("toolgate")["Name"] == "toolgate"
    [command] = entry_points(group="console_scripts", name="toolgate")
    assert command.value == "toolgate_cli:main"


@pytest.mark.parametrize(
    ("folder", "names"),
    [
        ("guard", ["toolgate", "toolgate_cli"]),
        ("integrations", ["toolgate_integrations"]),
        ("service", ["toolgate_service"]),
    ],
)
def test_each_folder_contains_exactly_its_packages(folder: str, names: list[str]) -> None:
    for name in names:
        found = import_module(name).__file__
        assert found is not None
        assert Path(found) == ROOT / folder / name / "__init__.py"
    assert sorted(path.parent.name for path in (ROOT / folder).glob("*/__init__.py")) == names
