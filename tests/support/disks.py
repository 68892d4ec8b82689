"""Small file systems of a test's own, to be filled."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def mounted(folder: Path, size: int, mode: int = 0o700) -> Iterator[Path]:
    """Mount a file system of so many bytes in memory; a test that may not is skipped, with the reason."""
    folder.mkdir()
    mount = shutil.which("mount")
    if mount is None or os.geteuid() != 0:
        pytest.skip("only root may mount the small file system that this test fills")
    command = [mount, "-t", "tmpfs", "-o", f"size={size},mode={mode:o}", "toolgate-test", str(folder)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode:
        pytest.skip(f"no file system can be mounted here: {ended.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(ballast: Path) -> None:
    """Write a file until the disk is full."""
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"\0" * 4096)
        except OSError:
            return
