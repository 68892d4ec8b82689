"""Programs of Debian packages that some tests need."""

import os
import shutil
import subprocess
from functools import cache

import pytest


@cache
def program(name: str, package: str) -> str:
    """Return a program's path; it is installed where that can be done, and the test is skipped where it cannot."""
    path = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin"
    found = shutil.which(name, path=path)
    if found is None and shutil.which("apt-get") and os.geteuid() == 0:
        install = (
            "apt-get",
            "install",
            "-y",
            "--no-install-recommends",
            "-o",
            "DPkg::Lock::Timeout=120",
            package,
        )
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        subprocess.run(install, check=False, capture_output=True, env=environment)
        found = shutil.which(name, path=path)
    if found is None:
        pytest.skip(f"{name} is not here and cannot be installed: apt-get install {package}, then run again")
    return found
