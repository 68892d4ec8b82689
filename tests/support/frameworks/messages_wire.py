"""What goes over the wire of Anthropic's Messages API: histories as they are read, replies as they are sent."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

__all__ = ["blocks", "error", "events", "joined", "unanswered"]

#: A message, or a block of one, as JSON.
Shape = Mapping[str, Any]


def blocks(content: str | Sequence[Shape] | None) -> list[Shape]:
    """A message's content, which may be a plain text, as blocks."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return list(content or [])


def joined(messages: Sequence[Shape]) -> list[tuple[str, list[Shape]]]:
    """Each message's role and blocks; those that follow one another in one role are one message, as the API has it."""
    history: list[tuple[str, list[Shape]]] = []
    for message in messages:
        if not history or history[-1][0] != message["role"]:
            history.append((message["role"], []))
        history[-1][1].extend(blocks(message["content"]))
    return history


def unanswered(history: Sequence[tuple[str, Sequence[Shape]]]) -> list[str]:
    """The calls whose result is not in the message after them: the API takes no such history."""
    missing = []
    for (role, said), (_, answer) in zip(history, [*history[1:], ("user", [])], strict=True):
        made = [each["id"] for each in said if role == "assistant" and each["type"] == "tool_use"]
        told = {each["tool_use_id"] for each in answer if each["type"] == "tool_result"}
        missing += [each for each in made if each not in told]
    return missing


def error(kind: str, message: str, **details: Any) -> dict[str, Any]:
    """The body of an error."""
    said = {"type": kind, "message": message, **({"details": details} if details else {})}
    return {"type": "error", "error": said}


def events(message: Mapping[str, Any]) -> bytes:
    """A reply as the server-sent events of a streamed one; arguments of calls come in two pieces."""
    said = "".join(f"event: {each['type']}\ndata: {json.dumps(each)}\n\n" for each in _events(dict(message)))
    return said.encode()


def _events(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield {"type": "message_start", "message": {**message, "content": [], "stop_reason": None}}
    for index, block in enumerate(message["content"]):
        if block["type"] == "text":
            start, pieces = {**block, "text": ""}, [{"type": "text_delta", "text": block["text"]}]
        else:
            start, text = {**block, "input": {}}, json.dumps(block["input"])
            halves = text[: len(text) // 2], text[len(text) // 2 :]
            pieces = [{"type": "input_json_delta", "partial_json": half} for half in halves]
        yield {"type": "content_block_start", "index": index, "content_block": start}
        for piece in pieces:
            yield {"type": "content_block_delta", "index": index, "delta": piece}
        yield {"type": "content_block_stop", "index": index}
    end = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    yield {"type": "message_delta", "delta": end, "usage": {"output_tokens": 5}}
    yield {"type": "message_stop"}
