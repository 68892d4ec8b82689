"""The agent frameworks that have a plugin, and detection of installed frameworks without importing them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import Distribution, PackageNotFoundError, version
from typing import Final, Literal, TypeAlias

from toolgate import ConfigurationError

__all__ = ["KNOWN", "Found", "State", "normal", "order", "series", "survey"]


def order(text: str) -> tuple[int, tuple[int, ...], bool]:
    """Return the sort key of a version.

    A pre-release sorts before its release; a post-release is equal to its release. A text that is not a version sorts
    first.
    """
    found = _VERSION.match(text)
    if found is None:
        return (0, (), False)
    numbers = _numbers(found)
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return (int(found["epoch"] or 0), tuple(numbers), found["leads_up"] is None)


def series(text: str) -> tuple[int, ...]:
    """Return the epoch and the release series of a version: (0, 1) for 1.4.7, (0, 0, 24) for 0.24.0.

    Versions of one series are assumed to be compatible.
    """
    found = _VERSION.match(text)
    if found is None:
        return ()
    numbers = _numbers(found)
    return (
        int(found["epoch"] or 0),
        *numbers[: 1 + next((at for at, each in enumerate(numbers) if each), 0)],
    )


def next_series(text: str) -> str:
    """Return the first version after the release series of a version: `2` for 1.4.7, `0.25` for 0.24.0."""
    epoch, *numbers = series(text)
    numbers[-1] += 1
    return f"{f'{epoch}!' if epoch else ''}{'.'.join(map(str, numbers))}"


def _numbers(found: re.Match[str]) -> list[int]:
    return [int(each) for each in found["release"].split(".")]


_VERSION: Final = re.compile(
    r"v?(?:(?P<epoch>\d+)!)?(?P<release>\d+(?:\.\d+)*)[._-]?(?P<leads_up>a|b|c|rc|pre|dev)?",
    re.IGNORECASE | re.ASCII,
)
_AGENTS: Final = "the agents of this framework run tools"
#: Python distributions that run tools but have no plugin, mapped to a description of the part that runs the tools.
UNGUARDED: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        (
            "ag2",
            "agency-swarm",
            "atomic-agents",
            "beeai-framework",
            "browser-use",
            "camel-ai",
            "dspy-ai",
            "griptape",
            "langroid",
            "letta",
            "marvin",
            "mirascope",
            "openhands-sdk",
            "phidata",
            "pyautogen",
            "qwen-agent",
        ),
        _AGENTS,
    ),
    "google-genai": "the automatic function calling of this library runs tools",
    "langchain-classic": "the class AgentExecutor runs tools without calling middleware",
}


@dataclass(frozen=True, slots=True)
class Part:
    """A distribution that a plugin needs, and its supported versions.

    The list of supported versions in the documentation must contain the same values.

    Attributes:
        distribution: Name of the distribution.
        minimum: Oldest supported version; older ones lack the hook that the plugin uses.
        tested: Newest version with which `make test` runs the plugin.
    """

    distribution: str
    minimum: str
    tested: str


@dataclass(frozen=True, slots=True)
class Integration:
    """A framework for which there is a plugin.

    Attributes:
        identifier: Name of the plugin's module. With hyphens instead of underscores, it is also the name of the extra
            that installs the framework.
        distribution: Name of the framework's distribution.
        minimum: Oldest supported version; older ones lack the hook that the plugin uses.
        tested: Newest version with which `make test` runs the plugin.
        beside: Further distributions of the framework that the plugin needs and that also run tools.
        slim: Name of a smaller distribution that contains part of the framework. If only this distribution is
            installed, the plugin does not work.
    """

    identifier: str
    distribution: str
    minimum: str
    tested: str
    beside: tuple[Part, ...] = ()
    slim: str | None = None

    @property
    def parts(self) -> tuple[Part, ...]:
        """All distributions that the plugin needs."""
        return (Part(self.distribution, self.minimum, self.tested), *self.beside)

    @property
    def cure(self) -> str:
        """The shell command that installs the framework in a supported version."""
        return f"pip install 'toolgate[{self.identifier.replace('_', '-')}]'"


INTEGRATIONS: Final[Mapping[str, Integration]] = {
    one.identifier: one
    for one in (
        Integration("anthropic", "anthropic", "2.0", "2.11.0"),
        Integration("langchain", "langchain", "1.0.3", "1.4.7", (Part("langgraph", "1.0.2", "1.2.22"),)),
        Integration("openai_agents", "openai-agents", "0.12.1", "0.24.0"),
        Integration("pydantic_ai", "pydantic-ai-slim", "2.0", "2.68.0"),
        Integration("adk", "google-adk", "2.12", "2.13.0"),
        Integration("agent_framework", "agent-framework-core", "1.19", "1.23.0"),
        Integration("haystack", "haystack-ai", "3.2", "3.4.0"),
        Integration("mcp", "mcp", "2.0", "2.3.0"),
        Integration("crewai", "crewai", "1.15.20", "1.15.30"),
        Integration("fastmcp", "fastmcp", "4.0", "4.1.2", slim="fastmcp-slim"),
        Integration("agno", "agno", "3.0", "3.1.10"),
        Integration("semantic_kernel", "semantic-kernel", "1.40.0", "1.45.0"),
        Integration("strands", "strands-agents", "1.62.0", "1.62.0"),
        Integration("claude_agent_sdk", "claude-agent-sdk", "0.2.180", "0.2.187"),
        Integration(
            "autogen", "autogen-agentchat", "0.7.5", "0.7.5", (Part("autogen-core", "0.7.5", "0.7.5"),)
        ),
        Integration(
            "llamaindex",
            "llama-index-core",
            "0.14.25",
            "0.14.25",
            (Part("llama-index-workflows", "2.26.1", "2.26.1"),),
        ),
        Integration("dspy", "dspy", "3.4", "3.4.1"),
        Integration("smolagents", "smolagents", "1.24", "1.26.0"),
    )
}


class MissingFrameworkError(ConfigurationError, ImportError):
    """The framework of a plugin is not installed, or its version is too old."""


def require(identifier: str) -> None:
    """Verify that the framework of a plugin is installed in a supported version.

    Each plugin calls this function before it imports its framework, so that the user reads which command installs it.

    Raises:
        MissingFrameworkError: The framework is missing or too old; the message contains the command that installs it.
    """
    wanted = INTEGRATIONS[identifier]
    try:
        found = version(wanted.distribution)
    except PackageNotFoundError:
        raise MissingFrameworkError(f"{wanted.distribution!r} is not installed; {wanted.cure}") from None
    if order(found) < order(wanted.minimum):
        raise MissingFrameworkError(
            f"{wanted.distribution!r} is {found}, but the oldest supported version is {wanted.minimum}; "
            f"{wanted.cure}"
        )


def is_at_least(identifier: str, minimum: str) -> bool:
    """Return whether the framework of the plugin `identifier` is installed in version `minimum` or a newer one."""
    return order(version(INTEGRATIONS[identifier].distribution)) >= order(minimum)


State: TypeAlias = Literal[
    "covered",
    "untested",
    "too old",
    "too new",
    "incomplete",
    "no plugin",
    # The distribution was installed only because a framework with a plugin needs it.
    "dependency",
    "unknown",
    # The next two states belong to coding agents, which call a hook command instead of using a plugin.
    "no hooks",
    "disabled",
]
#: Distributions that install a framework together with additional packages, mapped to the framework's own
#: distribution.
_WHOLE: Final[Mapping[str, str]] = {
    "agent-framework": "agent-framework-core",
    "llama-index": "llama-index-core",
    "pydantic-ai": "pydantic-ai-slim",
}
_REQUIREMENT: Final = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[([^\]]*)\])?")
_EXTRA: Final = re.compile(r"extra\s*==\s*[\"']([^\"']+)[\"']")


@dataclass(frozen=True, slots=True)
class Found:
    """An installed distribution that runs tools, and whether a plugin can guard it.

    Attributes:
        framework: The distribution's name.
        version: Installed version; None if the distribution's metadata contains none.
        state: `covered` if a plugin supports the version, `untested` if the version is newer than the newest tested
            one but belongs to the same release series, `dependency` if the distribution was installed only because a
            guarded framework needs it. Any other value is the reason why no plugin guards the distribution.
        says: Description of the state, in one line.
        cure: Command or other action that makes the distribution guarded; None if no action is needed.
        plugin: Module of the plugin; None if there is no plugin.
        oldest: Oldest version that the plugin supports.
        tested: Newest version with which the plugin was tested.
    """

    framework: str
    version: str | None
    state: State
    says: str
    cure: str | None = None
    plugin: str | None = None
    oldest: str | None = None
    tested: str | None = None

    @property
    def guarded(self) -> bool:
        """True if a plugin can guard the distribution's agents as it is installed now."""
        return self.state in {"covered", "untested", "dependency"}


def survey(path: Sequence[str] | None = None) -> list[Found]:
    """Find the installed distributions that run tools, sorted by name.

    Args:
        path: Folders to search for distributions; if several folders contain a distribution, the first one is used.
            None to search `sys.path`.
    """
    here = {name: version for name in sorted(KNOWN) for version in _installed(name, path)}
    found = [one for integration in INTEGRATIONS.values() for one in _of(integration, here)]
    found += [_without_plugin(name, here[name], runs) for name, runs in UNGUARDED.items() if name in here]
    return sorted(_with_dependencies(found, path), key=lambda one: one.framework)


def normal(name: str) -> str:
    """Return the name of a distribution in the normalized spelling of PEP 503."""
    return re.sub(r"[-_.]+", "-", name.strip()).lower()


def _with_dependencies(found: list[Found], path: Sequence[str] | None) -> list[Found]:
    """Return `found`, in which the state of distributions that a guarded framework needs is changed to `dependency`.

    For example, `google-adk` needs `google-genai`, and `crewai` needs an old `mcp`. Agents of these frameworks run
    tools through hooks that their own plugins guard, so a warning about the needed distribution would be wrong.
    """
    needed: dict[str, str] = {}
    for one in found:
        if one.guarded:
            for name in _needed_by(one.framework, path):
                needed.setdefault(name, one.framework)
    return [
        one if one.guarded or one.framework not in needed else _dependency(one, needed[one.framework])
        for one in found
    ]


def _dependency(one: Found, framework: str) -> Found:
    says = (
        f"the package is a dependency of {framework!r}, whose agents the plugin guards; code that uses "
        f"{one.framework!r} directly is not guarded"
    )
    return replace(one, state="dependency", says=says, cure=None)


def _needed_by(framework: str, path: Sequence[str] | None) -> set[str]:
    """Return the names of the distributions that a framework depends on, directly or indirectly."""
    whole = next((name for name, slim in _WHOLE.items() if slim == framework), None)
    left: list[tuple[str, frozenset[str]]] = [(framework, frozenset())]
    if whole is not None:
        left.append((whole, frozenset()))
    seen: set[tuple[str, frozenset[str]]] = set()
    while left:
        if (one := left.pop()) not in seen:
            seen.add(one)
            left += _requirements(*one, path)
    return {name for name, _ in seen} - {framework}


def _requirements(
    name: str, extras: frozenset[str], path: Sequence[str] | None
) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield the name and the extras of each requirement of a distribution that is installed with the extras `extras`.

    Conditions other than extras, such as the Python version, are ignored.
    """
    found = (
        Distribution.discover(name=name) if path is None else Distribution.discover(name=name, path=[*path])
    )
    for distribution in found:
        for text in distribution.requires or ():
            requirement, _, condition = text.partition(";")
            match = _REQUIREMENT.match(requirement.strip())
            wanted = {normal(extra) for extra in _EXTRA.findall(condition)}
            if match is not None and (not wanted or wanted & extras):
                more = (normal(extra) for extra in (match[2] or "").split(",") if extra.strip())
                yield normal(match[1]), frozenset(more)
        return


def _installed(name: str, path: Sequence[str] | None) -> Iterator[str | None]:
    """Yield the version of the distribution with this name if it is installed; yield no value otherwise.

    The version is None if the distribution's metadata is broken.
    """
    looked = (
        Distribution.discover(name=name) if path is None else Distribution.discover(name=name, path=[*path])
    )
    for distribution in looked:
        try:
            yield distribution.version or None
        except Exception:  # noqa: BLE001 - a distribution with broken metadata is installed too, and must be listed
            yield None
        return


def _of(integration: Integration, here: Mapping[str, str | None]) -> Iterator[Found]:
    missing = [part.distribution for part in integration.parts if part.distribution not in here]
    plugin = f"toolgate_integrations.{integration.identifier}"
    for part in integration.parts:
        if part.distribution in here:
            version = here[part.distribution]
            state, says, cure = _judged(part, version, missing, integration.cure)
            yield Found(part.distribution, version, state, says, cure, plugin, part.minimum, part.tested)
    slim = integration.slim
    if slim is not None and slim in here and integration.distribution in missing:
        says = f"{integration.distribution!r} is not installed, and the plugin needs it"
        yield Found(slim, here[slim], "incomplete", says, integration.cure, plugin)


def _judged(
    part: Part, version: str | None, missing: list[str], install: str
) -> tuple[State, str, str | None]:
    """Return the state of an installed version, its description, and what the user must do (None: nothing)."""
    if version is None:
        return (
            "unknown",
            "the metadata of the installed package contains no version",
            f"pip install --force-reinstall {part.distribution}",
        )
    if missing:
        return "incomplete", f"{missing[0]!r} is not installed, and the plugin needs it", install
    if order(version) < order(part.minimum):
        return "too old", f"{part.minimum} is the oldest supported version", install
    if order(version) <= order(part.tested):
        return "covered", f"the plugin is tested up to version {part.tested}", None
    if series(version) == series(part.tested):
        return (
            "untested",
            f"the version is newer than {part.tested}, the newest version with which Toolgate was tested",
            None,
        )
    beyond = f"pip install '{part.distribution}<{next_series(part.tested)}'"
    return (
        "too new",
        (
            f"the version is newer than {part.tested}, the newest version with which Toolgate was tested: the plugin "
            "may not guard all calls"
        ),
        beyond,
    )


def _without_plugin(name: str, version: str | None, runs: str) -> Found:
    cure = (
        f"guard the tool functions with @guarded, or write a plugin for {name}: "
        "https://toolgate.github.io/toolgate/frameworks/custom/recipe.html"
    )
    return Found(name, version, "no plugin", f"{runs}, and Toolgate has no plugin for {name}", cure)


#: Names of all distributions for which `survey` searches.
KNOWN: Final = frozenset(
    {
        *(part.distribution for one in INTEGRATIONS.values() for part in one.parts),
        *(one.slim for one in INTEGRATIONS.values() if one.slim is not None),
        *UNGUARDED,
    }
)
