"""Runs of `toolgate verify` against a gateway without faults."""

import json
import os
import re
import shlex
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import httpx
import pytest
from support.databases import CHOICE
from support.forking import FORK_SERVER, Forked
from support.gateway import SECRET, LiveGateway
from support.tables import rows
from support.verifying import ENV, OPERATOR_TOKEN, verify

from toolgate_cli.verify.registry import load_guarantees
from toolgate_cli.verify.report import Outcome, Report

#: runs in the test of false alarms
RUNS = 100
#: maximum seconds of a run against one replica, and against several
LONGEST, LONGEST_OF_SEVERAL = 60, 90
HOOKED = {one.id for one in load_guarantees(["fail_closed"])}
UNTESTED = {*HOOKED, "secrecy.gateway-log", "approvals.use-expiry"}
PATH = "/api/operator/scratch-organizations"


def broken(report: Report) -> list[str]:
    return [one.line() for one in report.results if one.outcome is Outcome.FAIL]


def untested(report: Report) -> set[str]:
    return {one.guarantee.id for one in report.results if one.outcome is Outcome.NOT_TESTED}


def open_organizations(gateway: LiveGateway) -> list[str]:
    """Return the ids of the scratch organizations that are not closed."""
    found = rows(gateway, "SELECT organization_id FROM scratch_organizations WHERE closed_at IS NULL")
    return [str(organization_id) for (organization_id,) in found]


def command(gateway: LiveGateway, *options: str, token: str = OPERATOR_TOKEN) -> dict[str, Any]:
    return {
        "arguments": ("verify", gateway.url, *options),
        "env": {**os.environ, "TOOLGATE_OPERATOR_TOKEN": token},
    }


def test_gateway_without_faults_keeps_all_guarantees(operated: LiveGateway) -> None:
    report = verify(operated.replica_urls)
    assert not broken(report)
    assert untested(report) == UNTESTED
    assert not report.notes
    assert not open_organizations(operated)


@pytest.mark.slow
def test_no_run_raises_a_false_alarm_or_takes_too_long(operated: LiveGateway) -> None:
    longest = LONGEST if CHOICE.replicas == 1 else LONGEST_OF_SEVERAL
    for _ in range(RUNS):
        report = verify(operated.replica_urls)
        assert not broken(report)
        assert report.seconds <= longest


def test_command_prints_json_and_writes_junit(operated: LiveGateway, tmp_path: Path) -> None:
    junit = tmp_path / "report.xml"
    given = command(
        operated, "--only", "single_use", "--only", "fail_closed.sdk", "--json", "--junit", str(junit)
    )
    done = FORK_SERVER.run(*given["arguments"], env=given["env"], timeout=120)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["counts"] == {"PASS": 4, "FAIL": 0, "NOT TESTED": 1}
    assert {one["outcome"] for one in found["results"]} == {"PASS", "NOT TESTED"}
    assert all(one["aisvs"] for one in found["results"])
    suite = ET.parse(junit).getroot()
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("5", "0", "1")
    properties = [one.get("value") for one in suite.iter("property") if one.get("name") == "aisvs"]
    assert "9.2.8" in properties


def test_command_prints_a_line_for_each_guarantee(operated: LiveGateway) -> None:
    given = command(operated, "--only", "single_use.repeated", "--rate", "20")
    done = FORK_SERVER.run(*given["arguments"], env=given["env"], timeout=120)
    line, summary = done.stdout.splitlines()
    assert line == "PASS       single_use.repeated          An approval allows one call [AISVS 9.2.8]"
    assert re.fullmatch(r"1 PASS, 0 FAIL, 0 NOT TESTED in \d+\.\d s, \d+ requests", summary)


@pytest.mark.parametrize(
    ("options", "token", "message"),
    [
        ((), "a wrong operator's token", "does not accept the operator's token"),
        ((), "", "the operator's token is missing"),
        (("--only", "nothing"), OPERATOR_TOKEN, "unknown guarantee or topic 'nothing'"),
        (("--replica", "ftp://x"), OPERATOR_TOKEN, "invalid address 'ftp://x'"),
        (("--webhook-listen", "x"), OPERATOR_TOKEN, "invalid address 'x'"),
        (("--junit", "/nowhere/report.xml"), OPERATOR_TOKEN, "No such file"),
    ],
)
def test_unusable_option_ends_with_2(
    operated: LiveGateway, options: tuple[str, ...], token: str, message: str
) -> None:
    given = command(operated, *options, token=token)
    done = FORK_SERVER.run(*given["arguments"], env=given["env"], timeout=60)
    assert done.returncode == 2
    assert message in done.stderr


def test_gateway_without_the_setting_ends_with_2(live_gateway: LiveGateway) -> None:
    given = command(live_gateway)
    done = FORK_SERVER.run(*given["arguments"], env=given["env"], timeout=60)
    assert done.returncode == 2
    assert "set TOOLGATE_OPERATOR_TOKEN at the gateway" in done.stderr


def test_gateway_that_does_not_respond_ends_with_2(operated: LiveGateway) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    given = command(operated, "--replica", url)
    done = FORK_SERVER.run(*given["arguments"], env=given["env"], timeout=60)
    assert done.returncode == 2
    assert "does not respond" in done.stderr


@pytest.mark.parametrize("signalled", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_command_deletes_its_organizations(
    operated: LiveGateway, signalled: signal.Signals
) -> None:
    given = command(operated)
    process = FORK_SERVER.start(*given["arguments"], env=given["env"])
    with process.stdout as printed:
        assert printed.readline().startswith("PASS")
        assert len(open_organizations(operated)) == 2
        process.send_signal(signalled)
        assert process.wait(timeout=60) == 130
    assert not open_organizations(operated)


def test_killed_command_leaves_organizations_that_expire(operated: LiveGateway) -> None:
    given = command(operated, "--expiry", "60")
    process: Forked = FORK_SERVER.start(*given["arguments"], env=given["env"])
    with process.stdout as printed:
        assert printed.readline().startswith("PASS")
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=60)
    assert len(open_organizations(operated)) == 2
    headers = {"Authorization": f"Bearer {OPERATOR_TOKEN}"}
    for organization_id in open_organizations(operated):
        httpx.delete(f"{operated.url}{PATH}/{organization_id}", headers=headers)


@pytest.fixture
def restartable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, str, str]]:
    """The address of a gateway, and the commands that stop it and start it."""
    for name, value in ENV.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("TOOLGATE_SECRET", SECRET)
    monkeypatch.setenv("TOOLGATE_DATABASE_URL", f"sqlite:///{tmp_path / 'gateway.db'}")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    pid, log = tmp_path / "pid", tmp_path / "log"
    serve = shlex.join([sys.executable, "-m", "toolgate", "serve", "--port", str(port)])
    start = f"{serve} >>{log} 2>&1 & echo $! >{pid}"
    stop = f"kill -KILL $(cat {pid})"
    os.system(start)
    url = f"http://127.0.0.1:{port}"
    _wait_until_ready(url)
    yield url, stop, start
    os.system(stop)


def _wait_until_ready(url: str) -> None:
    ends = time.monotonic() + 60
    while time.monotonic() < ends:
        try:
            if httpx.get(f"{url}/health/ready").is_success:
                return
        except httpx.TransportError:
            continue
    pytest.fail("the gateway does not start")


@pytest.mark.sqlite_only("about processes, whatever their database")
def test_gateway_that_is_killed_fails_closed(restartable: tuple[str, str, str]) -> None:
    url, stop, start = restartable
    report = verify([url], *HOOKED, kill_hook=stop, restore_hook=start)
    assert not broken(report)
    assert not untested(report)
    assert not report.notes


@pytest.mark.sqlite_only("about processes, whatever their database")
def test_organizations_of_a_stopped_gateway_are_noted(restartable: tuple[str, str, str]) -> None:
    url, stop, start = restartable
    report = verify([url], "fail_closed.sdk", kill_hook=stop)
    assert not broken(report)
    assert len(report.notes) == 2
    assert all("was not deleted" in note and "it expires at" in note for note in report.notes)
    os.system(start)


def test_log_file_with_a_secret_is_found(operated: LiveGateway, tmp_path: Path) -> None:
    clean = tmp_path / "clean.log"
    clean.write_text("INFO nothing\n")
    report = verify(operated.replica_urls, "secrecy.gateway-log", gateway_logs=[clean])
    assert not broken(report)
    assert not untested(report)


def test_unreadable_log_file_is_not_tested(operated: LiveGateway, tmp_path: Path) -> None:
    report = verify(operated.replica_urls, "secrecy.gateway-log", gateway_logs=[tmp_path / "missing.log"])
    assert untested(report) == {"secrecy.gateway-log"}


def test_expiry_of_approvals_is_tested_if_it_is_short(tmp_path: Path) -> None:
    with LiveGateway(tmp_path, env={**ENV, "TOOLGATE_APPROVAL_USE_TTL_SECONDS": "1"}) as gateway:
        report = verify(gateway.replica_urls, "approvals.use-expiry")
    assert [one.outcome for one in report.results] == [Outcome.PASS]


def test_webhooks_without_a_receiver_are_not_tested(operated: LiveGateway) -> None:
    given = command(operated, "--only", "webhooks", "--json", "--webhook-url", "https://203.0.113.1/")
    done = FORK_SERVER.run(*given["arguments"], env=given["env"], timeout=120)
    found = {one["id"]: one["outcome"] for one in json.loads(done.stdout)["results"]}
    assert found["webhooks.signed"] == "NOT TESTED"
    assert done.returncode == 0
