"""What travels: one request, one answer, or the fault that there was none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

__all__ = ["Answer", "Clock", "Request", "TransportFault"]

Clock: TypeAlias = Callable[[], float]


class TransportFault(Exception):
    """No whole answer came: connecting, sending or receiving failed or took too long.

    Attributes:
        answered: Whether somebody answered all the same: with half an answer, or no certificate to be trusted.
        reached: Whether a gateway may have received the request: a connection was established before this happened.
        unsent: Whether it had no turn among this process's own requests.
    """

    def __init__(
        self, message: str, *, answered: bool = True, reached: bool = True, unsent: bool = False
    ) -> None:
        super().__init__(message)
        self.answered = answered
        self.reached = reached
        self.unsent = unsent


@dataclass(frozen=True, slots=True)
class Request:
    """One request.

    Attributes:
        method: The verb.
        url: The address, complete.
        headers: They carry the API key, so they are never shown.
        body: It carries arguments, so it is never shown.
        patient: The gateway takes its time to answer: such requests have connections of their own.
    """

    method: str
    url: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes | None = field(default=None, repr=False)
    patient: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer, read to its end; header names in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes
