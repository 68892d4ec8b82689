"""Results of the test cases of a policy, as text and as JUnit XML."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree as ET

import typer

from toolgate_cli.output import fail, sanitize
from toolgate_cli.policy.documents import DocumentError, write_file
from toolgate_cli.policy.plans import count

#: characters that XML 1.0 does not allow
_NOT_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def print_results(results: Sequence[Any]) -> None:
    """Print each failed case with the expected and the actual result, and the number of cases."""
    for result in results:
        if result.failures:
            typer.echo(f"FAILED {sanitize(result.name)}")
            for line in _details(result):
                typer.echo(f"    {line}")
    failed = sum(bool(result.failures) for result in results)
    typer.echo(f"{count(len(results), 'case')}: {len(results) - failed} passed, {failed} failed")


def write_junit(path: Path, suite: str, results: Sequence[Any]) -> None:
    """Write the results in the XML format of JUnit, or end the command if the file cannot be written."""
    failed = sum(bool(result.failures) for result in results)
    attributes = {"name": _xml(suite), "tests": str(len(results)), "failures": str(failed), "errors": "0"}
    root = ET.Element("testsuites")
    parent = ET.SubElement(root, "testsuite", attributes)
    for result in results:
        names = {"classname": _xml(suite), "name": _xml(result.name)}
        case = ET.SubElement(parent, "testcase", names)
        if result.failures:
            failure = ET.SubElement(case, "failure", message=_xml("; ".join(result.failures)))
            failure.text = _xml("\n".join(_details(result)))
    ET.indent(root)
    text = ET.tostring(root, encoding="unicode")
    try:
        write_file(path, f'<?xml version="1.0" encoding="utf-8"?>\n{text}\n')
    except DocumentError as error:
        fail(str(error))


def results_json(results: Sequence[Any]) -> list[dict[str, Any]]:
    """Return the results as JSON."""
    return [
        {
            "name": result.name,
            "passed": not result.failures,
            "failures": list(result.failures),
            "actual": dict(result.actual),
            "reason": result.reason,
        }
        for result in results
    ]


def _details(result: Any) -> list[str]:
    lines = [sanitize(line) for line in result.failures]
    return lines if result.reason is None else [*lines, f"reason: {sanitize(result.reason)}"]


def _xml(text: str) -> str:
    return _NOT_XML.sub("�", text)
