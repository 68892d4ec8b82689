"""README: the example, the commands, the links; and the first approval with nothing but the built wheel."""

import os
import re
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import httpx
import pytest
from support.gateway import LiveGateway
from support.readme import ROOT, blocks, section
from support.serving import Serving
from support.waiting import until


def run(*command: str | Path, cwd: Path | None = None) -> str:
    """Run a command that must succeed and return what it printed."""
    env = {
        name: value for name, value in os.environ.items() if not name.startswith(("TOOLGATE_", "VIRTUAL_ENV"))
    }
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built."""
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=ROOT)
    (wheel,) = folder.glob("toolgate-*.whl")
    return wheel


@pytest.fixture(scope="module")
def bare_python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a new environment with the built wheel in it, and no extra."""
    folder = tmp_path_factory.mktemp("bare")
    run(sys.executable, "-m", "uv", "venv", "--quiet", "--python", sys.executable, folder / "env")
    python = folder / "env" / "bin" / "python"
    run(sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", python, wheel)
    return python


def test_the_first_example_prints_what_the_readme_shows(tmp_path):
    """It needs no server: one call is allowed, one denied, one approved."""
    script = tmp_path / "readme.py"
    script.write_text(blocks("README.md", "python")[0])
    assert run(sys.executable, script, cwd=tmp_path) == blocks("README.md", "text")[0]


def test_first_approval_runs_with_the_bare_wheel(
    bare_python: Path, live_gateway: LiveGateway, tmp_path: Path
) -> None:
    """The scripts of the page need no extra; a waiting call continues after the approval."""
    page = "docs/get-started/first-approval.md"
    set_up, agent = blocks(page, "python")
    before, after = blocks(page, "text")
    (tmp_path / "create_agent.py").write_text(set_up.replace("http://127.0.0.1:8000", live_gateway.url))
    (tmp_path / "agent.py").write_text(agent)
    exported = run(bare_python, "create_agent.py", cwd=tmp_path).splitlines()
    settings = dict(line.removeprefix("export ").split("=", 1) for line in exported)
    account = {"email": "you@example.com", "password": "correct horse battery"}
    with (
        httpx.Client(base_url=live_gateway.url) as approver,
        subprocess.Popen(
            [bare_python, "agent.py"],
            cwd=tmp_path,
            env={**os.environ, **settings},
            stdout=subprocess.PIPE,
            text=True,
        ) as process,
    ):
        token = approver.post("/auth/login", json=account).json()["access_token"]
        approver.headers["Authorization"] = f"Bearer {token}"
        assert process.stdout
        assert "".join(process.stdout.readline() for _ in range(3)) == before
        [pending] = until(lambda: approver.get("/api/approvals", params={"status": "pending"}).json())
        approver.post(f"/api/approvals/{pending['id']}/approve", json={}).raise_for_status()
        assert process.stdout.read() == after
    assert process.returncode == 0


def test_the_bare_wheel_names_the_missing_extras(bare_python, tmp_path):
    """Without the extra, the command line says in one line what to install, and fails."""
    done = subprocess.run(
        [bare_python, "-m", "toolgate", "serve"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        (
            "toolgate: the command line needs an optional package ('typer' is missing); install it with: "
            "pip install 'toolgate[cli]'"
        )
    ]


def test_wheel_contains_only_packages_of_this_project(wheel: Path):
    """No file is installed under a name that belongs to another project, such as `guard`."""
    with ZipFile(wheel) as files:
        names = {name.partition("/")[0] for name in files.namelist()}
    assert {name for name in names if not name.endswith(".dist-info")} == {
        "toolgate",
        "toolgate_cli",
        "toolgate_integrations",
        "toolgate_service",
    }


def test_the_page_about_serving_shows_what_serve_prints(tmp_path: Path) -> None:
    """It shows the start-up summary of a gateway with default settings."""
    home = tmp_path / "home"
    home.mkdir()
    with Serving(home) as gateway:
        printed = gateway.listening().summary
    port = gateway.url.rpartition(":")[2]
    shown = printed.replace(f":{port}", ":8000").replace(str(home), "/home/you")
    assert shown in (ROOT / "docs" / "operate" / "gateway.md").read_text()


@pytest.mark.parametrize(("heading", "command"), [("Run it", "make demo"), ("Test it", "make test")])
def test_a_section_has_exactly_one_command(heading, command):
    """Each of the two sections has one sh block with one line, and its target is in the Makefile."""
    found = re.findall(
        r"^```(\w*)\n(.*?)^```$", section("README.md", heading), flags=re.MULTILINE | re.DOTALL
    )
    assert found == [("sh", command + "\n")]
    assert f"\n{command.removeprefix('make ')}:" in (ROOT / "Makefile").read_text()


def test_readme_is_short_and_works_outside_of_the_repository() -> None:
    """Under 120 lines; links and pictures are absolute, so that they work on a package index too."""
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) < 120
    targets = re.findall(r"\]\(([^)]+)\)", text) + re.findall(r'(?:src|srcset)="([^"]+)"', text)
    assert len(targets) > 20
    assert [target for target in targets if not target.startswith("https://")] == []


def test_ci_calls_exactly_the_readmes_test_command():
    """.ci/run runs what the README tells people to run."""
    assert (ROOT / ".ci" / "run").read_text().splitlines()[-1] == "exec make test"
