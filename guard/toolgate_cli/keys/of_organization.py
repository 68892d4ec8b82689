"""``toolgate keys show`` and ``regenerate``: the organization's keys, one for each environment."""

from typing import Any

from toolgate_cli.account import PasswordStdin
from toolgate_cli.agents.changing import Yes
from toolgate_cli.answers import read_as
from toolgate_cli.approvals.options import AsJson, Environment, InEnvironment
from toolgate_cli.ask import confirm
from toolgate_cli.conversation import own_login
from toolgate_cli.keys.showing import Key, print_key
from toolgate_cli.stored_login import StoredLogin

_READ = {Environment.PRODUCTION: "/api/organization", Environment.TEST: "/api/organization/test-key"}
_REGENERATE = {
    Environment.PRODUCTION: "/api/organization/regenerate-key",
    Environment.TEST: "/api/organization/test-key/regenerate",
}
_FIELDS = ("id", "name", "api_key", "created_at")


def show(
    environment: InEnvironment = Environment.PRODUCTION,
    as_json: AsJson = False,
    password_stdin: PasswordStdin = False,
) -> None:
    """Print the organization's key to an environment. It asks for your password, and the showing is audited."""
    with own_login(f"show the {environment} key", password_stdin=password_stdin) as management:
        raw = management.get(_READ[environment])
        key = read_as(Key, raw, "key")
    told = f"the {environment} key acts as every agent of that environment; the showing is in the audit"
    print_key(key, told, _fields(raw), as_json=as_json)


def regenerate(
    environment: InEnvironment = Environment.PRODUCTION,
    as_json: AsJson = False,
    yes: Yes = False,
    password_stdin: PasswordStdin = False,
) -> None:
    """Replace the organization's key and print the new one; the old one stops working at once."""
    StoredLogin.required()
    confirm(f"Replace the {environment} key? Every agent that uses it is locked out at once.", yes=yes)
    with own_login(f"replace the {environment} key", password_stdin=password_stdin) as management:
        raw = management.post(_REGENERATE[environment])
        key = read_as(Key, raw, "key")
    told = f"this is the {environment} key from now on; the one before works no more"
    print_key(key, told, _fields(raw), as_json=as_json)


def _fields(raw: Any) -> dict[str, Any]:
    # Alike for both environments: the production key is read from the whole organization.
    return {name: raw.get(name) for name in _FIELDS}
