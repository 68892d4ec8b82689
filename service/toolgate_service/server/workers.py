"""Several worker processes that share one listening socket, supervised by uvicorn.

Each worker is a new Python process with a separate gateway instance. uvicorn starts the workers, replaces a worker that
has ended, and sends SIGTERM to all workers when the gateway stops.
"""

import logging
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, cast

import uvicorn
from uvicorn.supervisors import multiprocess

from toolgate_service.core.errors import StartError, StorageError
from toolgate_service.core.logging import configure_logging
from toolgate_service.core.settings import load_settings
from toolgate_service.server.server import create_server
from toolgate_service.server.tls import load_certificates

if TYPE_CHECKING:
    from toolgate_service.server.metrics import MetricsServer

logger = logging.getLogger("toolgate.gateway")

#: interval in seconds at which the supervisor checks whether all workers have started
START_INTERVAL = 0.1


class WorkerConfig(uvicorn.Config):
    """Configuration that the supervisor sends to each worker process. The worker reads all other settings itself.

    Args:
        workers: Number of workers.
        overrides: Settings that take precedence over environment variables.
    """

    def __init__(self, workers: int, overrides: Mapping[str, str]) -> None:
        super().__init__(
            "toolgate_service.app:create_app",
            factory=True,
            workers=workers,
            log_config=None,
            log_level="warning",
        )
        self.overrides = overrides


class Worker(multiprocess.Process):
    """One worker process.

    Args:
        config: Configuration of the workers.
        sockets: The listening socket.
        metrics: Metrics server that the worker runs; None if metrics are disabled.
    """

    config: WorkerConfig

    def __init__(
        self, config: uvicorn.Config, sockets: list[socket.socket], metrics: "MetricsServer | None"
    ) -> None:
        #: metrics server with its open socket, which is sent to the worker process
        self.metrics = metrics
        super().__init__(config, sockets)

    def target(self, sockets: list[socket.socket] | None = None) -> None:
        """Run the server. uvicorn calls this method in the worker process."""
        try:
            settings = load_settings(self.config.overrides)
            configure_logging(settings)
            certificates = load_certificates(settings)
            create_server(settings, certificates, self.metrics, lambda: self.child_conn.send(True)).run(
                sockets
            )
        except (StartError, StorageError) as error:
            logger.error("a worker cannot start: %s", error)  # noqa: TRY400 - the operator's configuration is wrong, so a traceback does not help
            sys.exit(1)

    def is_alive(self, timeout: float = 5) -> bool:  # noqa: ARG002 - uvicorn's signature
        """Return whether the process is running.

        Overrides uvicorn's check, which kills workers that need more than five seconds to start.
        """
        return self.process.is_alive()

    def has_started(self) -> bool:
        """Return whether the worker has reported that it accepts requests."""
        return self.parent_conn.poll()


class Supervisor(multiprocess.Multiprocess):
    """Parent process of the workers.

    Args:
        config: Configuration of the workers.
        sockets: The listening socket.
        metrics: One metrics server for each worker; empty if metrics are disabled.
        on_started: Called when all workers accept requests.
    """

    def __init__(
        self,
        config: WorkerConfig,
        sockets: list[socket.socket],
        metrics: Sequence["MetricsServer"],
        on_started: Callable[[], None],
    ) -> None:
        super().__init__(config, sockets)
        self._metrics = metrics
        self._on_started = on_started
        self.is_interrupted = False
        #: True if the operating system failed to start a worker at the last attempt
        self._is_short = False

    def create_worker(self, config: uvicorn.Config, sockets: list[socket.socket]) -> Worker:
        """Return a worker that is not started, with a metrics server that no running worker uses."""
        workers = cast("list[Worker]", self.processes)
        used = [worker.metrics for worker in workers if worker.is_alive()]
        return Worker(config, sockets, next((server for server in self._metrics if server not in used), None))

    def init_processes(self) -> None:
        """Start the workers, and wait until all of them accept requests.

        Raises:
            StartError: A worker ended before all of them accepted requests.
        """
        super().init_processes()
        while not self.signal_queue:
            if not all(worker.process.is_alive() for worker in self.processes):
                self.terminate_all()
                self.join_all()
                raise StartError("a worker could not start; the reason is in the log lines above")
            if all(cast("Worker", worker).has_started() for worker in self.processes):
                self._on_started()
                return
            time.sleep(START_INTERVAL)

    def keep_subprocess_alive(self) -> None:
        """Replace each worker that has ended, and write a log line for it."""
        before = list(self.processes)
        try:
            super().keep_subprocess_alive()
        except OSError as error:
            # Do not raise the error, because the other workers still serve requests.
            if not self._is_short:
                logger.error("cannot start a worker: %s; the gateway tries again", error.strerror)  # noqa: TRY400 - the operator's configuration is wrong, so a traceback does not help
            self._is_short = True
            return
        self._is_short = False
        for old, new in zip(before, self.processes, strict=True):
            # Log nothing during a shutdown: after a signal to all processes, workers may end before the supervisor.
            if old is not new and not self.signal_queue:
                logger.error(
                    "worker %s ended with exit code %s; worker %s replaces it", old.pid, old.exitcode, new.pid
                )

    def terminate_all(self) -> None:
        """Stop the workers and close the sockets.

        The ports are free after the workers have closed their copies of the sockets too.
        """
        super().terminate_all()
        for listening in self.sockets:
            listening.close()
        for server in self._metrics:
            server.close()

    def handle_int(self) -> None:
        """Stop the gateway on SIGINT in the same way as on SIGTERM."""
        self.is_interrupted = True
        super().handle_int()

    def handle_hup(self) -> None:
        """Stop the gateway on SIGHUP, which the system sends when the terminal is closed."""
        self.handle_term()

    def handle_ttin(self) -> None:
        """Ignore SIGTTIN, on which uvicorn would add a worker. A further worker would have no metrics server."""

    def handle_ttou(self) -> None:
        """Ignore SIGTTOU, on which uvicorn would remove a worker."""


def run_workers(
    workers: int,
    overrides: Mapping[str, str],
    listening: socket.socket,
    metrics: Sequence["MetricsServer"],
    on_started: Callable[[], None],
) -> None:
    """Serve with several processes until a signal stops the gateway.

    Args:
        workers: Number of workers.
        overrides: Settings that take precedence over environment variables.
        listening: The listening socket.
        metrics: One metrics server for each worker, not started; empty if metrics are disabled.
        on_started: Called when all workers accept requests.

    Raises:
        StartError: A worker could not start.
        KeyboardInterrupt: The signal was SIGINT.
    """
    supervisor = Supervisor(WorkerConfig(workers, overrides), [listening], metrics, on_started)
    # uvicorn has no parameter for the class of its worker processes, so replace the class in uvicorn's module.
    multiprocess.Process = supervisor.create_worker  # type: ignore[misc,assignment]  # see above
    supervisor.run()
    if supervisor.is_interrupted:
        raise KeyboardInterrupt
