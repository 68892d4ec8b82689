"""No secret is written to an output: the reader of all that tests say finds them, and faults of every kind tell none."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from support.collected import TESTS
from support.forking import FORK_SERVER
from support.gateway import PASSWORD, SECRET, LiveGateway, Owner
from support.leaks import CANARY, assert_none, leaks
from support.serving import environment, run_serve
from support.slack import SIGNING_SECRET
from support.tables import execute
from support.team import invite

pytest_plugins = ["pytester"]

KEY, TEST_KEY = "ak_" + "k3y4" * 9 + "z", "test_" + "k3y4z" * 7
TOKEN = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTYifQ.c2lnbmF0dXJlLW9mLWl0"
FOUND = {
    "a production key": f"refused {KEY}",
    "a test key": f"[{TEST_KEY}]",
    "a token": f"said {TOKEN} again",
    "a webhook's secret": "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD",
    "a hash": "('$argon2id$v=19$m=65536,t=3,p=4$c2FsdA$aGFzaA',)",
    "an invitation": "see /console/invitation#token=q1w2e3r4t5z6u7i8o9p0",
    "a private key": "-----BEGIN EC PRIVATE KEY-----",
    "a database": "cannot reach postgresql://toolgate:s3cret@db/x",
    "a header": "{'x-api-key': 'something-else'}",
    "raw headers": "[(b'authorization', b'Bearer something-else')]",
    "a password": f"parameters: ('{PASSWORD}',)",
    "the gateway's secret": SECRET,
    "Slack's secret": SIGNING_SECRET,
    "a mail password": "smtp login with hush-hush failed",
    "a canary": f"context {{'to': '{CANARY}'}}",
}
INNOCENT = {
    "a masked key": "the API key 'ak_…k3y4' is refused",
    "what to write": "write postgresql://USER:PASSWORD@HOST:5432/DATABASE, or set X-API-Key",
    "a masked address": "postgresql://toolgate:***@db/x, smtp://gate:…@mail, {'url': 'smtp://gate:\\u2026@mail'}",
    "a setting's name": "TOOLGATE_SECRET must have at least 16 characters",
    "an id": "request 01a201d4-e52b-75f1-900f-8708a9b7e972 failed at http://127.0.0.1:8000/x@y",
    "a test": "tests/x.py::test_a_key_that_stops_working_from_here_ends_the_wait",
    "a question": "Authorization: Bearer …, X-API-Key: ak_…",
}


@pytest.mark.parametrize("text", FOUND.values(), ids=FOUND)
def test_a_secret_is_found(text: str) -> None:
    """Each kind, in the midst of other lines; what is told of it does not repeat it."""
    found = leaks(f"INFO started\n{text}\nINFO ended\n")
    assert found
    for secret in (KEY, TEST_KEY, TOKEN, PASSWORD, SECRET, CANARY):
        assert secret not in "".join(found)


@pytest.mark.parametrize("text", INNOCENT.values(), ids=INNOCENT)
def test_what_is_no_secret_is_left_alone(text: str) -> None:
    """What errors and logs rightly say."""
    assert leaks(text) == []


@pytest.mark.slow
def test_a_test_in_which_one_is_said_fails(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Said by the test or by a process it started, or logged; whoever says it on purpose bears the mark."""
    monkeypatch.setenv("PYTHONPATH", str(TESTS))
    pytester.makeconftest(
        "import pytest\n"
        "from support import leaks\n"
        "def pytest_configure(config): config.addinivalue_line('markers', 'leaks: on purpose')\n"
        "@pytest.hookimpl(wrapper=True)\n"
        "def pytest_runtest_makereport(item):\n"
        "    report = yield\n"
        "    leaks.judge(report, on_purpose=item.get_closest_marker(leaks.MARK) is not None)\n"
        "    return report\n"
    )
    pytester.makepyfile(
        "import logging, os, subprocess, sys, pytest\n"
        f"KEY = {KEY!r}\n"
        "def test_innocent(): print('nothing', file=sys.stderr)\n"
        "def test_printed(): print(KEY)\n"
        "def test_said(): print(KEY, file=sys.stderr)\n"
        "def test_of_a_child(): subprocess.run([sys.executable, '-c', f'import os; os.write(2, b\"{KEY}\")'], check=True)\n"
        "def test_logged(): logging.getLogger('x').warning('refused %s', KEY)\n"
        "@pytest.mark.leaks\n"
        "def test_on_purpose(): os.write(2, KEY.encode())\n"
    )
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-rA", "-o", "addopts=")
    result.assert_outcomes(passed=3, failed=3)
    for name in ("said", "of_a_child", "logged"):
        result.stdout.fnmatch_lines([f"FAILED *::test_{name}*"])


#: a secret in every setting that takes one
SECRET_SETTINGS = {
    "TOOLGATE_STRIPE_WEBHOOK_SECRET": "whsec_" + "provider" * 3,
    "TOOLGATE_SMTP_URL": "smtp://gate:hush-hush@127.0.0.1:1",
    "TOOLGATE_MAIL_FROM": "gate@example.test",
    "TOOLGATE_PUBLIC_URL": "http://127.0.0.1",
    "TOOLGATE_WEBHOOKS_ALLOW_PRIVATE": "true",
}
#: all that can be written down of what happens
TALKATIVE = {
    "TOOLGATE_LOG_FORMAT": "json",
    "TOOLGATE_LOG_LEVEL": "debug",
    "TOOLGATE_ACCESS_LOG": "true",
    "TOOLGATE_METRICS_ADDRESS": "127.0.0.1:0",
}
#: what every request below can fail at: without its table a statement fails with its values
TABLES = ("log_entries", "approvals", "webhooks", "sessions", "users", "api_keys")


@pytest.mark.parametrize(
    "how", [pytest.param({}, id="text", marks=pytest.mark.slow), pytest.param(TALKATIVE, id="json")]
)
def test_faults_tell_no_secret(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], how: dict[str, str]
) -> None:
    """Whatever breaks beneath a request that is full of secrets: the log names the request, and repeats nothing of it."""
    with LiveGateway(tmp_path, env=SECRET_SETTINGS | how) as gateway, Owner(gateway.url) as owner:
        agent = owner.agent()
        owner.permit(agent, "pay", requires_approval=True)
        link = invite(owner)
        secrets = [owner.key, owner.token, PASSWORD, SECRET, CANARY, SIGNING_SECRET, "hush-hush"]
        statuses = set(_ask_everything(owner, agent, CANARY))
        for table in TABLES:
            execute(gateway, f"ALTER TABLE {table} RENAME TO {table}_gone", constrained=False)
            statuses |= set(_ask_everything(owner, agent, CANARY))
        assert statuses >= {200, 400, 401}
        assert max(statuses) >= 500
        if how:
            figures = httpx.get(gateway.metrics_url, timeout=30).text
            assert "toolgate_" in figures
            assert_none(figures)
    told = "".join(capfd.readouterr())
    assert "faulty-request" in told, "the faults are in the log, so the log was read"
    assert link.status_code == 201
    assert [secret for secret in secrets if secret in told] == []
    assert_none(told)


def _ask_everything(owner: Owner, agent: str, said: str) -> Iterator[int]:
    """Send secrets wherever one may stand: headers, address, body, rightly and wrongly."""
    key = {"X-API-Key": owner.key, "X-Request-ID": "faulty-request"}
    person = {"Authorization": f"Bearer {owner.token}", "X-Request-ID": "faulty-request"}
    login = {"email": owner.email, "password": PASSWORD}
    call = {"agent_id": agent, "action": "pay", "context": {"note": said}, "call_id": said}
    entry = {"agent_id": agent, "action": "pay", "status": "success", "context": {"note": said}}
    hook = {"url": f"http://127.0.0.1:9/{said}", "description": said}
    slack = {**hook, "kind": "slack", "signing_secret": SIGNING_SECRET}
    asked: list[tuple[str, str, object, dict[str, str]]] = [
        ("POST", "/sdk/check", call, key),
        ("POST", "/sdk/check", call, key | {"Idempotency-Key": said}),
        ("POST", "/sdk/log", entry, key | {"Idempotency-Key": said}),
        ("POST", "/sdk/logs", {"entries": [entry]}, key),
        ("GET", f"/sdk/approvals/{agent}?wait=0&key={owner.key}", None, key),
        ("GET", f"/sdk/permissions?agent_id={agent}&api_key={owner.key}", None, key),
        ("POST", "/auth/login", login, {}),
        ("POST", "/auth/register", {**login, "email": "x@example.test", "organization_name": said}, {}),
        ("POST", "/auth/password", {"current_password": PASSWORD, "new_password": PASSWORD}, person),
        ("POST", "/auth/password-reset", {"email": owner.email}, {}),
        ("POST", "/auth/password-reset/confirm", {"token": said, "new_password": PASSWORD}, {}),
        ("POST", "/auth/accept-invitation", {"token": said, "password": PASSWORD}, {}),
        ("POST", "/api/team/invitations", {"email": "y@example.test", "role": "member"}, person),
        ("POST", "/api/webhooks", hook, person),
        ("POST", "/api/webhooks", slack, person),
        ("POST", f"/api/agents/{agent}/keys", None, person),
        ("PUT", f"/api/agents/{agent}", {"description": said}, person),
        ("GET", f"/api/logs?action={said}&token={owner.token}", None, person),
        ("GET", f"/api/logs/export?format=csv&key={owner.key}", None, person),
        ("GET", "/api/organization", None, person),
        ("POST", "/console/sign-in", login, {"Origin": owner.url}),
        ("POST", "/billing/provider-events", {"id": said}, {"Stripe-Signature": f"t=1,v1={said}"}),
    ]
    with httpx.Client(base_url=owner.url, timeout=30) as client:
        for method, path, body, headers in asked:
            form = {"data": body} if path.startswith("/console") else {"json": body}
            yield client.request(method, path, headers=headers, **form).status_code  # type: ignore[arg-type]  # of either


WRONG = {
    "a database's password": {"TOOLGATE_DATABASE_URL": "postgresql://toolgate:hunter2@127.0.0.1:1/toolgate"},
    "a database's query": {
        "TOOLGATE_DATABASE_URL": "postgresql://db/toolgate?password=hunter2&sslmode=nonsense"
    },
    "a mail server's password": {"TOOLGATE_SMTP_URL": "smtp://gate:hush-hush@127.0.0.1:99999"},
    "a secret beside": {"TOOLGATE_STRIPE_WEBHOOK_SECRET": "hush-hush", "TOOLGATE_LOGIN_THREADS": "none"},
    "the secret itself": {"TOOLGATE_SECRET": "hunter2"},
}


@pytest.mark.parametrize("extra", WRONG.values(), ids=WRONG)
def test_a_refused_start_tells_no_secret(tmp_path: Path, extra: dict[str, str]) -> None:
    """One line says what is wrong with a setting, and does not repeat a secret in it or beside it."""
    ended = run_serve(tmp_path, extra={"TOOLGATE_SECRET": SECRET, **extra})
    assert ended.returncode != 0
    said = ended.stdout + ended.stderr
    assert "TOOLGATE_" in said or "PostgreSQL" in said
    assert_none(said)


@pytest.mark.parametrize("command", ["show", "check"])
@pytest.mark.parametrize("form", [(), ("--json",)], ids=["text", "json"])
def test_settings_are_shown_without_secrets(tmp_path: Path, command: str, form: tuple[str, ...]) -> None:
    """An operator may paste what `toolgate config` prints into a public question."""
    env = SECRET_SETTINGS | {
        "TOOLGATE_SECRET": SECRET,
        "TOOLGATE_DATABASE_URL": "postgresql://gate:hunter2@127.0.0.1:1/x",
    }
    env |= {
        "TOOLGATE_API_KEY": KEY,
        "TOOLGATE_CLIENT_KEY_PASSWORD": PASSWORD,
        "TOOLGATE_REDIS_URL": "redis://:hunter2@127.0.0.1:1/0",
        "TOOLGATE_SECRET_PREVIOUS": f"{SECRET}, once",
        "TOOLGATE_PROXY": "http://a:hunter2@b",
    }
    ended = FORK_SERVER.run("config", command, *form, env=environment(tmp_path, env))
    assert "TOOLGATE_DATABASE_URL" in ended.stdout
    assert_none(ended.stdout + ended.stderr)
    assert "provider" * 3 not in ended.stdout + ended.stderr
