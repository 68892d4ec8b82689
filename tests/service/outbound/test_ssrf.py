"""Addresses that webhooks may reach: global unicast, also embedded in other addresses."""

from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from toolgate_service.outbound.ssrf import AddressClass, classify, is_reachable, unwrap

pytestmark = pytest.mark.sqlite_only("it asks no database")

IPV4 = st.integers(0, 2**32 - 1).map(IPv4Address)
IPV6 = st.integers(0, 2**128 - 1).map(IPv6Address)

#: how an IPv4 address stands in an IPv6 one
WRAPS = {
    "mapped": lambda inner: IPv6Address((0xFFFF << 32) | int(inner)),
    "NAT64": lambda inner: IPv6Address((0x0064_FF9B << 96) | int(inner)),
    "6to4": lambda inner: IPv6Address((0x2002 << 112) | (int(inner) << 80) | 1),
}

PUBLIC = (
    "8.8.8.8",
    "1.1.1.1",
    "172.15.255.255",
    "172.32.0.1",
    "100.128.0.1",
    "2606:4700::1111",
    "2a00:1450::1",
)
PRIVATE = (
    "127.0.0.1",
    "127.255.255.254",
    "10.1.2.3",
    "172.16.0.1",
    "192.168.1.1",
    "100.64.0.1",
    "::1",
    "fc00::1",
    "fd12:3456::1",
)
NEVER = (
    "0.0.0.0",
    "0.1.2.3",
    "169.254.169.254",
    "169.254.170.2",
    "100.100.100.200",
    "168.63.129.16",
    "192.0.0.192",
    "192.0.2.1",
    "192.88.99.1",
    "198.18.0.1",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "239.255.255.250",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::127.0.0.1",
    "fe80::1",
    "fe80::1%1",
    "fec0::1",
    "ff02::1",
    "fd00:ec2::254",
    "fd20:ce::254",
    "64:ff9b:1::7f00:1",
    "64:ff9b:1::808:808",
    "100::1",
    "2001::1",
    "2001:0:4136:e378:8000:63bf:3fff:fdd2",
    "2001:db8::1",
    "3fff::1",
    "5f00::1",
    "4000::1",
    "not an address",
    "",
    "127.0.0.1.nip.io",
)


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_are_reached(address: str) -> None:
    """Global unicast, including addresses next to forbidden ranges."""
    assert is_reachable(address, allow_private=False)


@pytest.mark.parametrize("address", PRIVATE)
def test_private_addresses_need_the_operators_word(address: str) -> None:
    """This machine and private networks are only reached with `TOOLGATE_WEBHOOKS_ALLOW_PRIVATE=true`."""
    assert not is_reachable(address, allow_private=False)
    assert is_reachable(address, allow_private=True)


@pytest.mark.parametrize("address", NEVER)
def test_other_addresses_are_never_reached(address: str) -> None:
    """Metadata, link-local, multicast, unspecified, broadcast and reserved addresses, whatever the operator allows."""
    assert not is_reachable(address, allow_private=True)


@pytest.mark.parametrize("wrap", WRAPS)
@given(inner=IPV4)
@example(inner=IPv4Address("169.254.169.254"))
@example(inner=IPv4Address("127.0.0.1"))
@example(inner=IPv4Address("8.8.8.8"))
def test_a_wrapped_address_is_what_it_wraps(wrap: str, inner: IPv4Address) -> None:
    """Mapped, NAT64 and 6to4 addresses are classified by the IPv4 address inside."""
    outer = WRAPS[wrap](inner)
    assert unwrap(outer) == inner
    assert classify(outer) is classify(inner)


@given(address=IPV4 | IPV6)
def test_nothing_is_public_that_python_knows_to_be_otherwise(address: IPv4Address | IPv6Address) -> None:
    """The gateway's tables allow no address that the standard library does not call global."""
    if classify(address) is AddressClass.PUBLIC:
        inner = unwrap(address)
        assert inner.is_global
        assert not inner.is_multicast


@given(address=IPV6)
def test_outside_global_unicast_nothing_is_public(address: IPv6Address) -> None:
    """A public IPv6 address is in 2000::/3 or contains an IPv4 address."""
    if classify(address) is AddressClass.PUBLIC and isinstance(unwrap(address), IPv6Address):
        assert int(address) >> 125 == 1
