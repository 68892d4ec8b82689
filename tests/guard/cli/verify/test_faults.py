"""Faults of the gateway that `toolgate verify` finds: each test starts a gateway with one changed line."""

from pathlib import Path

import pytest
from support.faulty_gateway import patched
from support.verifying import SERVICE, Fault, read_faults, verify

from toolgate_cli.verify.registry import load_guarantees
from toolgate_cli.verify.report import Outcome

FAULTS = read_faults()
#: number of faults that the list must contain at least
ENOUGH = 40


def test_list_contains_enough_faults_with_different_names() -> None:
    assert len(FAULTS) >= ENOUGH
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_line_of_fault_occurs_once_and_the_changed_file_is_valid(fault: Fault) -> None:
    source = (SERVICE / fault.file).read_text(encoding="utf-8")
    compile(patched(source, fault.line, fault.replacement), fault.file, "exec")
    assert fault.found in {one.id for one in load_guarantees()}


@pytest.mark.parametrize(
    "fault",
    [pytest.param(one, marks=() if one.fast else pytest.mark.slow, id=one.name) for one in FAULTS],
)
def test_fault_is_found(fault: Fault, tmp_path: Path) -> None:
    with fault.gateway(tmp_path) as gateway:
        report = verify(gateway.replica_urls, fault.found)
    [result] = report.results
    assert result.outcome is Outcome.FAIL, f"{result.outcome}: {result.detail}"
