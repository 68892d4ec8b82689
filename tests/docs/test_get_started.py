"""The pages of "Get started", followed as a reader follows them."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import httpx
import pytest
from support.command_line import CommandLine
from support.databases import Server
from support.gateway import PASSWORD, LiveGateway, Owner
from support.ports import reserve_port
from support.postgres import Cluster
from support.postgres_versions import preferred
from support.readme import ROOT, blocks
from support.serving import Serving, environment
from support.waiting import until

FOLDER = "docs/get-started"
GATEWAY = "http://127.0.0.1:8000"
NEED_PASSWORD = {("approvals", "approve"), ("keys", "create"), ("permissions", "create")}
REPLICAS = ("8001", "8002")
APPROVAL_ID = re.compile(r"\b([0-9a-f]{8}-[0-9a-f]{4})\s")


def run(script: str, folder: Path) -> str:
    """Run a script that must succeed without warnings, and return what it printed."""
    (folder / "script.py").write_text(script)
    done = subprocess.run(
        [sys.executable, "-W", "error", "script.py"],
        cwd=folder,
        env=environment(folder),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize("page", ["quickstart", pytest.param("langchain", marks=pytest.mark.slow)])
@pytest.mark.sqlite_only("the embedded gateway uses SQLite")
def test_script_of_the_page_prints_what_the_page_shows(page: str, tmp_path: Path) -> None:
    script, shown = blocks(f"{FOLDER}/{page}.md", "python")[0], blocks(f"{FOLDER}/{page}.md", "text")[0]
    assert run(script, tmp_path) == shown


@pytest.mark.sqlite_only("the embedded gateway uses SQLite")
def test_langchain_run_is_resumed_by_another_process(tmp_path: Path) -> None:
    agent, start, resume, _ = blocks(f"{FOLDER}/langchain.md", "python")
    (tmp_path / "bookkeeper.py").write_text(agent)
    assert run(start, tmp_path) + run(resume, tmp_path) == blocks(f"{FOLDER}/langchain.md", "text")[1]


def test_langchain_page_creates_the_agent_at_a_gateway(live_gateway: LiveGateway, tmp_path: Path) -> None:
    """The commands of the page, in order; the page's agent has then the permissions of its embedded guard."""
    with Owner(live_gateway.url) as owner:
        user = CommandLine(tmp_path / "home")
        [commands] = blocks(f"{FOLDER}/langchain.md", "console")
        for line in commands.splitlines():
            command = line.removeprefix("$ ").replace(GATEWAY, live_gateway.url)
            type_command(user, command.replace("you@example.com", owner.email))
        [agent] = owner.http.get("/api/agents").json()
        found = owner.http.get(f"/api/agents/{agent['id']}/permissions").json()
    assert {(one["action"], one["max_amount"], one["requires_approval"]) for one in found} == {
        ("invoices.read", None, False),
        ("invoices.pay", 1000, True),
    }


class Agent:
    """An agent's program that waits for an approver, in a `with` block."""

    def __init__(self, script: str, folder: Path, settings: dict[str, str]) -> None:
        (folder / "agent.py").write_text(script)
        self.process = subprocess.Popen(
            [sys.executable, "agent.py"],
            cwd=folder,
            env=environment(folder, settings),
            stdout=subprocess.PIPE,
            text=True,
        )

    def read_lines(self, number: int) -> str:
        """Return the next lines that the program prints."""
        assert self.process.stdout
        return "".join(self.process.stdout.readline() for _ in range(number))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout
        self.process.stdout.close()


def type_command(user: CommandLine, command: str) -> str:
    """Run a command of a page at a terminal, with the password where it is asked for; return the output."""
    words = [word.strip('"') for word in re.findall(r'"[^"]*"|\S+', command)]
    assert words.pop(0) == "toolgate"
    with user.at_terminal(*words, columns=200) as terminal:
        if tuple(words[:2]) in NEED_PASSWORD or words[0] == "login":
            terminal.wait_for("Password of")
            terminal.wait_for(": ")
            terminal.type(PASSWORD)
        assert terminal.end() == 0, terminal.shown
        return terminal.shown


def find_approval_id(shown: str) -> str:
    """Return the first id in the table of approval requests."""
    found = APPROVAL_ID.search(shown)
    assert found, shown
    return found[1]


def hide_times(table: str) -> list[str]:
    """Return the rows of a table of log entries without times, durations, lines and escape sequences."""
    varying = r"\x1b\[[?0-9;]*[A-Za-z]|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d|(?<=duration_ms=)[0-9.]+"
    rows = (" ".join(re.sub(varying, "", row).split()) for row in table.splitlines())
    return [row for row in rows if row.strip("─")]


@pytest.fixture(scope="module")
def default_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A gateway with default settings, as `toolgate serve` starts it."""
    home = tmp_path_factory.mktemp("serving") / "home"
    home.mkdir()
    with Serving(home) as gateway:
        yield gateway.listening()


def test_first_approval_shows_the_start_of_the_gateway(default_gateway: Serving) -> None:
    port = default_gateway.url.rpartition(":")[2]
    lines = default_gateway.summary.replace(f":{port}", ":8000").splitlines()
    home = re.search(r"database +(\S+)/\.local/", lines[2])
    assert home
    [shown] = [block for block in blocks(f"{FOLDER}/first-approval.md", "console") if "serve" in block]
    assert shown.splitlines()[1:] == [line.replace(home[1], "/home/you") for line in lines]


def test_first_approval(live_gateway: LiveGateway, tmp_path: Path) -> None:
    """The page's set-up script, agent and commands, in order."""
    page = f"{FOLDER}/first-approval.md"
    set_up, agent = blocks(page, "python")
    before, after = blocks(page, "text")
    _, approve, search = blocks(page, "console")
    printed = run(set_up.replace(GATEWAY, live_gateway.url), tmp_path)
    settings = dict(line.removeprefix("export ").split("=", 1) for line in printed.splitlines())
    user = CommandLine(tmp_path / "home")
    commands = [line.removeprefix("$ ").replace(GATEWAY, live_gateway.url) for line in approve.splitlines()]
    with Agent(agent, tmp_path, settings) as running:
        assert running.read_lines(3) == before
        login, show, decide = commands
        type_command(user, login)
        approval_id = find_approval_id(type_command(user, show))
        type_command(user, decide.replace("ID", approval_id))
        assert running.read_lines(1) == after
        assert running.process.wait(60) == 0
    command, _, shown = search.partition("\n")
    assert hide_times(type_command(user, command.removeprefix("$ "))) == hide_times(shown)


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    """The address of an empty database on a PostgreSQL server."""
    with Cluster(preferred()) as cluster:
        server = Server(cluster.url())
        yield server.url_of(server.create_database(migrated=False))


@pytest.mark.sqlite_only("it starts a PostgreSQL server of its own")
def test_production(database: str, tmp_path: Path) -> None:
    """Two gateways on PostgreSQL: the settings, commands and agent of the page, in order."""
    page = f"{FOLDER}/production.md"
    ports = dict(zip(REPLICAS, (reserve_port(), reserve_port()), strict=True))
    values = {
        "postgresql://toolgate:PASSWORD@db.example.com/toolgate": database,
        "CHANGE-ME\n": "0f" * 24 + "\n",
        "https://toolgate.example.com": f"http://127.0.0.1:{ports['8001']}",
        "/var/lib/toolgate/checkpoints": str(tmp_path / "checkpoints"),
        "TOOLGATE_DRAIN_SECONDS=10": "TOOLGATE_DRAIN_SECONDS=1",
    }
    [_, env_file], console = blocks(page, "sh"), blocks(page, "console")
    for shown, real in values.items():
        assert shown in env_file
        env_file = env_file.replace(shown, real)
    (tmp_path / "gateway.env").write_text(env_file)
    env = environment(tmp_path) | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}

    def run_shell(block: str) -> str:
        for shown, port in ports.items():
            block = block.replace(f":{shown}", f":{port}")
        script = "set -e\nset -a; . ./gateway.env; set +a\n" + re.sub(r"^\$ ", "", block, flags=re.MULTILINE)
        done = subprocess.run(
            ["sh", "-c", script], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    prepare, serve, ready, create, confirm, set_up, approve = console
    assert re.search(r"^ok +database +PostgreSQL ", run_shell(prepare), re.MULTILINE)
    settings = dict(line.split("=", 1) for line in env_file.splitlines())
    home = tmp_path / "gateway"
    home.mkdir()
    assert serve == "".join(f"$ toolgate serve --port {port}\n" for port in REPLICAS)
    replicas = [Serving(home, "--port", str(port), extra=settings) for port in ports.values()]
    with replicas[0], replicas[1]:
        for replica in replicas:
            replica.listening()
        assert shutil.which("curl") is None or run_shell(ready)
        token = run_shell(create).split("#token=")[1].split()[0]
        confirm = confirm.replace("TOKEN", token).replace("NEW-PASSWORD", PASSWORD)
        if shutil.which("curl"):
            run_shell(confirm)
        else:
            chosen = {"token": token, "new_password": PASSWORD}
            httpx.post(f"{replicas[0].url}/auth/password-reset/confirm", json=chosen).raise_for_status()

        user = CommandLine(tmp_path / "home")

        def type_block(block: str, **words: str) -> list[str]:
            shown = []
            for line in block.splitlines():
                command = line.removeprefix("$ ")
                for port, real in ports.items():
                    command = command.replace(f":{port}", f":{real}")
                if "ID" in command.split():
                    command = command.replace("ID", find_approval_id(shown[-1]))
                shown.append(type_command(user, command))
            return shown

        _, agent, _, key = type_block(set_up)
        identity = {
            "TOOLGATE_URL": replicas[0].url,
            "TOOLGATE_AGENT_ID": re.findall(r"agent ([0-9a-f-]{36})", agent)[0],
            "TOOLGATE_API_KEY": re.findall(r"\bak_\w+", key)[0],
        }
        with Agent(blocks(page, "python")[0], tmp_path, identity) as running:
            until(lambda: APPROVAL_ID.search(user.done("approvals", "list")))
            type_block(approve)
            assert running.read_lines(1) == blocks(page, "text")[0]


def test_files_that_the_page_about_production_names_exist() -> None:
    paths = set(re.findall(r"service/deploy/[\w./-]*\w", (ROOT / FOLDER / "production.md").read_text()))
    assert "service/deploy/compose/follow-ready.sh" in paths
    assert [path for path in sorted(paths) if not (ROOT / path).exists()] == []
