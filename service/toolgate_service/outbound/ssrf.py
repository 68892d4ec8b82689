"""Protection against server-side request forgery: webhooks must not reach the internal network of the gateway.

The gateway looks up the host name once, checks every IP address, and connects to a checked address. If it looked up the
name again for the connection, the addresses could differ (DNS rebinding). The tables of networks are defined here,
because those of Python's `ipaddress` differ between patch releases.
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

#: Function that looks up a host name and a port, and returns the IP addresses as text.
Resolver: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]

#: Maximum number of host name lookups at the same time. A lookup cannot be cancelled, so it counts until it ends, even
#: if the request that needed it has timed out.
MAX_LOOKUPS = 128
#: Maximum seconds to wait for a connection to one address. After an unreachable address, there is still time to try the
#: next one.
CONNECT_SECONDS = 4

#: Maximum bytes of a response that are read: half for the body (`sender.MAX_BODY`), half for the headers.
MAX_RESPONSE = 32 * 1024
#: Maximum bytes of one read. Between two reads, other tasks of the event loop can run.
READ_SIZE = 4 * 1024


class AddressClass(Enum):
    """Class of an IP address, which decides whether webhooks may connect to it."""

    #: Public internet address. Webhooks may always connect to it.
    PUBLIC = "public"
    #: Address of this machine or of a private network. Webhooks may connect to it if the operator allows that.
    PRIVATE = "private"
    #: Address with a special purpose, or of a cloud provider's metadata service. Webhooks may never connect to it.
    FORBIDDEN = "forbidden"


#: Networks of the metadata services of cloud providers. Responses of these services contain credentials.
METADATA_4 = tuple(map(IPv4Network, ("169.254.0.0/16", "100.100.100.200/32", "168.63.129.16/32")))
METADATA_6 = tuple(map(IPv6Network, ("fd00:ec2::/32", "fd20:ce::254/128", "fd00:42::42/128")))

PRIVATE_4 = tuple(
    map(IPv4Network, ("10.0.0.0/8", "127.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10"))
)
PRIVATE_6 = tuple(map(IPv6Network, ("::1/128", "fc00::/7")))

#: IPv4 networks with a special purpose: "this network", protocol assignments, documentation, 6to4 relays, benchmarks,
#: multicast, reserved and broadcast addresses.
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
#: IPv6 networks to which webhooks may never connect, in addition to everything outside 2000::/3. 2001::/23 contains
#: Teredo addresses, which embed an IPv4 address that anyone can choose.
FORBIDDEN_6 = tuple(map(IPv6Network, ("2001::/23", "2001:db8::/32", "3fff::/20")))
UNICAST_6 = IPv6Network("2000::/3")

MAPPED = IPv6Network("::ffff:0:0/96")
NAT64 = IPv6Network("64:ff9b::/96")
SIX_TO_FOUR = IPv6Network("2002::/16")
_SIX_TO_FOUR_SHIFT = 80
_LOW_32 = 0xFFFF_FFFF


class AddressForbidden(Exception):
    """Error for a host with an address to which webhooks may not connect.

    Users see the message, so it contains no address.
    """


class NameNotResolved(Exception):
    """Error for a host name whose IP addresses cannot be determined. Users see the message."""


class ResponseTooLong(Exception):
    """Error for a response that is longer than `MAX_RESPONSE` bytes. Users see the message."""


def classify(address: Address) -> AddressClass:
    """Return the class of an IP address.

    For an IPv6 address that embeds an IPv4 address, the IPv4 address is classified.
    """
    inner = unwrap(address)
    if isinstance(inner, IPv4Address):
        return _find_class(inner, METADATA_4 + FORBIDDEN_4, PRIVATE_4)
    # An IPv6 address with a zone such as `%eth0` belongs to a network interface of this machine, so it is not public.
    if inner.scope_id is not None:
        return AddressClass.FORBIDDEN
    found = _find_class(inner, METADATA_6 + FORBIDDEN_6, PRIVATE_6)
    return AddressClass.FORBIDDEN if found is AddressClass.PUBLIC and inner not in UNICAST_6 else found


def unwrap(address: Address) -> Address:
    """Return the IPv4 address that an IPv4-mapped, NAT64 or 6to4 address embeds.

    Other addresses are returned unchanged.

    Addresses with a network-specific NAT64 prefix (64:ff9b:1::/48) are returned unchanged too, because the position of
    the IPv4 address in them depends on the network. They are not public, so webhooks cannot connect to them.
    """
    if isinstance(address, IPv6Address) and address.scope_id is None:
        if address in MAPPED or address in NAT64:
            return IPv4Address(int(address) & _LOW_32)
        if address in SIX_TO_FOUR:
            return IPv4Address(int(address) >> _SIX_TO_FOUR_SHIFT & _LOW_32)
    return address


def is_reachable(address: str, *, allow_private: bool) -> bool:
    """Return True if webhooks may connect to the IP address.

    The result is False if the text is not an IP address.
    """
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
    """Resolver that looks up host names with the operating system, in a new thread for each lookup.

    A thread pool would not be suitable: a name server that does not respond blocks a thread for half a minute, so a few
    such lookups would delay all other deliveries and the shutdown.
    """

    def __init__(self) -> None:
        self._running = 0

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        """Return the IP addresses of a host.

        Raises:
            NameNotResolved: The host has no address, or too many lookups are running.
        """
        if self._running >= MAX_LOOKUPS:
            raise NameNotResolved("too many host names are being looked up at the same time")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Sequence[str]] = loop.create_future()

        def finish(found: Sequence[str] | None) -> None:
            self._running -= 1
            if future.done():
                return
            if found is None:
                future.set_exception(NameNotResolved("the host name could not be resolved"))
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
                # The event loop was closed during the lookup, so no task is waiting for the result.
                return

        self._running += 1
        threading.Thread(target=resolve, daemon=True, name="webhook-lookup").start()
        return await future


class LimitedStream(httpcore.AsyncNetworkStream):
    """Network connection that reads in small pieces, and at most `MAX_RESPONSE` bytes per response.

    The event loop that reads the response also serves the API. Without the limit, a receiver could keep it busy until
    the attempt times out, by sending an endless sequence of interim responses (1xx).
    """

    def __init__(self, inner: httpcore.AsyncNetworkStream) -> None:
        self._inner = inner
        self._size = 0

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109 - httpcore's API
        """Read at most `READ_SIZE` bytes.

        Raises:
            ResponseTooLong: The response is longer than `MAX_RESPONSE` bytes.
        """
        if self._size >= MAX_RESPONSE:
            raise ResponseTooLong(f"the receiver's response is longer than {MAX_RESPONSE} bytes")
        piece = await self._inner.read(min(max_bytes, READ_SIZE), timeout)
        self._size += len(piece)
        return piece

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109 - httpcore's signature
        """Send data, and reset the count of received bytes, because a new response follows."""
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
        """Start TLS on the connection, and return the encrypted connection with the same limit for received bytes."""
        return LimitedStream(await self._inner.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> Any:
        """Return information about the underlying connection, such as its peer address."""
        return self._inner.get_extra_info(info)


class SsrfGuardedBackend(httpcore.AsyncNetworkBackend):
    """Network backend for httpcore that connects only to IP addresses that are allowed for webhooks.

    Args:
        resolve: Function that looks up the IP addresses of a host.
        allow_private: True if private addresses are allowed.
        inner: Backend that opens the connections. It receives only IP addresses, never host names.
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
        """Check all IP addresses of a host, and connect to the first one that accepts the connection.

        Raises:
            AddressForbidden: At least one of the addresses is forbidden for webhooks; no connection was attempted.
            NameNotResolved: The host has no address.
            httpcore.ConnectError: None of the addresses accepted the connection.
        """
        addresses = await self._resolve(host, port)
        if not addresses:
            raise NameNotResolved("the host name could not be resolved")
        # One forbidden address is enough to reject the host. Otherwise an attacker could add a private address to
        # public ones and wait until the gateway connects to it.
        for address in addresses:
            self._require_reachable(address)
        failed: Exception = httpcore.ConnectError("none of the host's addresses accepted the connection")
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
        timeout: float | None = None,  # noqa: ARG002, ASYNC109 - httpcore's signature
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,  # noqa: ARG002 - httpcore's signature
    ) -> httpcore.AsyncNetworkStream:
        """Reject every connection, because webhooks never connect to local sockets.

        Raises:
            AddressForbidden: Always.
        """
        raise AddressForbidden("webhooks cannot connect to local sockets")

    async def sleep(self, seconds: float) -> None:
        """Wait for a number of seconds without blocking the event loop."""
        await asyncio.sleep(seconds)

    async def _guard(self, stream: httpcore.AsyncNetworkStream) -> httpcore.AsyncNetworkStream:
        # The peer address that the kernel reports can differ from the requested address, so it is checked too.
        try:
            peer = stream.get_extra_info("server_addr")
            self._require_reachable(str(peer[0]) if peer else "")
        except BaseException:
            await stream.aclose()
            raise
        return LimitedStream(stream)

    def _require_reachable(self, address: str) -> None:
        if not is_reachable(address, allow_private=self._allow_private):
            raise AddressForbidden("the host's address is not public, so webhooks may not connect to it")


MAX_URL = 2048
MAX_PORT = 65535

_HOST = re.compile(
    r"(?=.{1,253}$)[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?(?:\.[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?)*"
)
#: Numeric last label of a host name. Some resolvers interpret a host name that ends with such a label as an IPv4
#: address, for example 2130706433, 0x7f.1 or 0177.0.0.1.
_NUMERIC = re.compile(r"[0-9]+|0x[0-9a-f]*")
_VISIBLE = re.compile(r"[!-~]*")


class InvalidUrl(ValueError):
    """Error for a URL that webhooks may not use. The message contains the reason and the fix."""


def canonical_url(text: str, *, allow_private: bool) -> str:
    """Check that webhooks may use a URL, and return it with the host in lower case and ASCII.

    Args:
        text: URL as entered by the user.
        allow_private: True if private addresses and the scheme ``http`` are allowed.

    Raises:
        InvalidUrl: Webhooks may not use the URL.
    """
    if len(text) > MAX_URL:
        raise InvalidUrl(f"must be at most {MAX_URL} characters")
    parts, port = _split(text)
    schemes = ("https", "http") if allow_private else ("https",)
    if parts.scheme not in schemes:
        raise InvalidUrl(f"must begin with {' or '.join(f'{scheme}://' for scheme in schemes)}")
    if "@" in parts.netloc:
        raise InvalidUrl("must not contain a user or password; receivers verify the signature instead")
    if "#" in text:
        raise InvalidUrl("must not contain a fragment (#…)")
    host = _host(parts, allow_private=allow_private)
    rest = text.partition("://")[2][len(parts.netloc) :]
    if not _VISIBLE.fullmatch(rest) or "\\" in rest:
        raise InvalidUrl("must have a path and query of visible ASCII characters; encode others as %XX")
    url = f"{parts.scheme}://{host}{'' if port is None else f':{port}'}{rest}"
    if len(url) > MAX_URL:
        raise InvalidUrl(f"must be at most {MAX_URL} characters")
    return url


def mask_url(url: str) -> str:
    """Return a URL without its path. The path of a Slack URL is a credential and must not be shown."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}/…"


def _split(text: str) -> tuple[SplitResult, int | None]:
    # Reject characters that `urlsplit` silently drops or replaces, because another URL parser could find a different
    # host.
    if not text.isprintable() or " " in text or "\\" in text:
        raise InvalidUrl("must be a URL without spaces, control characters and backslashes")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise InvalidUrl("is not a URL; enter one such as https://example.com/hook") from None
    if not parts.netloc or parts.hostname is None or not text.lower().startswith(f"{parts.scheme}://"):
        raise InvalidUrl("is not a URL; enter one such as https://example.com/hook")
    if port == 0 or parts.netloc.endswith(":"):
        raise InvalidUrl(f"must have a port from 1 to {MAX_PORT}, or none")
    return parts, port


def _host(parts: SplitResult, *, allow_private: bool) -> str:
    name = parts.hostname or ""
    if "[" in parts.netloc:
        return f"[{_literal(name, IPv6Address, allow_private=allow_private)}]"
    host = _ascii(name).removesuffix(".")
    if not _HOST.fullmatch(host):
        raise InvalidUrl("has an invalid host name; enter a URL such as https://example.com/hook")
    last = host.rpartition(".")[2]
    if _NUMERIC.fullmatch(last):
        return str(_literal(host, IPv4Address, allow_private=allow_private))
    if not allow_private and ("." not in host or last == "localhost"):
        raise InvalidUrl(f"has the host {host!r}, which is not public; use a public host name")
    return host


def _ascii(name: str) -> str:
    # Encode the host by UTS 46, which also converts full-width digits and dots to ASCII, so that numeric hosts are
    # recognized later.
    try:
        if name.isascii():
            return name.lower()
        return idna.encode(name, uts46=True).decode("ascii").lower()
    except (idna.IDNAError, UnicodeError):
        raise InvalidUrl("has an invalid host name; enter a URL such as https://example.com/hook") from None


def _literal(
    text: str, kind: type[IPv4Address] | type[IPv6Address], *, allow_private: bool
) -> IPv4Address | IPv6Address:
    try:
        address = kind(text)
    except AddressValueError:
        raise InvalidUrl(
            "has an IP address in an unusual format; write it like 192.0.2.1 or [2001:db8::1]"
        ) from None
    if not is_reachable(str(address), allow_private=allow_private):
        raise InvalidUrl("has an IP address that is not public, so webhooks may not connect to it")
    return address
