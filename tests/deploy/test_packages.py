"""Wheel and sdist: what is in them, that anybody builds the same, and that what they install serves."""

import os
import re
import signal
import subprocess
import sys
import tarfile
import tomllib
from email.parser import BytesParser
from hashlib import sha256
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.metadata import Metadata
from support.gateway import SECRET, Owner
from support.readme import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def run(*command: str | Path, cwd: Path = ROOT, env: dict[str, str] | None = None) -> str:
    """Run a command that must succeed and return what it printed."""
    clean = {
        name: text for name, text in os.environ.items() if not name.startswith(("TOOLGATE_", "SOURCE_DATE"))
    }
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=clean | (env or {}),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def built(source: Path, folder: Path, *kinds: str, epoch: str | None = None) -> None:
    """Build into a folder."""
    env = {} if epoch is None else {"SOURCE_DATE_EPOCH": epoch}
    run(sys.executable, "-m", "hatchling", "build", *kinds, "-d", folder, cwd=source, env=env)


def digests(folder: Path) -> dict[str, str]:
    """The digest of each file."""
    return {path.name: sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def kept(*folders: str) -> set[str]:
    """Every file of the repository, also one that is about to be committed."""
    if not (ROOT / ".git").exists():
        pytest.skip("what is kept, only a checkout knows")
    names = run("git", "ls-files", "--cached", "--others", "--exclude-standard", *folders).splitlines()
    return {name for name in names if (ROOT / name).is_file()}


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both, built from this checkout."""
    folder = tmp_path_factory.mktemp("dist")
    built(ROOT, folder)
    return folder


@pytest.fixture(scope="module")
def unpacked(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sdist, unpacked."""
    folder = tmp_path_factory.mktemp("sdist")
    (sdist,) = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as files:
        files.extractall(folder, filter="data")
    return folder / f"toolgate-{PROJECT['version']}"


@pytest.fixture(scope="module")
def again(unpacked: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both, built from the sdist, where there is no history and nothing beside it."""
    folder = tmp_path_factory.mktemp("again")
    built(unpacked, folder)
    return folder


@pytest.mark.slow
def test_whoever_builds_them_gets_the_same_bytes(dist: Path, again: Path) -> None:
    """From the checkout or from the sdist, now or later: the same wheel and the same sdist."""
    assert digests(dist) == digests(again)
    assert len(digests(dist)) == 2


def test_their_moment_is_told(tmp_path: Path, dist: Path) -> None:
    """`SOURCE_DATE_EPOCH` is the time of every file in them."""
    built(ROOT, tmp_path, "-t", "wheel", epoch="1790000000")
    (wheel,) = tmp_path.glob("*.whl")
    with ZipFile(wheel) as files:
        assert {info.date_time[:2] for info in files.infolist()} == {(2026, 9)}
    assert digests(tmp_path)[wheel.name] != digests(dist)[wheel.name]


def test_the_sdist_holds_what_is_kept_and_no_more(unpacked: Path) -> None:
    """Sources, pages, tests and what they need, each file one that is kept in the repository; the licence too."""
    top = {path.name for path in unpacked.iterdir()}
    assert top == {
        *("guard", "integrations", "service", "examples", "docs", "tests", "benchmarks"),
        *("CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "Makefile", "README.md", "SECURITY.md"),
        *("pyproject.toml", "uv.lock", "zensical.toml", ".gitignore", "PKG-INFO"),
    }
    inside = {str(path.relative_to(unpacked)) for path in unpacked.rglob("*") if path.is_file()} - {
        "PKG-INFO"
    }
    assert inside == {name for name in kept() if name.split("/")[0] in top}


def test_the_wheel_holds_what_a_gateway_reads_beside_its_code(dist: Path) -> None:
    """Migrations, templates, styles, scripts and words: all that is not Python in the packages is there."""
    (wheel,) = dist.glob("*.whl")
    with ZipFile(wheel) as files:
        names = set(files.namelist())
    packages = kept("guard/toolgate", "integrations/toolgate_integrations", "service/toolgate_service")
    assert {name.partition("/")[2] for name in packages} - names == set()
    newest = max(path.name for path in (ROOT / "service/toolgate_service/migrations/versions").glob("0*.py"))
    assert f"toolgate_service/migrations/versions/{newest}" in names
    assert not [name for name in names if re.search(r"(__pycache__|\.pyc$|\.db|^tests|deploy)", name)]


def test_their_description_is_what_an_index_takes(dist: Path) -> None:
    """Name, version, licence, readme and requirements are valid core metadata, and those of the project."""
    (wheel,) = dist.glob("*.whl")
    with ZipFile(wheel) as files:
        raw = files.read(f"toolgate-{PROJECT['version']}.dist-info/METADATA")
        licence = files.read(f"toolgate-{PROJECT['version']}.dist-info/licenses/LICENSE")
    told = Metadata.from_email(raw, validate=True)
    assert (told.name, str(told.version), told.license_expression) == (
        "toolgate",
        PROJECT["version"],
        "Apache-2.0",
    )
    assert told.description_content_type == "text/markdown"
    assert told.description == (ROOT / "README.md").read_text()
    assert set(told.provides_extra or []) == set(PROJECT["optional-dependencies"])
    assert licence == (ROOT / "LICENSE").read_bytes()
    assert BytesParser().parsebytes(raw)["Requires-Python"] == PROJECT["requires-python"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["*.whl", "*.tar.gz"])
def test_what_they_install_serves(kind: str, again: Path, tmp_path: Path) -> None:
    """In an empty environment, with the pinned requirements and nothing else, the command serves, decides and records."""
    python, gateway = tmp_path / "env" / "bin" / "python", tmp_path / "env" / "bin" / "toolgate"
    run(sys.executable, "-m", "uv", "venv", "--quiet", "--python", sys.executable, tmp_path / "env")
    install = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", python]
    run(
        *install, "--require-hashes", "--only-binary", ":all:", "-r", ROOT / "service/deploy/requirements.txt"
    )
    (file,) = again.glob(kind)
    run(*install, "--no-deps", file)
    run(sys.executable, "-m", "uv", "pip", "check", "--quiet", "--python", python)
    assert PROJECT["version"] in run(gateway, "--version", cwd=tmp_path)
    database = tmp_path / "toolgate.db"
    env = {
        "PATH": os.environ["PATH"],
        "TOOLGATE_DATABASE_URL": f"sqlite:///{database}",
        "TOOLGATE_SECRET": SECRET,
    }
    serving = subprocess.Popen(
        [gateway, "serve", "--port", "0"], cwd=tmp_path, env=env, stdout=subprocess.PIPE, text=True
    )
    try:
        assert serving.stdout is not None
        found = re.search(r"http://\S+:\d+", serving.stdout.readline())
        assert found
        with Owner(found.group()) as owner:
            agent = owner.agent()
            owner.permit(agent, "files.read")
            assert owner.check(agent, "files.read").json()["allowed"] is True
            assert owner.check(agent, "files.write").json()["allowed"] is False
            owner.log(agent, "files.read")
            assert [entry["action"] for entry in owner.entries()] == ["files.read"]
            page = owner.http.get("/console/sign-in")
            assert page.status_code == 200
            linked = re.findall(r'(?:href|src)="(/console/static/[^"]+)"', page.text)
            assert len(linked) > 1
            assert {owner.http.get(address).status_code for address in linked} == {200}
        serving.send_signal(signal.SIGTERM)
        assert serving.wait(30) == 0
    finally:
        serving.kill()
        serving.wait()
        assert serving.stdout is not None
        serving.stdout.close()
