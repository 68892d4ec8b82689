"""Carry out the Dockerfile without a container engine, and run what it makes as a container would: a program.

It is started as root in a mount namespace of its own: `unshare --mount python image.py`. The base image is this machine,
under an overlay that everything is written to and that is gone with the namespace. What runs then is in namespaces of
processes and network of its own, as the image's user, without privileges, on a root file system that is read-only.
What came of it is printed as JSON.
"""

import ctypes
import fcntl
import json
import os
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.dockerfile import Stage
from support.readme import ROOT

SECRET = "a secret for tests, long enough"
URL = "http://127.0.0.1:8000"
CLONE_NEWNET = 0x40000000
SIOCSIFFLAGS, IFF_UP = 0x8914, 1


def command(*words: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run what must succeed."""
    done = subprocess.run(
        [str(word) for word in words], capture_output=True, text=True, check=False, **options
    )
    if done.returncode:
        sys.exit(f"{words}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done


class Image:
    """A root folder that the stages are carried out in, one after the other."""

    def __init__(self, folder: Path) -> None:
        for name in ("upper", "work", "root"):
            (folder / name).mkdir()
        self.root = folder / "root"
        options = f"lowerdir=/,upperdir={folder / 'upper'},workdir={folder / 'work'}"
        command("mount", "-t", "overlay", "overlay", "-o", options, self.root)
        command("mount", "--bind", "/dev", self.root / "dev")
        command("mount", "-t", "tmpfs", "tmpfs", self.root / "tmp")
        command("mount", "-t", "tmpfs", "tmpfs", self.root / "run")
        # The interpreter of the base image is everybody's; this machine's may stand in root's home.
        for path in Path(sys.base_prefix).parents:
            (self.root / path.relative_to("/")).chmod(0o755)
        self.env = {
            "PATH": f"{sys.base_prefix}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        }
        self.folder = "/"

    def carry_out(self, stage: Stage) -> None:
        """Do what a stage says; of its environment and folder only the last stage's stay."""
        start, self.folder = dict(self.env), "/"
        for word, rest in stage.instructions:
            match word:
                case "ENV":
                    given = dict(pair.split("=", 1) for pair in shlex.split(rest))
                    self.env |= {
                        name: text.replace("$PATH", self.env["PATH"]) for name, text in given.items()
                    }
                case "WORKDIR":
                    self.folder = rest
                    self.path(rest).mkdir(parents=True, exist_ok=True)
                case "COPY":
                    self._copy(rest.split())
                case "RUN":
                    # What reaches the package index from here, this machine's environment knows.
                    self._run(["sh", "-c", rest], env=os.environ | self.env)
                case (
                    "LABEL"
                    | "USER"
                    | "VOLUME"
                    | "EXPOSE"
                    | "STOPSIGNAL"
                    | "HEALTHCHECK"
                    | "ENTRYPOINT"
                    | "CMD"
                ):
                    pass
                case _:
                    sys.exit(f"this builder knows no {word}")
        if stage.name:
            self.env = start

    def path(self, name: str) -> Path:
        """Return where a path of the image is."""
        return self.root / name.removeprefix("/")

    def _copy(self, words: list[str]) -> None:
        if words[0].startswith("--from="):
            # All stages share one root here: what a stage hands on is where it is.
            assert words[1] == words[2], words
            return
        *sources, target = words
        into = self.path(str(Path(self.folder) / target))
        for source in sources:
            if (ROOT / source).is_dir():
                shutil.copytree(ROOT / source, into, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                into.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / source, into)

    def _run(self, words: list[str], env: dict[str, str]) -> None:
        command(
            "env",
            "-C",
            self.path(self.folder),
            "chroot",
            self.root,
            "env",
            "-C",
            self.folder,
            *words,
            env=env,
        )

    def contained(self, user: str) -> list[str]:
        """Return what goes before a command that is to run as a container's does."""
        identity, group = user.split(":")
        return [
            *("unshare", "--mount", "--pid", "--fork", "--kill-child", f"--mount-proc={self.root / 'proc'}"),
            *(
                "chroot",
                str(self.root),
                "setpriv",
                f"--reuid={identity}",
                f"--regid={group}",
                "--clear-groups",
            ),
            *("--no-new-privs", "--bounding-set=-all", "--inh-caps=-all", "env", "-C", self.folder),
        ]

    def lock(self, user: str) -> None:
        """Make the root file system read-only; /data and /tmp can be written."""
        identity, group = user.split(":")
        secrets = self.path("/run/secrets")
        secrets.mkdir()
        (secrets / "TOOLGATE_SECRET").write_text(SECRET)
        found = self.path("/data").stat()
        assert (found.st_uid, found.st_gid, found.st_mode & 0o777) == (int(identity), int(group), 0o700), (
            found
        )
        for name in ("/data", "/tmp"):
            options = f"uid={identity},gid={group},mode=0700"
            command("mount", "-t", "tmpfs", "-o", options, "tmpfs", self.path(name))
        command("mount", "-o", "remount,ro", self.path("/run"))
        command("mount", "-o", "remount,ro", self.root)


def ask(path: str, body: dict[str, Any] | None, **headers: str) -> Any:
    """Send what is answered with 2xx."""
    sent = None if body is None else json.dumps(body).encode()
    headers = {name.replace("_", "-"): text for name, text in headers.items()}
    with urlopen(
        Request(URL + path, sent, {"Content-Type": "application/json", **headers}), timeout=30
    ) as answer:
        return json.loads(answer.read())


def guarded_call() -> dict[str, Any]:
    """Register, grant, check and log; return what was decided and stored."""
    given = {"email": "owner@example.test", "password": "correct horse battery", "organization_name": "Acme"}
    bearer = f"Bearer {ask('/auth/register', given)['access_token']}"
    key = ask("/api/organization", None, Authorization=bearer)["api_key"]
    agent = ask("/api/agents", {"name": "bot"}, Authorization=bearer)["id"]
    ask(f"/api/agents/{agent}/permissions", {"action": "files.read"}, Authorization=bearer)
    call = {"agent_id": agent, "action": "files.read"}
    checked = ask("/sdk/check", call, X_API_Key=key)
    ask("/sdk/log", {**call, "status": "success"}, X_API_Key=key)
    return {"allowed": checked["allowed"], "entries": len(ask("/api/logs", None, Authorization=bearer))}


@contextmanager
def served(words: list[str], env: dict[str, str]) -> Iterator[tuple[str, subprocess.Popen[str], int]]:
    """Start the container's command; yield its first line, the process that waits for it, and its own id."""
    gateway = subprocess.Popen(words, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        assert gateway.stdout is not None
        line = gateway.stdout.readline()
        children = Path(f"/proc/{gateway.pid}/task/{gateway.pid}/children").read_text().split()
        yield line, gateway, int(children[0]) if children else 0
    finally:
        gateway.kill()
        gateway.wait()


def alone() -> None:
    """Have a network of one's own, with nothing in it but the loopback address."""
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET):
        sys.exit(f"no network namespace: {os.strerror(ctypes.get_errno())}")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", IFF_UP))


def main(folder: Path) -> dict[str, Any]:
    """Build, lock, serve, ask, stop."""
    image = Image(folder)
    stages = Stage.all()
    for stage in stages:
        image.carry_out(stage)
    last = stages[-1]
    user = last.told("USER")
    image.lock(user)
    alone()
    starting = [*image.contained(user), *last.command("ENTRYPOINT"), *last.command("CMD")]
    with served(starting, image.env) as (line, gateway, _):
        without_secret = {"line": line, "status": gateway.wait(60)}
    env = {**image.env, "TOOLGATE_SECRETS_DIR": "/run/secrets"}
    with served(starting, env) as (line, gateway, identity):
        status = Path(f"/proc/{identity}/status").read_text().splitlines()
        health = last.told("HEALTHCHECK").partition(" CMD ")[2]
        healthy = subprocess.run(
            [*image.contained(user), *json.loads(health)], env=env, check=False
        ).returncode
        writing = [
            *image.contained(user),
            "sh",
            "-c",
            "for d in / /opt/toolgate /run /etc; do touch $d/x && exit; done; exit 1",
        ]
        refused = subprocess.run(writing, env=env, capture_output=True, text=True, check=False)
        found = guarded_call()
        os.kill(identity, signal.Signals[last.told("STOPSIGNAL")])
        return {
            "without_secret": without_secret,
            "line": line,
            "call": found,
            "healthy": healthy,
            "wrote": refused.returncode == 0,
            "refusals": refused.stderr.count("Read-only file system"),
            "status": {line.partition(":")[0]: line.partition(":")[2].split() for line in status},
            "kept": sorted(
                str(path.relative_to(image.path("/data"))) for path in image.path("/data").rglob("*")
            ),
            "ended": gateway.wait(60),
            "unhealthy": subprocess.run(
                [*image.contained(user), *json.loads(health)], env=env, check=False, capture_output=True
            ).returncode,
        }


if __name__ == "__main__":
    command("mount", "--make-rprivate", "/")
    command("mount", "-t", "tmpfs", "tmpfs", sys.argv[1])
    sys.stdout.write(json.dumps(main(Path(sys.argv[1]))))
