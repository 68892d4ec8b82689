"""What deploys the gateway, before the judges that others run (`make lint-deploy`)."""

import shutil
import subprocess

import pytest
from support.readme import ROOT


@pytest.mark.slow
def test_the_judges_find_no_fault() -> None:
    """hadolint, checkov, yamllint, Compose, Helm, the schemas of Kubernetes, nginx and systemd are content."""
    missing = [tool for tool in ("systemd-analyze", "nginx") if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"not on this machine: {', '.join(missing)}")
    done = subprocess.run(
        ["make", "--no-print-directory", "lint-deploy"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) > 20
    assert [line for line in lines if not line.startswith("ok ")] == []
