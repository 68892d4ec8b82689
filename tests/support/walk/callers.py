"""Everybody who tries a route without the right to it, and what they should be told."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import jwt

from support.walk.stage import Stage
from support.walk.table import Stop

#: every right that a role or a scope lacks
BEYOND_VIEWER = ("changer", "full", "admin")
BEYOND_CLI = ("full", "admin")
MANAGEMENT = ("reader", *BEYOND_VIEWER)


@dataclass(frozen=True, slots=True)
class Caller:
    """Somebody who should not get anywhere.

    Attributes:
        who: in words.
        headers: their credential.
        expected: the status that a route should answer them; None where they have the right.
        asks: which environment they ask about, where they may choose.
        about: the environment that the things they name are in.
        instead: things of their own that they name, by placeholder.
        asleep: whether the organization is inactive meanwhile.
    """

    who: str
    headers: Mapping[str, str]
    expected: Callable[[Stop], int | None]
    asks: str | None = None
    about: str = "production"
    instead: Mapping[str, str] = field(default_factory=dict)
    asleep: bool = False


def callers(stage: Stage) -> list[Caller]:
    """Return everybody."""
    return [*_unknown(stage), *_without_right(stage), *_strangers(stage), *_elsewhere(stage), *_asleep(stage)]


def bearer(token: str) -> Mapping[str, str]:
    """Return the header of a token."""
    return {"Authorization": f"Bearer {token}"}


def keyed(key: str) -> Mapping[str, str]:
    """Return the header of an API key."""
    return {"X-API-Key": key}


def _unknown(stage: Stage) -> Iterator[Caller]:
    """Yield who is nobody, on either surface: 401 in the same words."""
    token, people = stage.owner.token, stage.people
    claims = jwt.decode(token, options={"verify_signature": False})
    forged = jwt.encode(claims, "another secret, which is long enough", algorithm="HS256")
    unsigned = jwt.encode(claims, None, algorithm="none")
    for who, headers in {
        "nobody": {},
        "garbage as a token": bearer("garbage"),
        "garbage as a key": keyed("garbage"),
        "a token of another secret": bearer(forged),
        "an unsigned token": bearer(unsigned),
        "a token in another scheme": {"Authorization": f"Basic {token}"},
        "a removed user": bearer(people.removed.token),
        "a session that was ended": bearer(people.ended_token),
        "a key that was replaced": keyed(stage.spent_key),
        "a token as a key": keyed(token),
    }.items():
        yield Caller(who, headers, lambda stop: None if stop.right == "none" else 401)
    yield Caller(
        "a key on management", keyed(stage.key), lambda stop: 401 if stop.right in MANAGEMENT else None
    )
    yield Caller(
        "a key as a bearer token on management",
        bearer(stage.key),
        lambda stop: 401 if stop.right in MANAGEMENT else None,
    )
    yield Caller(
        "a token on the SDK's routes", bearer(token), lambda stop: 401 if stop.right == "key" else None
    )


def _without_right(stage: Stage) -> Iterator[Caller]:
    """Yield the organization's own people where they may not go: 403."""
    people = stage.people
    yield Caller(
        "a viewer", bearer(people.viewer.token), lambda stop: 403 if stop.right in BEYOND_VIEWER else None
    )
    yield Caller("a member", bearer(people.member.token), lambda stop: 403 if stop.right == "admin" else None)
    yield Caller(
        "a cli token", bearer(people.cli_token), lambda stop: 403 if stop.right in BEYOND_CLI else None
    )


def _strangers(stage: Stage) -> Iterator[Caller]:
    """Yield another organization's admin and keys, and keys of other agents: whatever they name is not there."""
    admin = bearer(stage.stranger.token)
    yield Caller("another organization's admin", admin, _foreign_to_admins)
    own = {"agent_id": stage.strangers_agent}
    yield Caller(
        "another organization's admin by an agent of theirs", admin, _foreign_beside_agent, instead=own
    )
    yield Caller("another organization's key", keyed(stage.stranger.key), _foreign_to_keys)
    yield Caller("another organization's agent", keyed(stage.strangers_agents_key), _foreign_to_keys)
    yield Caller("another agent", keyed(stage.other_agents_key), _foreign_to_keys)


def _elsewhere(stage: Stage) -> Iterator[Caller]:
    """Yield the right people in the wrong environment."""
    admin = bearer(stage.owner.token)
    yield Caller("an admin, asking for test", admin, _foreign_to_admins_elsewhere, asks="test")
    yield Caller("an admin, about test", admin, _foreign_to_admins_elsewhere, asks="production", about="test")
    yield Caller("an admin, about test by default", admin, _foreign_to_admins_elsewhere, about="test")
    yield Caller("the test key", keyed(stage.test_key), _foreign_to_keys)
    yield Caller("the production key, about test", keyed(stage.key), _foreign_to_keys, about="test")


def _asleep(stage: Stage) -> Iterator[Caller]:
    """Yield the right people of an organization that is not active: it may read, nothing else."""
    admin = bearer(stage.owner.token)
    yield Caller(
        "an admin, asleep", admin, lambda stop: 403 if stop.right in BEYOND_VIEWER else None, asleep=True
    )
    yield Caller(
        "a key, asleep", keyed(stage.key), lambda stop: 401 if stop.right == "key" else None, asleep=True
    )


def _foreign_to_admins(stop: Stop) -> int | None:
    if stop.right not in MANAGEMENT:
        return None
    # Where nothing is named it is about the stranger's own: only what is read shows anything.
    return stop.foreign or (stop.success if stop.right == "reader" and not stop.spends else None)


def _foreign_beside_agent(stop: Stop) -> int | None:
    return stop.foreign if stop.beside_agent else None


def _foreign_to_admins_elsewhere(stop: Stop) -> int | None:
    return _foreign_to_admins(stop) if stop.environment else None


def _foreign_to_keys(stop: Stop) -> int | None:
    return stop.foreign if stop.right == "key" else None
