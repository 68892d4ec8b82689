"""Random logs are verified, and each manipulation of their exports is found."""

from base64 import b64encode
from functools import cache
from random import Random

import pytest
from support.manipulations import FORKS, LINES, MANIPULATIONS
from support.transparency import Export, LogBuilder, mth

from toolgate_cli.log.verification.export import verify_export
from toolgate_cli.log.verification.results import Result
from toolgate_cli.log.verification.state import State


def seen(export: Export, *sizes: int) -> State:
    """Return the state of a verifier that has seen the checkpoints of these sizes."""
    state = State()
    checkpoints = {
        size: {"size": size, "root": b64encode(mth(export.leaves[:size])).decode(), "note": ""}
        for size in sizes
    }
    state._logs = {export.origin: {"vkey": export.signer.vkey, "checkpoints": checkpoints}}
    return state


def clean(seed: int) -> tuple[Export, Result]:
    random = Random(f"clean {seed}")
    log = LogBuilder(random).build(
        random.choice([random.randrange(10), random.randrange(100), random.randrange(701)])
    )
    export = log.export()
    sizes = {random.randint(0, len(export.leaves)) for _ in range(3)}
    return export, verify_export(export.lines(), state=seen(export, *sizes))


@cache
def base(seed: int) -> tuple[LogBuilder, Export]:
    log = LogBuilder(Random(f"base {seed}")).build(20 + 5 * seed)
    return log, log.export()


def manipulated(seed: int) -> tuple[str, Result] | None:
    """Manipulate an export, and return the name of the manipulation and the result of the verification."""
    random = Random(f"manipulation {seed}")
    log, original = base(random.randrange(12))
    export, state = original.copy(), seen(original, len(original.leaves))
    names = [*MANIPULATIONS, *(f"fork: {each.__name__}" for each in FORKS), *LINES]
    name = names[seed % len(names)]
    before = export.lines()
    lines = before
    if name in LINES:
        lines = LINES[name](random, list(before))
    else:
        fork = name.startswith("fork: ")
        if not fork:
            export.note = export.signer.checkpoint(export.leaves)
        signer = export.signer
        if MANIPULATIONS[name.removeprefix("fork: ")](random, export, log) is False:
            return None
        if export.signer is not signer or name == "replay":
            export.note = ""
        lines = export.lines()
    if lines == before:
        return None
    return name, verify_export(lines, state=state)


def test_random_logs_have_no_finding() -> None:
    totals = dict.fromkeys(
        ("erased contexts", "rows removed by retention", "rows older than the transparency log"), 0
    )
    totals |= {"pending leaves": 0, "leaves: approval": 0}
    for seed in range(60):
        export, result = clean(seed)
        assert result.findings == [], seed
        assert result.counts["leaves"] == len(export.leaves)
        totals = {name: total + result.counts[name] for name, total in totals.items()}
    assert min(totals.values()) > 10


@pytest.mark.slow
def test_many_random_logs_have_no_finding() -> None:
    for seed in range(60, 10_000):
        assert clean(seed)[1].findings == [], seed


def _manipulate(seeds: range) -> dict[str, int]:
    found: dict[str, int] = {}
    for seed in seeds:
        outcome = manipulated(seed)
        if outcome is not None:
            name, result = outcome
            assert result.findings, f"{name}: seed {seed}"
            found[name] = found.get(name, 0) + 1
    return found


def test_manipulations_are_found() -> None:
    found = _manipulate(range(480))
    assert sum(found.values()) > 400
    assert len(found) == len(MANIPULATIONS) + len(FORKS) + len(LINES)


@pytest.mark.slow
def test_many_manipulations_are_found() -> None:
    assert sum(_manipulate(range(480, 12_500)).values()) > 10_000
