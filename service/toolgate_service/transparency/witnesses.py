"""HTTP client that requests cosignatures of checkpoints from witnesses.

The requests are defined by https://c2sp.org/tlog-witness, the cosignatures by https://c2sp.org/tlog-cosignature. The
client verifies each cosignature, so a witness cannot add invalid lines to a checkpoint. The client does not follow
redirects and does not use proxies.
"""

import asyncio
import base64
import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from http import HTTPStatus
from importlib.metadata import version
from typing import TYPE_CHECKING, Final, TypeAlias

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from toolgate_service.core.clock import utcnow
from toolgate_service.core.witness_settings import Witness

if TYPE_CHECKING:
    from httpx import AsyncClient, Response

#: Maximum seconds for one checkpoint at one witness, including the retry.
TIMEOUT: Final = 10.0
#: Maximum bytes of a response.
MAX_RESPONSE: Final = 64 * 1024
#: Maximum seconds by which the time of a cosignature may be ahead of the gateway's clock.
MAX_CLOCK_DIFFERENCE: Final = 300

_MAX_PROOF: Final = 63
_SIZE_TYPE: Final = "text/x.tlog.size"
_SIZE = re.compile(rb"(0|[1-9][0-9]{0,18})\n")
_SIGNATURE_BYTES: Final = 4 + 8 + 64

#: Function that returns the hashes of the consistency proof between two sizes of the log, both larger than zero.
Prove: TypeAlias = Callable[[int, int], Awaitable[Sequence[bytes]]]


class WitnessError(Exception):
    """A witness did not cosign a checkpoint. The message is one line without the content of the response."""


class WitnessUnavailable(WitnessError):
    """The witness did not respond in time, or responded with a server error or an invalid body.

    A later attempt may succeed.
    """


class WitnessRejected(WitnessError):
    """The witness rejected the checkpoint.

    Attributes:
        status: HTTP status of the response, for example 404 if the log is not registered at the witness, 403 if the
            witness does not accept the log's signature, 409 or 422 if the checkpoint is inconsistent with the one that
            the witness cosigned before.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class WitnessInconsistent(WitnessRejected):
    """The checkpoint is inconsistent with the one that the witness cosigned before.

    Either the log has two versions, for example after a restored database has grown again, or the proof is wrong.
    """


class WitnessAhead(WitnessError):
    """The witness has cosigned a larger checkpoint than the submitted one.

    There are two possible reasons: the database was restored to an earlier state (the size is then larger than the
    current size of the log), or another gateway has submitted a later checkpoint at the same time. The size proves
    neither, because the witness does not sign the size.

    Attributes:
        size: Size of the latest checkpoint that the witness cosigned.
    """

    def __init__(self, size: int, submitted: int) -> None:
        super().__init__(
            f"the witness has cosigned a checkpoint of size {size}, but the submitted checkpoint has size {submitted}"
        )
        self.size = size


class InvalidCosignature(WitnessError):
    """The response does not contain a valid cosignature of the witness."""


@dataclass(frozen=True, slots=True)
class Cosignature:
    """Verified cosignature of a checkpoint.

    Attributes:
        line: Signature line, which is appended to the checkpoint; it ends with a newline.
        cosigned_at: Time at which the witness made the cosignature.
    """

    line: str
    cosigned_at: datetime


@dataclass(frozen=True, slots=True)
class WitnessResult:
    """Result of submitting one checkpoint to one witness: a cosignature or an error."""

    witness: Witness
    cosignature: Cosignature | None
    error: WitnessError | None


class WitnessClient:
    """Client of all configured witnesses.

    Args:
        witnesses: The witnesses.
        tls: TLS context with the trusted certificate authorities. The default is that of httpx.
        seconds: Maximum seconds for one checkpoint at one witness, including the retry.
        clock: Function that returns the current time.
    """

    def __init__(
        self,
        witnesses: Sequence[Witness],
        *,
        tls: ssl.SSLContext | None = None,
        seconds: float = TIMEOUT,
        clock: Callable[[], datetime] = utcnow,
    ) -> None:
        self.witnesses = tuple(witnesses)
        self._tls = tls
        self._seconds = seconds
        self._clock = clock
        self._http: AsyncClient | None = None
        #: Size of the latest cosigned checkpoint, by verifier key of the witness and origin of the log. A wrong size
        #: costs one more request, because the witness then responds with the correct size.
        self._sizes: dict[tuple[str, str], int] = {}

    async def cosign_all(self, origin: str, checkpoint: str, size: int, prove: Prove) -> list[WitnessResult]:
        """Submit a checkpoint to all witnesses at the same time, and return their results in the order of `witnesses`.

        Args:
            origin: Origin of the log.
            checkpoint: The checkpoint with the log's signature, a signed note.
            size: Size of the checkpoint.
            prove: Function that returns the consistency proof between two sizes.

        Raises:
            ExceptionGroup: `prove` has raised an exception.
        """
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._result(witness, origin, checkpoint, size, prove))
                for witness in self.witnesses
            ]
        return [task.result() for task in tasks]

    async def cosign(
        self, witness: Witness, origin: str, checkpoint: str, size: int, prove: Prove
    ) -> Cosignature:
        """Submit a checkpoint to one witness, and return its verified cosignature.

        Raises:
            WitnessAhead: The witness has cosigned a larger checkpoint.
            WitnessError: The witness did not cosign the checkpoint for another reason.
        """
        async with self._limit():
            return await self._submit(witness, origin, checkpoint, size, prove)

    async def fetch_latest(self, witness: Witness, origin: str) -> str | None:
        """Return the latest checkpoint of a log that a witness cosigned, with its signatures; None if there is none.

        The caller must verify the log's signature: only a valid signature proves that the log had this size. Some
        witnesses serve checkpoints at another URL, or not at all.

        Raises:
            WitnessUnavailable: The witness did not respond in time, or responded with an error.
        """
        path = f"{sha256(origin.encode()).hexdigest()}/checkpoint"
        async with self._limit():
            response = await self._client().send(
                self._client().build_request("GET", f"{witness.url}/{path}"), stream=True
            )
            try:
                if response.status_code == HTTPStatus.NOT_FOUND:
                    return None
                if response.status_code != HTTPStatus.OK:
                    raise WitnessUnavailable(f"the witness responded with status {response.status_code}")
                return (await _read_body(response)).decode("utf-8", "replace")
            finally:
                await response.aclose()

    async def close(self) -> None:
        """Close all connections."""
        if self._http is not None:
            await self._http.aclose()
            self._http = None

    @asynccontextmanager
    async def _limit(self) -> AsyncIterator[None]:
        """Limit the duration of requests, and raise `WitnessUnavailable` for a timeout or an error of httpx."""
        import httpx

        try:
            async with asyncio.timeout(self._seconds):
                yield
        except TimeoutError:
            raise WitnessUnavailable(f"no response within {self._seconds:g} seconds") from None
        except httpx.HTTPError as error:
            # The library's message is not used, because it can contain parts of the response.
            raise WitnessUnavailable(f"cannot send the request: {type(error).__name__}") from None

    async def _result(
        self, witness: Witness, origin: str, checkpoint: str, size: int, prove: Prove
    ) -> WitnessResult:
        try:
            return WitnessResult(witness, await self.cosign(witness, origin, checkpoint, size, prove), None)
        except WitnessError as error:
            return WitnessResult(witness, None, error)

    async def _submit(
        self, witness: Witness, origin: str, checkpoint: str, size: int, prove: Prove
    ) -> Cosignature:
        key = witness.verifier_key, origin
        old_size = min(self._sizes.get(key, 0), size)
        status, body = await self._send(witness, checkpoint, old_size, size, prove)
        if status == HTTPStatus.CONFLICT:
            old_size = _read_size(body)
            if old_size > size:
                raise WitnessAhead(old_size, size)
            self._sizes[key] = old_size
            status, body = await self._send(witness, checkpoint, old_size, size, prove)
        if status == HTTPStatus.CONFLICT:
            if (latest := _read_size(body)) > size:
                raise WitnessAhead(latest, size)
            raise WitnessUnavailable(
                f"the witness has cosigned a checkpoint of size {latest} during the request"
            )
        if status != HTTPStatus.OK:
            raise _error(status)
        text = checkpoint.rpartition("\n\n")[0] + "\n"
        cosignature = verify_cosignature(witness, text, body, self._clock())
        self._sizes[key] = size
        return cosignature

    async def _send(
        self, witness: Witness, checkpoint: str, old_size: int, size: int, prove: Prove
    ) -> tuple[int, bytes]:
        """Send a checkpoint, and return the status and the body of the response.

        For an error, the returned body is empty, unless the status is 409 and the body contains the size of the latest
        cosigned checkpoint.

        Raises:
            WitnessInconsistent: The status is 409, and the body contains no size.
        """
        proof = await prove(old_size, size) if 0 < old_size < size else ()
        if len(proof) > _MAX_PROOF:
            raise ValueError(f"a consistency proof has {len(proof)} hashes, more than {_MAX_PROOF}")
        lines = [f"old {old_size}", *(base64.b64encode(one).decode() for one in proof), "", checkpoint]
        request = self._client().build_request(
            "POST",
            f"{witness.url}/add-checkpoint",
            content="\n".join(lines).encode(),
            headers={"Content-Type": "text/plain; charset=utf-8"},
        )
        response = await self._client().send(request, stream=True)
        try:
            if response.status_code == HTTPStatus.OK or _has_size(response):
                return response.status_code, await _read_body(response)
        finally:
            await response.aclose()
        if response.status_code == HTTPStatus.CONFLICT:
            # In version 1.0.0 of the specification, status 409 also means that the witness has cosigned another root
            # hash of the same size.
            raise WitnessInconsistent(409, "the witness has cosigned another root hash (status 409)")
        return response.status_code, b""

    def _client(self) -> "AsyncClient":
        if self._http is None:
            # Load httpx only for the first checkpoint: the import takes a tenth of the time that the gateway needs to
            # start.
            import httpx

            self._http = httpx.AsyncClient(
                verify=self._tls or httpx.create_ssl_context(),
                headers={"User-Agent": f"toolgate/{version('toolgate')}", "Accept-Encoding": "identity"},
                timeout=self._seconds,
                trust_env=False,
                follow_redirects=False,
            )
        return self._http


def verify_cosignature(witness: Witness, text: str, lines: bytes, now: datetime) -> Cosignature:
    """Find the cosignature of a witness in signature lines, verify it, and return it. Other lines are ignored.

    Args:
        witness: The witness.
        text: Text of the checkpoint, without signatures, with its last newline.
        lines: Signature lines, for example the body of the witness's response.
        now: The current time.

    Raises:
        InvalidCosignature: No line contains a cosignature of the witness, or the cosignature is invalid.
    """
    prefix = f"— {witness.name} "
    try:
        found = [line for line in lines.decode().split("\n") if line.startswith(prefix)]
        decoded = [base64.b64decode(line.removeprefix(prefix), validate=True) for line in found]
    except ValueError:
        raise InvalidCosignature("the response is not a list of signature lines") from None
    own = [data for data in decoded if data.startswith(witness.key_id) and len(data) == _SIGNATURE_BYTES]
    if not own:
        raise InvalidCosignature(f"the response has no cosignature of the key {witness.verifier_key}")
    data = own[0]
    seconds = int.from_bytes(data[4:12], "big")
    try:
        message = f"cosignature/v1\ntime {seconds}\n{text}".encode()
        Ed25519PublicKey.from_public_bytes(witness.public_key).verify(data[12:], message)
    except InvalidSignature:
        raise InvalidCosignature("the cosignature of the witness is invalid") from None
    if not 0 < seconds <= now.timestamp() + MAX_CLOCK_DIFFERENCE:
        raise InvalidCosignature(
            f"the time {seconds} of the cosignature is zero or in the future; check the clocks of the gateway and the "
            "witness"
        )
    return Cosignature(f"{prefix}{base64.b64encode(data).decode()}\n", datetime.fromtimestamp(seconds, UTC))


def _has_size(response: "Response") -> bool:
    content_type = response.headers.get("content-type", "").partition(";")[0].strip()
    return response.status_code == HTTPStatus.CONFLICT and content_type == _SIZE_TYPE


async def _read_body(response: "Response") -> bytes:
    body = b""
    async for part in response.aiter_raw():
        body += part
        if len(body) > MAX_RESPONSE:
            raise WitnessUnavailable(f"the response has more than {MAX_RESPONSE} bytes")
    return body


def _read_size(body: bytes) -> int:
    found = _SIZE.fullmatch(body)
    if found is None:
        raise WitnessUnavailable("the response with status 409 does not contain a size")
    return int(found[1])


def _error(status: int) -> WitnessError:
    reasons = {
        HTTPStatus.BAD_REQUEST: "the witness rejected the request as malformed",
        HTTPStatus.FORBIDDEN: "the witness does not accept the log's signature",
        HTTPStatus.NOT_FOUND: "the log's origin is not registered at the witness, or the URL is wrong",
    }
    if status == HTTPStatus.UNPROCESSABLE_ENTITY:
        return WitnessInconsistent(
            status,
            "the checkpoint is inconsistent with the one that the witness cosigned before (status 422)",
        )
    if status in reasons:
        return WitnessRejected(status, f"{reasons[HTTPStatus(status)]} (status {status})")
    if 400 <= status < 500 and status not in {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS}:  # noqa: PLR2004 - a class of statuses
        return WitnessRejected(status, f"the witness responded with status {status}")
    return WitnessUnavailable(f"the witness responded with status {status}")
