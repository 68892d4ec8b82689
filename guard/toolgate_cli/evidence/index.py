"""Readable pages of the archive, in Markdown: the index, the access review and the table of requirements."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from toolgate_cli.evidence.access import ROLES, Review
from toolgate_cli.evidence.archive import CHECKSUMS, Entry
from toolgate_cli.evidence.period import Period, format_time
from toolgate_cli.evidence.requirements import REQUIREMENTS, Requirement
from toolgate_cli.evidence.transparency import RECEIPTS, LogEvidence
from toolgate_cli.evidence.verify_report import Report, VerifyReport
from toolgate_cli.output import sanitize, to_ascii_json

NO_CERTIFICATION: Final = (
    "This archive is evidence. It is not a certification, an audit opinion or a statement that a standard or a law is "
    "fulfilled. It supports the work of an auditor, who decides which requirements apply and whether they are met."
)
#: characters with a meaning in Markdown
_SPECIAL: Final = "\\`*[]<>|&"
_MEASUREMENT: Final = (
    "The gateway does not measure the time to effect. It is computed from `log/export.jsonl`: the time from the creation "
    "of the freeze to the last allowed decision that the freeze covers, or 0 if no such call was allowed. Calls that were "
    "checked while the gateway stored the freeze are included. Decisions of the other environment are not included."
)
_TABLE: Final = (
    "A row names the features that support a requirement, and the files that show how they were used. The last column "
    "names what neither Toolgate nor this archive covers. The column about 'toolgate verify' counts the test results "
    "in the report of that command that refer to the AISVS requirements of the row."
)


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts that the index shows."""

    url: str
    version: str
    environment: str
    collected_at: str
    collected_by: str
    period: Period
    remarks: Sequence[str]


def write_index(
    facts: Facts,
    entries: Iterable[Entry],
    log: LogEvidence,
    review: Review,
    freezes: Sequence[dict[str, Any]],
    verification: VerifyReport,
) -> str:
    """Return the index of the archive."""
    period = facts.period.to_json()
    result = log.result
    verdict = "verified" if log.is_verified else "NOT VERIFIED"
    size = result.checkpoint.size if result.checkpoint else 0
    receipts = f"{len(log.receipts):,} receipts, {len(log.invalid_receipts):,} of them invalid"
    about = [
        ("organization", f"{review.organization.get('name')}, {review.organization.get('id')}"),
        ("environment", facts.environment),
        ("period", f"from {period['from']}, inclusive, to {period['to']}, exclusive"),
        ("gateway", f"{facts.url}, version {facts.version}"),
        ("collected", f"{facts.collected_at} by {facts.collected_by}"),
        ("transparency log", f"{verdict}: {size:,} leaves, {receipts}"),
        ("toolgate verify", verification.summary),
    ]
    lines = [
        "# Evidence",
        "",
        NO_CERTIFICATION,
        "",
        *table(("", ""), about),
        "",
        "## Missing and remarks",
        "",
    ]
    lines += [f"- {escape(text)}" for text in facts.remarks] or ["None."]
    lines += ["", "## Files", "", *table(("file", "content", "bytes"), _files(entries))]
    lines += ["", *_check(log), "", "## Freezes", "", _MEASUREMENT, "", *_freezes(freezes)]
    lines += [
        "",
        "## Requirements",
        "",
        "`requirements.md` maps the files to requirements of standards and laws.",
    ]
    return "\n".join(lines)


def _files(entries: Iterable[Entry]) -> Iterator[tuple[str, ...]]:
    for one in sorted(entries, key=lambda each: each.name):
        if not one.name.startswith(RECEIPTS):
            yield one.name, one.purpose, f"{one.size:,}"
    yield RECEIPTS, "Receipts of the approval requests: proofs that the log contains their latest states.", ""
    yield "manifest.json", "All files with their SHA-256 digests.", ""
    yield CHECKSUMS, "The SHA-256 digests of all files, for 'sha256sum --check'.", ""


def _check(log: LogEvidence) -> Iterator[str]:
    yield from ("## Check the archive", "", "Extract the archive, and run in its folder:", "", "```sh")
    yield f"sha256sum --check {CHECKSUMS}"
    yield "toolgate log verify log/export.jsonl"
    for one in log.receipts[:1]:
        yield f'toolgate log verify {one.name} --key "$(cat log/key.txt)"'
    yield from (
        "```",
        "",
        "The commands need no gateway and no login. Compare `log/key.txt` with the key that you received on",
    )
    yield (
        "another channel: a complete forgery has its own key. Checksums detect damage, but do not show who made the "
        "archive."
    )


def _freezes(freezes: Sequence[dict[str, Any]]) -> Sequence[str]:
    if not freezes:
        return ("No freeze was active in the period.",)
    rows = []
    for one in freezes:
        effect = one["effect"]
        seconds = effect["seconds_to_effect"]
        calls = "all calls" if one.get("action") is None else str(one["action"])
        agent = "" if one.get("agent_id") is None else f" of agent {one['agent_id']}"
        shown = "no call was decided" if seconds is None else f"{seconds:.3f} s"
        if not effect["is_complete"]:
            shown += "; decisions may have been deleted"
        lifted = str(one.get("lifted_at") or "active")
        rows.append(
            (
                *(str(one.get("created_at")), lifted, calls + agent, shown),
                *(str(effect["allowed"]), str(effect["refused"])),
            )
        )
    return table(("created", "lifted", "denied", "time to effect", "allowed", "refused"), rows)


def write_requirements(names: Iterable[str], report: Report | None) -> str:
    """Return the table of requirements.

    Args:
        names: names of the files in the archive.
        report: the report of `toolgate verify`; None if there is none.
    """
    found = list(names)
    rows = [
        (
            f"{one.standard}: {one.name}",
            one.feature,
            "; ".join(shown_files(one, found)) or "none",
            shown_results(one, report),
            one.gap,
        )
        for one in REQUIREMENTS
    ]
    heads = ("requirement", "feature of Toolgate", "files", "toolgate verify", "not covered")
    return "\n".join(
        [
            *("# Requirements", "", NO_CERTIFICATION, ""),
            _TABLE,
            *("", *table(heads, rows)),
        ]
    )


def requirements_json(names: Iterable[str], report: Report | None) -> list[dict[str, Any]]:
    """Return the table of requirements as values of JSON."""
    found = list(names)
    return [
        {
            "standard": one.standard,
            "requirement": one.name,
            "feature": one.feature,
            "files": shown_files(one, found),
            "verify": [{"id": each.id, "outcome": each.outcome} for each in report.about(one.aisvs)]
            if report and one.aisvs
            else [],
            "not_covered": one.gap,
        }
        for one in REQUIREMENTS
    ]


def shown_files(requirement: Requirement, names: Sequence[str]) -> list[str]:
    """Return the files about a requirement; a file that the archive does not contain is marked."""
    shown = []
    for wanted in requirement.files:
        present = wanted in names or (wanted.endswith("/") and any(name.startswith(wanted) for name in names))
        is_replaced = f"{wanted}NOT-INCLUDED.txt" in names
        shown.append(wanted if present and not is_replaced else f"{wanted} (NOT INCLUDED)")
    return shown


def shown_results(requirement: Requirement, report: Report | None) -> str:
    """Return the numbers of results of `toolgate verify` that belong to a requirement."""
    if not requirement.aisvs:
        return ""
    if report is None:
        return "NOT INCLUDED"
    results = report.about(requirement.aisvs)
    counts = ((name, sum(one.outcome == name for one in results)) for name in ("PASS", "FAIL", "NOT TESTED"))
    return ", ".join(f"{count} {name}" for name, count in counts if count) or "none"


def write_access(review: Review) -> str:
    """Return the access review as a page for readers."""
    sections = review.sections
    names = {agent_id: str(agent.get("name")) for agent_id, agent in sections["agents"].items()}
    emails = {user_id: str(user.get("email")) for user_id, user in sections["users"].items()}
    lines = [f"# Access review at {format_time(review.at)}", ""]
    if review.later:
        undone = f"{len(review.later):,} changes after this time were undone with the audit events in"
        lines += [
            f"{undone} `access/changes-after-end.jsonl`. Number of unknown values: {review.unknown:,}.",
            "",
        ]
    keys = {
        agent: [key["id"] for key in sections["keys"].values() if key["agent_id"] == agent] for agent in names
    }
    lines += ["## Users", "", *table(("user", "role", "rights"), _users(review)), "", "## Agents", ""]
    lines += table(
        ("agent", "status", "created by", "API keys (ids)"),
        (
            (
                f"{names[one]} ({one})",
                str(agent.get("status")),
                emails.get(str(agent.get("created_by")), str(agent.get("created_by"))),
                ", ".join(keys[one]) or "none (calls used the organization's API key)",
            )
            for one, agent in sections["agents"].items()
        ),
    )
    fields = (
        "max_amount",
        "amount_required",
        "requires_approval",
        "required_approvals",
        "separation_of_duties",
    )
    lines += ["", "## Permissions", ""]
    lines += table(
        ("agent", "action", *fields),
        (
            (
                names.get(str(one.get("agent_id")), str(one.get("agent_id"))),
                str(one.get("action")),
                *(to_ascii_json(one.get(name)) for name in fields),
            )
            for one in sections["permissions"].values()
        ),
    )
    for title, section, shown in (
        ("Rules", "rules", ("name", "effect", "actions", "agents", "when", "approval", "enabled")),
        (
            "Budgets",
            "budgets",
            ("name", "actions", "agents", "measure", "window", "limit", "at_limit", "enabled"),
        ),
    ):
        rows = [tuple(_text(one.get(name)) for name in shown) for one in sections[section].values()]
        lines += ["", f"## {title}", "", *table(shown, rows)]
    networks = "unknown" if review.networks is None else ", ".join(review.networks) or "every address"
    lines += ["", "## API keys", "", f"Networks from which API keys may be used: {escape(networks)}.", ""]
    lines += [
        "The organization's own API key can act as every agent of the environment. `audit/events.jsonl` contains its",
        "replacements in the period as `organization.key_regenerated`.",
    ]
    return "\n".join(lines)


def _users(review: Review) -> Iterator[tuple[str, ...]]:
    for user in review.sections["users"].values():
        role = str(user.get("role"))
        yield str(user.get("email")), role, ROLES.get(role, "")


def _text(value: Any) -> str:
    return value if isinstance(value, str) else to_ascii_json(value)


def escape(text: object) -> str:
    """Return a text on one line, without hidden characters and without a meaning in Markdown."""
    return "".join(f"\\{char}" if char in _SPECIAL else char for char in sanitize(text))


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table; all cells are escaped."""
    lines = [heads, ["---"] * len(heads), *rows]
    return [f"| {' | '.join(map(escape, line))} |" for line in lines]
