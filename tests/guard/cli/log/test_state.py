"""The state file: pinned keys and checkpoints that were seen before."""

import json
from base64 import b64encode
from pathlib import Path
from random import Random

import pytest
from support.transparency import Export, LogBuilder, Signer

from toolgate_cli.log.verification.export import verify_export
from toolgate_cli.log.verification.notes import VerificationError
from toolgate_cli.log.verification.state import State

LOG = LogBuilder(Random(6)).build(40)
VKEY = LOG.signer.vkey


@pytest.fixture
def export() -> Export:
    return LOG.export(pending=False)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.json"


def prefix(export: Export, size: int) -> Export:
    """Return the export at an earlier time, without its rows."""
    earlier = export.copy()
    earlier.leaves, earlier.rows = earlier.leaves[:size], []
    return earlier


def verify(export: Export, path: Path) -> list[str]:
    """Verify an export with a state file, and return the findings about its checkpoint."""
    result = verify_export(export.lines(), state=State(path))
    return [each["code"] for each in result.findings if each["code"] != "missing_row"]


def sizes(path: Path) -> list[int]:
    [log] = json.loads(path.read_text())["logs"].values()
    return [each["size"] for each in log["checkpoints"]]


def test_checkpoints_are_added_in_order(export: Export, path: Path) -> None:
    assert [verify(prefix(export, size), path) for size in (0, 7, 7, 30)] == [[], [], [], []]
    assert verify(export, path) == []
    assert sizes(path) == [0, 7, 30, 40]
    assert [each.name for each in path.parent.iterdir()] == ["state.json"]


def test_older_checkpoint_is_found(export: Export, path: Path) -> None:
    assert verify(export, path) == []
    assert verify(prefix(export, 39), path) == ["rollback"]
    assert sizes(path) == [40]


@pytest.mark.parametrize("size", [20, 40, 45])
def test_fork_with_the_right_key_is_found(export: Export, path: Path, size: int) -> None:
    assert verify(prefix(export, 20), path) == []
    content = path.read_bytes()
    fork = export.copy()
    fork.leaves[11], fork.leaves[12] = fork.leaves[12], fork.leaves[11]
    fork.leaves = [*fork.leaves, *fork.leaves[-5:]][:size]
    assert "fork" in verify(fork, path)
    assert path.read_bytes() == content


def test_other_key_is_found(export: Export, path: Path) -> None:
    assert verify(export, path) == []
    content = path.read_bytes()
    export.signer = Signer(export.origin, bytes(32))
    assert verify(export, path) == ["key", "checkpoint"]
    export.manifest["vkey"] = VKEY
    assert verify(export, path) == ["checkpoint"]
    assert path.read_bytes() == content


def test_other_origin_of_the_same_log_is_found(export: Export, path: Path) -> None:
    assert verify(export, path) == []
    export.origin = export.origin.replace("gate.", "other.")
    export.signer = Signer(export.origin, bytes(32))
    assert verify(export, path) == ["origin"]
    assert len(json.loads(path.read_text())["logs"]) == 1


def test_logs_of_two_organizations_share_a_file(export: Export, path: Path) -> None:
    assert verify(export, path) == []
    other = "0199a3f2-0000-7000-8000-00000000000d"
    export.origin = export.origin.replace("0000c/", "0000d/")
    export.signer, export.manifest = Signer(export.origin, bytes(32)), {"organization_id": other}
    export.leaves, export.rows = [], []
    assert verify(export, path) == []
    assert len(json.loads(path.read_text())["logs"]) == 2


def test_link_to_the_file_stays(export: Export, path: Path) -> None:
    link = path.with_name("link.json")
    link.symlink_to(path)
    assert verify(export, link) == []
    assert link.is_symlink()
    assert sizes(path) == [40]


ROOT = b64encode(bytes(32)).decode()


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "null",
        "\xff",
        "[" * 200_000,
        '{"format":"other","logs":{}}',
        '{"format":"toolgate.log-state/v1"}',
        '{"format":"toolgate.log-state/v1","logs":[]}',
        '{"format":"toolgate.log-state/v1","logs":{},"logs":{}}',
        '{"format":"toolgate.log-state/v1","logs":{"x":{"vkey":"y","checkpoints":[]}}}',
        f'{{"format":"toolgate.log-state/v1","logs":{{"x":{{"vkey":"{VKEY}"}}}}}}',
        f'{{"format":"toolgate.log-state/v1","logs":{{"x":{{"vkey":"{VKEY}","checkpoints":[{{"size":1}}]}}}}}}',
        f'{{"format":"toolgate.log-state/v1","logs":{{"x":{{"vkey":"{VKEY}","checkpoints":[{{"size":1,"root":"AA"}}]}}}}}}',
        f'{{"format":"toolgate.log-state/v1","logs":{{"x":{{"vkey":"{VKEY}","checkpoints":[{{"size":{{}},"root":"{ROOT}"}}]}}}}}}',
    ],
)
def test_damaged_file_is_refused(path: Path, content: str) -> None:
    path.write_text(content, encoding="latin-1")
    with pytest.raises(VerificationError, match="is not a state file"):
        State(path)


def test_file_that_cannot_be_written_is_an_error(export: Export, tmp_path: Path) -> None:
    with pytest.raises(VerificationError, match="cannot write"):
        verify_export(export.lines(), state=State(tmp_path / "missing" / "state.json"))
