"""The Dockerfile: what it says, and what its commands make."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from support.dockerfile import Stage
from support.readme import ROOT

PROGRAM = ROOT / "tests" / "support" / "image.py"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What came of building and running it."""
    if os.geteuid() != 0:
        pytest.skip("an overlay of this machine's files is root's to mount")
    folder = tmp_path_factory.mktemp("image")
    done = subprocess.run(
        ["unshare", "--mount", "--propagation", "private", sys.executable, str(PROGRAM), str(folder)],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.slow
def test_the_images_commands_make_a_gateway_that_serves(made: dict[str, Any]) -> None:
    """Built by the file's own commands, with every hash demanded, it decides and records; its health check says so."""
    assert made["line"].startswith("Toolgate gateway on http://0.0.0.0:8000"), made
    assert made["call"] == {"allowed": True, "entries": 1}
    assert made["healthy"] == 0


@pytest.mark.slow
def test_it_runs_without_rights_on_a_read_only_root(made: dict[str, Any]) -> None:
    """As its own user, with no capability and none to be had, it writes nothing but its data."""
    status = made["status"]
    assert status["Uid"] == ["10001"] * 4
    assert status["Gid"] == ["10001"] * 4
    assert {int(status[name][0], 16) for name in ("CapEff", "CapPrm", "CapInh", "CapBnd", "CapAmb")} == {0}
    assert status["NoNewPrivs"] == ["1"]
    # Process 1 of its container: signals reach it only where it asked for them.
    assert status["NSpid"][-1] == "1"
    assert not made["wrote"]
    assert made["refusals"] == 4
    assert "toolgate/toolgate.db" in made["kept"]
    assert all(name.startswith("toolgate") for name in made["kept"])


@pytest.mark.slow
def test_its_stop_signal_ends_it_in_order(made: dict[str, Any]) -> None:
    """SIGTERM to process 1 ends it with 0; where nothing serves, the health check fails."""
    assert made["ended"] == 0
    assert made["unhealthy"] == 1


@pytest.mark.slow
def test_without_a_secret_it_does_not_serve(made: dict[str, Any]) -> None:
    """A container that was handed no secret says so and ends: one made there would be lost with it."""
    assert made["without_secret"]["status"] == 1
    assert "set TOOLGATE_SECRET to at least 16 random characters" in made["without_secret"]["line"]


def test_the_image_is_of_this_version() -> None:
    """Labels, chart, compose and the package name one version."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    deploy = ROOT / "service" / "deploy"
    assert f'org.opencontainers.image.version="{version}"' in Stage.all()[-1].told("LABEL")
    assert f"image: toolgate:{version}\n" in (deploy / "compose" / "compose.yaml").read_text()
    chart = (deploy / "helm" / "toolgate" / "Chart.yaml").read_text().splitlines()
    assert {f"version: {version}", f"appVersion: {version}"} <= set(chart)
    assert f"  tag: {version}\n" in (deploy / "helm" / "toolgate" / "values.yaml").read_text()


def test_the_image_says_how_it_is_run() -> None:
    """A user by number, a stop signal, a health check, and every command in exec form: no shell stands in between."""
    last = Stage.all()[-1]
    assert last.told("USER") == "10001:10001"
    assert last.told("STOPSIGNAL") == "SIGTERM"
    assert last.command("ENTRYPOINT") == ["toolgate"]
    assert last.command("CMD")[0] == "serve"
    assert json.loads(last.told("HEALTHCHECK").partition(" CMD ")[2])[0] == "python"


def test_everything_that_is_installed_has_its_hash() -> None:
    """No `pip install` of the image goes without `--require-hashes`, but for the wheel that was made a line before."""
    runs = [rest for stage in Stage.all() for word, rest in stage.instructions if word == "RUN"]
    installs = [part for run in runs for part in run.split("&&") if " install " in part and " pip " in part]
    assert len(installs) == 3
    for install in installs:
        assert "--require-hashes --only-binary :all:" in install or "--no-deps --no-index /wheels/" in install


def test_nothing_but_sources_reaches_the_builder() -> None:
    """The context holds what the file copies, and shuts out all the rest first."""
    lines = (ROOT / "service" / "deploy" / "Dockerfile.dockerignore").read_text().splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*"
    copied = [
        source
        for stage in Stage.all()
        for word, rest in stage.instructions
        if word == "COPY" and not rest.startswith("--from=")
        for source in rest.split()[:-1]
    ]
    assert sorted(f"!{source}" for source in copied) == sorted(rule for rule in rules if rule.startswith("!"))
    assert all((ROOT / source).exists() for source in copied)


def test_compose_stands_on_the_same_health_check() -> None:
    """The health check of compose is the image's, word by word."""
    health = json.loads(Stage.all()[-1].told("HEALTHCHECK").partition(" CMD ")[2])
    assert f"- {health[2]}\n" in Path(ROOT / "service/deploy/compose/compose.yaml").read_text()
