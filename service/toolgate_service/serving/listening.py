"""The listening socket: bound before anything else, and closed without a connection that the kernel has taken."""

import asyncio
import ctypes
import logging
import socket
import struct
import sys
from contextlib import suppress

from toolgate_service.errors import StartError
from toolgate_service.web.unread import has_bytes

logger = logging.getLogger("toolgate.gateway")

#: connections that the kernel takes before we do
BACKLOG = 2048
#: seconds until a queue that does not become empty is given up: there are no more files for it
LONGEST = 2.0
#: seconds between two looks at the queue
LOOK_AGAIN = 0.005

#: Linux's name for it is missing in `socket`
_SO_ATTACH_FILTER = 26
#: A program of the kernel's packet filter, which sees a segment from its TCP header on: of what has the flag SYN
#: nothing is kept, all else whole.
_DROPS_SYN = b"".join(
    struct.pack("HBBI", *step)
    for step in ((0x30, 0, 0, 13), (0x45, 0, 1, 0x02), (0x06, 0, 0, 0), (0x06, 0, 0, 0xFFFFFFFF))
)
#: Linux's names for how many hops a segment must have left, missing as well; and more than systems begin with, which is
#: 64 or 128
_IP_MINTTL, _IPV6_MINHOPCOUNT, _NOBODYS = 21, 73, 255


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens.

    Raises:
        StartError: the address cannot be had.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise StartError(
            f"cannot listen on {host}:{port}: {error.strerror}; choose another with --host or --port"
        ) from error
    return listening


def turn_away(listening: socket.socket) -> None:
    """Let no further connection begin; those that have begun are still taken.

    The kernel takes connections whether we do or not, and resets what it has taken when the socket is closed: between
    the last look at its queue and the close there would always be a moment. Whoever comes now knocks again a second
    later and finds the port closed, or somebody else's. Elsewhere than on Linux the moment remains.
    """
    if sys.platform != "linux":
        return
    try:
        _drop_what_begins(listening)
    except OSError:
        # A sandbox may know no filters, and newer kernels let only CAP_NET_ADMIN attach one.
        try:
            _take_with(listening, _NOBODYS)
        except OSError as error:
            logger.info("connections that begin at this very moment may be reset: %s", error.strerror)


def hear_again(connection: socket.socket) -> None:
    """Take what comes on a connection that was established after `turn_away`, and may be as deaf as what listens is."""
    if sys.platform == "linux":
        with suppress(OSError):
            _take_with(connection, 0)


def _drop_what_begins(listening: socket.socket) -> None:
    steps = ctypes.create_string_buffer(_DROPS_SYN, len(_DROPS_SYN))
    program = struct.pack("HL", len(_DROPS_SYN) // 8, ctypes.addressof(steps))
    listening.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)


def _take_with(line: socket.socket, hops: int) -> None:
    """Have the kernel drop what has fewer hops left. A handshake that has begun is finished all the same."""
    # An IPv6 socket takes IPv4 too.
    line.setsockopt(socket.IPPROTO_IP, _IP_MINTTL, hops)
    if line.family == socket.AF_INET6:
        line.setsockopt(socket.IPPROTO_IPV6, _IPV6_MINHOPCOUNT, hops)


async def all_taken(listening: socket.socket) -> None:
    """Return once the loop, which still accepts, has taken every connection that the kernel had."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + LONGEST
    while has_bytes(listening.fileno()) and loop.time() < deadline:  # noqa: ASYNC110 - the kernel knows no event
        await asyncio.sleep(LOOK_AGAIN)
