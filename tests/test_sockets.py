"""The sockets of tests' own servers: a warning about an open one would be another test's failure."""

import socket

import pytest
from support.sockets import Sockets
from support.waiting import until


def test_what_comes_after_the_closing_is_closed() -> None:
    """A connection that was accepted, or made, while the others were being closed."""
    sockets, served = Sockets(), list[socket.socket]()
    address = sockets.listen(served.append)
    with socket.create_connection(address, timeout=10) as client:
        until(lambda: served)
        sockets.close()
        assert client.recv(1) == b""
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address, timeout=10)
    one, other = socket.socketpair()
    with other, pytest.raises(OSError, match="closed"):
        sockets.keep(one)
    assert one.fileno() == -1
    assert all(each.fileno() == -1 for each in served)
