"""Protection against server-side request forgery: a webhook's URL must not reach the gateway's own network.

The gateway resolves the host name once, checks every address, and connects to a checked address. A second lookup for
the connection would allow DNS rebinding. The tables of addresses are part of the gateway, because the tables in
Python's `ipaddress` differ between patch releases.
"""

import asyncio
import re
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable, Iterable, Sequence
from enum import Enum
from ipaddress import AddressValueError, IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Any, TypeAlias
from urllib.parse import SplitResult, urlsplit

import httpcore
import idna

Address: TypeAlias = IPv4Address | IPv6Address

#: function that returns the IP addresses of a host name and port
Resolver: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]

#: Maximum number of simultaneous name lookups. A lookup that continues after its caller's deadline counts too.
MAX_LOOKUPS = 128
#: seconds to connect to each address of a host, so that time is left for the next address if one is unreachable
CONNECT_SECONDS = 4

#: maximum bytes of a response that are read: half for the body (`sender.MAX_BODY`) and half for the headers
MAX_RESPONSE = 32 * 1024
#: maximum bytes of one read, so that other tasks of the event loop run between two reads
READ_SIZE = 4 * 1024


class AddressClass(Enum):
    """Class of an IP address, which determines whether webhooks may connect to the address."""

    #: global unicast address: always allowed
    PUBLIC = "public"
    #: address of this machine or of a private network: allowed if the operator configures it
    PRIVATE = "private"
    #: special-purpose address, or address of a cloud provider's metadata service: never allowed
    FORBIDDEN = "forbidden"


#: networks of the metadata services of cloud providers; such services return credentials
METADATA_4 = tuple(map(IPv4Network, ("169.254.0.0/16", "100.100.100.200/32", "168.63.129.16/32")))
METADATA_6 = tuple(map(IPv6Network, ("fd00:ec2::/32", "fd20:ce::254/128", "fd00:42::42/128")))

PRIVATE_4 = tuple(
    map(IPv4Network, ("10.0.0.0/8", "127.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10"))
)
PRIVATE_6 = tuple(map(IPv6Network, ("::1/128", "fc00::/7")))

#: special-purpose networks: "this network", protocol assignments, documentation, 6to4 relays, benchmarks, multicast,
#: reserved and broadcast addresses
FORBIDDEN_4 = tuple(
    map(
        IPv4Network,
        (
            "0.0.0.0/8",
            "192.0.0.0/24",
            "192.0.2.0/24",
            "192.88.99.0/24",
            "198.18.0.0/15",
            "198.51.100.0/24",
            "203.0.113.0/24",
            "224.0.0.0/4",
            "240.0.0.0/4",
        ),
    )
)
#: Forbidden IPv6 networks, in addition to everything outside 2000::/3. 2001::/23 contains Teredo addresses, in which
#: anyone can choose the embedded IPv4 address.
FORBIDDEN_6 = tuple(map(IPv6Network, ("2001::/23", "2001:db8::/32", "3fff::/20")))
UNICAST_6 = IPv6Network("2000::/3")

MAPPED = IPv6Network("::ffff:0:0/96")
NAT64 = IPv6Network("64:ff9b::/96")
SIX_TO_FOUR = IPv6Network("2002::/16")
_SIX_TO_FOUR_SHIFT = 80
_LOW_32 = 0xFFFF_FFFF


class AddressForbidden(Exception):
    """Error for a host with a forbidden address. The webhook's owner sees the message, which contains no address."""


class NameNotResolved(Exception):
    """Error for a host name whose addresses cannot be determined. The webhook's owner sees the message."""


class ResponseTooLong(Exception):
    """Error for a response that is longer than `MAX_RESPONSE` bytes. The webhook's owner sees the message."""


def classify(address: Address) -> AddressClass:
    """Return the class of an address. If an IPv6 address embeds an IPv4 address, the IPv4 address is classified."""
    inner = unwrap(address)
    if isinstance(inner, IPv4Address):
        return _find_class(inner, METADATA_4 + FORBIDDEN_4, PRIVATE_4)
    # An IPv6 zone such as `%eth0` selects a network interface of this machine, so the address is not public.
    if inner.scope_id is not None:
        return AddressClass.FORBIDDEN
    found = _find_class(inner, METADATA_6 + FORBIDDEN_6, PRIVATE_6)
    return AddressClass.FORBIDDEN if found is AddressClass.PUBLIC and inner not in UNICAST_6 else found


def unwrap(address: Address) -> Address:
    """Return the IPv4 address that an IPv4-mapped, NAT64 or 6to4 address embeds. Return other addresses unchanged.

    Network-specific NAT64 prefixes (64:ff9b:1::/48) are not unwrapped: the position of the IPv4 address in them
    depends on the network, and they lie outside global unicast.
    """
    if isinstance(address, IPv6Address) and address.scope_id is None:
        if address in MAPPED or address in NAT64:
            return IPv4Address(int(address) & _LOW_32)
        if address in SIX_TO_FOUR:
            return IPv4Address(int(address) >> _SIX_TO_FOUR_SHIFT & _LOW_32)
    return address


def is_reachable(address: str, *, allow_private: bool) -> bool:
    """Return whether webhooks may connect to an address, given as text. Return False if the text is not an address."""
    try:
        found = classify(ip_address(address))
    except ValueError:
        return False
    return found is AddressClass.PUBLIC or (allow_private and found is AddressClass.PRIVATE)


def _find_class(
    address: Address,
    forbidden: tuple[IPv4Network, ...] | tuple[IPv6Network, ...],
    private: tuple[IPv4Network, ...] | tuple[IPv6Network, ...],
) -> AddressClass:
    if any(address in network for network in forbidden):
        return AddressClass.FORBIDDEN
    if any(address in network for network in private):
        return AddressClass.PRIVATE
    return AddressClass.PUBLIC


class SystemResolver:
    """Resolver of host names that calls the system's resolver, with a separate thread for each lookup.

    A thread pool is not suitable: if a name server does not respond, a lookup occupies its thread for half a minute.
    A few such lookups would delay all other deliveries and the shutdown.
    """

    def __init__(self) -> None:
        self._running = 0

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        """Return a host's addresses.

        Raises:
            NameNotResolved: The host has no address, or too many lookups are running.
        """
        if self._running >= MAX_LOOKUPS:
            raise NameNotResolved("too many names are being resolved at the same time")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Sequence[str]] = loop.create_future()

        def finish(found: Sequence[str] | None) -> None:
            self._running -= 1
            if future.done():
                return
            if found is None:
                future.set_exception(NameNotResolved("the host's name could not be resolved"))
            else:
                future.set_result(found)

        def resolve() -> None:
            try:
                rows = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
                found = list(dict.fromkeys(str(row[4][0]) for row in rows))
            except (OSError, UnicodeError):
                found = None
            try:
                loop.call_soon_threadsafe(finish, found)
            except RuntimeError:
                # The event loop was closed during the lookup, so no task waits for the result.
                return

        self._running += 1
        threading.Thread(target=resolve, daemon=True, name="webhook-lookup").start()
        return await future


class LimitedStream(httpcore.AsyncNetworkStream):
    """Connection that reads in small pieces, and at most `MAX_RESPONSE` bytes after each write.

    The event loop that reads responses also handles the checks of all organizations. Without the limit, a receiver
    could occupy the event loop until the deadline with an endless sequence of interim responses (1xx).
    """

    def __init__(self, inner: httpcore.AsyncNetworkStream) -> None:
        self._inner = inner
        self._size = 0

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109 - httpcore's API
        """Read at most `READ_SIZE` bytes.

        Raises:
            ResponseTooLong: The response is longer than `MAX_RESPONSE`.
        """
        if self._size >= MAX_RESPONSE:
            raise ResponseTooLong(f"the receiver's answer is longer than {MAX_RESPONSE} bytes")
        piece = await self._inner.read(min(max_bytes, READ_SIZE), timeout)
        self._size += len(piece)
        return piece

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109 - httpcore's signature
        """Write data, and reset the counter of received bytes for the next response."""
        self._size = 0
        await self._inner.write(buffer, timeout)

    async def aclose(self) -> None:
        """Close the connection."""
        await self._inner.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - httpcore's signature
    ) -> httpcore.AsyncNetworkStream:
        """Start TLS and return the encrypted connection, which has the same limit."""
        return LimitedStream(await self._inner.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> Any:
        """Return a property of the inner connection."""
        return self._inner.get_extra_info(info)


class SsrfGuardedBackend(httpcore.AsyncNetworkBackend):
    """Network backend that connects only to addresses that are allowed for webhooks.

    Args:
        resolve: Returns the addresses of a host.
        allow_private: True if private addresses are allowed.
        inner: Backend that opens the connection. It receives an IP address and never a host name.
    """

    def __init__(
        self, resolve: Resolver, *, allow_private: bool, inner: httpcore.AsyncNetworkBackend | None = None
    ) -> None:
        self._resolve = resolve
        self._allow_private = allow_private
        self._inner = inner or httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - httpcore's signature
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Check all addresses of a host, and connect to the first one that accepts the connection.

        Raises:
            AddressForbidden: At least one of the addresses is not allowed.
            NameNotResolved: The host has no address.
            httpcore.ConnectError: No address accepted the connection.
        """
        addresses = await self._resolve(host, port)
        if not addresses:
            raise NameNotResolved("the host's name could not be resolved")
        # All addresses must be allowed. Otherwise an attacker could add a private address to public ones and wait until
        # the gateway connects to it.
        for address in addresses:
            self._require_reachable(address)
        failed: Exception = httpcore.ConnectError("no address answered")
        for address in addresses:
            try:
                stream = await self._inner.connect_tcp(
                    address,
                    port,
                    min(timeout or CONNECT_SECONDS, CONNECT_SECONDS),
                    local_address,
                    socket_options,
                )
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failed = error
                continue
            return await self._guard(stream)
        raise failed

    async def connect_unix_socket(
        self,
        path: str,  # noqa: ARG002 - httpcore's signature
        timeout: float | None = None,  # noqa: ARG002, ASYNC109 - likewise
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,  # noqa: ARG002 - likewise
    ) -> httpcore.AsyncNetworkStream:
        """Reject the connection: webhooks never connect to local sockets.

        Raises:
            AddressForbidden: Always.
        """
        raise AddressForbidden("webhooks reach no local sockets")

    async def sleep(self, seconds: float) -> None:
        """Sleep on the event loop."""
        await asyncio.sleep(seconds)

    async def _guard(self, stream: httpcore.AsyncNetworkStream) -> httpcore.AsyncNetworkStream:
        # Check the peer address that the kernel reports, which may differ from the requested address.
        try:
            peer = stream.get_extra_info("server_addr")
            self._require_reachable(str(peer[0]) if peer else "")
        except BaseException:
            await stream.aclose()
            raise
        return LimitedStream(stream)

    def _require_reachable(self, address: str) -> None:
        if not is_reachable(address, allow_private=self._allow_private):
            raise AddressForbidden("the host's address is not public, and webhooks may not reach it")


MAX_URL = 2048
MAX_PORT = 65535

_HOST = re.compile(
    r"(?=.{1,253}$)[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?(?:\.[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?)*"
)
#: Last label of a host name that some resolvers interpret as an IPv4 address, for example 2130706433, 0x7f.1 or
#: 0177.0.0.1.
_NUMERIC = re.compile(r"[0-9]+|0x[0-9a-f]*")
_VISIBLE = re.compile(r"[!-~]*")


class InvalidUrl(ValueError):
    """Error for a URL that is not allowed for webhooks. The message contains the reason and the fix."""


def canonical_url(text: str, *, allow_private: bool) -> str:
    """Validate the URL of a webhook, and return it with the host in lower case and ASCII.

    Args:
        text: The URL as the user entered it.
        allow_private: True if the operator allows private addresses and the scheme ``http``.

    Raises:
        InvalidUrl: The URL is not allowed.
    """
    if len(text) > MAX_URL:
        raise InvalidUrl(f"must be at most {MAX_URL} characters")
    parts, port = _split(text)
    schemes = ("https", "http") if allow_private else ("https",)
    if parts.scheme not in schemes:
        raise InvalidUrl(f"must begin with {' or '.join(f'{scheme}://' for scheme in schemes)}")
    if "@" in parts.netloc:
        raise InvalidUrl("must not contain a user or password; the deliveries are signed")
    if "#" in text:
        raise InvalidUrl("must not contain a fragment (#…)")
    host = _host(parts, allow_private=allow_private)
    rest = text.partition("://")[2][len(parts.netloc) :]
    if not _VISIBLE.fullmatch(rest) or "\\" in rest:
        raise InvalidUrl("must have a path and query of visible ASCII characters; write others as %XX")
    url = f"{parts.scheme}://{host}{'' if port is None else f':{port}'}{rest}"
    if len(url) > MAX_URL:
        raise InvalidUrl(f"must be at most {MAX_URL} characters")
    return url


def mask_url(url: str) -> str:
    """Return a URL without its path. The path of a Slack URL is a credential and must not be shown."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}/…"


def _split(text: str) -> tuple[SplitResult, int | None]:
    # Characters that `urlsplit` silently drops or replaces are rejected. Otherwise another parser could find a
    # different host in the same URL.
    if not text.isprintable() or " " in text or "\\" in text:
        raise InvalidUrl("must be a web address without spaces, control characters and backslashes")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise InvalidUrl("is not a web address; write for instance https://example.com/hook") from None
    if not parts.netloc or parts.hostname is None or not text.lower().startswith(f"{parts.scheme}://"):
        raise InvalidUrl("is not a web address; write for instance https://example.com/hook")
    if port == 0 or parts.netloc.endswith(":"):
        raise InvalidUrl(f"must have a port of 1-{MAX_PORT}, or none")
    return parts, port


def _host(parts: SplitResult, *, allow_private: bool) -> str:
    name = parts.hostname or ""
    if "[" in parts.netloc:
        return f"[{_literal(name, IPv6Address, allow_private=allow_private)}]"
    host = _ascii(name).removesuffix(".")
    if not _HOST.fullmatch(host):
        raise InvalidUrl("has a host that is no name; write for instance https://example.com/hook")
    last = host.rpartition(".")[2]
    if _NUMERIC.fullmatch(last):
        return str(_literal(host, IPv4Address, allow_private=allow_private))
    if not allow_private and ("." not in host or last == "localhost"):
        raise InvalidUrl(f"has the host {host!r}, which is a name of one network only")
    return host


def _ascii(name: str) -> str:
    # UTS 46 also maps full-width digits and dots to ASCII, so that the later check finds all numeric hosts.
    try:
        if name.isascii():
            return name.lower()
        return idna.encode(name, uts46=True).decode("ascii").lower()
    except (idna.IDNAError, UnicodeError):
        raise InvalidUrl("has a host that is no name; write for instance https://example.com/hook") from None


def _literal(
    text: str, kind: type[IPv4Address] | type[IPv6Address], *, allow_private: bool
) -> IPv4Address | IPv6Address:
    try:
        address = kind(text)
    except AddressValueError:
        raise InvalidUrl(
            "has a host that is an address in an unusual spelling; write it like 192.0.2.1 or [2001:db8::1]"
        ) from None
    if not is_reachable(str(address), allow_private=allow_private):
        raise InvalidUrl("has an address that webhooks may not reach: it is not public")
    return address
