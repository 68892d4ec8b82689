"""What a run was resumed with, in LangChain's own shapes: only a no means anything here, a yes is the gateway's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

__all__ = ["why_not"]

# HumanInTheLoopMiddleware's and the agent inbox's words for "do not run it".
_NOES: Final = frozenset({"reject", "respond", "response", "ignore"})


def why_not(answers: Sequence[object], call_id: str | None) -> str | None:
    """What somebody said who rejected a call; None if nobody did.

    A no that names a `tool_call_id` is a no to that call, any other to every call that it reaches.

    Args:
        answers: What the run was resumed with.
        call_id: The call.
    """
    for answer in _flat(answers):
        if answer is False or (isinstance(answer, str) and answer.strip().lower() in _NOES):
            return ""
        if not isinstance(answer, Mapping):
            continue
        kind, named = answer.get("type"), answer.get("tool_call_id")
        if isinstance(kind, str) and kind.lower() in _NOES and named in (None, call_id):
            return _words(answer)
    return None


def _flat(answers: object, depth: int = 0) -> Iterator[object]:
    """Each answer of lists and of `{"decisions": […]}`, however they lie in each other."""
    inner = answers.get("decisions") if isinstance(answers, Mapping) else answers
    if isinstance(inner, list | tuple) and depth < _DEEPEST:
        for each in inner:
            yield from _flat(each, depth + 1)
    else:
        yield answers


def _words(answer: Mapping[str, object]) -> str:
    said = next((answer[name] for name in ("message", "args") if isinstance(answer.get(name), str)), "")
    return str(said)[:_LONGEST]


_DEEPEST: Final = 8
_LONGEST: Final = 2000
