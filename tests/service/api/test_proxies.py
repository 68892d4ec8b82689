"""Client addresses of requests that come through reverse proxies."""

from collections.abc import Iterator

import httpx
import pytest
from support.gateway import LiveGateway, Owner

from toolgate_service.api.middleware import TrustedProxies
from toolgate_service.core.addresses import read_networks

TRUSTED = "10.0.0.0/8, 192.0.2.1, 2001:db8::/32"
PROXY = "10.0.0.1"


def client(peer: str | None, *forwarded: str, trusted: str = TRUSTED) -> str | None:
    scope = {
        "client": None if peer is None else (peer, 1234),
        "headers": [(b"x-forwarded-for", value.encode("latin-1")) for value in forwarded],
    }
    TrustedProxies(read_networks(trusted)).reveal_client(scope)
    found = scope["client"]
    return None if found is None else str(found[0])


@pytest.mark.parametrize(
    ("peer", "forwarded", "found"),
    [
        ("203.0.113.9", ["198.51.100.1"], "203.0.113.9"),
        (PROXY, ["198.51.100.1"], "198.51.100.1"),
        (PROXY, ["198.51.100.1, 198.51.100.2"], "198.51.100.2"),
        (PROXY, ["198.51.100.1, 198.51.100.2, 10.1.1.1"], "198.51.100.2"),
        (PROXY, ["198.51.100.1", "198.51.100.2", "10.1.1.1"], "198.51.100.2"),
        (PROXY, ["198.51.100.1", "10.1.1.1,192.0.2.1"], "198.51.100.1"),
        (PROXY, ["10.3.3.3, 10.2.2.2"], "10.3.3.3"),
        (PROXY, [" \t198.51.100.1\t "], "198.51.100.1"),
        (PROXY, ["198.51.100.1:8080"], "198.51.100.1"),
        (PROXY, ["[2001:db9::1]:8080"], "2001:db9::1"),
        (PROXY, ["[2001:db9::1]"], "2001:db9::1"),
        (PROXY, ["2001:DB9:0::1"], "2001:db9::1"),
        (PROXY, ["198.51.100.1, [2001:db8::5]:1"], "198.51.100.1"),
        (PROXY, ["::ffff:198.51.100.1"], "198.51.100.1"),
        (PROXY, ["198.51.100.1, ::ffff:10.2.2.2"], "198.51.100.1"),
        ("::ffff:10.0.0.1", ["198.51.100.1"], "198.51.100.1"),
        ("2001:db8::9", ["198.51.100.1"], "198.51.100.1"),
        ("192.0.2.2", ["198.51.100.1"], "192.0.2.2"),
        (PROXY, ["198.51.100.1, nonsense"], PROXY),
        (PROXY, ["198.51.100.1, nonsense, 10.2.2.2"], "10.2.2.2"),
        (PROXY, ["198.51.100.1, , 10.2.2.2"], "10.2.2.2"),
        (PROXY, [""], PROXY),
        (PROXY, ["unknown"], PROXY),
        (PROXY, ["_hidden"], PROXY),
        (PROXY, ["fe80::1%eth0"], PROXY),
        (PROXY, ["198.51.100.1:"], PROXY),
        (PROXY, ["198.51.100.1:80:80"], PROXY),
        (PROXY, ["[198.51.100.1]"], PROXY),
        (PROXY, ["[2001:db9::1"], PROXY),
        (PROXY, ["198.51.100.01"], PROXY),
        (PROXY, ["198.51.100.256"], PROXY),
        (PROXY, ["198.51.100.1/32"], PROXY),
        (PROXY, ["\xb9.2.3.4"], PROXY),
        (PROXY, ["1"], PROXY),
        (PROXY, [], PROXY),
        ("testclient", ["198.51.100.1"], "testclient"),
        (None, ["198.51.100.1"], None),
    ],
)
def test_the_right_most_untrusted_address_counts(
    peer: str | None, forwarded: list[str], found: str | None
) -> None:
    """Entries to the left may be invented by clients, and a malformed entry ends the search."""
    assert client(peer, *forwarded) == found


@pytest.mark.parametrize("text", ["", " , ", ","])
def test_nobody_is_trusted_by_default(text: str) -> None:
    """With an empty list no proxy is trusted."""
    assert not TrustedProxies(read_networks(text))
    assert client("127.0.0.1", "198.51.100.1", trusted=text) == "127.0.0.1"


@pytest.mark.parametrize(
    "entry", ["*", "proxy.test", "10.0.0.1/8", "10.0.0.0/33", "10.0.0", "1", "[::1]", "::1%lo"]
)
def test_what_is_no_network_is_named(entry: str) -> None:
    """The message quotes the entry and shows a valid one."""
    with pytest.raises(ValueError, match="write for example") as refusal:
        read_networks(f"127.0.0.1, {entry}")
    assert repr(entry) in str(refusal.value)


@pytest.fixture(scope="module")
def proxied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Owner]:
    """Organization on a gateway that trusts this machine and a private network as proxies."""
    env = {"TOOLGATE_TRUSTED_PROXIES": "127.0.0.1, 10.0.0.0/8"}
    with LiveGateway(tmp_path_factory.mktemp("proxied"), env=env) as gateway, Owner(gateway.url) as owner:
        yield owner


def logged_from(owner: Owner, forwarded: list[str]) -> str:
    """Log an entry through proxies, and return its address."""
    headers = [("X-API-Key", owner.key), *(("X-Forwarded-For", value) for value in forwarded)]
    body = {"agent_id": owner.agent(), "action": "a", "status": "success"}
    answer = owner.http.post("/sdk/log", json=body, headers=httpx.Headers(headers))
    assert answer.status_code == 200, answer.text
    address = owner.entries(agent_id=body["agent_id"])[0]["ip_address"]
    assert isinstance(address, str)
    return address


def test_an_entry_shows_the_client_behind_trusted_proxies(proxied: Owner) -> None:
    """Over HTTP: invented entries are ignored, and several headers are one list."""
    assert logged_from(proxied, []) == "127.0.0.1"
    assert logged_from(proxied, ["6.6.6.6, 198.51.100.7", "10.0.0.3"]) == "198.51.100.7"
    assert logged_from(proxied, ["6.6.6.6, nonsense"]) == "127.0.0.1"


def test_without_the_setting_nobody_is_believed(acme: Owner) -> None:
    """The header is ignored, since any client could send it."""
    assert logged_from(acme, ["198.51.100.7"]) == "127.0.0.1"
