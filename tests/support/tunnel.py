"""A proxy that carries TLS in a tunnel, and whatever else a proxy may do instead."""

import base64
import contextlib
import socket
import threading
from typing import Self

from support.sockets import Sockets


class Tunnel:
    """Answers `CONNECT` on a socket of this machine, in a `with` block; every host is this machine.

    Args:
        password: Who may pass, as `user:password`; None lets everybody.
        refuses: A status to answer with in place of a tunnel.
        silent: Answer nothing at all.
    """

    def __init__(
        self, *, password: str | None = None, refuses: int | None = None, silent: bool = False
    ) -> None:
        self._password = password
        self._refuses = refuses
        self._silent = silent
        self._sockets = Sockets()
        self.heads = list[bytes]()
        self.carried = 0
        self.seen = bytearray()
        self.address = "{}:{}".format(*self._sockets.listen(self._serve))

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            head = b""
            while b"\r\n\r\n" not in head:
                if not (piece := connection.recv(65_536)):
                    return
                head += piece
            self.heads.append(head)
            if self._silent:
                return
            if (status := self._status(head)) != 200:
                connection.sendall(b"HTTP/1.1 %d No\r\nContent-Length: 0\r\n\r\n" % status)
                connection.shutdown(socket.SHUT_RDWR)
                return
            port = int(head.split(b" ")[1].rpartition(b":")[2])
            there = self._sockets.keep(socket.create_connection(("127.0.0.1", port)))
            self.carried += 1
            connection.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            threading.Thread(target=self._carry, args=(there, connection), daemon=True).start()
            self._carry(connection, there)

    def _status(self, head: bytes) -> int:
        if self._refuses is not None:
            return self._refuses
        if self._password is None:
            return 200
        expected = b"Basic " + base64.b64encode(self._password.encode())
        return 200 if expected in head else 407

    def _carry(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while piece := source.recv(65_536):
                self.seen += piece
                target.sendall(piece)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._sockets.close()
