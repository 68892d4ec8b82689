"""A request whose transaction lost a race is done anew, so long as nobody has heard anything of an answer."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from toolgate_service.errors import LostRace, StorageFault
from toolgate_service.storage.races import anew


class Anew:
    """Wraps what answers requests, inside of what makes answers of failures.

    What a request does outside of its transaction — mail, waking whoever waits — it does after the commit, and what it
    does before, as hashing a password, may be done twice.
    """

    def __init__(self, inner: ASGIApp) -> None:
        self._inner = inner

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        arrived, started = _Arrived(receive), False

        async def sending(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        async def once() -> None:
            try:
                await self._inner(scope, arrived.receiving(), sending)
            except LostRace as lost:
                if started:
                    raise StorageFault(str(lost)) from None
                raise

        await anew(once)


class _Arrived:
    """What came of a request, kept to be received again."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._kept: list[Message] = []

    def receiving(self) -> Receive:
        """Return what receives the request from its beginning."""
        place = 0

        async def receive() -> Message:
            nonlocal place
            if place == len(self._kept):
                message = await self._receive()
                # That the caller went away is told again whenever somebody asks.
                if message["type"] != "http.request":
                    return message
                self._kept.append(message)
            place += 1
            return self._kept[place - 1]

        return receive
