"""What goes wrong: one thing at a time, each begun and after a while ended, in an order that a seed decides."""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import TypeAlias

from support.faults.world import Replica, World

#: begins a fault, and returns what ends it
Fault: TypeAlias = Callable[[World, Replica], Callable[[], object]]

#: what a transaction says last, as it goes over the wire
COMMIT = b"COMMIT"


def _killed(_world: World, replica: Replica) -> Callable[[], object]:
    replica.gateway.kill()
    return replica.gateway.start


def _restarted(_world: World, replica: Replica) -> Callable[[], object]:
    replica.gateway.stop()
    return replica.gateway.start


def _database_crashed(world: World, _replica: Replica) -> Callable[[], object]:
    world.database.crash()
    return world.database.resume


def _database_cut(_world: World, replica: Replica) -> Callable[[], object]:
    replica.to_database.cut()
    return replica.to_database.heal


def _database_silent(_world: World, replica: Replica) -> Callable[[], object]:
    replica.to_database.fall_silent()
    return replica.to_database.heal


def _database_slow(_world: World, replica: Replica) -> Callable[[], object]:
    replica.to_database.slow_down(150)
    return replica.to_database.heal


def _database_reset(_world: World, replica: Replica) -> Callable[[], object]:
    replica.to_database.reset()
    return replica.to_database.heal


def _commit_unanswered(_world: World, replica: Replica) -> Callable[[], object]:
    replica.to_database.swallow(COMMIT)
    return replica.to_database.heal


def _valkey_killed(world: World, _replica: Replica) -> Callable[[], object]:
    world.valkey.kill()
    return world.valkey.start


def _valkey_silent(world: World, _replica: Replica) -> Callable[[], object]:
    world.valkey.fall_silent()
    return world.valkey.speak_again


def _valkey_cut(_world: World, replica: Replica) -> Callable[[], object]:
    replica.to_valkey.cut()
    return replica.to_valkey.heal


def _valkey_unheard(_world: World, replica: Replica) -> Callable[[], object]:
    replica.to_valkey.fall_silent()
    return replica.to_valkey.heal


KINDS: dict[str, Fault] = {
    "a replica killed (SIGKILL) and started again": _killed,
    "a replica stopped (SIGTERM) and started again": _restarted,
    "PostgreSQL crashed and started again": _database_crashed,
    "a replica cut off from PostgreSQL": _database_cut,
    "PostgreSQL silent to a replica": _database_silent,
    "PostgreSQL slow to a replica (300 ms a round trip)": _database_slow,
    "a replica's connections to PostgreSQL reset": _database_reset,
    "a connection cut between a commit and its answer": _commit_unanswered,
    "Valkey killed and started again, empty": _valkey_killed,
    "Valkey silent": _valkey_silent,
    "a replica cut off from Valkey": _valkey_cut,
    "Valkey silent to a replica": _valkey_unheard,
}


class Faults:
    """Lets things go wrong until it is enough; then everything stands again.

    Args:
        world: what goes wrong.
        seed: decides what and when.
        pause: the longest time between two faults, and the longest a fault lasts, in seconds.

    Attributes:
        counted: how often each kind happened.
    """

    def __init__(self, world: World, seed: int, pause: float) -> None:
        self._world = world
        self._chance = random.Random(seed)
        self._pause = pause
        self.counted = Counter[str]()

    def go_on(self, enough: threading.Event) -> None:
        """Let things go wrong, every kind before any comes again."""
        kinds: list[str] = []
        while not enough.wait(self._chance.uniform(0.2, self._pause)):
            kinds = kinds or self._chance.sample(list(KINDS), len(KINDS))
            kind = kinds.pop()
            end = KINDS[kind](self._world, self._chance.choice(self._world.replicas))
            self.counted[kind] += 1
            try:
                enough.wait(self._chance.uniform(0.2, self._pause))
            finally:
                end()


def recovered(world: World, seconds: float = 60) -> float:
    """Return how many seconds it took until all replicas could work again, with nobody's help."""
    began = time.monotonic()
    pause = threading.Event()
    while not all(replica.is_ready for replica in world.replicas):
        assert time.monotonic() - began < seconds, "a replica did not come back by itself"
        pause.wait(0.1)
    return time.monotonic() - began
