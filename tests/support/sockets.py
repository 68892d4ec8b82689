"""The sockets of a server of a test's own, which are closed together."""

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable
from typing import TypeVar

Kept = TypeVar("Kept", bound=socket.socket)


class Sockets:
    """Keeps a listening socket, and whatever threads open meanwhile, until all of it is closed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: list[socket.socket] | None = []
        self._accepting: list[threading.Thread] = []

    def listen(self, serve: Callable[[socket.socket], None]) -> tuple[str, int]:
        """Listen on this machine, leave each connection to `serve` on a thread of its own, and say where."""
        listener = self.keep(socket.create_server(("127.0.0.1", 0)))
        address: tuple[str, int] = listener.getsockname()

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection = self.keep(listener.accept()[0])
                    threading.Thread(target=serve, args=(connection,), daemon=True).start()

        self._accepting.append(threading.Thread(target=accept, daemon=True))
        self._accepting[-1].start()
        return address

    def keep(self, one: Kept) -> Kept:
        """Have a socket closed with the others.

        Raises:
            OSError: If they are closed already, as it is then too.
        """
        with self._lock:
            if self._kept is not None:
                self._kept.append(one)
                return one
        one.close()
        raise OSError("the server is closed")

    def wrap(self, tls: ssl.SSLContext, connection: socket.socket) -> ssl.SSLSocket:
        """Have a connection speak TLS, once its handshake is done.

        Raises:
            OSError: If it is closed already.
        """
        # Not while it is being closed: what is wrapped has the number of its socket for a moment, which may be another's.
        with self._lock:
            if self._kept is None:
                raise OSError("the server is closed")
            # By hand, so that a handshake that fails does not cut off its own alert.
            wrapped = tls.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
            self._kept.append(wrapped)
        return wrapped

    def close(self) -> None:
        """Close them all, and whatever is opened from now on."""
        with self._lock:
            kept, self._kept = self._kept or [], None
        for each in kept:
            # Not close alone: that does not wake the thread that accepts.
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for thread in self._accepting:
            thread.join()
