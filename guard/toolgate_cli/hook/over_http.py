"""What stands in Claude Code's settings where a server of this machine is asked, and what would lead its questions astray."""

from collections.abc import Mapping
from typing import Any, Final

#: in Claude Code's environment; the settings name it only
SECRET: Final = "TOOLGATE_HOOK_SECRET"  # noqa: S105 - the variable's name
PORT: Final = 8460
PATH: Final = "/claude-code"
#: what the server is told of beside the questions; a session's end, since it sees no process of Claude Code's die
TOLD: Final = ("PostToolUse", "PostToolUseFailure", "SessionEnd")

_HOST: Final = "127.0.0.1"
_PROXIES: Final = ("HTTP_PROXY", "HTTPS_PROXY")


def address(port: int) -> str:
    """Return where the server of a port is asked."""
    return f"http://{_HOST}:{port}{PATH}"


def http_hook(port: int) -> dict[str, Any]:
    """Return the hook by which the server of a port is asked."""
    return {
        "type": "http",
        "url": address(port),
        "headers": {"Authorization": f"Bearer ${SECRET}"},
        "allowedEnvVars": [SECRET],
    }


def is_http_guard(hook: object) -> bool:
    """Return whether a hook asks the guard's server."""
    if not isinstance(hook, dict) or hook.get("type") != "http":
        return False
    named = hook.get("allowedEnvVars")
    return isinstance(named, list) and SECRET in named


def proxied(env: Mapping[str, Any]) -> str | None:
    """Return the variable by which Claude Code would ask a proxy in place of this machine, if one does."""
    # Whichever of the two counts.
    said = [str(env[name]).replace(",", " ").split() for name in ("no_proxy", "NO_PROXY") if env.get(name)]
    if said and all("*" in names or _HOST in names for names in said):
        return None
    return next((each for name in _PROXIES for each in (name.lower(), name) if env.get(each)), None)
