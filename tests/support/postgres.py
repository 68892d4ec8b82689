"""A PostgreSQL server for the tests, started by the tests: nobody has to set one up."""

import ctypes
import fcntl
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from io import FileIO
from pathlib import Path
from typing import Any, Self

from support.ports import reserve_port
from support.postgres_versions import Installation, NoPostgres, closed_above
from support.waiting import until

#: the server refuses to run as root, and so it runs as somebody who may do nothing else
UNPRIVILEGED = "nobody"
PREFIX = "toolgate-postgres-"
LOCALE = ("--encoding=UTF8", "--locale=C", "--no-instructions")
SETTINGS: dict[str, object] = {
    "listen_addresses": "127.0.0.1",
    "max_connections": 1000,
    "shared_buffers": "64MB",
    # Many a server's zone is not UTC, and few are whole hours away.
    "timezone": "Asia/Kathmandu",
}
PR_SET_PDEATHSIG = 1


class Cluster:
    """A server with data of its own in a temporary folder, in a `with` block; it dies with the process that began it.

    Args:
        installation: which version.
        fsync: whether a commit is on disk when it returns, as in life; without, tests are faster.
        settings: further settings of the server.
        prefix: what goes before the server's command, if anything; it gets the server's signals too.
        within: the folder in which its own is made; None for that of temporary files.
    """

    def __init__(
        self,
        installation: Installation,
        *,
        fsync: bool = False,
        settings: Mapping[str, object] | None = None,
        prefix: tuple[str, ...] = (),
        within: Path | None = None,
    ) -> None:
        self.installation = installation
        self._within = within
        self._prefix = prefix
        self.port = 0
        self._settings = {**SETTINGS, "fsync": fsync, "full_page_writes": fsync, **(settings or {})}
        self._process: subprocess.Popen[bytes] | None = None
        self._folder: Path | None = None
        self._lock: FileIO | None = None

    @property
    def folder(self) -> Path:
        """Where its data and its socket are."""
        assert self._folder is not None, "the cluster is not running"
        return self._folder

    def url(self, database: str = "postgres") -> str:
        """Return where a database is, over TCP."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    def socket_url(self, database: str = "postgres") -> str:
        """Return where a database is, over the Unix socket."""
        return f"postgresql://postgres@/{database}?host={self.folder}&port={self.port}"

    @property
    def runs(self) -> bool:
        """Whether it has not ended by itself."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The server's process."""
        assert self._process is not None, "the cluster is not running"
        return self._process.pid

    def start(self) -> Self:
        """Make the data and start; return once clients are let in.

        Raises:
            NoPostgres: it does not start; the message carries what it said.
        """
        _sweep()
        self._folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=self._within))
        try:
            self._lock = _locked(self.folder)
            if os.getuid() == 0:
                self._make_reachable()
            self._run("initdb", "-D", "data", "-U", "postgres", "-A", "trust", "--no-sync", *LOCALE)
            self.port = reserve_port()
            if not self._listens():
                raise self._refusal("postgres")
            return self
        except BaseException:
            self.stop()
            raise

    def crash(self) -> None:
        """End it at once: what it had not yet written to its files is lost."""
        self._end(signal.SIGQUIT)

    def resume(self) -> None:
        """Start again after a crash, on the same port and data."""
        if not self._listens():
            raise self._refusal("postgres")

    def stop(self) -> None:
        """End it, clients or not, and remove its data."""
        # "Fast". On SIGTERM it would wait until every client has gone.
        self._end(signal.SIGINT)
        if self._folder is not None:
            shutil.rmtree(self._folder)
            self._folder = None
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            if self._prefix:
                # Whatever stands before the server need not hand signals on.
                os.killpg(self._process.pid, how)
            else:
                self._process.send_signal(how)
            self._process.wait(timeout=60)
            self._process = None

    def _make_reachable(self) -> None:
        """Let the unprivileged user have the folder and the programs."""
        closed = closed_above(self.folder)
        if closed:
            raise NoPostgres(
                f"PostgreSQL does not run as root, and {UNPRIVILEGED!r} may not enter {', '.join(closed)}; "
                "name another folder for temporary files with TMPDIR"
            )
        shutil.chown(self.folder, UNPRIVILEGED)
        if closed_above(self.installation.programs):
            self.installation = self.installation.copied_to(self.folder)

    def _run(self, program: str, *arguments: str) -> None:
        with self._begin(program, *arguments) as process:
            process.wait(timeout=60)
        if process.returncode != 0:
            raise self._refusal(program)

    def _listens(self) -> bool:
        """Start on the port, and return whether that went well."""
        settings = self._settings | {"port": self.port, "unix_socket_directories": self.folder}
        arguments = [f"--{name}={value}" for name, value in settings.items()]
        process = self._process = self._begin("postgres", "-D", "data", *arguments, prefix=self._prefix)
        pid_file = self.folder / "data" / "postmaster.pid"

        def ready() -> bool:
            if process.poll() is not None:
                return True
            # Its last line is the server's word on how far it has come.
            return pid_file.exists() and pid_file.read_text().rstrip().endswith("ready")

        until(ready)
        if process.poll() is None:
            return True
        self._process = None
        return False

    def _begin(self, program: str, *arguments: str, prefix: tuple[str, ...] = ()) -> subprocess.Popen[bytes]:
        assert self._lock is not None, "the cluster has no folder"
        somebody: dict[str, Any] = {}
        if os.getuid() == 0:
            somebody = {"user": UNPRIVILEGED, "group": pwd.getpwnam(UNPRIVILEGED).pw_gid, "extra_groups": []}
        with (self.folder / "said").open("ab") as said:
            return subprocess.Popen(
                [*prefix, self.installation.programs / program, *arguments],
                cwd=self.folder,
                env={"PATH": os.defpath, "LC_ALL": "C"},
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                # Ctrl-C is for the tests; they end the server when they are done.
                process_group=0,
                # Held until the server has ended: when the tests are killed, it still has its files to close.
                pass_fds=[self._lock.fileno()],
                preexec_fn=dying_with(os.getpid()),  # noqa: PLW1509 - it takes no lock that a thread might hold
                **somebody,
            )

    def _refusal(self, program: str) -> NoPostgres:
        said = (self.folder / "said").read_text(errors="replace").strip()
        return NoPostgres(f"{program} of PostgreSQL {self.installation.version} failed:\n{said}")

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


def _locked(folder: Path) -> FileIO:
    """Hold a folder's lock for as long as this process lives, and whichever it hands the lock to."""
    lock = FileIO(folder / "lock.new", "w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    (folder / "lock.new").rename(folder / "lock")
    return lock


def _sweep() -> None:
    """Remove what tests left behind that were killed."""
    for left in Path(tempfile.gettempdir()).glob(f"{PREFIX}*/lock"):
        with suppress(OSError), FileIO(left, "r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(left.parent)


def dying_with(parent: int, how: signal.Signals = signal.SIGINT) -> Callable[[], None] | None:
    """Return what a child does first so that the kernel ends it with its parent, `kill -9` included."""
    if not sys.platform.startswith("linux"):
        return None
    return partial(_die_with, parent, how, ctypes.CDLL(None).prctl)


def _die_with(parent: int, how: signal.Signals, prctl: Callable[[int, int], int]) -> None:
    prctl(PR_SET_PDEATHSIG, how)
    if os.getppid() != parent:
        os._exit(1)
