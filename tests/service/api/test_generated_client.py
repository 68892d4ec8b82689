"""Tools of others read the OpenAPI document: a validator, and a generator whose client works against a gateway."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.conformity import document
from support.gateway import LiveGateway

from toolgate_service.core import strict_json

GENERATOR = "openapi-python-client==0.29.1"
VALIDATOR = "openapi-spec-validator==0.7.2"
#: program that uses the generated package `toolgate_client`; it prints one line of JSON
PROGRAM = """
import json
import sys

from toolgate_client import AuthenticatedClient, Client
from toolgate_client.api.accounts import register
from toolgate_client.api.agents import create_agent
from toolgate_client.api.approvals import approve, list_approvals, wait_for_approval
from toolgate_client.api.audit import list_audit
from toolgate_client.api.billing import get_plan
from toolgate_client.api.logs import list_logs
from toolgate_client.api.organization import get_organization
from toolgate_client.api.permissions import change_permission, create_permission, delete_permission
from toolgate_client.api.sdk import check, log, log_many
from toolgate_client.models import (
    ApprovalDecision, CheckRequest, CheckRequestContextType0, ListApprovalsStatus, NewAgent, NewBatchLogEntry,
    NewBatchLogEntryStatus, NewLogEntries, NewLogEntry, NewLogEntryStatus, NewPermission, PermissionChange, Problem,
    Registration, RejectedLogResult, StoredLogResult,
)

url, email = sys.argv[1:]
found = {}

new = Registration(email=email, password="correct horse battery", organization_name="Generated")
session = register.sync(client=Client(base_url=url), body=new)
found["user"] = session.user.email
people = AuthenticatedClient(base_url=url, token=session.access_token, raise_on_unexpected_status=True)
key = get_organization.sync(client=people).api_key
sdk = AuthenticatedClient(
    base_url=url, token=key, prefix="", auth_header_name="X-API-Key", raise_on_unexpected_status=True
)

agent = create_agent.sync(client=people, body=NewAgent(name="refund-bot"))
found["agent"] = [agent.name, agent.status, agent.description]
permission = create_permission.sync(
    agent.id, client=people, body=NewPermission(action="stripe.refund", requires_approval=True, max_amount=100)
)
found["permission"] = [permission.max_amount, permission.requires_approval]


def ask(amount):
    context = CheckRequestContextType0.from_dict({"amount": amount})
    response = check.sync_detailed(
        client=sdk, body=CheckRequest(agent_id=agent.id, action="stripe.refund", context=context)
    )
    return response.parsed, response.headers["X-Reason-Code"]


found["denied"] = [ask(250)[0].allowed, ask(250)[1]]
pending, code = ask(50)
found["pending"] = [pending.allowed, pending.requires_approval, code]
(request,) = list_approvals.sync(client=people, status=ListApprovalsStatus.PENDING)
found["listed"] = [request.id == pending.approval_id, request.context["amount"], request.created_at.tzname()]
found["approved"] = approve.sync(pending.approval_id, client=people, body=ApprovalDecision(note="fine")).status
found["waited"] = wait_for_approval.sync(pending.approval_id, client=sdk, wait=1).note
found["allowed"] = ask(50)[0].allowed

changed = change_permission.sync(permission.id, client=people, body=PermissionChange(max_amount=None))
found["changed"] = changed.max_amount

entry = log.sync(
    client=sdk,
    body=NewLogEntry(agent_id=agent.id, action="stripe.refund", status=NewLogEntryStatus.SUCCESS),
    idempotency_key="attempt-1",
)
entries = [
    NewBatchLogEntry(agent_id=agent_id, action="stripe.refund", status=NewBatchLogEntryStatus.FAILED)
    for agent_id in (agent.id, "unknown")
]
stored, rejected = log_many.sync(client=sdk, body=NewLogEntries(entries=entries)).results
found["results"] = [isinstance(stored, StoredLogResult), isinstance(rejected, RejectedLogResult), rejected.status]
found["entries"] = [each.status for each in list_logs.sync(client=people, agent_id=agent.id)]
found["same"] = entry.id in {each.id for each in list_logs.sync(client=people)}
found["audited"] = list_audit.sync(client=people, type_="agent.created")[0].resource_id == agent.id
found["plans"] = sorted(get_plan.sync(client=people).all_plans.to_dict())
delete_permission.sync_detailed(permission.id, client=people)
missing = delete_permission.sync(permission.id, client=people)
found["error"] = [isinstance(missing, Problem), missing.code]
print(json.dumps(found))
"""


@pytest.mark.slow
def test_document_is_valid_openapi(tmp_path: Path) -> None:
    (tmp_path / "openapi.json").write_text(strict_json.dumps(document()))
    assert "OK" in run(VALIDATOR, ["openapi-spec-validator", "openapi.json"], tmp_path)


@pytest.mark.slow
def test_generated_client_works(gateway: LiveGateway, tmp_path: Path) -> None:
    """The generator has no warnings; the client decides, approves, logs, and receives typed objects.

    The generator is installed in a separate environment; packages that are not in uv's cache are downloaded.
    """
    (tmp_path / "openapi.json").write_text(strict_json.dumps(document()))
    generate = ["--path", "openapi.json", "--output-path", "toolgate_client", "--meta", "none"]
    run(GENERATOR, ["openapi-python-client", "generate", *generate, "--fail-on-warning"], tmp_path)
    (tmp_path / "program.py").write_text(PROGRAM)
    found = json.loads(
        run(GENERATOR, ["python", "program.py", gateway.url, "generated@example.test"], tmp_path)
    )
    assert found == {
        "user": "generated@example.test",
        "agent": ["refund-bot", "active", None],
        "permission": [100, True],
        "denied": [False, "amount_exceeded"],
        "pending": [False, True, "approval_required"],
        "listed": [True, 50, "UTC"],
        "approved": "approved",
        "waited": "fine",
        "allowed": True,
        "changed": None,
        "results": [True, True, 404],
        "entries": ["failed", "success"],
        "same": True,
        "audited": True,
        "plans": ["business", "enterprise", "free", "pro"],
        "error": [True, "not_found"],
    }


def run(package: str, command: Sequence[str], folder: Path) -> str:
    """Run a command in an environment that contains only this package, and return its output."""
    uv = str(Path(sys.executable).with_name("uv"))
    isolated = [
        uv,
        "run",
        "--quiet",
        "--isolated",
        "--no-project",
        "--python",
        sys.executable,
        "--with",
        package,
    ]
    # The variables of this test session must not reach the other environment.
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("TOOLGATE_", "PYTEST_", "COV_", "VIRTUAL_ENV", "UV_PROJECT"))
    }
    done = subprocess.run(
        [*isolated, *command],
        cwd=folder,
        env=environment | {"UV_SYSTEM_CERTS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout
