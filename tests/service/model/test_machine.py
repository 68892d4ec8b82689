"""Whatever is done to the gateway, in whatever order, it answers as the specification and the decisions say."""

import time
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test
from support.inside import Clock, InsideGateway
from support.machine.counts import Counts
from support.machine.machine import GatewayMachine
from support.reference.checking import DENIALS, MOST_PENDING

from toolgate_service.checks.decide import Step

STEPS = 50
#: how often as many runs are made again, at most, until enough has happened: chance may leave something out of a few
ROUNDS = 16
#: what must have happened again and again in a full run; a short run would have to be repeated many times for it
HAPPENED = (
    "voted", "used with a quorum", "edited", "edited and used", "grant active", "used by a grant", "grant: revoked",
    "became viewer", "withdrawn", "jobs", "restarted", "stored terms", "frozen", "lifted",
    "rule: forbid", "rule: require_approval", "rule: allow", "rule changed",
    "budget", "budget changed", "reserved", "outcome: success", "outcome: failed",
)  # fmt: skip
#: number of runs of a full run
FULL = 300
#: steps at which a check must have been decided, and explained, in a full run
STEPS_MET = {
    Step.AGENT,
    Step.FREEZE,
    Step.RULES,
    Step.BUDGET,
    Step.AMOUNT_WITHIN,
    Step.APPROVAL,
    Step.APPROVED,
    Step.DENIED,
    Step.PENDING,
    Step.NEW_REQUEST,
}
#: two halves, so that two processes may share a full run
RUNS = [
    pytest.param(4, id="reduced"),
    *[pytest.param(FULL, id=f"full-{half}", marks=pytest.mark.slow) for half in ("first", "second")],
]


@pytest.fixture(scope="module")
def inside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InsideGateway]:
    """A gateway in this process."""
    folder = tmp_path_factory.mktemp("inside")
    bounds = {"denials_before_block": DENIALS, "pending_per_agent": MOST_PENDING}
    with InsideGateway(folder, management_requests_per_minute=1_000_000, **bounds) as gateway:
        yield gateway


def were_about_something(counts: Counts, runs: int) -> bool:
    """Whether checks ended in every way and, in a full run, were decided at every step and people did everything."""
    if runs < FULL:
        return all(counts.checks[kind] for kind in ("allowed", "blocked", "held")) and counts.used >= runs
    return (
        all(counts.share(kind) >= 0.15 for kind in ("allowed", "blocked", "held"))
        and counts.used >= runs
        and counts.explained.keys() >= STEPS_MET
        and all(counts.seen[name] >= runs // 40 for name in HAPPENED)
    )


# SQLModel advises against the plain statements that the gateway means to send.
@pytest.mark.filterwarnings("ignore:[^a-z]*You probably want to use:DeprecationWarning")
@pytest.mark.parametrize("runs", RUNS)
def test_gateway_and_reference_agree(
    inside: InsideGateway, runs: int, request: pytest.FixtureRequest
) -> None:
    """Runs of fifty steps: every answer is what the reference says, and the runs were about something."""
    clock, counts = Clock(), Counts()
    base = request.config.getoption("--hypothesis-seed")
    if base is None and not settings().derandomize:
        base = time.time_ns()

    class Machine(GatewayMachine):
        pass

    Machine.gateway, Machine.clock, Machine.counts = inside, clock, counts
    with clock.ruling():
        for number in range(ROUNDS):
            # Without a seed for each round, all rounds are the same runs if Hypothesis is seeded or, in CI, derandomized.
            seed(f"{base}/{number}")(Machine)
            run_state_machine_as_test(
                Machine,
                settings=settings(
                    max_examples=runs,
                    stateful_step_count=STEPS,
                    deadline=None,
                    database=None,
                    suppress_health_check=list(HealthCheck),
                    phases=(Phase.generate, Phase.shrink),
                ),
            )
            if counts.steps >= runs * 30 and were_about_something(counts, runs):
                break
    assert counts.runs >= runs
    assert counts.steps >= runs * 30
    assert were_about_something(counts, runs), counts
