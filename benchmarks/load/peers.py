"""Other people's gateways: where they are installed, and how each is started for the same decision as ours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from load.connection import Asked, post
from load.machine import ROOT
from load.servers import Server, free_port

INSTALL = ROOT / "benchmarks" / "peers" / "install.sh"
#: seconds that an installation may take
PATIENCE = 300

CERBOS_POLICY = """\
---
apiVersion: api.cerbos.dev/v1
resourcePolicy:
  version: default
  resource: stripe
  rules:
    - actions: ["refund"]
      effect: EFFECT_ALLOW
      roles: ["agent"]
      condition:
        match:
          expr: request.resource.attr.amount <= 50000
"""
CERBOS_CONFIGURATION = """\
server: {{httpListenAddr: "127.0.0.1:{http}", grpcListenAddr: "127.0.0.1:{grpc}"}}
telemetry: {{disabled: true}}
storage: {{driver: disk, disk: {{directory: "{folder}/policies", watchForChanges: false}}}}
"""
AEGIS_POLICY = """\
version: "1"
defaults: {risk_level: medium, approval: block}
rules:
  - name: small_refund
    match: {type: "stripe.refund"}
    conditions: {param_lte: {amount: 50000}}
    risk_level: low
    approval: auto
"""
AEGIS_PROGRAM = """\
import uvicorn
from aegis.server.app import create_app
app = create_app(policy_path="policy.yaml", audit_db_path="audit.db", enable_dashboard=False)
uvicorn.run(app, host="127.0.0.1", port={port}, log_level="error", access_log=False)
"""


class NotInstalled(Exception):
    """A peer is not there and could not be installed; the message says by which command."""


def home() -> Path:
    """Where peers are installed: `$PEERS`, or a folder of the user's cache."""
    return Path(os.environ.get("PEERS") or Path.home() / ".cache" / "toolgate-peers")


def cerbos_program() -> Path | None:
    """Cerbos' program, if it is installed."""
    found = sorted((home() / "cerbos" / "node_modules" / "@cerbos").glob("cerbos-*/cerbos-*"))
    return found[0] if found else None


def aegis_python() -> Path | None:
    """The Python that has aegis-server, if it is installed."""
    python = home() / "aegis-server" / "bin" / "python"
    return python if python.exists() else None


FOUND = {"cerbos": cerbos_program, "aegis-server": aegis_python}


def installed(name: str) -> Path:
    """A peer's program, installed now if it was not before.

    Args:
        name: `cerbos` or `aegis-server`.

    Raises:
        NotInstalled: It could not be installed.
    """
    found = FOUND[name]()
    if found is None:
        print(f"  installing {name} …", flush=True)
        programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
        env = {**os.environ, "PEERS": str(home()), "PATH": programs}
        try:
            subprocess.run([INSTALL, name], env=env, check=True, timeout=PATIENCE)
        except (OSError, subprocess.SubprocessError) as error:
            raise NotInstalled(
                f"{name} is not installed: {INSTALL.relative_to(ROOT)} {name} ({error})"
            ) from error
        found = FOUND[name]()
    if found is None:
        raise NotInstalled(f"{name} is not installed: {INSTALL.relative_to(ROOT)} {name}")
    return found


def cerbos(folder: Path) -> Server:
    """Cerbos on one core, without its audit log.

    Args:
        folder: Where it runs.
    """
    program, port = installed("cerbos"), free_port()
    (folder / "policies").mkdir(parents=True)
    (folder / "policies" / "stripe.yaml").write_text(CERBOS_POLICY, encoding="utf-8")
    configuration = folder / "configuration.yaml"
    text = CERBOS_CONFIGURATION.format(http=port, grpc=free_port(), folder=folder)
    configuration.write_text(text, encoding="utf-8")
    command: list[str | Path] = [program, "server", "--config", configuration, "--log-level=error"]
    return Server(command, folder, env={"GOMAXPROCS": "1"}, port=port)


def ask_cerbos(context: dict[str, object], expected: bytes = b"EFFECT_ALLOW") -> Asked:
    """The question that our check is, in Cerbos' words.

    Args:
        context: The call's.
        expected: What it answers.
    """
    resource = {"kind": "stripe", "id": "x", "attr": context}
    body = {
        "requestId": "r",
        "principal": {"id": "support", "roles": ["agent"]},
        "resources": [{"actions": ["refund"], "resource": resource}],
    }
    request = post("/api/check/resources", json.dumps(body).encode(), {})
    return Asked(lambda: request, expected)


def aegis(folder: Path) -> Server:
    """aegis-server, as its own documentation starts it, without its dashboard.

    Args:
        folder: Where it runs.
    """
    python, port = installed("aegis-server"), free_port()
    folder.mkdir(parents=True)
    (folder / "policy.yaml").write_text(AEGIS_POLICY, encoding="utf-8")
    # Its own environment knows nothing of ours.
    env = {"PYTHONPATH": ""}
    return Server([python, "-c", AEGIS_PROGRAM.format(port=port)], folder, env=env, port=port)


def ask_aegis(context: dict[str, object], expected: bytes = b'"status":"success"') -> Asked:
    """Decide and record, in aegis-server's words.

    Args:
        context: The call's.
        expected: What it answers.
    """
    body = {"action_type": "stripe.refund", "target": "stripe", "params": context}
    request = post("/api/v1/execute", json.dumps(body).encode(), {})
    return Asked(lambda: request, expected)
