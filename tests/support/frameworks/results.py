"""The table framework × behaviour of docs/frameworks.md, made of what the behaviour suite has just seen.

`--behaviours=write` puts a run's rows into the page; `--behaviours=compare` fails the run if they are others. A run in one
environment is about its own frameworks' rows only.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from support.frameworks.harness import Harness
from support.readme import ROOT

PAGE = ROOT / "docs" / "frameworks.md"
#: columns, and the tests each stands for
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "allowed": ("test_allowed",),
    "denied": ("test_blocked",),
    "tool error": ("test_tool_error",),
    "gateway unavailable": ("test_outage",),
    "pauses": ("test_held_then_approved", "test_held_then_declined", "test_resumed_undecided"),
    "rejected in the framework": ("test_rejected_in_the_framework",),
    "edited": ("test_edited", "test_waited_for_then_approved"),
    "parallel": ("test_parallel", "test_waited_for_in_parallel", "test_told_in_parallel"),
    "resumes after a restart": (
        "test_replayed_after_a_restart",
        "test_a_finished_run_is_not_carried_out_again",
    ),
    "waits": ("test_waited_for_then_approved", "test_waited_for_then_declined"),
    "raises": ("test_pending_call_ends_the_run",),
    "notifies the model": ("test_told_then_asked_again",),
    "checks received arguments": (
        "test_default_argument_is_asked_about",
        "test_arguments_changed_during_the_check_do_not_run",
    ),
    "checks wrappers": ("test_wrapper_of_a_guarded_function_is_asked_about",),
}
HEAD = ["framework", "run", *COLUMNS]
ROW = re.compile(r"^\| \[?`(?P<name>[^`]+)`")
NOTE = re.compile(r"^- `(?P<name>[^`]+)`, ")


@dataclass
class Row:
    """What was seen of one harness."""

    modes: list[str] = field(default_factory=list)
    cannot: dict[str, str] = field(default_factory=dict)
    passed: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)

    def cell(self, tests: Sequence[str]) -> str:
        """A column's sign."""
        if self.failed & set(tests):
            return "✗"
        if not self.passed & set(tests):
            return "–"  # noqa: RUF001 - as the page writes it
        return "in part" if self.cannot.keys() & set(tests) else "✓"

    def line(self, name: str) -> str:
        """The row."""
        signs = [self.cell(tests) for tests in COLUMNS.values()]
        return f"| [`{name}`]({page_of(name)}) | {', '.join(self.modes)} | {' | '.join(signs)} |"

    def notes(self, name: str) -> list[str]:
        """What it cannot do, and why."""
        titles: dict[str, set[str]] = {}
        for test, why in self.cannot.items():
            titles.setdefault(why, set()).update(column for column, tests in COLUMNS.items() if test in tests)
        return [
            f"- `{name}`, {', '.join(column for column in COLUMNS if column in columns)}: {why}"
            for why, columns in titles.items()
        ]


class Results:
    """Gathers what the suite has seen, and looks at the page or writes it; a plugin of pytest."""

    def __init__(self, *, writes: bool) -> None:
        self._writes = writes
        self._rows: dict[str, Row] = {}
        self._differs: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take what a worker says of a test."""
        about = dict(report.user_properties).get("behaviour")
        if not isinstance(about, dict):
            return
        row = self._rows.setdefault(about["name"], Row(list(about["modes"]), dict(about["cannot"])))
        if report.failed:
            row.failed.add(about["cell"])
        elif report.when == "call" and report.passed:
            row.passed.add(about["cell"])

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the rows, or fail the run if they are not the page's."""
        before = PAGE.read_text()
        after = written(before, self._rows)
        if self._writes:
            PAGE.write_text(after)
        elif before != after:
            self._differs = [line for line in after.splitlines() if line not in before.splitlines()]
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say what differs."""
        if self._differs:
            terminalreporter.section("docs/frameworks.md says something else: make behaviours")
            for line in self._differs:
                terminalreporter.line(line)


def page_of(name: str) -> str:
    """The page about a harness's framework: the longest name of one that it begins with."""
    pages = {"recipe": "frameworks/custom/recipe"}
    pages |= {each.stem: f"frameworks/{each.stem}" for each in PAGE.parent.glob("frameworks/*.md")}
    written = name.replace("_", "-")
    return f"{pages[max((each for each in pages if written.startswith(each)), key=len)]}.md"


def written(page: str, rows: Mapping[str, Row]) -> str:
    """The page with these rows and notes in place of its own of the same frameworks."""
    lines = page.splitlines()
    table = {match["name"]: line for line in lines if (match := ROW.match(line))}
    notes: dict[str, list[str]] = {}
    for line in lines:
        if match := NOTE.match(line):
            notes.setdefault(match["name"], []).append(line)
    for name, row in rows.items():
        table[name], notes[name] = row.line(name), row.notes(name)
    rest = [line for line in lines if not ROW.match(line) and not NOTE.match(line)]
    head = rest.index(f"| {' | '.join(HEAD)} |")
    rest[head + 2 : head + 2] = [table[name] for name in sorted(table)]
    end = next(at for at, line in enumerate(rest) if line == "<!-- notes -->")
    rest[end + 1 : end + 1] = [note for name in sorted(notes) for note in notes[name]]
    return "\n".join(rest) + "\n"


def add_option(parser: pytest.Parser) -> None:
    """Offer `--behaviours`."""
    parser.addoption(
        "--behaviours",
        choices=("compare", "write"),
        help="hold the table of docs/frameworks.md to a whole run of the behaviour suite, or write it",
    )


def begin(config: pytest.Config) -> None:
    """Gather, where a whole run is asked to; not in its workers, which see a part each."""
    how = config.getoption("behaviours")
    if how is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Results(writes=how == "write"))


def note(item: pytest.Item) -> None:
    """Let a test of the behaviour suite say what it is about."""
    params = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    harness: Harness | None = params.get("harness")
    if harness is not None and isinstance(item, pytest.Function):
        about = {"name": harness.name, "modes": list(harness.modes), "cannot": dict(harness.cannot)}
        item.user_properties.append(("behaviour", about | {"cell": item.originalname}))
