"""The hook's process: every way out of it but a gateway's yes ends with status 2."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import pytest
from support.forking import FORK_SERVER
from support.frameworks.claude_code import variables
from support.frameworks.harness import Scene
from support.hook_server import CALL, WRITE
from support.waiting import until

from toolgate import ConfigurationError
from toolgate_integrations.coding_agents import options
from toolgate_integrations.coding_agents.agents import ClaudeCode
from toolgate_integrations.coding_agents.agents import told as read_json

# What a plugin does in the hook's place: it is asked for `answer`.
PRETENDED = """
import os, sys
from types import SimpleNamespace
from toolgate_cli.hooks import runner

def answer(given):
    {does}

hook = SimpleNamespace(limit={limit}, answer=answer)
runner._load_plugin = lambda: SimpleNamespace(parse=lambda words: hook)
runner.run([])
"""


def asked(scene: Scene, told: Any, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    typed = told if isinstance(told, str) else json.dumps(told)
    environment = {**os.environ, **variables(scene), **env}
    return FORK_SERVER.run("hook", "claude-code", *words, env=environment, typed=typed)


def test_allowed_is_silence(scene: Scene) -> None:
    """What the gateway allows is left to the user's own permissions: nothing is said, `allow` least of all."""
    done = asked(scene, CALL)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("words", [("claude-code", "--help"), ("opencode", "-h"), ("-h",)])
def test_help_is_printed(scene: Scene, words: tuple[str, ...]) -> None:
    environment = {**os.environ, **variables(scene)}
    done = FORK_SERVER.run("hook", *words, env=environment, typed="")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("usage: toolgate hook")


def test_a_call_of_a_hook_with_help_does_not_run(scene: Scene) -> None:
    done = asked(scene, CALL, "--help")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith("Not done: with --help no tool call is checked.\n")


@pytest.mark.parametrize(
    "words", [("--wrong",), ("--on-hold", "never"), ("--tool-action", "x"), ("--hold-timeout", "-1")]
)
@pytest.mark.parametrize("typed", [CALL, ""])
def test_wrong_options_are_named(scene: Scene, words: tuple[str, ...], typed: Any) -> None:
    done = asked(scene, typed, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert words[0] in done.stderr
    assert done.stderr.endswith(
        "Not done: the options of this hook are wrong, so the call was not checked.\n"
    )


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ('{"hook_event_name": "PreToolUse"', "is not JSON"),
        ("[]", "not a JSON object"),
        ({}, "hook_event_name"),
        ({**CALL, "hook_event_name": "PreToolUSE"}, "unknown event 'PreToolUSE'"),
        ({**CALL, "tool_name": None}, "tool_name"),
        ({**CALL, "tool_input": "ls"}, "tool_input"),
        ({**CALL, "tool_use_id": ""}, "tool_use_id"),
        ({**CALL, "session_id": 7}, "session_id"),
        ({**CALL, "tool_name": "mcp__a__b__c"}, "the server of the tool"),
        ({**CALL, "hook_event_name": "PostToolUse", "tool_use_id": None}, "tool_use_id"),
    ],
)
def test_what_is_no_question_is_refused(told: Any, why: str) -> None:
    """Input that is no question, or one that nobody knows, is an error that says why."""
    given = told if isinstance(told, str) else json.dumps(told)
    with pytest.raises(ConfigurationError, match=re.escape(why)):
        ClaudeCode().read(read_json(given.encode()))


@pytest.mark.parametrize(
    ("told", "why"), [("", "is not JSON"), ({**CALL, "tool_name": "mcp__tools__c"}, "'tools'")]
)
def test_what_is_an_error_is_blocked(scene: Scene, told: Any, why: str) -> None:
    """Such an error, and one of what would be asked, end the process with a no."""
    done = asked(scene, told)
    assert done.returncode == 2
    assert why in done.stderr
    assert scene.logged() == []


@pytest.mark.parametrize(
    ("words", "env", "why"),
    [
        ((), {"TOOLGATE_API_KEY": ""}, "TOOLGATE_API_KEY"),
        ((), {"TOOLGATE_URL": "http://gateway.example.com"}, "https"),
        ((), {"TOOLGATE_AGENT_ID": ""}, "TOOLGATE_AGENT_ID"),
        ((), {"TOOLGATE_API_KEY": "ak_" + "a" * 37}, "key"),
        (("--on-hold", "ask"), {}, "--on-hold"),
    ],
)
def test_settings_that_are_missing_or_wrong_block(
    scene: Scene, words: tuple[str, ...], env: dict[str, str], why: str
) -> None:
    """A hook that was set up wrongly stops every call, and says what to do."""
    done = asked(scene, CALL, *words, **env)
    assert done.returncode == 2
    assert why in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("--hold-timeout", "inf"),
        ("--tool-action", "Bash"),
        ("--subagent", "a=b", "--subagent", "a=c"),
        ("--nothing",),
    ],
)
def test_words_that_are_wrong_are_refused(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    """Each is named."""
    with pytest.raises(SystemExit, match="2"):
        options(["claude-code", *words])
    assert words[0] in capsys.readouterr().err


def test_without_a_gateway_it_is_blocked(scene: Scene) -> None:
    """Nobody answers: the tool does not run, and the model reads that asking later may help."""
    done = asked(scene, CALL, TOOLGATE_URL="http://127.0.0.1:9", TOOLGATE_TIMEOUT="0.3")
    assert done.returncode == 2
    said = json.loads(done.stdout)["hookSpecificOutput"]
    assert said["permissionDecision"] == "deny"
    assert "did not answer" in said["permissionDecisionReason"]


def test_where_nothing_can_be_written_down_it_is_blocked(scene: Scene, tmp_path: Path) -> None:
    """A call that would leave no trace if the agent died does not run."""
    state = tmp_path / "state"
    (state / "toolgate").mkdir(parents=True, mode=0o700)
    (state / "toolgate" / "hooks").write_text("in the way")
    done = asked(scene, CALL, XDG_STATE_HOME=str(state))
    assert done.returncode == 2
    assert "hooks" in done.stderr


def test_ended_while_it_waits_it_withdraws(scene: Scene) -> None:
    """Stopped by the agent's own time-out or its user, the hook takes the request back and blocks."""
    environment = {**os.environ, **variables(scene)}
    with TemporaryFile("w+") as read, TemporaryFile("w+") as printed, TemporaryFile("w+") as said:
        read.write(json.dumps(WRITE))
        read.seek(0)
        streams = (read.fileno(), printed.fileno(), said.fileno())
        words = ("hook", "claude-code", "--hold-timeout", "60")
        process = FORK_SERVER.speak(*words, env=environment, streams=streams)
        (request,) = until(lambda: scene.owner.http.get("/api/approvals").json())
        # Only once it waits: it is told so by the entry that it was held.
        until(scene.owner.entries)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 2
        printed.seek(0)
        said.seek(0)
        assert printed.read() == ""
        assert "SIGTERM" in said.read()
    assert until(lambda: scene.status(request["id"]) == "cancelled")


@pytest.mark.parametrize(
    ("does", "code", "stdout"),
    [
        ("sys.exit(0)", 2, ""),
        ("raise RuntimeError('a secret')", 2, ""),
        ("raise RecursionError", 2, ""),
        ("os.kill(os.getpid(), 15)", 2, ""),
        ("sys.stdin.buffer.raw.read(), __import__('threading').Event().wait()", 2, ""),
        ("print('noise'); raise RuntimeError", 2, ""),
        ("print('noise'); return SimpleNamespace(code=0, stdout=b'{}', stderr='')", 0, "{}"),
    ],
)
def test_whatever_happens_inside(does: str, code: int, stdout: str) -> None:
    """No error is taken for a yes, no message quotes a secret, and nobody else writes to standard output."""
    program = PRETENDED.format(does=does, limit=0.5 if "Event" in does else 30)
    done = subprocess.run(
        [sys.executable, "-c", program], input="{}", capture_output=True, text=True, timeout=30, check=False
    )
    assert (done.returncode, done.stdout) == (code, stdout)
    assert ("Not done: the hook" in done.stderr) == (code != 0)
    assert "a secret" not in done.stderr


def test_nothing_of_the_project_is_imported(scene: Scene, tmp_path: Path) -> None:
    """An agent that writes a module into the project does not get into its own guard."""
    for name in ("json", "toolgate", "signal"):
        (tmp_path / f"{name}.py").write_text("import os; os._exit(0)")
    script = Path(sys.executable).with_name("toolgate")
    done = subprocess.run(
        [script, "hook", "claude-code"],
        cwd=tmp_path,
        env={**os.environ, **variables(scene)},
        input=json.dumps({**CALL, "tool_name": "Read"}),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert "tools.Read" in done.stderr


def test_without_words_it_is_no_yes() -> None:
    """An agent that does not know of `args` starts the bare command: it ends with 2, not with its help and 0."""
    assert FORK_SERVER.run(env=dict(os.environ), typed=json.dumps(CALL)).returncode == 2
