"""A real browser: Debian's Chromium, driven by Playwright, and axe-core to judge what it shows."""

import os
import shutil
import subprocess
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path

import pytest
from playwright.sync_api import Page

from support.third_party import environment

AXE = "4.10.3"
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@cache
def chromium() -> str:
    """Return the browser's path; it is installed where that can be done, and the test left out where it cannot."""
    found = _installed()
    if found is None and shutil.which("apt-get") and os.geteuid() == 0:
        install = (
            "apt-get",
            "install",
            "-y",
            "--no-install-recommends",
            "-o",
            "DPkg::Lock::Timeout=120",
            "chromium",
        )
        done = subprocess.run(
            install, check=False, capture_output=True, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        )
        if done.returncode:
            subprocess.run(("apt-get", "update"), capture_output=True, check=False)
            subprocess.run(install, capture_output=True, check=False)
        found = _installed()
    if found is None:
        pytest.skip("no Chromium here, and it cannot be installed: apt-get install chromium, then run again")
    return found


@cache
def axe() -> str:
    """Return the script of axe-core, fetched once by npm into a cache; the test is left out where it cannot be."""
    folder = (
        Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        / "toolgate-tests"
        / f"axe-core-{AXE}"
    )
    script = folder / "node_modules" / "axe-core" / "axe.min.js"
    npm = shutil.which("npm")
    if not script.exists() and npm is not None:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as fresh:
            place = Path(fresh) / "axe"
            quiet = ("--ignore-scripts", "--no-audit", "--no-fund")
            fetch = (npm, "install", *quiet, "--prefix", str(place), f"axe-core@{AXE}")
            subprocess.run(fetch, capture_output=True, check=False, env=environment())
            # In whole or not at all, whoever else fetches it in this moment.
            with suppress(OSError):
                place.rename(folder)
    if not script.exists():
        pytest.skip(
            f"no axe-core here, and npm cannot fetch it: npm install --prefix {folder} axe-core@{AXE}"
        )
    return script.read_text("utf-8")


def faults(page: Page) -> list[str]:
    """Return what axe-core finds serious or critical on a page, by the rules of WCAG 2.2 AA."""
    page.evaluate(axe())
    tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
    result = page.evaluate("tags => axe.run(document, { runOnly: tags, resultTypes: ['violations'] })", tags)
    return [
        f"{found['id']}: {node['html'][:200]} {node['failureSummary'][:300]}"
        for found in result["violations"]
        if found["impact"] in {"serious", "critical"}
        for node in found["nodes"]
    ]


def overflows(page: Page) -> bool:
    """Say whether a page is wider than its window."""
    wider: bool = page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth")
    return wider


def _installed() -> str | None:
    return next((path for name in _NAMES if (path := shutil.which(name))), None)
