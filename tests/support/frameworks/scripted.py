"""A chat model that makes the calls it was told to, and then says "done"."""

from collections.abc import Iterator, Sequence
from typing import Any

from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage

__all__ = ["Model", "calling"]


class Model(GenericFakeChatModel):
    """Says what it is told to; the one that comes along knows no tools, and forgets calls when streamed."""

    _stream = BaseChatModel._stream

    def bind_tools(self, *_: object, **__: object) -> "Model":  # type: ignore[override]  # takes whatever is bound
        return self


def calling(*turns: Sequence[tuple[str, dict[str, Any], str]]) -> Model:
    """A model that makes the calls of each turn: a tool's name, its arguments, an id."""
    return Model(messages=_saying(turns))


def _saying(turns: Sequence[Sequence[tuple[str, dict[str, Any], str]]]) -> Iterator[AIMessage]:
    for turn in turns:
        yield AIMessage(
            "", tool_calls=[{"name": name, "args": args, "id": call} for name, args, call in turn]
        )
    while True:
        yield AIMessage("done")
