"""`toolgate admin rotate-secret`: everything sealed anew, and nothing lost whatever happens in between (decisions §9)."""

import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
from sqlalchemy import LargeBinary, make_url
from support.admin import done, refusal
from support.crowd import together
from support.forking import FORK_SERVER
from support.gateway import PASSWORD, SECRET, LiveGateway, Owner
from support.lines import Lines
from support.serving import Serving, environment
from support.tables import rows
from support.waiting import until

from toolgate_service.console.security import check_form_token, form_token
from toolgate_service.core.crypto import Vault, begin_rotation, finish_rotation, former_secret, stored_secret
from toolgate_service.core.errors import ApiError
from toolgate_service.db.models import Table
from toolgate_service.gateway import Gateway
from toolgate_service.migrations.metadata import METADATA
from toolgate_service.secret_check import SEALED_MODELS

SEALED = "ciphertext"
NEW = "another secret for tests, as long"
BOTH = {"TOOLGATE_SECRET": NEW, "TOOLGATE_SECRET_PREVIOUS": SECRET}
PLACE = {"table": "ApiKey", "row": "1", "organization": "o"}


@pytest.fixture
def sealing(tmp_path: Path) -> Iterator[LiveGateway]:
    """A gateway of one test's own."""
    with LiveGateway(tmp_path) as gateway:
        yield gateway


@contextmanager
def restarted(gateway: LiveGateway, **secrets: str) -> Iterator[LiveGateway]:
    """Serve the same data with other secrets."""
    gateway.stop()
    with LiveGateway(gateway.folder, env=secrets) as again:
        yield again


def shown_key(gateway: LiveGateway, owner: Owner) -> str:
    """Log in again and return the key that the organization is shown."""
    body = {"email": owner.email, "password": PASSWORD}
    token = httpx.post(f"{gateway.url}/auth/login", json=body, timeout=30).json()["access_token"]
    headers = {"Authorization": f"Bearer {token}"}
    shown: str = httpx.get(f"{gateway.url}/api/organization", headers=headers, timeout=30).json()["api_key"]
    return shown


def sealed_under(gateway: LiveGateway, secret: str) -> int:
    """Return how many of the sealed keys a secret opens by itself."""
    vault = Vault(secret.encode())
    found = rows(gateway, "SELECT id, organization_id, ciphertext FROM api_keys")
    opened = [
        vault.open(bytes(sealed), table="ApiKey", row=str(row), organization=str(organization))
        for row, organization, sealed in found
    ]
    assert len(opened) == 2
    return len([one for one in opened if one is not None])


def test_what_was_sealed_before_opens_all_along(sealing: LiveGateway) -> None:
    """With both secrets set every key can be shown, before and after sealing anew; then the former one is not needed."""
    with Owner(sealing.url) as owner, restarted(sealing, **BOTH) as both:
        assert owner.http.get(f"{both.url}/auth/me").status_code == 200
        assert shown_key(both, owner) == owner.key
        assert (sealed_under(both, SECRET), sealed_under(both, NEW)) == (2, 0)
        lines = done(both, "rotate-secret")
        # Two API keys, and the key of the transparency log if it has begun already.
        assert re.match("encrypted [23] values with the new secret; 0 ", lines[0])
        assert any(line.startswith("users stay signed in") for line in lines)
        assert (sealed_under(both, SECRET), sealed_under(both, NEW)) == (0, 2)
        assert shown_key(both, owner) == owner.key
        assert re.match("encrypted [01] values with the new secret; [23] ", done(both, "rotate-secret")[0])
        with restarted(both, TOOLGATE_SECRET=NEW) as new:
            assert shown_key(new, owner) == owner.key
            headers = {"X-API-Key": owner.key}
            body = {"agent_id": "x", "action": "a"}
            assert (
                httpx.post(f"{new.url}/sdk/check", json=body, headers=headers, timeout=30).status_code == 200
            )


def test_a_secret_that_leaked_signs_no_tokens(sealing: LiveGateway) -> None:
    """Whoever knows a secret that leaked can forge no token once that is said; what it sealed still opens."""
    with Owner(sealing.url) as owner:
        leaked = BOTH | {"TOOLGATE_SECRET_PREVIOUS_LEAKED": "true"}
        with restarted(sealing, **leaked) as both:
            assert owner.http.get(f"{both.url}/api/agents").status_code == 401
            assert shown_key(both, owner) == owner.key
            assert any(
                line.startswith("all users must sign in again") for line in done(both, "rotate-secret")
            )


@pytest.mark.slow
def test_a_rotation_over_several_gateways_logs_nobody_out(tmp_path: Path) -> None:
    """Each is told of the new secret first and then changed over, one by one: whatever one signs or seals meanwhile,
    tokens, page cursors and keys, the other accepts."""
    old, new = {"TOOLGATE_SECRET": SECRET}, {"TOOLGATE_SECRET": NEW}
    told = old | {"TOOLGATE_SECRET_NEXT": NEW}
    with LiveGateway(tmp_path) as first, Owner(first.url) as owner:
        agents = [owner.agent("one"), owner.agent("two")]
    for environments in ((old, told), (told, BOTH), (BOTH, new)):
        if environments[1] is new:
            done(first, "rotate-secret", env=BOTH)
        with ExitStack() as stack:
            pair = [stack.enter_context(LiveGateway(tmp_path, env=env)) for env in environments]
            for here, there in (pair, pair[::-1]):
                headers = {"Authorization": f"Bearer {_token(here, owner)}"}
                page = httpx.get(f"{here.url}/api/agents?limit=1", headers=headers, timeout=30)
                following = there.url + page.links["next"]["url"]
                rest = httpx.get(following, headers=headers, timeout=30).json()
                assert {page.json()[0]["id"], rest[0]["id"]} == set(agents)
                anew = httpx.post(f"{here.url}/api/organization/regenerate-key", headers=headers, timeout=30)
                assert shown_key(there, owner) == anew.json()["api_key"]


def test_a_form_of_another_secret_that_holds_is_taken() -> None:
    """A page that was served before the change can still be sent off; that of a secret that holds no more cannot."""
    before, after = Vault(SECRET.encode()), Vault(NEW.encode(), SECRET.encode(), believed=[SECRET.encode()])
    token = form_token(cast("Gateway", SimpleNamespace(vault=before)), "session")
    check_form_token(cast("Gateway", SimpleNamespace(vault=after)), "session", token)
    leaked = Vault(NEW.encode(), SECRET.encode())
    with pytest.raises(ApiError):
        check_form_token(cast("Gateway", SimpleNamespace(vault=leaked)), "session", token)


def _token(gateway: LiveGateway, owner: Owner) -> str:
    body = {"email": owner.email, "password": PASSWORD}
    token: str = httpx.post(f"{gateway.url}/auth/login", json=body, timeout=30).json()["access_token"]
    return token


WRONG = {
    "no former": {"TOOLGATE_SECRET": NEW},
    "twice the same": {"TOOLGATE_SECRET": NEW, "TOOLGATE_SECRET_PREVIOUS": NEW},
    "another former": {"TOOLGATE_SECRET": NEW, "TOOLGATE_SECRET_PREVIOUS": "neither of the two secrets"},
    "a short former": {"TOOLGATE_SECRET": NEW, "TOOLGATE_SECRET_PREVIOUS": "hunter2"},
}


@pytest.mark.parametrize("secrets", WRONG.values(), ids=WRONG)
def test_wrong_secrets_are_refused(sealing: LiveGateway, secrets: dict[str, str]) -> None:
    """One line that names the setting and repeats no secret; everything is sealed as before."""
    with Owner(sealing.url):
        line = refusal(sealing, "rotate-secret", env=secrets)
    assert "TOOLGATE_SECRET_PREVIOUS" in line
    for secret in (*secrets.values(), SECRET):
        assert secret not in line
    assert sealed_under(sealing, SECRET) == 2


def test_the_rotation_is_audited(sealing: LiveGateway) -> None:
    """Every organization's audit says when the secret was changed."""
    with Owner(sealing.url) as owner:
        done(sealing, "rotate-secret", env=BOTH)
        query = (
            "SELECT user_id FROM audit_entries WHERE organization_id = ? AND kind = 'gateway.secret_rotated'"
        )
        assert rows(sealing, query, owner.user["organization_id"]) == [(None,)]


#: columns with bytes that are no secrets
PLAIN = {
    ("idempotency_keys", "answer"),
    ("transparency_logs", "root"),
    ("transparency_leaves", "data"),
    ("transparency_tiles", "hashes"),
}


def test_whatever_is_sealed_is_sealed_anew() -> None:
    """A table that keeps bytes keeps them under the name that is looked for, or is known to seal nothing."""
    assert {model for model in Table.__subclasses__() if SEALED in model.model_fields} == set(SEALED_MODELS)
    for table in METADATA.sorted_tables:
        for column in table.columns:
            if isinstance(column.type, LargeBinary):
                assert (table.name, column.name) in PLAIN or column.name == SEALED


def admin_at_home(home: Path, *arguments: str) -> list[str]:
    """Run a command with nothing but a home."""
    ended = FORK_SERVER.run("admin", *arguments, env=environment(home))
    assert (ended.returncode, ended.stderr) == (0, ""), ended
    return ended.stdout.splitlines()


def key_at_home(served: Serving) -> str:
    """Log in and return the key of the one organization."""
    body = {"email": "a@example.test", "password": "correct horse battery"}
    token = httpx.post(f"{served.url}/auth/login", json=body, timeout=30).json()["access_token"]
    headers = {"Authorization": f"Bearer {token}"}
    shown: str = httpx.get(f"{served.url}/api/organization", headers=headers, timeout=30).json()["api_key"]
    return shown


@pytest.mark.slow
def test_the_embedded_secret_is_changed_while_the_gateway_runs(tmp_path: Path) -> None:
    """New file, former beside it, all sealed anew; a restart knows the keys, --finish forgets the former."""
    home = tmp_path / "home"
    home.mkdir()
    secret = home / ".config" / "toolgate" / "secret"
    with Serving(home) as serving:
        token = serving.listening().register()
        key = key_at_home(serving)
        former = secret.read_bytes()
        lines = admin_at_home(home, "rotate-secret")
        assert re.match("encrypted [23] values with the new secret", lines[0])
        assert secret.read_bytes() != former
        assert secret.with_name("secret.previous").read_bytes() == former
        assert secret.stat().st_mode & 0o777 == 0o600
        assert secret.with_name("secret.previous").stat().st_mode & 0o777 == 0o600
        assert serving.knows(token)
    with Serving(home) as serving:
        serving.listening()
        assert serving.knows(token)
        assert key_at_home(serving) == key
        assert any(
            "deleted the former secret" in line for line in admin_at_home(home, "rotate-secret", "--finish")
        )
        assert sorted(path.name for path in secret.parent.iterdir()) == ["secret"]
    with Serving(home) as serving:
        assert key_at_home(serving.listening()) == key
        assert not serving.knows(token)


@pytest.mark.postgresql_only("an SQLite database has one writer at a time")
@pytest.mark.parametrize(
    ("options", "secrets"),
    [((), BOTH), (("--discard-unreadable",), {"TOOLGATE_SECRET": NEW})],
    ids=["reseal", "discard"],
)
def test_value_that_is_replaced_during_rotation_is_kept(
    sealing: LiveGateway, options: tuple[str, ...], secrets: dict[str, str]
) -> None:
    """The command has read the former value and not yet written; a gateway replaces the value and acknowledges that."""
    body = {
        "kind": "slack",
        "url": "https://hooks.slack.com/services/T0/B0/former",
        "signing_secret": "a" * 32,
        "events": ["approval.requested"],
    }
    replacement = "https://hooks.slack.com/services/T0/B0/replacement"
    there = make_url(sealing.env["TOOLGATE_DATABASE_URL"])
    assert there.port is not None
    with ExitStack() as stack:
        owner = stack.enter_context(Owner(sealing.url))
        webhook = owner.http.post("/api/webhooks", json=body).json()["id"]
        gateway = stack.enter_context(restarted(sealing, **BOTH))
        line = stack.enter_context(Lines()).to(there.port)
        url = there.set(host="127.0.0.1", port=line.port).render_as_string(hide_password=False)
        env = {**sealing.env, **secrets, "TOOLGATE_DATABASE_URL": url}
        if "TOOLGATE_SECRET_PREVIOUS" not in secrets:
            env.pop("TOOLGATE_SECRET_PREVIOUS", None)
        line.freeze(b"UPDATE webhook_secrets")
        pool = stack.enter_context(ThreadPoolExecutor(1))
        stack.callback(line.heal)
        command = pool.submit(FORK_SERVER.run, "admin", "rotate-secret", *options, env=env, timeout=60)
        until(line.frozen)
        changed = owner.http.put(f"{gateway.url}/api/webhooks/{webhook}", json={"url": replacement})
        assert changed.status_code == 200, changed.text
        line.heal()
        assert command.result(60).returncode == 0, command.result()
        query = "SELECT id, organization_id, ciphertext FROM webhook_secrets WHERE purpose = 'slack_url'"
        [(row, organization, sealed)] = rows(gateway, query)
        place = {"table": "WebhookSecret", "row": str(row), "organization": str(organization)}
        assert Vault(NEW.encode()).open(bytes(sealed), **place) == replacement


def test_a_second_rotation_waits_for_the_first(tmp_path: Path) -> None:
    """A rotation that is not finished is taken up, not begun anew: its former secret may still be needed."""
    secret = tmp_path / "secret"
    former = stored_secret(secret)
    assert begin_rotation(secret) is True
    new = stored_secret(secret)
    assert begin_rotation(secret) is False
    assert (stored_secret(secret), former_secret(secret)) == (new, former)
    finish_rotation(secret)
    assert former_secret(secret) is None
    assert begin_rotation(secret) is True


def crashed(secret: Path, at: int) -> int:
    """Begin a rotation in a forked process that dies at its so-manieth system call; returns how it ended."""
    if child := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    calls = 0

    def dying(real: Any) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == at:
                os._exit(9)
            return real(*arguments, **options)

        return call

    ended = 1
    try:
        for name in ("open", "fsync", "fdopen", "replace", "rename"):
            setattr(os, name, dying(getattr(os, name)))
        begin_rotation(secret)
        ended = 0
    finally:
        os._exit(ended)


def test_a_crash_at_any_step_leaves_what_was_sealed_openable(tmp_path: Path) -> None:
    """Killed before each system call in turn: the files hold the secret that sealed, and the next rotation succeeds."""
    outcomes = []
    for at in range(1, 40):
        folder = tmp_path / str(at)
        folder.mkdir()
        secret = folder / "secret"
        sealed = Vault(stored_secret(secret)).seal("a key", **PLACE)
        ended = crashed(secret, at)
        former = former_secret(secret)
        vault = Vault(stored_secret(secret), *([] if former is None else [former]))
        assert vault.open(sealed, **PLACE) == "a key"
        begin_rotation(secret)
        former = former_secret(secret)
        assert former is not None
        assert stored_secret(secret) != former
        assert Vault(stored_secret(secret), former).open(sealed, **PLACE) == "a key"
        outcomes.append(ended)
        if ended == 0:
            break
    assert outcomes[-1] == 0
    assert outcomes.count(9) >= 6


@pytest.mark.slow
def test_two_rotations_at_once_make_one_secret(tmp_path: Path) -> None:
    """Of two operators one begins, the other takes up what was begun; every key can be shown afterwards."""
    home = tmp_path / "home"
    home.mkdir()
    with Serving(home) as serving:
        serving.listening().register()
        key = key_at_home(serving)
    ended = together(*[lambda: FORK_SERVER.run("admin", "rotate-secret", env=environment(home))] * 3)
    assert [one.returncode for one in ended] == [0, 0, 0], ended
    said = [one.stdout for one in ended]
    assert len([text for text in said if re.match("encrypted [23] values", text)]) == 1
    with Serving(home) as serving:
        assert key_at_home(serving.listening()) == key


def test_finishing_what_was_not_begun_is_refused(tmp_path: Path) -> None:
    """One line that says how to begin."""
    home = tmp_path / "home"
    home.mkdir()
    with Serving(home) as serving:
        serving.listening()
    ended = FORK_SERVER.run("admin", "rotate-secret", "--finish", env=environment(home))
    assert ended.returncode == 1
    assert "no rotation of the secret is in progress" in ended.stderr


def test_a_secret_that_opens_nothing_is_not_changed(tmp_path: Path) -> None:
    """Where the file is not the one that sealed, the command refuses and leaves the files as they are."""
    home = tmp_path / "home"
    home.mkdir()
    with Serving(home) as serving:
        serving.listening().register()
    secret = home / ".config" / "toolgate" / "secret"
    secret.write_text("another file, long enough")
    ended = FORK_SERVER.run("admin", "rotate-secret", env=environment(home))
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "can decrypt any of the 2 encrypted values" in ended.stderr
    assert [path.name for path in secret.parent.iterdir()] == ["secret"]
    assert secret.read_text() == "another file, long enough"
