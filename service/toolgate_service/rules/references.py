"""References of rules and budgets to agents, by id or name."""

import json
from collections.abc import Sequence

from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.agents.models import Agent
from toolgate_service.core.errors import FieldErrors
from toolgate_service.rules.evaluation import WILDCARD


async def resolve_agents(
    session: AsyncSession, organization_id: str, environment: str, named: Sequence[str], before: str | None
) -> str | None:
    """Return the ids of the agents that a request names by id or name, as a JSON list; None for all agents.

    The stored list contains ids, so that it refers to the same agents after they are renamed. `before` is the list that
    was stored earlier. A request may still name deleted agents if this list contains them.

    Raises:
        FieldErrors: 400, an agent does not exist.
    """
    if WILDCARD in named:
        return None
    query = select(Agent.id, Agent.name).where(
        Agent.organization_id == organization_id,
        Agent.environment == environment,
        col(Agent.deleted_at).is_(None),
        col(Agent.id).in_(named) | col(Agent.name).in_(named),
    )
    found = (await session.exec(query)).all()
    # If an agent has the id of another agent as its name, the id stands for the other agent.
    ids = {agent_id for agent_id, _ in found}
    found = [(agent_id, name) for agent_id, name in found if agent_id in named or name not in ids]
    known = {one for pair in found for one in pair}
    earlier = set(json.loads(before or "[]"))
    refuse_unknown("agents", "is not the id or name of an agent of this environment", named, known | earlier)
    return json.dumps(sorted({agent_id for agent_id, _ in found} | (earlier & set(named))))


def refuse_unknown(field: str, message: str, named: Sequence[str], known: set[str]) -> None:
    """Verify that all names in a list are known.

    Raises:
        FieldErrors: 400 with `message` for each unknown name.
    """
    unknown = sorted({one for one in named if one not in known})
    if unknown:
        raise FieldErrors({field: [f"{one[:100]!r} {message}" for one in unknown]})
