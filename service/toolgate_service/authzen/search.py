"""Searches for the subjects, resources or actions that are permitted.

A search evaluates candidates (ids or names that occur in the environment) as dry runs, and returns the candidates that
are permitted.
"""

import asyncio
import base64
import binascii
import json
from dataclasses import dataclass

from toolgate_service.authzen.catalog import find_candidates
from toolgate_service.authzen.mapping import agent_of, to_check
from toolgate_service.authzen.schemas import DEFAULT_RESULTS, MAX_RESULTS, Evaluation, PageRequest, Search
from toolgate_service.authzen.service import results_body
from toolgate_service.checks.checker import Checker
from toolgate_service.checks.decide import Allowed, AllowedByApproval
from toolgate_service.context import KeyCaller, load_auth_context, require_current
from toolgate_service.core.errors import FieldErrors
from toolgate_service.core.strict_json import Json, canonical, digest
from toolgate_service.db.database import Database
from toolgate_service.rules.repository import RuleCache

#: maximum number of candidates that one request evaluates; if there are more, the response contains a page token
MAX_EVALUATED = 100
#: seconds after which one request evaluates no further candidates, because conditions of rules can be slow
MAX_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class _Position:
    """Position in the results of a search.

    Attributes:
        fingerprint: Digest of the search, which must be the same on every page.
        limit: Maximum number of results of a page; None if the first request contained no limit.
        after: Last candidate of the previous page; an empty string for the first page.
    """

    fingerprint: str
    limit: int | None
    after: str = ""

    def token(self, after: str) -> str:
        """Return the token of the page of results that begins after the candidate with the id or name `after`."""
        text = json.dumps([self.fingerprint, self.limit, after])
        return base64.urlsafe_b64encode(text.encode()).decode()


async def run_search(
    checker: Checker, database: Database, rules: RuleCache, caller: KeyCaller, search: Search
) -> bytes:
    """Evaluate the candidates of a search, and return the response body with the permitted ones.

    Raises:
        FieldErrors: The token of the page belongs to another search or is invalid, or the search exceeds a limit.
    """
    position = _position(search)
    limit = DEFAULT_RESULTS if position.limit is None else min(position.limit, MAX_RESULTS)
    evaluation = search.evaluation
    # Before evaluating the first candidate, reject a search that would exceed a size limit with every candidate.
    to_check(_with(search, "x"), caller.context.key_agent_id, dry_run=True)
    async with database.reading() as session:
        agent_id = agent_of(evaluation.subject, caller.context.key_agent_id)
        auth = require_current(await load_auth_context(session, caller.key_digest, agent_id, ""))
        compiled = [
            rule
            for rule in (await rules.load(session, auth)).rules
            if rule.agents is None or not agent_id or agent_id in rule.agents
        ]
        # Read one candidate more than is evaluated, to find out whether candidates remain for the next page.
        candidates = await find_candidates(session, auth, search, compiled, position.after, MAX_EVALUATED + 1)
    results: list[Json] = []
    after = position.after
    done = 0
    clock = asyncio.get_running_loop().time
    end = clock() + MAX_SECONDS
    for candidate in candidates[:MAX_EVALUATED]:
        if len(results) >= limit or clock() > end:
            break
        if await _is_permitted(checker, caller, search, candidate):
            results.append(_entity(search, candidate))
        after, done = candidate, done + 1
        # Let other requests run, because some evaluations never yield to the event loop.
        await asyncio.sleep(0)
    is_complete = done == len(candidates)
    return results_body(results, "" if is_complete else position.token(after))


async def _is_permitted(checker: Checker, caller: KeyCaller, search: Search, candidate: str) -> bool:
    try:
        request = to_check(_with(search, candidate), caller.context.key_agent_id, dry_run=True)
    except FieldErrors:
        # The check of this candidate would be invalid, for example because the action would be too long.
        return False
    decision = await checker.check(caller, request, b"", decision_id="")
    return isinstance(decision, Allowed | AllowedByApproval)


def _with(search: Search, candidate: str) -> Evaluation:
    """Return the evaluation of a search in which a candidate is the entity that is searched for."""
    evaluation = search.evaluation
    if search.kind == "subject":
        return evaluation._replace(subject={**evaluation.subject, "id": candidate})
    if search.kind == "resource":
        return evaluation._replace(resource={**evaluation.resource, "id": candidate})
    return evaluation._replace(action={"name": candidate})


def _entity(search: Search, candidate: str) -> Json:
    if search.kind == "action":
        return {"name": candidate}
    entity = search.evaluation.subject if search.kind == "subject" else search.evaluation.resource
    return {"type": entity["type"], "id": candidate}


def _position(search: Search) -> _Position:
    page = search.page
    fingerprint = _fingerprint(search)
    if page.token is None:
        return _Position(fingerprint, page.limit)
    position = _read_token(page.token)
    if position is None:
        raise FieldErrors(
            {"page.token": [("is not a page token of this gateway: start the search again without a token")]}
        )
    if position.fingerprint != fingerprint or not _is_same_limit(page, position):
        raise FieldErrors(
            {
                "page.token": [
                    (
                        "belongs to another search: send the token only with the entities and the limit of the "
                        "original search"
                    )
                ]
            }
        )
    return position


def _is_same_limit(page: PageRequest, position: _Position) -> bool:
    # Requests for further pages may omit the limit, as in the examples of the specification.
    return page.limit is None or page.limit == position.limit


def _fingerprint(search: Search) -> str:
    subject, action, resource, context = search.evaluation
    entities = {"subject": subject, "action": action, "resource": resource, "context": context}
    return digest(canonical({**entities, "kind": search.kind, "properties": search.page.properties}))


def _read_token(token: str) -> _Position | None:
    try:
        value = json.loads(base64.b64decode(token, b"-_", validate=True))
    except (ValueError, binascii.Error, RecursionError):
        return None
    match value:
        case [str() as fingerprint, None | int() as limit, str() as after] if not isinstance(limit, bool):
            return _Position(fingerprint, limit, after)
    return None
