"""`toolgate hook serve`: what the command answers, asked over HTTP, with many at once and nobody's process started."""

import json
import os
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from support.forking import FORK_SERVER
from support.frameworks.claude_code import variables
from support.frameworks.harness import Scene
from support.hook_server import CALL, OWN, WRITE, ServedHook
from support.waiting import until

from toolgate_cli.hooks.claude_code import SECRET_VARIABLE


def said(answer: httpx.Response) -> dict[str, Any]:
    return dict(answer.json().get("hookSpecificOutput", {}))


def held(scene: Scene) -> dict[str, Any]:
    """The request that waits for a person, once the hook waits as well: the entry that it was held tells so."""
    (request,) = until(lambda: scene.owner.http.get("/api/approvals").json())
    until(scene.owner.entries)
    return dict(request)


def test_it_answers_and_records_as_the_command_does(scene: Scene) -> None:
    """Silence for a yes, a reason for a no, and an entry with the ids of the call, its session and its decision."""
    with ServedHook(scene) as hook:
        assert (hook.ask(CALL).status_code, hook.ask(CALL).json()) == (200, {})
        assert hook.ask({**CALL, "hook_event_name": "PostToolUse", "duration_ms": 12}).json() == {}
        refused = said(hook.ask({**CALL, "tool_name": "Read", "tool_use_id": "toolu_2"}))
        assert refused["permissionDecision"] == "deny"
        assert "'tools.Read' is blocked" in refused["permissionDecisionReason"]
        assert hook.end() == ""
    assert scene.logged() == [("Bash", "success"), ("Read", "denied")]
    (success,) = (each for each in scene.owner.entries() if each["status"] == "success")
    assert (success["run_id"], success["call_id"]) == ("session-1", "toolu_1")
    assert success["decision_id"]
    assert success["context"].items() >= {"cwd": "/srv/project", "command": "ls", "duration_ms": 12}.items()


def test_a_held_call_keeps_nobody_waiting(scene: Scene) -> None:
    """While one waits for a person others are answered; what the person approved is what may run."""
    with ServedHook(scene) as hook, ThreadPoolExecutor() as pool:
        waits = pool.submit(hook.ask, WRITE)
        request = held(scene)
        assert [answer.json() for answer in pool.map(hook.ask, [CALL] * 8)] == [{}] * 8
        assert not waits.done()
        scene.approve(request["id"], context={**request["context"], "content": "c"})
        assert said(waits.result(60))["updatedInput"] == {"file_path": "/srv/a", "content": "c"}


def test_who_hangs_up_takes_the_request_back(scene: Scene) -> None:
    """A call that its user ended, or whose time was over at Claude Code's, waits for nobody."""
    with ServedHook(scene) as hook, socket.create_connection(("127.0.0.1", hook.port)) as asking:
        body = json.dumps(WRITE).encode()
        asking.sendall(
            b"POST /claude-code HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nAuthorization: Bearer %s\r\n"
            b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
            % (hook.port, OWN.encode(), len(body), body)
        )
        request = held(scene)
        asking.close()
        assert until(lambda: scene.status(request["id"]) == "cancelled")
        assert hook.ask(CALL).json() == {}


def test_ended_while_calls_wait_it_withdraws_them(scene: Scene) -> None:
    """SIGTERM is an orderly end: clients get an error, which blocks, and no request is left behind."""
    with ServedHook(scene) as hook, ThreadPoolExecutor() as pool:
        waits = pool.submit(hook.ask, WRITE)
        request = held(scene)
        assert hook.end() == ""
        assert waits.result(60).status_code == 503
    assert scene.status(request["id"]) == "cancelled"


def test_a_session_that_ends_leaves_an_entry_of_what_ran(scene: Scene) -> None:
    """What was let through and never heard of again is recorded when its session is over; others run on."""
    with ServedHook(scene) as hook:
        for session in ("session-1", "session-2"):
            hook.ask({**CALL, "session_id": session})
        hook.ask({"hook_event_name": "SessionEnd", "session_id": "session-1", "reason": "other"})
        hook.end()
    (unknown,) = scene.owner.entries()
    assert (unknown["status"], unknown["run_id"]) == ("pending", "session-1")
    assert unknown["context"]["outcome"] == "unknown"


def test_a_server_that_was_killed_leaves_what_ran_to_the_next(scene: Scene) -> None:
    """What it had let through is recorded, once, as soon as another begins; who hears of it later says so."""
    with ServedHook(scene) as killed:
        killed.ask(CALL)
    with ServedHook(scene) as hook:
        assert hook.ask({**CALL, "hook_event_name": "PostToolUse"}).json() == {}
        hook.end()
    found = {each["status"]: each["context"] for each in scene.owner.entries()}
    assert found["pending"]["outcome"] == "unknown"
    assert found["success"]["asked_about"] == "not known"
    assert len(found) == len(scene.owner.entries())


def test_without_a_gateway_the_model_reads_why(scene: Scene) -> None:
    """The server is up and nobody answers it: a no, and one that says so."""
    away = {"TOOLGATE_URL": "http://127.0.0.1:9", "TOOLGATE_TIMEOUT": "0.3"}
    with ServedHook(scene, env=away) as hook:
        assert "did not answer" in said(hook.ask(CALL))["permissionDecisionReason"]


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"hook_event_name": "PreToolUse", "tool_name": "Bash"}'])
def test_what_is_no_question_is_a_failure(scene: Scene, body: bytes) -> None:
    """It is no yes, and the server says in its own words what was wrong."""
    with ServedHook(scene) as hook:
        assert hook.ask(body).status_code == 422
        assert "the hook's input" in hook.end()


def test_a_port_that_is_taken_is_named(scene: Scene) -> None:
    """Whoever listens there would answer in the guard's place: the error says what to do, and nothing is served."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        environment = {**os.environ, **variables(scene), SECRET_VARIABLE: OWN}
        done = FORK_SERVER.run("hook", "serve", "--port", port, env=environment)
    assert done.returncode == 1
    assert f"port {port}" in done.stderr
    assert "--port" in done.stderr


@pytest.mark.parametrize(
    ("env", "why"),
    [({"TOOLGATE_API_KEY": ""}, "TOOLGATE_API_KEY"), ({SECRET_VARIABLE: "short"}, SECRET_VARIABLE)],
)
def test_settings_that_are_missing_or_wrong_are_told_at_the_start(
    scene: Scene, env: dict[str, str], why: str
) -> None:
    """Not at the first call; and no secret is quoted."""
    done = FORK_SERVER.run("hook", "serve", env={**os.environ, **variables(scene), **env})
    assert done.returncode == 1
    assert why in done.stderr
    assert "short" not in done.stderr
