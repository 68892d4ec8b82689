"""Who asks on the SDK surface where FastAPI answers: whoever holds an API key (spec §5, decisions §4, §7)."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from toolgate_service.gateway import GatewayDep
from toolgate_service.hotpath.admission import admit
from toolgate_service.hotpath.standing import Standing
from toolgate_service.web.bodies import from_headers


@dataclass(frozen=True, slots=True)
class KeyCaller:
    """Somebody with a valid API key, counted against the rate of the reads."""

    key_digest: str
    standing: Standing

    def may_act_as(self, agent_id: str) -> bool:
        """Whether the key is the organization's, or that agent's own."""
        return self.standing.key_agent_id in {None, agent_id}


@from_headers
async def key_caller(request: Request, gateway: GatewayDep) -> KeyCaller:
    """Return the caller, from the headers alone.

    Raises:
        ApiError: 401 without a valid key or in an inactive organization, 429 beyond the rate.
    """
    admitted = await admit(request.scope, gateway, "reads")
    return KeyCaller(admitted.ask.key_digest, admitted.standing)


AnyKey = Annotated[KeyCaller, Depends(key_caller)]
