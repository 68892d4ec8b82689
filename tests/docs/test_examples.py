"""Every Python block of the pages runs as written, by itself, and prints the text block that follows it."""

import re
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from support.gateway import LiveGateway
from support.readme import ROOT

from toolgate.testing import FakeGateway

FOLDERS = ("concepts", "frameworks/details", "guides", "operate", "reference")
#: pages whose blocks other tests run, with what they need
ELSEWHERE = {"guides/asgi.md", "guides/embedded.md", "guides/testing.md"}
PAGES = sorted(
    str(page.relative_to(ROOT / "docs"))
    for page in [
        ROOT / "docs/index.md",
        *(p for folder in FOLDERS for p in (ROOT / "docs" / folder).glob("*.md")),
    ]
    if "```python" in page.read_text()
)
#: pages whose blocks change the whole process, such as the providers of OpenTelemetry
OWN_PROCESS = {"guides/observability.md"}
BLOCK = re.compile(r"^```python\n(.*?)^```$(?:\n+^```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)
GATEWAY = "http://127.0.0.1:8000"
ACCOUNT = {"email": "you@example.com", "password": "correct horse battery"}


@pytest.fixture(scope="module")
def registered_gateway(live_gateway: LiveGateway) -> str:
    """The address of a gateway with the account of the pages."""
    body = {**ACCOUNT, "organization_name": "Acme"}
    httpx.post(f"{live_gateway.url}/auth/register", json=body).raise_for_status()
    return live_gateway.url


@pytest.mark.parametrize("page", [page for page in PAGES if page not in ELSEWHERE | OWN_PROCESS])
def test_examples_run(
    page: str,
    fake_gateway: FakeGateway,
    registered_gateway: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The default guard's gateway allows every action that a block names."""
    monkeypatch.chdir(tmp_path)
    blocks = BLOCK.findall((ROOT / "docs" / page).read_text())
    assert blocks
    for code, shown in blocks:
        for action in re.findall(r'(?:guarded|action|check|record|log)\(\s*"([a-z_]+\.[a-z_]+)"', code):
            fake_gateway.allow(action)
        script = code.replace(GATEWAY, registered_gateway)
        names: dict[str, object] = {"__name__": "__main__"}
        exec(compile(script, f"docs/{page}", "exec", dont_inherit=True), names)
        for value in names.values():
            if isinstance(value, httpx.Client):
                value.close()
        printed = capsys.readouterr().out
        if shown:
            assert printed == shown


@pytest.mark.parametrize("page", sorted(OWN_PROCESS))
def test_examples_run_in_a_process_of_their_own(page: str, tmp_path: Path) -> None:
    for code, shown in BLOCK.findall((ROOT / "docs" / page).read_text()):
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stdout) == (0, shown), done.stderr
