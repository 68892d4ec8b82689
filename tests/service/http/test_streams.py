"""Answers that are made while they are sent."""

from collections.abc import AsyncGenerator

from starlette.types import Message

from toolgate_service.http.responses import CHUNK_SIZE, Stream


async def parts() -> AsyncGenerator[bytes]:
    yield b"head,"
    yield b""
    yield b"x" * (5 * CHUNK_SIZE + 1)


async def never() -> Message:
    return {"type": "http.request", "body": b"", "more_body": False}


async def test_a_long_part_goes_in_pieces() -> None:
    """However much is made at once, a slow line need not carry more than a piece in the time it is given."""
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    await Stream(parts(), "text/csv", {})({"type": "http", "method": "GET"}, never, send)
    bodies = [message["body"] for message in sent if message["type"] == "http.response.body"]
    assert max(map(len, bodies)) == CHUNK_SIZE
    assert b"".join(bodies) == b"head," + b"x" * (5 * CHUNK_SIZE + 1)
    assert [message["more_body"] for message in sent[1:]] == [True] * (len(bodies) - 1) + [False]
