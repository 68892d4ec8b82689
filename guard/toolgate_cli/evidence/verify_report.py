"""Report of ``toolgate verify``, which tests the guarantees of a running gateway."""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, Field, ValidationError

from toolgate_cli.evidence.archive import Entry, json_entry, text_entry
from toolgate_cli.output import fail

_MAX_BYTES: Final = 4 * 1024 * 1024
NAME: Final = "verify/report.json"
ABSENT: Final = "verify/NOT-INCLUDED.txt"
_NOT_GIVEN: Final = "no report was given with --verify-report FILE"


def _without_credentials(url: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


Url = Annotated[str, AfterValidator(_without_credentials)]


class Outcome(BaseModel):
    """Result of the test of one guarantee."""

    id: str
    title: str
    aisvs: list[str] = Field(default_factory=list)
    outcome: Literal["PASS", "FAIL", "NOT TESTED"]
    detail: str = ""
    seconds: float = 0


class Report(BaseModel):
    """Report of `toolgate verify --json`. Members that this version does not know are left out."""

    urls: list[Url]
    version: str
    seconds: float
    requests: int
    notes: list[str] = Field(default_factory=list)
    results: list[Outcome]

    @property
    def counts(self) -> Counter[str]:
        """Number of results by outcome."""
        return Counter(one.outcome for one in self.results)

    def about(self, numbers: Iterable[str]) -> list[Outcome]:
        """Return the results of guarantees that support one of these requirements of the AISVS."""
        wanted = set(numbers)
        return [one for one in self.results if wanted & {*one.aisvs}]


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """Report and its file in the archive, or the reason why there is no report."""

    entry: Entry
    report: Report | None
    remarks: tuple[str, ...]

    @property
    def summary(self) -> str:
        """The numbers of results, or that the report is not included."""
        if self.report is None:
            return f"NOT INCLUDED: {_NOT_GIVEN}"
        counts = self.report.counts
        return ", ".join(f"{counts[name]} {name}" for name in ("PASS", "FAIL", "NOT TESTED"))


def load_verify_report(path: Path | None, url: str, version: str) -> VerifyReport:
    """Return the report in a file.

    Args:
        path: file with the output of `toolgate verify --json`; None if there is none.
        url: address of the gateway of the archive.
        version: version of this gateway.

    Raises:
        typer.Exit: the file cannot be read, or is not such a report.
    """
    if path is None:
        text = (
            f"NOT INCLUDED: {_NOT_GIVEN}.\n"
            "Run `toolgate verify URL --json > report.json` against the gateway, and add --verify-report report.json."
        )
        entry = text_entry(ABSENT, "Why the archive has no report of 'toolgate verify'.", text)
        return VerifyReport(entry, None, (f"The report of 'toolgate verify' is NOT INCLUDED: {_NOT_GIVEN}.",))
    try:
        with path.open("rb") as file:
            # A longer file ends in the middle, and is therefore not JSON.
            report = Report.model_validate(json.loads(file.read(_MAX_BYTES)))
    except OSError as error:
        fail(f"cannot read {str(path)!r}: {error.strerror or error}")
    except (ValidationError, ValueError, RecursionError) as error:
        reason = f"{error.error_count()} invalid members" if isinstance(error, ValidationError) else error
        fail(f"{str(path)!r} is not a report of 'toolgate verify --json': {reason}")
    purpose = "Report of 'toolgate verify': the tested guarantees of the gateway."
    entry = json_entry(NAME, purpose, report.model_dump(mode="json"))
    return VerifyReport(entry, report, tuple(_remarks(report, url, version)))


def _remarks(report: Report, url: str, version: str) -> Iterable[str]:
    yield (
        "The report of 'toolgate verify' has no timestamp and is not signed. Only the creator of this archive "
        "states that the report was made in the period of the archive."
    )
    if url.rstrip("/") not in {one.rstrip("/") for one in report.urls}:
        yield f"The report of 'toolgate verify' is about {', '.join(report.urls)}, the archive about {url}."
    if report.version != version:
        yield f"The report of 'toolgate verify' is about version {report.version}; the gateway has {version}."
    if failed := [one.id for one in report.results if one.outcome == "FAIL"]:
        yield f"'toolgate verify' found broken guarantees: {', '.join(failed)}."
