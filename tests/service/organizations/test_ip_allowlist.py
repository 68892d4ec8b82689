"""Reading networks, and looking an address up in them."""

from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate_service.organizations.ip_allowlist import (
    MAX_NETWORKS,
    address_forbidden,
    is_allowed,
    load_networks,
    normalize_networks,
    serialize_networks,
)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ([], []),
        (["203.0.113.7"], ["203.0.113.7"]),
        (["203.0.113.7/32", " 203.0.113.7 "], ["203.0.113.7"]),
        (["10.0.0.0/8", "10.0.0.0/255.0.0.0"], ["10.0.0.0/8"]),
        (["2001:DB8:0:0::/32", "2001:db8::/32"], ["2001:db8::/32"]),
        (["2001:db8::1/128"], ["2001:db8::1"]),
        (["::ffff:203.0.113.7"], ["203.0.113.7"]),
        (["::ffff:10.0.0.0/104"], ["10.0.0.0/8"]),
        (["::/0", "0.0.0.0/0"], ["::/0", "0.0.0.0/0"]),
        (["10.2.0.0/16", "10.1.0.0/16"], ["10.2.0.0/16", "10.1.0.0/16"]),
    ],
)
def test_a_network_is_written_in_one_way(given: list[str], kept: list[str]) -> None:
    """Each once, in the order given; IPv4 in the clothes of IPv6 is IPv4."""
    assert normalize_networks(given) == kept
    assert load_networks(serialize_networks(kept)) == kept


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("10.0.0.1/8", "write '10.0.0.0/8' for the network, or '10.0.0.1' for the address alone"),
        ("2001:db8::1/32", "write '2001:db8::/32' for the network, or '2001:db8::1' for the address alone"),
        *(
            (entry, "is not an IP address or network; write for example '203.0.113.7'")
            for entry in (
                *(
                    "",
                    "*",
                    "office",
                    "office.example.com",
                    "10.0.0",
                    "10.0.0.0/33",
                    "010.0.0.1",
                    "10.0.0.0/-1",
                ),
                *(
                    "fe80::1%eth0",
                    "[2001:db8::1]",
                    "10.0.0.1:80",
                    "10.0.0.0/8/8",
                    "1",
                    "\N{ARABIC-INDIC DIGIT ONE}0.0.0.1",
                    "\0",
                    "9" * 500,
                ),
            )
        ),
    ],
)
def test_what_is_no_network_is_named(entry: str, said: str) -> None:
    """The message names the entry and the cure, and is short whatever was sent."""
    with pytest.raises(ValueError, match="write") as refusal:
        normalize_networks(["192.0.2.1", entry])
    assert said in str(refusal.value)
    assert repr(entry.strip()[:60])[:-1] in str(refusal.value)
    assert len(str(refusal.value)) < 300


def test_more_than_a_hundred_entries_are_refused() -> None:
    """Repeated entries count too, as `maxItems` of the OpenAPI document does."""
    many = [f"10.0.{number}.0/24" for number in range(MAX_NETWORKS)]
    assert normalize_networks(many) == many
    assert normalize_networks(many[:50] * 2) == many[:50]
    for one_more in ("192.0.2.1", many[0]):
        with pytest.raises(ValueError, match="contains 101 networks, but at most 100"):
            normalize_networks([*many, one_more])


@pytest.mark.parametrize(
    ("networks", "address", "within"),
    [
        (["10.0.0.0/8"], "10.255.255.255", True),
        (["10.0.0.0/8"], "11.0.0.0", False),
        (["203.0.113.7"], "203.0.113.7", True),
        (["203.0.113.7"], "203.0.113.8", False),
        (["203.0.113.7"], "::ffff:203.0.113.7", True),
        (["::ffff:203.0.113.7"], "203.0.113.7", True),
        (["2001:db8::/32"], "2001:db8:ffff::1", True),
        (["2001:db8::/32"], "2001:db9::1", False),
        # The whole of IPv6 is not the whole of IPv4, however an address is written.
        (["::/0"], "::ffff:10.0.0.1", False),
        (["::/0"], "10.0.0.1", False),
        (["0.0.0.0/0"], "::1", False),
        # IPv4 that IPv6 carries in other ways is somebody's tunnel, and no IPv4 address.
        (["10.0.0.0/8"], "64:ff9b::a00:1", False),
        (["10.0.0.0/8"], "2002:a00:1::", False),
        (["10.0.0.0/8"], "::a00:1", False),
        (["10.0.0.0/8", "2001:db8::1"], "2001:db8::1", True),
        (["0.0.0.0/0", "::/0"], None, False),
        (["0.0.0.0/0", "::/0"], "testclient", False),
        (["0.0.0.0/0", "::/0"], "fe80::1%eth0", False),
    ],
)
def test_an_address_is_within_or_not(networks: list[str], address: str | None, within: bool) -> None:
    """What is not known to be within is outside."""
    kept = serialize_networks(normalize_networks(networks))
    assert kept is not None
    assert is_allowed(kept, address) is within


@given(
    st.lists(st.ip_addresses(v=4).map(str), min_size=1, max_size=5),
    st.integers(0, 32),
    st.ip_addresses(v=4),
)
def test_it_agrees_with_the_standard_library(bases: list[str], length: int, address: object) -> None:
    """Whatever the networks and the address."""
    networks = [ip_network(f"{base}/{length}", strict=False) for base in bases]
    kept = serialize_networks(normalize_networks([str(network) for network in networks]))
    assert kept is not None
    expected = any(ip_address(str(address)) in network for network in networks)
    assert is_allowed(kept, str(address)) is is_allowed(kept, f"::ffff:{address}") is expected


def test_a_row_that_cannot_be_read_opens_nothing() -> None:
    """Whatever stands there instead of networks, no address is within it."""
    for kept in ("", "{}", "null", '["office"]', '[["10.0.0.0/8"]]'):
        with pytest.raises(ValueError):  # noqa: PT011 - of whichever kind: it must only not be an answer
            is_allowed(kept, "10.0.0.1")


def test_the_refusal_names_the_address_as_it_is_compared() -> None:
    """Whoever mends the list reads what to write into it."""
    assert "'203.0.113.9'" in str(address_forbidden("::ffff:203.0.113.9").detail)
    assert "an unknown address" in str(address_forbidden(None).detail)
