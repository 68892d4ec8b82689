"""A real PgBouncer in front of a PostgreSQL server."""

import os
import pwd
import socket
import subprocess
from pathlib import Path
from typing import Any, Self

from sqlalchemy import make_url

from support.debian import program
from support.ports import reserve_port
from support.postgres import UNPRIVILEGED, dying_with
from support.waiting import until


class PgBouncer:
    """A pooler for one database, in a `with` block.

    Args:
        url: the database behind it.
        mode: `session`, `transaction` or `statement`.
        folder: where its configuration is written.
        settings: further lines of its configuration.
    """

    def __init__(self, url: str, mode: str, folder: Path, *settings: str) -> None:
        self._url = make_url(url)
        self._mode = mode
        self._folder = folder
        self._settings = settings
        self._port = reserve_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where the database is, through the pooler."""
        return self._url.set(host="127.0.0.1", port=self._port).render_as_string(hide_password=False)

    def __enter__(self) -> Self:
        there = self._url
        users = self._folder / "users.txt"
        users.write_text(f'"{there.username}" "{there.password or ""}"\n')
        lines = (
            "[databases]",
            f"{there.database} = host={there.host} port={there.port} dbname={there.database}",
            "[pgbouncer]",
            "listen_addr = 127.0.0.1",
            f"listen_port = {self._port}",
            "unix_socket_dir =",
            "auth_type = any" if there.password is None else "auth_type = plain",
            f"auth_file = {users}",
            f"pool_mode = {self._mode}",
            "default_pool_size = 60",
            "max_client_conn = 200",
            *self._settings,
        )
        if there.password is None:
            lines = (lines[0], f"{lines[1]} user={there.username}", *lines[2:])
        file = self._folder / "pgbouncer.ini"
        file.write_text("\n".join(lines) + "\n")
        somebody: dict[str, Any] = {}
        command = [program("pgbouncer", "pgbouncer"), "-q", "/dev/stdin"]
        if os.getuid() == 0:
            # It does not run as root, and the test's folder may be closed to others.
            somebody = {"user": UNPRIVILEGED, "group": pwd.getpwnam(UNPRIVILEGED).pw_gid, "extra_groups": []}
        with file.open("rb") as configuration:
            self._process = subprocess.Popen(
                command,
                stdin=configuration,
                cwd="/",
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                preexec_fn=dying_with(os.getpid()),  # noqa: PLW1509 - it takes no lock that a thread might hold
                **somebody,
            )
        until(self._listens)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait(timeout=30)

    def _listens(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, "pgbouncer has ended"
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self._port)) == 0
