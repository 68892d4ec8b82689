"""One attempt: the request, the allowed addresses, and the result of each behaviour of a receiver."""

import asyncio
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from support.certificates import certificate_for
from support.receiver import Answer, Receiver

from toolgate_service.outbound.sender import AGENT, Sender, SendResult, parse_retry_after
from toolgate_service.outbound.ssrf import AddressForbidden, NameNotResolved, SystemResolver

pytestmark = pytest.mark.sqlite_only("it asks no database")

SECONDS = 2


@pytest.fixture
async def sender() -> AsyncIterator[Sender]:
    """Sender that may reach this machine."""
    made = Sender(allow_private=True, seconds=SECONDS)
    yield made
    await made.close()


def leads_to(*answers: Sequence[str]) -> tuple[list[str], object]:
    """Return a resolver with prepared results, and the list of its queries."""
    asked: list[str] = []
    left = list(answers)

    async def resolve(host: str, _port: int) -> Sequence[str]:
        asked.append(host)
        return left.pop(0) if len(left) > 1 else left[0]

    return asked, resolve


async def test_a_delivery_is_a_signed_post(sender: Sender, receiver: Receiver) -> None:
    """POST with JSON, the user agent, the given headers and the unchanged body."""
    outcome = await sender.send(receiver.url, {"webhook-id": "x"}, '{"ü":1}')
    assert outcome == SendResult(200, None)
    (got,) = receiver.got
    assert (got.path, got.body) == ("/hook?token=in-the-query", '{"ü":1}'.encode())
    assert got.headers["content-type"] == "application/json"
    assert got.headers["user-agent"] == AGENT
    assert got.headers["webhook-id"] == "x"
    assert got.headers["host"] == f"127.0.0.1:{receiver.port}"


@pytest.mark.parametrize("path", ["/", "/a;v=1?x=1;y", "/a;b/c;d", "/x//y", "/?", "/a?b?c", "/%3b:@"])
async def test_the_path_is_called_as_it_was_written(sender: Sender, receiver: Receiver, path: str) -> None:
    """Path and query are not changed; without a path it is the root."""
    root = f"http://127.0.0.1:{receiver.port}"
    for url in (root + path, root, f"{root}?q"):
        assert (await sender.send(url, {}, "{}")).delivered
    assert [got.path for got in receiver.got] == [path, "/", "/?q"]


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
async def test_a_success_is_delivered(sender: Sender, receiver: Receiver, status: int) -> None:
    """Every status 2xx is a success."""
    receiver.default = Answer(status)
    assert (await sender.send(receiver.url, {}, "{}")).delivered


@pytest.mark.parametrize("status", [300, 304, 400, 401, 404, 410, 429, 500, 503])
async def test_everything_else_is_not(sender: Sender, receiver: Receiver, status: int) -> None:
    """The result has the status; only 410 means that the receiver is gone."""
    receiver.default = Answer(status)
    outcome = await sender.send(receiver.url, {}, "{}")
    assert (outcome.delivered, outcome.code, outcome.gone) == (False, status, status == 410)
    assert outcome.error is not None
    assert str(status) in outcome.error


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirects_are_not_followed(sender: Sender, receiver: Receiver, status: int) -> None:
    """Only one request is sent, wherever the redirect leads."""
    with Receiver() as other:
        receiver.default = Answer(status, {"Location": other.url})
        outcome = await sender.send(receiver.url, {}, "{}")
        assert (outcome.code, len(receiver.got), other.got) == (status, 1, [])
        assert "redirects are not followed" in str(outcome.error)


async def test_proxies_of_the_environment_are_not_used(
    sender: Sender, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy would receive the connection instead of the checked address."""
    with Receiver() as proxy:
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
            monkeypatch.setenv(name, proxy.url)
        assert (await sender.send(receiver.url, {}, "{}")).delivered
        assert proxy.got == []


async def test_a_silent_receiver_has_its_time_and_no_more(sender: Sender, receiver: Receiver) -> None:
    """The attempt fails after its time limit, and the next one works."""
    never = threading.Event()
    receiver.answers.append(Answer(after=never))
    outcome = await sender.send(receiver.url, {}, "{}")
    assert (outcome.code, outcome.error) == (None, "no response within 2 seconds")
    assert (await sender.send(receiver.url, {}, "{}")).delivered


async def test_a_name_server_that_is_silent_has_no_more_time_either(receiver: Receiver) -> None:
    """The name look-up counts towards the time limit."""

    async def resolve(_host: str, _port: int) -> Sequence[str]:
        await asyncio.Event().wait()
        return ()

    sender = Sender(allow_private=True, resolve=resolve, seconds=0.2)
    outcome = await sender.send(receiver.url, {}, "{}")
    assert outcome.error == "no response within 0.2 seconds"
    await sender.close()


@asynccontextmanager
async def answering(
    say: Callable[[asyncio.StreamWriter], Awaitable[None]], tls: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
    """Yield the port of a receiver that reads a request's head, responds and closes."""
    left: set[asyncio.Task[None]] = set()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        left.add(task)
        with suppress(OSError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            await say(writer)
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=tls)
    async with server:
        yield int(server.sockets[0].getsockname()[1])
    await asyncio.gather(*left)


async def dribbled(sender: Sender, head: bytes) -> SendResult:
    """Return the result of a response that never ends."""

    async def say(writer: asyncio.StreamWriter) -> None:
        writer.write(head)
        while not writer.is_closing():
            writer.write(b"x" * 1000)
            await writer.drain()
            await asyncio.sleep(0.001)

    async with answering(say) as port:
        return await sender.send(f"http://127.0.0.1:{port}/", {}, "{}")


async def test_of_an_endless_answer_only_the_beginning_is_read(sender: Sender) -> None:
    """The status counts, even if the body never ends."""
    outcome = await dribbled(sender, b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n")
    assert outcome == SendResult(200, None)


async def test_an_endless_head_is_no_answer(sender: Sender) -> None:
    """The limit of bytes ends the attempt, which fails."""
    outcome = await dribbled(sender, b"HTTP/1.1 200 OK\r\nX: ")
    assert not outcome.delivered


async def test_interim_answers_without_end_are_no_answer(sender: Sender) -> None:
    """The limit of bytes ends them before the time limit."""

    async def say(writer: asyncio.StreamWriter) -> None:
        while not writer.is_closing():
            writer.write(b"HTTP/1.1 103 Early\r\n\r\n" * 1000)
            await writer.drain()

    async with answering(say) as port:
        outcome = await sender.send(f"http://127.0.0.1:{port}/", {}, "{}")
    assert outcome == SendResult(None, "the receiver's response is longer than 32768 bytes")


async def test_so_much_is_read_of_each_answer_on_a_connection(sender: Sender, receiver: Receiver) -> None:
    """The limit counts each response of a connection by itself."""
    receiver.default = Answer(200, {"X": "y" * 4000}, b"x" * 8000)
    for _ in range(6):
        assert await sender.send(receiver.url, {}, "{}") == SendResult(200, None)


@pytest.mark.parametrize("said", [b"", b"hello\r\n", b"HTTP/9.9 what\r\n\r\n"])
async def test_what_is_no_http_is_a_failure(sender: Sender, said: bytes) -> None:
    """A response that is not HTTP is a failed attempt, not an exception."""

    async def say(writer: asyncio.StreamWriter) -> None:
        writer.write(said)

    async with answering(say) as port:
        outcome = await sender.send(f"http://127.0.0.1:{port}/", {}, "{}")
    assert (outcome.code, outcome.error) == (None, "the receiver's response was not HTTP, or incomplete")


async def test_nobody_listens(sender: Sender) -> None:
    """The message contains nothing of the URL."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/hidden-path?key=hidden-key"
        outcome = await sender.send(url, {}, "{}")
    assert outcome == SendResult(None, "cannot connect to the receiver")


@pytest.mark.parametrize("hidden", ["127.0.0.1", "169.254.169.254", "::1", "10.0.0.1"])
async def test_a_name_that_leads_inside_is_refused(receiver: Receiver, hidden: str) -> None:
    """The resolved address is checked, nothing is sent, and the message does not contain the address."""
    asked, resolve = leads_to([hidden])
    sender = Sender(allow_private=False, resolve=resolve)
    outcome = await sender.send(f"http://evil.example:{receiver.port}/", {}, "{}")
    assert outcome.error == "the host's address is not public, so webhooks may not connect to it"
    assert (asked, receiver.got) == (["evil.example"], [])
    await sender.close()


async def test_one_private_address_among_public_ones_is_enough(receiver: Receiver) -> None:
    """One private address is enough to refuse the host."""
    _, resolve = leads_to(["8.8.8.8", "127.0.0.1"])
    sender = Sender(allow_private=False, resolve=resolve)
    outcome = await sender.send(f"http://evil.example:{receiver.port}/", {}, "{}")
    assert "not public" in str(outcome.error)
    await sender.close()


async def test_a_name_is_resolved_once(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """DNS rebinding: the connection goes to the checked address."""
    asked, resolve = leads_to(["8.8.8.8"], ["127.0.0.1"])
    connected: list[str] = []

    def lookup(host: str, *_: object, **__: object) -> list[object]:
        # Whoever asks the system again is told the second address.
        connected.append(host)
        return [
            (
                socket.AF_INET,
                socket.SOCK_STREAM,
                6,
                "",
                (host if host[0].isdigit() else "127.0.0.1", receiver.port),
            )
        ]

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    sender = Sender(allow_private=False, resolve=resolve, seconds=1)
    outcome = await sender.send(f"http://rebinding.example:{receiver.port}/", {}, "{}")
    assert not outcome.delivered
    assert asked == ["rebinding.example"]
    assert set(connected) <= {"8.8.8.8"}
    assert receiver.got == []
    # The second answer is judged as well.
    assert "not public" in str(
        (await sender.send(f"http://rebinding.example:{receiver.port}/", {}, "{}")).error
    )
    await sender.close()


async def test_the_connected_address_is_judged_too(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is sent if the peer is not the requested address."""
    import httpcore

    class Diverted(httpcore.AnyIOBackend):
        async def connect_tcp(
            self, host: str, *args: object, **fields: object
        ) -> httpcore.AsyncNetworkStream:
            assert host == "8.8.8.8"
            return await super().connect_tcp("127.0.0.1", receiver.port)

    monkeypatch.setattr(httpcore, "AnyIOBackend", Diverted)
    _, resolve = leads_to(["8.8.8.8"])
    sender = Sender(allow_private=False, resolve=resolve)
    outcome = await sender.send("http://diverted.example/", {}, "{}")
    assert "not public" in str(outcome.error)
    assert receiver.got == []
    await sender.close()


async def test_a_dead_address_is_followed_by_the_next(receiver: Receiver) -> None:
    """The first address that accepts a connection is used."""
    _, resolve = leads_to(["127.0.0.2", "127.0.0.1"])
    sender = Sender(allow_private=True, resolve=resolve)
    assert (await sender.send(f"http://two.example:{receiver.port}/", {}, "{}")).delivered
    await sender.close()


async def test_certificates_are_verified_against_the_name(tmp_path: Path) -> None:
    """The connection goes to an address, but the certificate must have the host's name."""
    certificate, key = certificate_for("hooks.example.test", tmp_path)
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_side.load_cert_chain(certificate, key)
    names: list[str | None] = []
    server_side.sni_callback = lambda _socket, name, _context: names.append(name)
    trusting = ssl.create_default_context(cafile=str(certificate))

    async def say(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
        await writer.drain()

    async with answering(say, server_side) as port:
        _, resolve = leads_to(["127.0.0.1"])
        sender = Sender(allow_private=True, resolve=resolve, tls=trusting)
        assert (await sender.send(f"https://hooks.example.test:{port}/", {}, "{}")) == SendResult(204, None)
        wrong = await sender.send(f"https://other.example.test:{port}/", {}, "{}")
        await sender.close()
        stranger = Sender(allow_private=True, resolve=resolve)
        untrusted = await stranger.send(f"https://hooks.example.test:{port}/", {}, "{}")
        await stranger.close()
    assert names == ["hooks.example.test", "other.example.test", "hooks.example.test"]
    assert "the receiver's certificate is not valid" in str(wrong.error)
    assert "the receiver's certificate is not valid" in str(untrusted.error)


async def test_the_systems_resolver() -> None:
    """The resolver finds this machine, and raises for unknown names."""
    resolver = SystemResolver()
    assert "127.0.0.1" in await resolver("localhost", 80)
    with pytest.raises(NameNotResolved, match="could not be resolved"):
        await resolver("nobody.invalid", 80)
    with pytest.raises(NameNotResolved):
        await resolver("a" * 300 + ".example", 80)


async def test_no_local_sockets() -> None:
    """Local sockets are always refused."""
    from toolgate_service.outbound.ssrf import SsrfGuardedBackend

    with pytest.raises(AddressForbidden):
        await SsrfGuardedBackend(SystemResolver(), allow_private=True).connect_unix_socket("/run/docker.sock")


NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("120", timedelta(minutes=2)),
        (" 0 ", timedelta()),
        ("Thu, 01 Jan 2026 00:01:00 GMT", timedelta(minutes=1)),
        ("Wed, 31 Dec 2025 00:00:00 GMT", timedelta()),
        ("-1", None),
        ("soon", None),
        ("", None),
        ("9" * 40, None),
    ],
)
def test_retry_after_is_seconds_or_a_date(text: str, found: timedelta | None) -> None:
    """Values that are neither seconds nor dates are ignored."""
    assert parse_retry_after(text, NOW) == found
