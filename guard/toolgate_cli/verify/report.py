"""Report of the command: text, JSON and JUnit XML."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final
from xml.etree import ElementTree as ET

from toolgate_cli.output import sanitize
from toolgate_cli.verify.registry import Guarantee

_ID_WIDTH: Final = 28


class Outcome(StrEnum):
    """Result of the test of a guarantee."""

    PASS = "PASS"  # noqa: S105 - an outcome, not a password
    FAIL = "FAIL"
    NOT_TESTED = "NOT TESTED"


@dataclass(frozen=True, slots=True)
class Result:
    """Result of the test of a guarantee.

    Attributes:
        detail: the violation, the reason, or a measured value.
        is_interrupted: whether the gateway did not respond to the test, or was overloaded.
    """

    guarantee: Guarantee
    outcome: Outcome
    detail: str
    seconds: float
    is_interrupted: bool = False

    def line(self) -> str:
        """Return the result as one line of text."""
        found = self.guarantee
        references = f" [{', '.join(f'AISVS {one}' for one in found.aisvs)}]" if found.aisvs else ""
        detail = f": {sanitize(self.detail)}" if self.detail else ""
        return f"{self.outcome:<10} {found.id:<{_ID_WIDTH}} {found.title}{references}{detail}"


@dataclass(frozen=True, slots=True)
class Report:
    """Results of all tested guarantees, and what the command left at the gateway."""

    urls: Sequence[str]
    version: str
    seconds: float
    requests: int
    results: Sequence[Result]
    notes: Sequence[str] = ()

    @property
    def counts(self) -> Counter[Outcome]:
        """Number of results by outcome."""
        return Counter(one.outcome for one in self.results)

    @property
    def exit_code(self) -> int:
        """1 if a guarantee is broken, 2 if the gateway did not respond to a test, otherwise 0."""
        if self.counts[Outcome.FAIL]:
            return 1
        return 2 if any(one.is_interrupted for one in self.results) else 0

    def summary(self) -> str:
        """Return the numbers of results as one line of text."""
        counts = ", ".join(f"{self.counts[outcome]} {outcome}" for outcome in Outcome)
        return f"{counts} in {self.seconds:.1f} s, {self.requests:,} requests"

    def text(self) -> str:
        """Return the whole report as text."""
        lines = [one.line() for one in self.results]
        return "\n".join([*lines, *(f"note: {sanitize(note)}" for note in self.notes), self.summary()])

    def to_json(self) -> dict[str, Any]:
        """Return the report as values of JSON."""
        return {
            "urls": list(self.urls),
            "version": self.version,
            "seconds": round(self.seconds, 3),
            "requests": self.requests,
            "counts": {outcome.value: self.counts[outcome] for outcome in Outcome},
            "notes": list(self.notes),
            "results": [
                {
                    "id": one.guarantee.id,
                    "title": one.guarantee.title,
                    "aisvs": list(one.guarantee.aisvs),
                    "outcome": one.outcome.value,
                    "detail": one.detail,
                    "seconds": round(one.seconds, 3),
                }
                for one in self.results
            ],
        }

    def junit(self) -> bytes:
        """Return the report as JUnit XML."""
        suite = ET.Element(
            "testsuite",
            name="toolgate verify",
            tests=str(len(self.results)),
            failures=str(self.counts[Outcome.FAIL]),
            skipped=str(self.counts[Outcome.NOT_TESTED]),
            errors="0",
            time=f"{self.seconds:.3f}",
        )
        for one in self.results:
            found = one.guarantee
            case = ET.SubElement(
                suite, "testcase", classname=found.topic, name=found.id, time=f"{one.seconds:.3f}"
            )
            properties = ET.SubElement(case, "properties")
            ET.SubElement(properties, "property", name="title", value=found.title)
            for number in found.aisvs:
                ET.SubElement(properties, "property", name="aisvs", value=number)
            # XML does not allow control characters, which `sanitize` escapes.
            if one.outcome is Outcome.FAIL:
                ET.SubElement(case, "failure", message=sanitize(one.detail))
            elif one.outcome is Outcome.NOT_TESTED:
                ET.SubElement(case, "skipped", message=sanitize(one.detail))
        content: bytes = ET.tostring(suite, encoding="utf-8", xml_declaration=True)
        return content
