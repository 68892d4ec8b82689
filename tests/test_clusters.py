"""The PostgreSQL servers that the tests start: every version at hand, gone with the tests however these end."""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest
from support.postgres import Cluster
from support.postgres_versions import CURE, SYSTEM, installations
from support.readme import ROOT
from support.waiting import until

STARTS = f"""
import signal, sys
sys.path.insert(0, {str(ROOT / "tests")!r})
from support.postgres import Cluster
from support.postgres_versions import preferred

with Cluster(preferred()) as cluster:
    print(cluster.pid, cluster.folder, cluster.url(), flush=True)
    signal.pause()
"""


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Temporary files in a folder that no other process's tests sweep, and that the server's user may enter."""
    with tempfile.TemporaryDirectory(prefix="toolgate-apart-") as folder:
        Path(folder).chmod(0o755)
        monkeypatch.setenv("TMPDIR", folder)
        # Only then is it looked up anew.
        monkeypatch.setattr(tempfile, "tempdir", None)
        yield


def _told(url: str, question: str) -> object:
    async def ask() -> object:
        connection = await asyncpg.connect(url)
        try:
            return await connection.fetchval(question)
        finally:
            await connection.close()

    return asyncio.run(ask())


@pytest.mark.slow
@pytest.mark.usefixtures("apart")
def test_a_cluster_does_not_outlive_a_killed_test() -> None:
    """After `kill -9` of the tests their server ends by itself, and the next one removes what it left behind."""
    with subprocess.Popen([sys.executable, "-c", STARTS], stdout=subprocess.PIPE, text=True) as tests:
        assert tests.stdout is not None
        server, folder, _ = tests.stdout.readline().split()
        assert _runs(int(server))
        tests.send_signal(signal.SIGKILL)
    until(lambda: not _runs(int(server)))
    assert Path(folder).exists()
    with Cluster(installations()[0]) as cluster:
        assert not Path(folder).exists()
        kept = cluster.folder
    assert not kept.exists()


@pytest.mark.usefixtures("apart")
@pytest.mark.slow
def test_a_server_that_has_not_yet_ended_keeps_its_files() -> None:
    """After `kill -9` of the tests nobody removes anything under a server that is still ending."""
    with subprocess.Popen([sys.executable, "-c", STARTS], stdout=subprocess.PIPE, text=True) as tests:
        assert tests.stdout is not None
        server, folder, url = tests.stdout.readline().split()
        # The server ends when all its processes have.
        slow = int(
            str(_told(url, "SELECT pid FROM pg_stat_activity WHERE backend_type = 'background writer'"))
        )
        os.kill(slow, signal.SIGSTOP)
        tests.send_signal(signal.SIGKILL)
    try:
        with Cluster(installations()[0]):
            assert (Path(folder) / "lock").exists()
            assert (Path(folder) / "data" / "postmaster.pid").exists()
    finally:
        os.kill(slow, signal.SIGCONT)
    until(lambda: not _runs(int(server)))
    with Cluster(installations()[0]):
        assert not Path(folder).exists()


@pytest.mark.slow
@pytest.mark.parametrize("fsync", [False, True])
def test_every_version_at_hand_starts(fsync: bool) -> None:
    """Each is reached by TCP and by its socket, and syncs only when asked to."""
    found = installations()
    assert len({one.version for one in found}) >= 2
    for installation in found:
        with Cluster(installation, fsync=fsync) as cluster:
            for url in (cluster.url(), cluster.socket_url()):
                version = str(_told(url, "SHOW server_version"))
                assert version.startswith(f"{installation.version}."), version
            assert _told(cluster.url(), "SHOW fsync") == ("on" if fsync else "off")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's server runs as somebody who may not enter")
@pytest.mark.slow
def test_programs_out_of_reach_run_from_a_copy(tmp_path: Path) -> None:
    """In an environment that only root may enter, the development environment's server starts all the same."""
    source = next(one for one in installations() if SYSTEM not in one.programs.parents)
    hidden = source.copied_to(tmp_path)
    assert hidden.programs.is_relative_to(tmp_path)
    with Cluster(hidden) as cluster:
        assert str(_told(cluster.url(), "SHOW server_version")).startswith(f"{source.version}.")


@pytest.mark.slow
def test_without_a_server_the_tests_say_what_helps() -> None:
    """With no PostgreSQL at hand `--database=postgresql` is an error that names the cure, and nothing is skipped."""
    hiding = "import support.postgres_versions as v; v.installations = list; import pytest; sys.exit(pytest.main())"
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "TOOLGATE_"))}
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, 'tests'); {hiding}"]
    command += ["--database=postgresql", "-p", "no:cacheprovider", "tests/test_house.py"]
    ended = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert ended.returncode == pytest.ExitCode.USAGE_ERROR
    assert CURE in ended.stderr
    assert "passed" not in ended.stdout
