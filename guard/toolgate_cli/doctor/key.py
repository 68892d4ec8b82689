"""Whether the gateway takes the API key, and knows the agent."""

from collections.abc import Iterator
from http import HTTPStatus

from toolgate.errors import ConfigurationError
from toolgate.settings import load_settings, masked
from toolgate_cli.answers import ManagementError, read_answer
from toolgate_cli.doctor.findings import Finding
from toolgate_cli.doctor.surroundings import Surroundings
from toolgate_cli.sdk_surface import SdkSurface

#: an agent that nobody has: asked after it, the gateway tells whether it takes the key
_NOBODY = "00000000-0000-7000-8000-000000000000"
_PATH = "/sdk/permissions"


def check_key(around: Surroundings) -> Iterator[Finding]:
    """Yield what the gateway says to the key and of the agent; nothing is recorded by that."""
    if around.url is None or around.api_key is None:
        return
    try:
        settings = load_settings(around.url, around.api_key, around.agent_id or _NOBODY, 10)
    except ConfigurationError:
        # Told already.
        return
    try:
        with SdkSurface(settings) as gateway:
            answer = gateway.permissions(settings.agent_id or _NOBODY)
        known = answer.status != HTTPStatus.NOT_FOUND
        permissions = read_answer(answer, "GET", _PATH) if known else None
    except ManagementError as error:
        yield _refused(error, masked(around.api_key))
        return
    yield Finding("key works", "ok", f"the gateway takes {masked(around.api_key)}")
    if around.agent_id is None:
        return
    if not isinstance(permissions, list):
        environment = "test" if around.api_key.startswith("test_") else "production"
        says = f"the key's organization has no agent {around.agent_id!r} in {environment}, or the key is another agent's"
        yield Finding("agent works", "wrong", says, "set TOOLGATE_AGENT_ID to an id of: toolgate agents list")
    elif not permissions:
        cure = "see: toolgate agents show AGENT, and toolgate permissions grant AGENT ACTION"
        yield Finding("agent works", "warning", "the agent may do nothing, or is switched off", cure)
    else:
        yield Finding("agent works", "ok", f"the agent has permissions for {len(permissions):,} actions")


def _refused(error: ManagementError, shown: str) -> Finding:
    if error.status == HTTPStatus.UNAUTHORIZED:
        cure = "set TOOLGATE_API_KEY to a valid one of an active organization; see: toolgate keys show"
        return Finding("key works", "wrong", f"the gateway refuses the key {shown}: {error.detail}", cure)
    if error.unanswered:
        return Finding("key works", "unknown", "not asked: the gateway does not answer")
    return Finding(
        "key works", "wrong", str(error), "look at the gateway's own log, or try again in a moment"
    )
