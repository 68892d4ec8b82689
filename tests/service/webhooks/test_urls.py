"""Validation and normalization of the URLs of webhooks."""

import socket
from urllib.parse import urlsplit

import httpcore
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate_service.outbound.ssrf import InvalidUrl, canonical_url

pytestmark = pytest.mark.sqlite_only("it asks no database")

KEPT = {
    "https://example.com": "https://example.com",
    "HTTPS://Example.COM/Hook?a=B": "https://example.com/Hook?a=B",
    "https://example.com:8443/x": "https://example.com:8443/x",
    "https://example.com./x": "https://example.com/x",
    "https://bücher.example/x": "https://xn--bcher-kva.example/x",
    "https://例え。テスト/x": "https://xn--r8jz45g.xn--zckzah/x",
    "https://8.8.8.8/x": "https://8.8.8.8/x",
    "https://[2606:4700:0::1111]:8443/x": "https://[2606:4700::1111]:8443/x",
    "https://example.com/%20/a@b": "https://example.com/%20/a@b",
    "https://my_service.example.com/": "https://my_service.example.com/",
}
REFUSED = {
    "http://example.com/": "https://",
    "ftp://example.com/": "https://",
    "https:example.com": "is not a URL",
    "//example.com/": "is not a URL",
    "example.com": "is not a URL",
    "": "is not a URL",
    "https://": "is not a URL",
    "https:///x": "is not a URL",
    "https://user@example.com/": "user or password",
    "https://user:secret@example.com/": "user or password",
    "https://@example.com/": "user or password",
    "https://example.com/#x": "fragment",
    "https://example.com#": "fragment",
    "https://example.com:0/": "port",
    "https://example.com:/": "port",
    "https://example.com:65536/": "is not a URL",
    "https://example.com:x/": "is not a URL",
    "https://exa mple.com/": "spaces",
    "https://example.com/\n": "control characters",
    "https://example.com\t/": "control characters",
    "https://example.com\\@127.0.0.1/": "backslashes",
    "https://example.com/é": "visible ASCII",
    "https://-.example/": "invalid host name",
    "https://a..b.example/": "invalid host name",
    "https://%31%32%37.0.0.1/": "invalid host name",
    "https://ex%41mple.com/": "invalid host name",
    "https://localhost/": "public host name",
    "https://x.localhost/": "public host name",
    "https://metadata/": "public host name",
    "https://127.0.0.1/": "not public",
    "https://10.0.0.1/": "not public",
    "https://169.254.169.254/latest/meta-data": "not public",
    "https://[::1]/": "not public",
    "https://[::ffff:127.0.0.1]/": "not public",
    "https://[::ffff:7f00:1]/": "not public",
    "https://[64:ff9b::7f00:1]/": "not public",
    "https://[2002:7f00:1::1]/": "not public",
    "https://[fd00:ec2::254]/": "not public",
    "https://[fe80::1%25eth0]/": "",
    "https://2130706433/": "unusual format",
    "https://0x7f000001/": "unusual format",
    "https://0x7f.1/": "unusual format",
    "https://0177.0.0.1/": "unusual format",
    "https://127.1/": "unusual format",
    "https://127.0.0.1./": "not public",
    "https://\uff11\uff12\uff17.0.0.1/": "not public",
    "https://127。0。0。1/": "not public",
    "https://8.8.8.8.8/": "unusual format",
    "https://example.com/" + "x" * 2048: "2048",
}


@pytest.mark.parametrize("url", KEPT)
def test_a_url_is_kept_in_one_way(url: str) -> None:
    """The host becomes lower case and ASCII, the rest stays; a normalized URL does not change."""
    kept = canonical_url(url, allow_private=False)
    assert kept == KEPT[url]
    assert canonical_url(kept, allow_private=False) == kept


@pytest.mark.parametrize("url", REFUSED)
def test_a_refusal_says_why(url: str) -> None:
    """A URL that is not a public https address is refused with the reason."""
    with pytest.raises(InvalidUrl, match=f"(?i){REFUSED[url]}"):
        canonical_url(url, allow_private=False)


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:8080/x",
        "http://localhost/x",
        "http://receiver:9000/",
        "https://[::1]/",
        "http://10.1.1.1/",
    ],
)
def test_an_operator_may_allow_private_networks(url: str) -> None:
    """With the setting, http and private hosts are accepted."""
    assert canonical_url(url, allow_private=True) == url


@pytest.mark.parametrize(
    "url", ["http://169.254.169.254/", "http://[fd00:ec2::254]/", "http://224.0.0.1/", "http://0/"]
)
def test_metadata_is_refused_whatever_the_operator_allows(url: str) -> None:
    """The setting allows private networks and nothing else."""
    with pytest.raises(InvalidUrl):
        canonical_url(url, allow_private=True)


HOSTS = st.text("0123456789abcdefx.:[]@%/\\#?-_ ", max_size=25)


@given(host=HOSTS)
def test_every_reader_sees_the_same_host(host: str) -> None:
    """An accepted URL has the same host for the HTTP library, and the host is not a number."""
    try:
        url = canonical_url(f"https://{host}", allow_private=False)
    except InvalidUrl:
        return
    seen = httpcore.URL(url).host.decode().strip("[]")
    assert seen == urlsplit(url).hostname
    try:
        socket.inet_aton(seen)
    except OSError:
        return
    assert seen.count(".") == 3
    assert not seen.startswith(("127.", "10.", "192.168.", "169.254.", "0"))
