"""Command line of the verifier when it runs without Toolgate."""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO

from .export import MAX_LINE, verify_export
from .notes import LOG, WITNESS, Key, VerificationError
from .receipts import MAX_RECEIPT, PROOF_HEADER, verify_receipt
from .results import Result
from .state import State


def read_lines(file: BinaryIO | BufferedReader, first: bytes = b"") -> Iterator[bytes]:
    """Yield the lines of a file, each with its line break; a line that is too long is split."""
    if first:
        yield first
    while line := file.readline(MAX_LINE):
        yield line


def verify_file(
    file: BinaryIO, *, key: Key | None, state: State, witnesses: Sequence[Key], required: int
) -> Result:
    """Verify an export or a receipt; the arguments are those of `verify_export`.

    Raises:
        VerificationError: the key of a receipt is unknown, or the state file cannot be written.
    """
    first = file.readline(MAX_LINE)
    if first.rstrip(b"\r\n") == PROOF_HEADER.encode():
        text = first + file.read(MAX_RECEIPT)
        return verify_receipt(text, key=key, state=state, witnesses=witnesses, required=required)
    lines = read_lines(file, first)
    return verify_export(lines, key=key, state=state, witnesses=witnesses, required=required)


def parse_keys(
    key: str | None, witnesses: Sequence[str], required: int | None
) -> tuple[Key | None, list[Key], int]:
    """Return the key of the log, the keys of the witnesses, and the number of witnesses that are required.

    Raises:
        VerificationError: a key is invalid, or there are fewer witnesses than required.
    """
    log_key, keys = Key.parse(key) if key else None, [Key.parse(each) for each in witnesses]
    count = len({each.name for each in keys}) if required is None else required
    if log_key is not None and log_key.type != LOG:
        raise VerificationError("--key is the key of a witness, not of a log; give the key of the log")
    if any(each.type != WITNESS for each in keys):
        raise VerificationError(
            "--witness is the key of a log, not of a witness; give the key of the witness"
        )
    if count > len({each.name for each in keys}):
        raise VerificationError(
            f"{count} witnesses are required, but there are only {len(keys)} keys of witnesses"
        )
    return log_key, keys, count


def main() -> int:
    """Verify the file in the arguments; return 0 if it is verified, 1 if there are findings, 2 if it cannot be read."""
    parser = argparse.ArgumentParser(
        description="Verify an export or a receipt of a Toolgate transparency log."
    )
    parser.add_argument("file", help="the export or receipt, or - for standard input")
    parser.add_argument("--key", metavar="VKEY", help="public key of the log")
    parser.add_argument(
        "--state",
        metavar="FILE",
        type=Path,
        help="file with the keys and checkpoints of earlier verifications",
    )
    parser.add_argument(
        "--witness", metavar="VKEY", action="append", default=[], help="public key of a witness"
    )
    parser.add_argument(
        "--witnesses",
        metavar="N",
        type=int,
        help=("number of witnesses that must have cosigned the checkpoint; default: all"),
    )
    parser.add_argument(
        "--fail-on-gaps",
        action="store_true",
        help=("exit with 1 if the log has gaps, such as allowed calls without a log entry"),
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    given = parser.parse_args()
    try:
        key, witnesses, required = parse_keys(given.key, given.witness, given.witnesses)
        state = State(given.state)
        with sys.stdin.buffer if given.file == "-" else Path(given.file).open("rb") as file:
            result = verify_file(file, key=key, state=state, witnesses=witnesses, required=required)
    except (OSError, VerificationError) as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201 - this is a command
        return 2
    print(json.dumps(result.to_json(), indent=1) if given.json else result.report())  # noqa: T201 - likewise
    return result.exit_code(fail_on_gaps=given.fail_on_gaps)
