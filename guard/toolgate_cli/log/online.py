"""Verification of the log at a gateway: its export, and the checkpoint that it publishes."""

import io
from collections.abc import Iterator
from contextlib import closing
from http import HTTPStatus
from typing import Any

from toolgate_cli.client import GatewayClient, GatewayError
from toolgate_cli.log.status import EXPORT_PATH, STATUS_PATH, parse_status, read_content
from toolgate_cli.log.tiles import TileError, Tiles
from toolgate_cli.log.verification.command import read_lines
from toolgate_cli.log.verification.export import CONFLICTS, verify_export
from toolgate_cli.log.verification.merkle import is_consistent
from toolgate_cli.log.verification.notes import Key
from toolgate_cli.log.verification.results import Result
from toolgate_cli.log.verification.state import State
from toolgate_cli.options import Environment
from toolgate_cli.output import sanitize


def verify_online(
    client: GatewayClient,
    environment: Environment,
    key: Key | None,
    state: State,
    witnesses: list[Key],
    required: int,
) -> Result:
    """Verify the export of a log at a gateway, and compare it with the checkpoint that the gateway publishes.

    The arguments after `environment` are those of `verify_export`.

    Raises:
        GatewayError: a request failed, or a response is invalid.
        VerificationError: the state file cannot be written.
    """
    found = parse_status(client.get(STATUS_PATH, {"environment": environment}))
    _, separator, scope = found.origin.rpartition("/tlog/")
    if not separator or set(scope) - set("/-abcdefghijklmnopqrstuvwxyz0123456789"):
        raise GatewayError(f"the gateway sent an invalid origin of the log: {sanitize(found.origin)}")
    # Without the login: a gateway must not be able to serve this user another log than other readers.
    with GatewayClient(client.url) as public:
        response = public.send("GET", f"/tlog/{scope}/checkpoint")
        note = response.body.decode(errors="replace") if response.status == HTTPStatus.OK else None
        chunks = client.stream(EXPORT_PATH, {"environment": environment})
        with closing(chunks), io.BufferedReader(_ChunkReader(chunks)) as file:
            lines = read_lines(file)
            result = verify_export(
                lines, key=key, state=state, witnesses=witnesses, required=required, published=note
            )
        if note is None:
            detail = sanitize(response.body[:200].decode(errors="replace"))
            result.find(
                "published", f"the gateway publishes no checkpoint: status {response.status}, {detail}"
            )
        elif result.unconfirmed is not None:
            _confirm(public, f"/tlog/{scope}", result, state)
    return result


def _confirm(public: GatewayClient, prefix: str, result: Result, state: State) -> None:
    """Compare the export with a published checkpoint that has more leaves."""
    old, new = result.checkpoint, result.unconfirmed
    if old is None or new is None:
        return

    def read(path: str) -> bytes:
        return read_content(public.send("GET", f"{prefix}/{path}"), path)

    tiles = Tiles(new.size, read)
    try:
        proof = tiles.consistency_proof(old.size)
    except TileError as error:
        raise GatewayError(f"the gateway sent an invalid tile: {error}") from None
    if not is_consistent(old.size, old.root, new.size, new.root, proof):
        text = (
            f"the published checkpoint ({new.size} leaves) is inconsistent with the export ({old.size} leaves): "
            "the log was changed"
        )
        result.find("fork", text)
    elif not CONFLICTS & set(result.codes):
        state.add(Key.parse(result.key), [new])


class _ChunkReader(io.RawIOBase):
    """Reader of a response that arrives in chunks."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        """Return true."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Copy the next bytes into a buffer and return their number; 0 at the end."""
        while not self._rest:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._rest = memoryview(chunk)
        count = min(len(buffer), len(self._rest))
        buffer[:count], self._rest = self._rest[:count], self._rest[count:]
        return count
