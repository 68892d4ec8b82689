"""What the image installs, and what it is said to be made of, is what the lock has."""

import json
import re
import tomllib
from functools import cache
from importlib.resources import files
from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType
from typing import Any

import pytest
from jsonschema_rs import Registry, validator_for
from support.readme import ROOT

DEPLOY = ROOT / "service" / "deploy"


@cache
def export() -> ModuleType:
    """The script that writes both."""
    spec = spec_from_file_location("export", DEPLOY / "export.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def bill() -> dict[str, Any]:
    """The bill of materials."""
    found: dict[str, Any] = export().bill_of_materials()
    return found


@cache
def locked() -> dict[str, set[str]]:
    """Versions and digests of the lock, by package."""
    packages = tomllib.loads((ROOT / "uv.lock").read_text())["package"]
    return {
        f"{package['name']}=={package['version']}": {
            file["hash"] for file in [*package.get("wheels", []), *filter(None, [package.get("sdist")])]
        }
        for package in packages
        if package["name"] != "toolgate"
    }


@pytest.mark.parametrize("name", ["requirements.txt", "requirements-build.txt"])
def test_the_pinned_requirements_are_the_locks(name: str) -> None:
    """Whoever changes the lock writes them anew with `make lock`; each package has the hashes of the lock."""
    text = (DEPLOY / name).read_text()
    assert text == export().requirements()[name], "run: make lock"
    pinned = re.findall(
        r"^([\w.-]+==[\w.+-]+)[^\n]*((?:\\\n +--hash=sha256:[0-9a-f]{64} *)+)", text, re.MULTILINE
    )
    assert len(pinned) == len(re.findall(r"^[a-z]", text, re.MULTILINE)) > 4
    for package, hashes in pinned:
        assert set(re.findall(r"sha256:[0-9a-f]{64}", hashes)) == locked()[package], package


def test_the_image_brings_all_that_a_gateway_may_be_told_to_use() -> None:
    """Of the extras that stand on `service`, only those of an agent's machine and of the command line are left out."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    gateway = {
        name for name, words in extras.items() if any(word.startswith("toolgate[service") for word in words)
    }
    assert gateway - {"demo", "prove"} == set(export().EXTRAS)


def test_the_bill_of_materials_is_cyclonedx() -> None:
    """It is valid by the schema of CycloneDX 1.5, as the project's own library brings it."""
    # By another validator than the library's, which takes minutes over seven hundred files.
    folder = files("cyclonedx.schema") / "_res"
    schema, *parts = (
        json.loads((folder / f"{name}.SNAPSHOT.schema.json").read_text())
        for name in ("bom-1.5", "spdx", "jsf-0.82")
    )
    registry = Registry(
        [(part["$id"].replace(".schema.json", ".SNAPSHOT.schema.json"), part) for part in parts]
    )
    judge = validator_for(schema, registry=registry)
    assert [str(error) for error in judge.iter_errors(bill())] == []
    assert not judge.is_valid({**bill(), "components": [{"name": "without a type"}]})


def test_the_bill_of_materials_lists_what_the_image_installs() -> None:
    """Every package with its version, address and digests, and who needs it; nothing else."""
    text = (DEPLOY / "requirements.txt").read_text()
    installed = set(re.findall(r"^([\w.-]+==[\w.+-]+)", text, re.MULTILINE))
    components = {f"{one['name']}=={one['version']}": one for one in bill()["components"]}
    assert set(components) == installed
    for name, one in components.items():
        assert one["purl"].startswith(f"pkg:pypi/{name.replace('==', '@')}")
        found = {digest["content"] for file in one["externalReferences"] for digest in file.get("hashes", [])}
        assert {f"sha256:{digest}" for digest in found} == locked()[name]
    assert bill()["metadata"]["component"]["name"] == "toolgate"
    needs = {one["ref"]: one["dependsOn"] for one in bill()["dependencies"]}
    assert set(needs) == {one["bom-ref"] for one in [bill()["metadata"]["component"], *components.values()]}
    assert len(needs[bill()["metadata"]["component"]["bom-ref"]]) > 15


def test_the_bill_of_materials_follows_from_the_lock_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Made again it is the same to the byte; its time is told, or it has none."""
    assert export().bill_of_materials() == bill()
    assert "timestamp" not in bill()["metadata"]
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1790000000")
    assert export().bill_of_materials()["metadata"]["timestamp"].startswith("2026-09-")
