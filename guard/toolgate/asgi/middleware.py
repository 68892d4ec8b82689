"""The middleware: asks before the application sees a request, records what it answered."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, nullcontext
from typing import Final, Literal, TypeAlias

from toolgate.asgi.answers import Refusal, refusal_of
from toolgate.asgi.requests import HungUpError, Request, header, usable
from toolgate.asgi.routes import Actions, Endpoint, Routes
from toolgate.asgi.types import ASGIApp, Message, Receive, Scope, Send
from toolgate.block import Action
from toolgate.default import action, default_guard
from toolgate.errors import ConfigurationError, GuardError
from toolgate.guard import Guard
from toolgate.identity import acting_as
from toolgate.naming import calling

__all__ = ["GuardMiddleware"]

_FAILED: Final = 400

Who: TypeAlias = "str | Callable[[Scope], str | Awaitable[str | None] | None]"


class FailedResponse(Exception):
    """The application answered that it failed; recorded so, and raised to nobody."""


class GuardMiddleware:
    """Guards the endpoints of an ASGI application.

    A request that `actions` names is asked about, carried out once if it is allowed, and recorded by the status
    of its answer. What neither `actions` nor `unguarded` names is refused: an endpoint that is added later
    would otherwise be a tool that nobody is asked about. Needs asyncio.

    Args:
        app: The application.
        actions: Actions, or `Endpoint`s, by requests like `"POST /refunds/{charge_id}?dry_run"`; the first that
            fits counts. Or a function of the ASGI scope that returns one, or None.
        unguarded: Requests that pass unasked, like `"GET /health"`; the method `*` is any.
        guard: Who asks; None is the guard of the module's own `guarded`.
        agent: The header that names the agent that acts, or a function of the scope that returns its id, which may
            be awaited; who names none is refused. None is the guard's own agent.
        on_hold: What a held request does: `tell` answers 202 at once, `wait` waits for the person first.
        hold_timeout: Seconds to wait, then 202; None waits as long as the client does.
        max_body: The most bytes of a guarded request's body.

    Raises:
        ConfigurationError: An argument is wrong.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        actions: Actions,
        unguarded: Iterable[str] = (),
        guard: Guard | None = None,
        agent: Who | None = None,
        on_hold: Literal["tell", "wait"] = "tell",
        hold_timeout: float | None = None,
        max_body: int = 1024 * 1024,
    ) -> None:
        if not isinstance(guard, (Guard, type(None))):
            raise ConfigurationError(
                f"guard is {guard!r}; pass a toolgate.Guard, or None for the environment's"
            )
        if not _is_who(agent):
            raise ConfigurationError(f"agent is {agent!r}; use a header's name or a function of the scope")
        self._app = app
        self._routes = Routes(actions, unguarded)
        self._guard = guard
        self._agent = agent
        self._on_hold: Literal["tell", "wait"] = on_hold
        self._hold_timeout = hold_timeout
        self._max_body = _bytes(max_body)
        # Here and not at the first request, which it would refuse.
        for endpoint in [
            Endpoint("asgi"),
            Endpoint("asgi", on_hold="wait"),
            *(each for _, each in self._routes.patterns),
        ]:
            self._block(endpoint, {})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection.

        Raises:
            ConfigurationError: It is of a kind that nobody knows how to guard.
        """
        if scope["type"] not in {"http", "websocket", "lifespan"}:
            raise ConfigurationError(f"a connection of type {scope['type']!r} cannot be guarded")
        request = None
        try:
            found = None if scope["type"] == "lifespan" else self._routes.find(scope)
            if found is not None:
                agent_id = await self._who(scope)
                request = await Request.read(scope, receive, found, agent_id, self._max_body)
        except Refusal as refusal:
            return await refusal.answer(scope, send)
        except HungUpError:
            return None
        if request is None:
            return await self._app(scope, receive, send)
        try:
            return await self._carry_out(request, send)
        finally:
            request.close()

    async def _carry_out(self, request: Request, send: Send) -> None:
        endpoint, agent_id = request.endpoint, request.agent_id
        answer: Refusal | None = None
        status = 0

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            async with AsyncExitStack() as stack:
                stack.enter_context(nullcontext() if agent_id is None else acting_as(agent_id))
                stack.enter_context(calling(request.call_id))
                try:
                    block = self._readable(endpoint, request.arguments)
                    async with request.present() if self._waits(endpoint) else nullcontext():
                        await stack.enter_async_context(block)
                except Refusal as refusal:
                    answer = refusal
                except GuardError as error:
                    answer = refusal_of(error, endpoint.action, agent_id)
                else:
                    # Beyond the errors above: the application's own are its own.
                    await self._app(request.as_approved(block.context), request.receive, noted)
                    if not 0 < status < _FAILED:
                        raise FailedResponse(f"the answer is {status}" if status else "there is no answer")
        except (HungUpError, FailedResponse):
            return
        if answer is not None:
            await answer.answer(request.scope, send)

    def _readable(self, endpoint: Endpoint, arguments: dict[str, object]) -> Action:
        block = self._block(endpoint, arguments)
        if endpoint.amount is not None:
            if self._guard is None:
                # That none can be made is no client's doing.
                default_guard()
            try:
                block.capture()
            except ConfigurationError as error:
                # The client's doing: it left something out, or said it in another way.
                raise Refusal(400, str(error)) from None
        return block

    def _waits(self, endpoint: Endpoint) -> bool:
        return (endpoint.on_hold or self._on_hold) == "wait"

    def _block(self, endpoint: Endpoint, arguments: dict[str, object]) -> Action:
        how = endpoint.on_hold or self._on_hold
        if how not in ("tell", "wait"):
            raise ConfigurationError(f"on_hold is {how!r}; use 'tell' or 'wait'")
        waits = how == "wait"
        hold_timeout = self._hold_timeout if endpoint.hold_timeout is None else endpoint.hold_timeout
        make = action if self._guard is None else self._guard.action
        return make(
            endpoint.action,
            arguments,
            on_hold="wait" if waits else "raise",
            hold_timeout=hold_timeout if waits else None,
            include=endpoint.include,
            exclude=endpoint.exclude,
            redact=endpoint.redact,
            amount=endpoint.amount,
            edits=True,
        )

    async def _who(self, scope: Scope) -> str | None:
        if self._agent is None:
            return None
        if isinstance(self._agent, str):
            agent_id = header(scope, self._agent)
        else:
            named = self._agent(scope)
            agent_id = await named if inspect.isawaitable(named) else named
        if agent_id is None:
            # Not the guard's own agent: whoever leaves the name out would act as somebody who may more.
            raise Refusal(403, "the request names no agent", outcome="unnamed")
        return usable(agent_id, "the agent's id")


def _bytes(count: object) -> int:
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        raise ConfigurationError(f"max_body is {count!r}; use a number of bytes")
    return count


def _is_who(agent: object) -> bool:
    named = isinstance(agent, str) and agent.isascii() and agent.strip() == agent != ""
    return agent is None or callable(agent) or named
