"""Requirements of standards and laws, the features that support them, and the files of the archive about them."""

from dataclasses import dataclass
from typing import Final

POLICY: Final = "policy/revisions.jsonl"
AUDIT: Final = "audit/events.jsonl"
APPROVALS: Final = "approvals/requests.jsonl"
TEMPORARY: Final = "approvals/temporary.jsonl"
ACCESS: Final = "access/review.json"
FREEZES: Final = "freezes/freezes.json"
LOG: Final = "log/export.jsonl"
COUNTS: Final = "log/counts.json"
RECEIPTS: Final = "log/receipts/"
CHECKPOINT: Final = "log/checkpoint.txt"
VERIFIED: Final = "log/verification.json"
VERIFY: Final = "verify/"


@dataclass(frozen=True, slots=True)
class Requirement:
    """Row of the table.

    Attributes:
        standard: standard or law.
        name: number and subject of the requirement.
        feature: features of Toolgate that support it.
        files: files of the archive about it; a name that ends with a slash is a folder.
        gap: what the archive and Toolgate do not cover.
        aisvs: numbers of AISVS requirements whose results in the report of `toolgate verify` belong to the row.
    """

    standard: str
    name: str
    feature: str
    files: tuple[str, ...]
    gap: str
    aisvs: tuple[str, ...] = ()


_ASI: Final = "OWASP Top 10 for Agentic Applications"
_AISVS: Final = "OWASP AISVS 1.0"
_ACT: Final = "EU AI Act (Regulation 2024/1689)"
_SOC: Final = "SOC 2 (AICPA TSC 2017)"
_ISO: Final = "ISO/IEC 42001:2023"
_NOT_COVERED: Final = "NOT COVERED. "

REQUIREMENTS: Final = (
    Requirement(
        _ASI,
        "ASI01 Agent goal hijack, ASI02 Tool misuse",
        "A call without a permission is denied; rules on arguments; budgets; calls that wait for an approval",
        (POLICY, ACCESS, COUNTS, APPROVALS, LOG),
        "Toolgate does not detect a hijacked goal or an injected prompt. Data that a run has read does not restrict its "
        "later calls. Calls that bypass the gateway are not recorded.",
        ("5.2.1", "9.2.1", "9.5.1", "9.5.3"),
    ),
    Requirement(
        _ASI,
        "ASI03 Identity and privilege abuse",
        "API keys per agent, revocation at the next check, allowed networks, roles of users",
        (ACCESS, AUDIT),
        "API keys are static. There is no delegation of a user's rights, and the gateway does not hold the credentials "
        "of tools.",
        ("9.4.1", "9.5.6"),
    ),
    Requirement(
        _ASI,
        "ASI04 Agentic supply chain",
        "The MCP proxy pins tool definitions, and blocks a tool that has changed",
        (),
        "NOT COVERED by this archive: pins are on the machines of the agents. Models, packages and plugins are "
        "outside Toolgate.",
    ),
    Requirement(
        _ASI,
        "ASI05 Unexpected code execution, ASI06 Memory and context poisoning",
        "Permissions and rules on the actions of coding agents, through hooks",
        (POLICY, LOG),
        "Toolgate is not a sandbox, and does not inspect what a command does. The memory of agents is outside "
        "Toolgate.",
    ),
    Requirement(
        _ASI,
        "ASI07 Insecure inter-agent communication",
        "None",
        (),
        _NOT_COVERED + "Agents cannot delegate restricted rights to other agents.",
    ),
    Requirement(
        _ASI,
        "ASI08 Cascading failures, ASI10 Rogue agents",
        "Freezes, budgets, limits of pending and rejected requests, disabled agents",
        (FREEZES, ACCESS, AUDIT, VERIFY),
        "A freeze does not interrupt a tool call that is already running. Unusual behaviour is not detected.",
        ("9.1.2", "9.1.3", "9.6.1"),
    ),
    Requirement(
        _ASI,
        "ASI09 Human-agent trust exploitation",
        "Approvers see the complete arguments; edited calls are decided again; a digest of the shown content is logged",
        (APPROVALS, LOG, RECEIPTS),
        "Votes are not signed by a key of the approver. The archive does not show how carefully approvers read.",
        ("9.2.2", "9.5.6"),
    ),
    Requirement(
        _AISVS,
        "9.1.1, 9.1.2 quotas and budgets",
        "Budgets on numbers and amounts of calls, exact also for parallel calls",
        (ACCESS, POLICY, VERIFY),
        "CPU, memory, time and tokens are not limited.",
        ("9.1.1", "9.1.2"),
    ),
    Requirement(
        _AISVS,
        "9.1.3, 9.6.1, 9.6.3 kill switch",
        "Freezes of the organization, an agent or an action; members can create freezes, only admins can lift them",
        (FREEZES, AUDIT, VERIFY),
        "A freeze stops calls of tools, not the inference of a model. Calls that already run continue.",
        ("9.1.3", "9.6.1", "9.6.3"),
    ),
    Requirement(
        _AISVS,
        "9.2.1, 9.2.2, 9.6.2 human approval",
        "Approval requests with all arguments, several approvers, separation of duties, expiry",
        (APPROVALS, TEMPORARY, POLICY, VERIFY),
        "Which actions need an approval is decided by the organization's policy.",
        ("9.2.1", "9.2.2", "9.6.2"),
    ),
    Requirement(
        _AISVS,
        "9.2.3, 9.2.4, 9.2.10 reversibility of actions",
        "None",
        (),
        _NOT_COVERED + "Actions have no classification of their reversibility.",
    ),
    Requirement(
        _AISVS,
        "9.2.8, 9.2.9 approvals bound to the call",
        "An approval is bound to agent, action, arguments, run and call, and is used once",
        (APPROVALS, RECEIPTS, LOG, VERIFY),
        "The gateway signs the log. An approver does not sign with a key of their own.",
        ("9.2.8", "9.2.9"),
    ),
    Requirement(
        _AISVS,
        "9.4.1, 9.4.2 identity of agents",
        "API keys per agent; decisions and log entries contain the key and are part of a signed tree",
        (ACCESS, LOG, VERIFY),
        "An API key is a shared secret, not an asymmetric identity. Downstream systems do not see it.",
        ("9.4.1", "9.4.2"),
    ),
    Requirement(
        _AISVS,
        "9.5.1, 9.5.3, 9.5.6, 5.2.1, 5.2.5 authorization",
        "A process outside the agent decides each call by permissions and rules, and again when an approval is used",
        (POLICY, ACCESS, COUNTS, VERIFY),
        "Only calls that are checked are authorized.",
        ("9.5.1", "9.5.3", "9.5.6", "5.2.1", "5.2.5"),
    ),
    Requirement(
        _AISVS,
        "9.5.2, 9.5.5 delegation",
        "None",
        (),
        _NOT_COVERED + "There is no token with a user's authorization, and no delegation between agents.",
    ),
    Requirement(
        _AISVS,
        "9.5.4, 10.2.7 credentials",
        "Secrets in arguments are redacted; responses and events contain no credentials",
        (VERIFY,),
        "The gateway does not hold the credentials of tools. The archive does not show the context of models.",
        ("9.5.4", "10.2.7"),
    ),
    Requirement(
        _AISVS,
        "10.3.3, 10.4.8 MCP",
        "The MCP proxy pins tool definitions",
        (),
        "NOT COVERED by this archive: pins are on the machines of the agents.",
    ),
    Requirement(
        _AISVS,
        "12.1.2, 12.4.2, 12.4.3 logging",
        "Decision log, audit log with approver, time, arguments and outcome, freezes; signed transparency log",
        (LOG, AUDIT, APPROVALS, FREEZES, CHECKPOINT, VERIFIED, VERIFY),
        "Log entries contain what agents report. Retention and erasure delete content; the index lists the missing data.",
        ("12.1.2", "12.4.2", "12.4.3"),
    ),
    Requirement(
        _ACT,
        "Articles 12, 19, 26(6) records and their retention",
        "Decisions, log entries and approvals with times; a signed log that shows later changes",
        (LOG, CHECKPOINT, VERIFIED, RECEIPTS),
        "The provider and the deployer determine whether a system is a high-risk system, and how long its records must "
        "be kept. Events inside the model are not recorded.",
        ("12.1.2",),
    ),
    Requirement(
        _ACT,
        "Article 14 human oversight (understand, override, stop)",
        "Approvals, rejections, edited arguments, freezes",
        (APPROVALS, FREEZES, VERIFY),
        "Training and authority of the persons, and the understanding of the model's output, are outside Toolgate.",
        ("9.1.3", "9.2.1", "9.2.2", "9.6.1"),
    ),
    Requirement(
        _SOC,
        "CC6 logical access",
        "Roles, permissions, API keys per agent, allowed networks; each change has an audit event",
        (ACCESS, AUDIT),
        "The approval of the access review by a responsible person, physical access, the identity provider, and the "
        "access to the operating system and the database of the gateway are outside Toolgate.",
        ("5.2.1", "5.3.1", "9.5.6"),
    ),
    Requirement(
        _SOC,
        "CC7 system operations",
        "Decision log, freezes with time to effect, signed log",
        (LOG, COUNTS, FREEZES, VERIFIED, VERIFY),
        "Monitoring, incident response and recovery of the organization are outside Toolgate.",
        ("12.1.2", "12.4.3"),
    ),
    Requirement(
        _SOC,
        "CC8 change management",
        "Policy revisions with author, message and changes; each other change has an audit event",
        (POLICY, AUDIT),
        "A review before a policy is applied takes place outside Toolgate, for example in a repository. Updates of the "
        "gateway itself are not recorded.",
    ),
    Requirement(
        _ISO,
        "Annex A.6.2.8 event logs, A.9 use of AI systems",
        "Decision log and audit log; policy revisions; human oversight by approvals",
        (LOG, AUDIT, POLICY, APPROVALS, ACCESS),
        "The management system, the risk and impact assessments and all other controls are outside Toolgate.",
    ),
)
