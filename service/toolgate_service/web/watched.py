"""Being told of answers that are given at once: what is not watched pays nothing for it."""

from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import TypeAlias

from toolgate_service.web.at_once import Found, Immediate, Later, Peer, Written
from toolgate_service.web.headers import RawHeader

#: the scope's key for when a request came that begins to go the usual way late
BEGAN = "toolgate.began"

#: what servers write down for a caller who hung up before the answer
HUNG_UP = 499

#: told an answer, and by `perf_counter` when its request was whole
Tell: TypeAlias = Callable[[Written, float], None]


def watched(quick: Mapping[bytes, Immediate], tell: Callable[[str], Tell]) -> Mapping[bytes, Immediate]:
    """Return who answers at once, with somebody who is told of each answer.

    Args:
        quick: who answers at once, by path.
        tell: makes for a path whoever is told.
    """
    return {path: _watched(immediate, tell(path.decode())) for path, immediate in quick.items()}


def _watched(immediate: Immediate, tell: Tell) -> Immediate:
    def answered(headers: Sequence[RawHeader], body: bytes, peer: Peer) -> Written | Later | None:
        began = perf_counter()
        found = immediate(headers, body, peer)
        if found is None:
            return None
        if isinstance(found[0], int):
            tell(found, began)
            return found
        future, finish = found

        def finished() -> Written | Found:
            answer = finish()
            if isinstance(answer, Mapping):
                return {**answer, BEGAN: began}
            tell(answer, began)
            return answer

        return future, finished

    return answered
