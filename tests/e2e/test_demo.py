"""`toolgate demo` does what it says, seen from outside."""

import json
import os
import re
import shlex
import shutil
import signal
import sqlite3
import subprocess
import sys
import sysconfig
import tempfile
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from support.gateway import SECRET, LiveGateway, Owner
from support.model_api import model_api
from support.readme import ROOT
from support.waiting import until
from support.workers import children_of

from toolgate_cli.demo import load_program

pytestmark = pytest.mark.sqlite_only("the demo brings a gateway with a file of its own")

MODELS = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY")


def demo(*arguments: str, **env: str) -> "subprocess.CompletedProcess[str]":
    """Run the demo as a user does, with the scripted model."""
    clean = {name: value for name, value in os.environ.items() if name not in MODELS}
    command = [sys.executable, "-m", "toolgate", "demo", *arguments]
    return subprocess.run(
        command, env={**clean, **env}, capture_output=True, text=True, timeout=300, check=False
    )


def facts(folder: Path) -> dict[str, object]:
    """Read what the demo left behind, without any of its code."""
    with closing(sqlite3.connect(folder / "shop.db")) as shop:
        refunds = dict(shop.execute("SELECT id, refunded FROM orders WHERE refunded != '0.00'").fetchall())
    with closing(sqlite3.connect(folder / "gateway.db")) as gateway:
        entries = gateway.execute("SELECT action, status FROM log_entries ORDER BY created_at, id").fetchall()
        approvals = gateway.execute("SELECT action, status, context FROM approvals").fetchall()
    return {
        "refunds": refunds,
        "files": sorted(path.name for path in (folder / "files").iterdir()),
        "mails": (folder / "outbox").exists(),
        "entries": entries,
        "approvals": approvals,
    }


@pytest.fixture(scope="module")
def told() -> str:
    """What one run of the demo shows, its bar in a form that is easy to find; it leaves nothing behind."""
    home = Path(tempfile.mkdtemp())
    run = demo(TMPDIR=str(home), HOME=str(home), XDG_CONFIG_HOME=str(home / "config"), PYTHONUTF8="1")
    assert run.returncode == 0, run.stderr
    assert list(home.iterdir()) == []
    home.rmdir()
    return run.stdout.replace("  ┃ ", "  | ")


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What one run of the demo left behind, in a folder of an odd name and amid settings meant for something else."""
    folder = tmp_path_factory.mktemp("demo") / "kept 100%? it's"
    odd = {"TOOLGATE_TIMEOUT": "soon", "TOOLGATE_HTTP": "none", "TOOLGATE_URL": "https://elsewhere.example"}
    run = demo("--keep", str(folder), TOOLGATE_SECRET=SECRET, PYTHONIOENCODING="ascii", **odd)
    assert run.returncode == 0, run.stderr
    for word in ("allowed", "blocked", "held", "approved", "audit trail"):
        assert word in run.stdout, word
    return folder


def test_the_demo_does_real_work_and_leaves_the_facts_behind(kept):
    """One refund in the database, one file gone, no mail; the gateway's file tells the same story."""
    assert facts(kept) == {
        "refunds": {"1001": "40.00"},
        "files": ["customers-2026.csv"],
        "mails": False,
        "entries": [
            ("stripe.refund", "success"),
            ("stripe.refund", "denied"),
            ("file.delete", "pending"),
            ("file.delete", "success"),
            ("mail.send", "denied"),
        ],
        "approvals": [("file.delete", "consumed", '{"name":"customers-2019.csv"}')],
    }


@pytest.mark.slow
def test_setting_up_shows_progress(told):
    """Each step is a line of its own before the players are introduced, to a pipe as well."""
    setting_up, _, playing = told.partition("gateway      http://")
    assert re.findall(r"^  … (\w+)", setting_up, re.MULTILINE) == [
        "laying",
        "loading",
        "starting",
        "registering",
    ]
    assert "  … " not in playing


@pytest.mark.slow
def test_without_its_extra_the_demo_starts_nothing(tmp_path):
    """One line names the extra, before a gateway is started."""
    package = tmp_path / "langchain"
    package.mkdir()
    (package / "__init__.py").write_text("raise ModuleNotFoundError('not here', name='langchain')\n")
    run = demo(PYTHONPATH=str(tmp_path))
    assert run.returncode == 1
    assert run.stderr.splitlines() == [
        "toolgate: the demo's agent needs its extra; install it with: pip install 'toolgate[demo]'"
    ]
    assert "starting a gateway" not in run.stdout


@pytest.mark.slow
def test_amounts_are_shown_against_the_maximum(told):
    """Each decision about a refund names the amount and the permission's maximum; other calls what they are about."""
    lines = re.findall(r"^  (allowed|blocked|held) +(\S+) +(.*)$", told, re.MULTILINE)
    assert [(outcome, action, about.partition(" · ")[0]) for outcome, action, about in lines] == [
        ("allowed", "stripe.refund", "order 1001, amount 40.00, at most 100.00"),
        ("blocked", "stripe.refund", "order 1002, amount 250.00, at most 100.00"),
        ("held", "file.delete", "customers-2019.csv"),
        ("allowed", "file.delete", "customers-2019.csv"),
        ("blocked", "mail.send", "ada@example.test"),
    ]


@pytest.mark.slow
def test_the_commands_to_try_next_can_be_started(told):
    """Each line under "Try next" is a command of this installation, with options that it has."""
    _, _, after = told.partition("Try next")
    commands = [line.partition("  #")[0].strip() for line in after.splitlines() if "#" in line]
    words = [command.partition("toolgate ")[2] for command in commands]
    assert words == ["demo --two-terminals", "demo --keep shop-demo", "serve"]
    for command in commands:
        # A shell reads the help of just these words.
        done = subprocess.run(
            ["/bin/sh", "-c", f"{command} --help"], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        for option in re.findall(r"--[a-z-]+", command):
            assert option in done.stdout


def test_the_command_is_named_as_the_shell_finds_it(monkeypatch, tmp_path):
    """By its name where that is this installation's; by its path where the name is another's, or nobody's."""
    command_name = load_program().screen.command_name
    scripts = Path(sysconfig.get_path("scripts"))
    command_name.cache_clear()
    monkeypatch.setenv("PATH", str(scripts))
    assert command_name() == "toolgate"
    other = tmp_path / "toolgate"
    other.write_text("#!/bin/sh\n")
    other.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    for path in (tmp_path, tmp_path / "nothing"):
        command_name.cache_clear()
        monkeypatch.setenv("PATH", str(path))
        assert command_name() == shlex.quote(str(scripts / "toolgate"))
    command_name.cache_clear()
    monkeypatch.chdir(scripts.parent)
    assert command_name() == "bin/toolgate"
    command_name.cache_clear()


@pytest.mark.slow
def test_the_second_terminal_is_set_apart(told):
    """What the person's own processes print stands behind a bar: they watch, read the context, and approve."""
    second = [line.removeprefix("  | ") for line in told.splitlines() if line.startswith("  | ")]
    commands = [line.split(" --")[0] for line in second if line.startswith("$ ")]
    approval_id = commands[2].rsplit(" ", 1)[1]
    assert commands == [
        "$ toolgate login",
        "$ toolgate approvals watch",
        f"$ toolgate approvals approve {approval_id}",
        "$ toolgate logout",
    ]
    assert second.count(f"Approval {approval_id} · pending") == 2
    assert '  │ name  "customers-2019.csv"' in second
    assert any(line.startswith("approved: shop-assistant may make this call once") for line in second)


def test_what_the_demo_kept_can_be_served_again(kept):
    """The kept gateway opens under the same secret, with the login it noted, and shows the same record."""
    note = json.loads((kept / "demo.json").read_text())
    assert (kept / "demo.json").stat().st_mode & 0o077 == 0
    with LiveGateway(kept) as gateway:
        login = {"email": note["email"], "password": note["password"]}
        token = httpx.post(f"{gateway.url}/auth/login", json=login).json()["access_token"]
        bearer = {"Authorization": f"Bearer {token}"}
        assert len(httpx.get(f"{gateway.url}/api/logs", headers=bearer).json()) == 5
        organization = httpx.get(f"{gateway.url}/api/organization", headers=bearer).json()
        assert organization["api_key"] == note["api_key"]
        assert organization["plan"] == "enterprise"


@pytest.mark.slow
def test_the_demo_refuses_a_folder_that_is_not_empty(tmp_path):
    """Nothing of the user's is overwritten: one clear line, a non-zero status, no change."""
    (tmp_path / "precious.txt").write_text("mine")
    run = demo("--keep", str(tmp_path))
    assert run.returncode != 0
    assert "is not empty" in run.stderr
    assert len(run.stderr.splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["precious.txt"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "is_late", "code"),
    [
        (signal.SIGTERM, False, 128 + signal.SIGTERM),
        (signal.SIGTERM, True, 128 + signal.SIGTERM),
        (signal.SIGINT, True, 128 + signal.SIGINT),
    ],
)
def test_a_killed_demo_takes_its_processes_along(tmp_path, how, is_late, code):
    """A signal ends the demo, the processes it started, and its temporary folders."""
    env = {name: value for name, value in os.environ.items() if name not in MODELS} | {
        "TMPDIR": str(tmp_path)
    }
    command = [sys.executable, "-m", "toolgate", "demo"]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        url = next(line.split()[-1] for line in run.stdout if "http://" in line)
        if is_late:
            until(lambda: any(b"login" in command for command in children_of(run.pid).values()))
        started = children_of(run.pid)
        run.send_signal(how)
        run.stdout.read()
    assert run.returncode == code
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/health")
    assert not any(Path(f"/proc/{child}").exists() for child in started)
    assert list(tmp_path.glob("toolgate-demo-*")) == []


@pytest.mark.slow
@pytest.mark.parametrize("broken", ["refund", "delete_file", "send_mail"])
def test_the_demo_fails_when_a_fact_is_not_as_told(tmp_path, broken):
    """A shop whose tools do something else ends the demo with a non-zero status that names the fact."""
    example = ROOT / "examples" / "shop"
    spoiled = {
        "refund": ('f"{refunded:.2f}"', '"1.00"'),
        "delete_file": ("path.unlink()", "path.exists()"),
        "send_mail": ('@guarded("mail.send")', "# unguarded"),
    }[broken]
    copy = shutil.copytree(example, tmp_path / "shop")
    shop = (copy / "shop.py").read_text()
    assert spoiled[0] in shop
    (copy / "shop.py").write_text(shop.replace(*spoiled))
    run = demo("--example", str(copy))
    assert run.returncode != 0
    assert "not as expected" in run.stderr


@pytest.mark.slow
def test_with_a_providers_key_the_demo_asks_the_real_model():
    """A key in the environment puts that provider's own client library into the agent's loop."""
    with model_api() as url:
        run = demo(OPENAI_API_KEY="sk-of-nobody", OPENAI_BASE_URL=url)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "model openai:" in run.stdout
    assert "Two of four things are done." in run.stdout
    assert "sk-of-nobody" not in run.stdout + run.stderr


@pytest.mark.slow
def test_a_model_out_of_reach_is_told_and_the_script_plays():
    """A provider that does not answer does not end the demo; that it was not asked is said."""
    run = demo(OPENAI_API_KEY="sk-of-nobody", OPENAI_BASE_URL="http://127.0.0.1:9/v1")
    assert run.returncode == 0, run.stdout + run.stderr
    assert "did not answer" in run.stdout


@pytest.mark.slow
def test_a_model_named_by_the_user_is_not_replaced():
    """Who names a model gets that model or an error of one line."""
    run = demo(
        "--model", "openai:gpt-5-mini", OPENAI_API_KEY="sk-of-nobody", OPENAI_BASE_URL="http://127.0.0.1:9/v1"
    )
    assert run.returncode != 0
    assert len(run.stderr.splitlines()) == 1, run.stderr


@pytest.mark.slow
def test_the_shops_agent_runs_by_hand(tmp_path, live_gateway, owner: Owner):
    """The example's README: with four variables set, the agent runs against any gateway."""
    shutil.copytree(ROOT / "examples" / "shop" / "files", tmp_path / "files")
    with closing(sqlite3.connect(tmp_path / "shop.db")) as shop:
        shop.executescript((ROOT / "examples" / "shop" / "shop.sql").read_text())
    agent_id = owner.agent()
    owner.permit(agent_id, "stripe.refund", max_amount=100)
    env = {
        **os.environ,
        "TOOLGATE_URL": live_gateway.url,
        "TOOLGATE_API_KEY": owner.key,
        "TOOLGATE_AGENT_ID": agent_id,
        "SHOP_FOLDER": str(tmp_path),
    }
    command = [sys.executable, str(ROOT / "examples" / "shop" / "agent.py")]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "Refunded 40.00 of order 1001." in done.stdout
    assert sorted(entry["status"] for entry in owner.entries()) == ["denied", "denied", "denied", "success"]
